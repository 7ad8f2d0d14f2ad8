"""FAMO:  d = -sum_m c (z_m / (f_m - b_m)) g_m,  z = softmax(xi),  c = 1 / sum_m z_m / (f_m - b_m);
xi <- xi - beta (z * (delta - <z, delta>) + gamma xi),  delta = log(f - b) at t less that at t + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.tch import ideal_point
from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import ConfigError

SMALLEST = 1e-8  # added to f - b, as in their code


@dataclass(frozen=True, kw_only=True)
class FAMO(Weighting):
    """Equal relative decrease of all objectives; it ignores the preference.

    Logits follow the decreases of the last step.

    Fields: `weight_step`: beta > 0. `decay`: gamma >= 0. `bound`: b, a lower bound of the objectives, as
    `ideal` of TCH.
    Source: Liu et al. 2023 (FAMO), the amortized update. Departures: f(theta_{t+1}) is the value of the next
    step, which with minibatches is another sample (they evaluate the old one again); xi takes gradient steps,
    where their code uses Adam.
    """

    positive: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "weight_step"})
    citation: ClassVar[str] = "Liu et al. 2023 (FAMO)"
    preferred: ClassVar[bool] = False
    ideal_field: ClassVar[str] = "bound"

    weight_step: Real = 0.1
    decay: Real = 0.001
    bound: str | Real | Sequence[Real] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_step > 0:
            raise ConfigError(f"algorithm.weight_step={self.weight_step} must be > 0.")
        if not self.decay >= 0:
            raise ConfigError(f"algorithm.decay={self.decay} must be >= 0.")

    def init(self, ctx: Context) -> State:
        zero = torch.zeros_like(ctx.prefs)
        return {"xi": zero, "log": zero, "b": ideal_point(self.bound, ctx).expand_as(ctx.prefs).clone()}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        f = F - state["b"] + SMALLEST
        log = f.log()
        xi = state["xi"]
        if t > 0:
            z = torch.softmax(xi, dim=1)
            delta = state["log"] - log
            slope = z * (delta - (z * delta).sum(1, keepdim=True))
            xi = xi - self.weight_step * (slope + self.decay * xi)
        w = torch.softmax(xi, dim=1) / f
        return w / w.sum(1, keepdim=True), {**state, "xi": xi, "log": log}, Info()
