"""Minibatch oracle of a finite sum or an expectation; a sample is a function of (run key, number, step)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Spec, State
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import seed_for
from mobench.core.sampled import Sampled, samples_of
from mobench.errors import CompatibilityError
from mobench.oracles.exact import OfProblem, make_point, problem_spec, refuse_batch, refuse_unfit


class Minibatch(OfProblem):
    """Mean values and gradients of `batch_size` samples for each run (of a finite sum: with replacement).

    `samples` (1 or 2) is how many independent batches a step may request; two give the cross Gram J_1 J_2^T
    that stochastic min-norm methods need. Keys are (problem, seed): all preferences of a seed see the same
    batches, so that their differences are not noise.
    """

    def __init__(self, problem: Problem, runs: Runs, batch_size: int = 32, samples: int = 1) -> None:
        refuse_unfit(problem, "minibatch")
        N = samples_of(problem)
        if N == 0:
            raise CompatibilityError(
                f"{type(problem).__name__} is deterministic, so there is nothing to sample (a problem with "
                "samples derives from mobench.core.Sampled). Choose oracle=exact, or a problem with data "
                f"such as problem=least_squares."
            )
        if samples not in (1, 2):
            raise CompatibilityError(
                f"oracle.samples={samples} must be 1 or 2, the number of independent batches in a step."
            )
        if not 1 <= batch_size <= N:
            raise CompatibilityError(
                f"oracle.batch_size={batch_size} must lie in 1..{N:g}, the number of samples."
            )
        bound = problem.bind(runs)
        assert isinstance(bound, Sampled)
        refuse_batch(bound, batch_size)
        self.problem: Sampled = bound
        self.batch_size = batch_size
        self.spec: Spec = problem_spec(problem, len(runs), samples=samples)
        keys = [seed_for(int(s), problem=problem.name, use="batches") for s in runs.seeds]
        self.keys = torch.tensor(keys, dtype=torch.int64, device=runs.seeds.device)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        batch = self.problem.draw(self.keys, f"batch{k}", t, self.batch_size)
        return make_point(self.problem, theta, self.spec, batch)
