"""CSMOO-2 (Algorithm 2): the exact-penalty form, whose surrogates are (nearly) always feasible.

min over x in X, y_0, y_1 >= 0 of y_0 + beta y_1   s.t.  lambda_i (f_i - z_i) <= y_0,  g_j <= y_1
(14) surrogate as in (10), with d = (x - x_t, y_0 - y_0t, y_1 - y_1t) in every proximal term
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.csmoo import Surrogated
from mobench.core.algorithm import Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.core.sets import Ball
from mobench.errors import ConfigError, choose


@dataclass(frozen=True, kw_only=True)
class CSMOO2(Surrogated):
    """CSMOO-2.

    Fields: beta >= 0: penalty of the violation y_1. prox_on_slack: "all" (as printed) or "objective_only"
    (y_1 has no proximal term inside the constraints: far infeasible starts are not held back by its square).
    Departure: the paper calls the surrogate always feasible. The proximal terms on y_0 and y_1 bound what
    they can absorb, so it is not; an infeasible one takes the step (13) and is counted in `infeasible_steps`
    (with "objective_only" its solve has failed).
    onto_boundary: each step ends on the sphere that bounds a ball X. Section 5.2 speaks of an explicit
    projection onto the power budget, which Algorithm 2 does not have: it stays inside of X by itself.
    """

    added_fields: ClassVar[Mapping[str, Any]] = {**Surrogated.added_fields, "onto_boundary": False}

    beta: Real = 5.0
    prox_on_slack: str = "all"
    onto_boundary: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.prox_on_slack", self.prox_on_slack, ("all", "objective_only"))
        if not self.beta >= 0:
            raise ConfigError(f"algorithm.beta={self.beta} must be >= 0.")

    def misfits(self, spec: Spec) -> list[str]:
        reasons = super().misfits(spec)
        if self.onto_boundary and not isinstance(spec.X, Ball):
            X = type(spec.X).__name__
            reasons.append(f"algorithm.onto_boundary=true needs X to be a ball, but the problem's is a {X}")
        return reasons

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        dx, state, info = super().step(points, state, t, alpha)
        point = points[0]
        if not self.onto_boundary:
            return dx, state, info
        assert isinstance(point.X, Ball)  # `misfits`
        moved = point.x + alpha * dx
        onto = moved * (point.X.radius / torch.linalg.vector_norm(moved, dim=1, keepdim=True))
        return (onto - point.x) / alpha, state, info

    def _auxiliary(self, M: int, N: int, tau: list[float]) -> tuple[list[list[float]], list[list[float]]]:
        slopes = [[1.0, float(self.beta)], *[[-1.0, 0.0]] * M, *[[0.0, -1.0]] * N]
        inside = 1.0 if self.prox_on_slack == "all" else 0.0
        return slopes, [[tau[0], tau[0]], *[[value, inside * value] for value in tau[1:]]]

    def _levels(self, value: Float[Tensor, "R M"], G: Float[Tensor, "R N"]) -> Float[Tensor, "R 2"]:
        violation = torch.cat([torch.zeros_like(value[:, :1]), G], dim=1).amax(1)
        return torch.stack([value.amax(1), violation], dim=1)

    def _lower(self, y: Float[Tensor, "R 2"]) -> Float[Tensor, "R 2"]:
        return torch.stack([torch.full_like(y[:, 0], -torch.inf), -y[:, 1]], dim=1)
