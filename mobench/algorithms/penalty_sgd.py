"""Projected SGD on a smoothed penalty: the baseline of the CSMOO paper (its words; the formula is ours).

alpha = softmax(lambda (f - z) / mu_s),   G = sum_i alpha_i lambda_i grad f_i + beta sum_j 1[g_j > 0] grad g_j
"sgd":   x <- P_X(x - gamma_t G)          "prox":  x <- x + gamma_t (P_X(x - G/tau) - x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.csmoo import Penalised
from mobench.algorithms.tch import ideal_point
from mobench.core.algorithm import Context, Info, Real, State
from mobench.core.point import Point
from mobench.core.sets import Ball
from mobench.errors import ConfigError, choose


@dataclass(frozen=True, kw_only=True)
class PenaltySGD(Penalised):
    """Log-sum-exp smoothed Tchebycheff value plus a penalty on violated constraints, same estimates as CSMOO.

    Fields: variant: "sgd" or "prox"; smoothing: mu_s; beta: penalty; tau: proximal coefficient of "prox".
    """

    citation: ClassVar[str] = "baseline of the CSMOO paper, 2025"

    variant: str = "sgd"
    smoothing: Real = 0.05
    beta: Real = 5.0
    tau: Real = 0.08

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.variant", self.variant, ("sgd", "prox"))
        if not (self.smoothing > 0 and self.tau > 0 and self.beta >= 0):
            raise ConfigError(
                f"algorithm.smoothing={self.smoothing} and algorithm.tau={self.tau} must be > 0, "
                f"algorithm.beta={self.beta} >= 0."
            )

    def init(self, ctx: Context) -> State:
        return {"w": ctx.prefs, "wz": ctx.prefs * ideal_point(self.ideal, ctx)}

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: float
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point, w = points[0], state["w"]
        values = point.values().double()
        share = torch.softmax((w * values[:, : point.M] - state["wz"]) / self.smoothing, dim=1)
        violated = (values[:, point.M :] > 0).to(w)
        G = point.pull(torch.cat([share * w, self.beta * violated], dim=1).to(point.x.dtype))
        if self.variant == "prox":
            return _project(point, point.x - G / self.tau) - point.x, state, Info()
        if point.moving is None:  # the loop projects
            return -G, state, Info()
        return (_project(point, point.x - alpha * G) - point.x) / alpha, state, Info()


def _project(point: Point, raw: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
    """P_X over the coordinates that may move, the others fixed: on a ball the whole projection would move them all."""
    x, X, moving = point.x, point.X, point.moving
    if moving is None:
        return X.project(raw)
    if not isinstance(X, Ball):
        return torch.where(moving, X.project(raw), x)
    room = (X.radius**2 - torch.where(moving, 0.0, x).square().sum(1)).clamp_min(0.0)
    square = torch.where(moving, raw, 0.0).square().sum(1)
    factor = torch.where(square > room, (room / square).sqrt(), 1.0)
    return torch.where(moving, raw * factor.unsqueeze(1), x)
