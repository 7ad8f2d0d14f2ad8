"""Weights of tasks as variables: each evaluation trains the run's network for an epoch with them.

x <- x - step sum_m w_m grad f_m(x),   w = max(a, floor) / sum max(a, floor),   e = 1..epoch_steps;
value f(x)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Never

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Oracle, State
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sets import Box, Free
from mobench.errors import CompatibilityError, ConfigError, choose
from mobench.oracles.epochs import Epochs
from mobench.spaces.base import STARTS, Real, at_least, refuse_local, spread_out

FLOOR = 1e-3  # of a weight before they are divided by their sum


def task_weights(a: Float[Tensor, "R M"]) -> Float[Tensor, "R M"]:
    """w."""
    w = a.clamp_min(FLOOR)
    return w / w.sum(-1, keepdim=True)


class Hybrid(Oracle):
    """Each run (slot of a population) has a network x, which every step of the algorithm trains for an epoch.

    x begins at the problem's start; values are its losses after the epoch, on all samples. x belongs to the
    slot, not to a: the a of a slot says how its network is trained next, and a parent that survives was
    judged with the network that its slot had then. So `exact` and `columns`, which know a alone, are those of
    the networks that the oracle used last, in `at` or in the state of the last step: final rows show the
    trained networks. (Before the first step: the start.) There are values only; a gradient with respect to a
    is refused.

    Parameters: step: of the networks. epoch_steps: steps of an evaluation; null: an epoch of oracle=epochs.
    start: spread (the first preference of a seed has equal weights, others uniform ones) | reference
    (all have equal weights). Raises: CompatibilityError: clients. ConfigError: no epoch_steps and an oracle
    that has no epochs. Source: our setting 4 for the MLM-CMOO paper's baselines; it gives none.
    """

    version = 1

    def __init__(
        self,
        oracle: Oracle,
        problem: Problem,
        runs: Runs,
        step: Real = 0.1,
        epoch_steps: int | None = None,
        start: str = "spread",
    ) -> None:
        refuse_local(oracle, "hybrid")
        at_least(step, 0, "step", strict=True)
        choose("space.start", start, STARTS)
        if epoch_steps is None:
            base = oracle
            while isinstance(below := getattr(base, "inner", None), Oracle):
                base = below
            if not isinstance(base, Epochs):
                raise ConfigError(
                    f"space.epoch_steps=null means one epoch of oracle=epochs, but {type(base).__name__} has "
                    "no epochs. Give space.epoch_steps."
                )
            epoch_steps = base.per_epoch
        at_least(epoch_steps, 1, "epoch_steps")
        self.inner = oracle
        self.problem = problem
        self.start = start
        self.step = float(step)
        self.epoch_steps = int(epoch_steps)
        self.box = Box(0.0, 1.0)
        self.first = oracle.initial(runs)
        M = oracle.spec.M
        self.spec = replace(oracle.spec, P=M, X=self.box, provides=frozenset(), stateful=True, samples=1)
        self._networks: Tensor | None = None

    def initial(self, runs: Runs) -> Float[Tensor, "R M"]:
        equal = torch.full((len(runs), self.spec.P), 0.5, dtype=torch.float64)
        return spread_out(equal, self.box, runs, self.problem, self.start)

    def init(self, theta: Float[Tensor, "R M"]) -> State:
        self._networks = self.first.to(theta)
        inner = self.inner.init(self._networks)
        return {"networks": self._networks} | ({"inner": inner} if inner else {})

    def at(self, theta: Float[Tensor, "R M"], state: State, t: int, k: int = 0) -> Point:
        x = state["networks"]
        inner = state.get("inner", {})
        w = task_weights(theta)
        with torch.no_grad():
            for e in range(self.epoch_steps):
                point = self.inner.at(x, inner, t * self.epoch_steps + e)
                x = x - self.step * point.vjp(w)
                if not isinstance(self.inner.spec.X, Free):
                    x = self.inner.spec.X.project(x)
                inner = point.state
            self._networks = x
            values = self.inner.exact(x)
        return TrainedPoint(theta, self, {"networks": x} | ({"inner": inner} if inner else {}), values)

    def last_point(self, theta: Float[Tensor, "R M"], state: State, t: int) -> None:
        """None: the exact values, of these networks; they are not trained again."""
        self._networks = state["networks"]

    def networks(self, like: Tensor) -> Float[Tensor, "R P"]:
        """The networks that were trained last; before the first step, the start."""
        return self.first.to(like) if self._networks is None else self._networks

    def exact(self, theta: Float[Tensor, "R M"]) -> Float[Tensor, "R K"]:
        return self.inner.exact(self.networks(theta))

    @property
    def ideal(self) -> Tensor | None:
        return self.inner.ideal

    def columns(
        self, theta: Float[Tensor, "R M"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        return self.inner.columns(self.networks(theta), values)


class TrainedPoint(Point):
    """Losses of networks that have been trained with weights a."""

    def __init__(
        self, a: Float[Tensor, "R M"], oracle: Hybrid, state: State, values: Float[Tensor, "R K"]
    ) -> None:
        super().__init__(a, oracle.spec.X, oracle.spec.M, state)
        self._values = values

    def values(self) -> Float[Tensor, "R K"]:
        return self._values

    def _refuse(self) -> Never:
        raise CompatibilityError(
            "space=hybrid trains networks for task weights and does not provide gradients with respect to "
            "these. Choose algorithm=nsga2 or algorithm=psl, or space=none."
        )

    def _jacobian(self) -> Float[Tensor, "R K M"]:
        self._refuse()

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R M"]:
        self._refuse()
