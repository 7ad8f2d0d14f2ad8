"""ExcessMTL:  d = -sum_m a_m g_m,  a_m proportional to a_m exp(eta E_m / E_m^0),
E_m = g_m' diag(s_m + eps)^(-1/2) g_m,  s_m: the sum of the squared entries of g_m so far,  E_m^0: the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.errors import ConfigError

SMALLEST = 1e-7  # eps, as in their code


@dataclass(frozen=True, kw_only=True)
class ExcessMTL(Algorithm):
    """Multiplicative weights that grow with each objective's excess risk, in units of its first estimate.

    An objective whose gradient is 0 at the start has no unit, and counts as at the start throughout.

    Fields: `weight_step`: eta >= 0. `weighted`: the gradients are those of w_m f_m, w the preference, as the
    authors of OMD-TCH compare with; without it the preference is ignored, as in the method's paper.
    Source: He et al. 2024 (ExcessMTL), equations 6, 7 and 9: AdaGrad's diagonal stands for the Hessian.
    Departure: the first E_m is the unit, as in their code, not a mean over the first epochs.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "weight_step"})
    citation: ClassVar[str] = "He et al. 2024 (ExcessMTL)"
    preferred: ClassVar[bool] = False
    coordinates: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"weighted": {"weighted": True}}

    weight_step: Real = 1.0
    weighted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_step >= 0:
            raise ConfigError(f"algorithm.weight_step={self.weight_step} must be >= 0.")

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"})

    def init(self, ctx: Context) -> State:
        R, M = ctx.prefs.shape
        return {
            "w": ctx.prefs if self.weighted else torch.ones_like(ctx.prefs),
            "log": torch.zeros_like(ctx.prefs),  # of a, up to a constant of each run
            "first": torch.zeros_like(ctx.prefs),
            "squares": ctx.theta.new_zeros(R, M, ctx.theta.shape[1]),
        }

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        w = state["w"]
        g2 = (w.to(point.x.dtype).unsqueeze(-1) * point.jacobian("f")).square()
        squares = state["squares"] + g2
        excess = (g2 / (squares + SMALLEST).sqrt()).sum(-1).to(w.dtype)
        first = excess if t == 0 else state["first"]
        relative = torch.where(first > 0, excess / first, 1.0)
        log = torch.log_softmax(state["log"] + self.weight_step * relative, dim=1)
        d = point.vjp((-log.exp() * w).to(point.x.dtype))
        return d, {"w": w, "log": log, "first": first, "squares": squares}, Info()
