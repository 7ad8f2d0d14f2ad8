"""Minibatch oracle of a finite sum or an expectation; each sample a pure function of (run key, number, step)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Oracle, Spec, State
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import seed_for
from mobench.errors import JoinError
from mobench.oracles.exact import make_point, problem_spec


class Minibatch(Oracle):
    """Mean values and gradients of `batch_size` samples (of a finite sum: with replacement), separately for each run.

    `samples` (1 or 2) is how many independent batches a step may ask for; two give the cross Gram J_1 J_2^T that
    stochastic min-norm methods need. Keys are (problem, seed): all preferences of a seed see the same batches, so
    that their differences are not noise.
    """

    def __init__(self, problem: Problem, runs: Runs, batch_size: int = 32, samples: int = 1) -> None:
        if problem.n_samples == 0:
            raise JoinError(
                f"{type(problem).__name__} has nothing to sample from (it is deterministic). Choose oracle=exact, or a "
                f"problem with data such as problem=least_squares."
            )
        if samples not in (1, 2):
            raise JoinError(f"oracle.samples={samples}: a step uses 1 or 2 independent batches.")
        if not 1 <= batch_size <= problem.n_samples:
            raise JoinError(
                f"oracle.batch_size={batch_size} must lie in 1..{problem.n_samples:g}, the number of samples."
            )
        self.problem, self.batch_size = problem.bind(runs), batch_size
        self.spec: Spec = problem_spec(problem, len(runs), samples=samples)
        keys = [seed_for(int(s), problem=problem.name, use="batches") for s in runs.seeds]
        self.keys = torch.tensor(keys, dtype=torch.int64, device=runs.seeds.device)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        batch = self.problem.draw(self.keys, f"batch{k}", t, self.batch_size)
        return make_point(self.problem, theta, self.spec, batch)

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.problem.values(theta)

    @property
    def ideal(self) -> Tensor | None:
        return self.problem.ideal_point

    def columns(self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        return self.problem.columns(theta, values)

    def exact_point(self, theta: Float[Tensor, "R P"]) -> Point:
        return make_point(self.problem, theta, self.spec)
