"""The problem's variables in a box:  X = [-bound, bound]^P."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Oracle
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sets import Box
from mobench.errors import ConfigError
from mobench.spaces.base import Real, Space, at_least, refuse_local, refuse_set, spread_out


class Boxed(Space):
    """All variables, for methods that search in a box. The reference is the problem's start.

    Parameters: bound: half width of the box. start: spread | reference (see `Space`).
    Raises: CompatibilityError: the problem has a feasible set already, or clients. ConfigError: its start
    lies outside of the box. Source: MLM-CMOO paper, baselines on all weights; the box is our choice
    (it gives none).
    """

    version = 1

    def __init__(
        self, oracle: Oracle, problem: Problem, runs: Runs, bound: Real = 0.5, start: str = "spread"
    ) -> None:
        at_least(bound, 0, "bound", strict=True)
        refuse_local(oracle, "full")
        refuse_set(oracle, problem, "full")
        super().__init__(oracle, problem, oracle.spec.P, Box(-float(bound), float(bound)), start)

    def map(self, a: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return a

    def back(self, a: Float[Tensor, "R P"], J: Float[Tensor, "R j P"]) -> Float[Tensor, "R j P"]:
        return J

    def along(self, a: Float[Tensor, "R P"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return v

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        start_points = self.inner.initial(runs)
        used = start_points if self.start == "reference" else start_points[runs.index.cpu() == 0]
        farthest = float(used.abs().amax()) if len(used) else 0.0
        if farthest > self.box.upper:
            raise ConfigError(
                f"space.bound={self.box.upper:g} is too small: the start of {type(self.problem).__name__}, "
                f"which all methods share, has variables as large as {farthest:.3g}, outside the box. "
                "Raise space.bound."
            )
        return spread_out(start_points, self.box, runs, self.problem, self.start)
