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
from mobench.core.algorithm import Context, Info, Real, State, Step
from mobench.core.point import Point
from mobench.core.sets import project_moving
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
                f"algorithm.smoothing={self.smoothing} and algorithm.tau={self.tau} must be > 0, and "
                f"algorithm.beta={self.beta} must be >= 0."
            )

    def init(self, ctx: Context) -> State:
        return {"w": ctx.prefs, "wz": ctx.prefs * ideal_point(self.ideal, ctx)}

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        w = state["w"]
        values = point.values().double()
        share = torch.softmax((w * values[:, : point.M] - state["wz"]) / self.smoothing, dim=1)
        violated = (values[:, point.M :] > 0).to(w)
        G = point.vjp(torch.cat([share * w, self.beta * violated], dim=1).to(point.x.dtype))
        # NaN > 0 is False: without this the run would go on as if the constraint were kept
        G = torch.where(values[:, point.M :].isnan().any(1, keepdim=True), torch.nan, G)
        if self.variant == "prox":
            return (
                project_moving(point.X, point.x - G / self.tau, point.x, point.moving) - point.x,
                state,
                Info(),
            )
        return -G, state, Info()  # the loop projects
