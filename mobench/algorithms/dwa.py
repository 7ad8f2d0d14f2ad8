"""DWA:  d = -J^T w,  w = softmax(r / T),  r_m = L_m(e - 1) / L_m(e - 2),  L(e) the mean losses of epoch e."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import ConfigError

SMALLEST = 1e-300  # a mean loss of 0 would have no ratio


@dataclass(frozen=True, kw_only=True)
class DWA(Weighting):
    """Dynamic weight average: objectives that have fallen least get more weight; it ignores the preference.

    Fields: `temperature` T > 0. `epoch`: its number of steps; in the first two all weights are 1/M.
    Source: Liu, Johns and Davison 2019 (dynamic weight average). Departure: weights sum to 1, not to M.
    """

    positive: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu et al. 2019 (DWA)"
    preferred: ClassVar[bool] = False

    temperature: Real = 2.0
    epoch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise ConfigError(f"algorithm.temperature={self.temperature} must be > 0.")
        if self.epoch < 1:
            raise ConfigError(f"algorithm.epoch={self.epoch} must be at least 1 step.")

    def init(self, ctx: Context) -> State:
        return {"sum": torch.zeros_like(ctx.prefs), "last": ctx.prefs, "before": ctx.prefs}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        if t < 2 * self.epoch:
            w = torch.full_like(F, 1.0 / F.shape[1])
        else:
            rate = state["last"].clamp_min(SMALLEST) / state["before"].clamp_min(SMALLEST)
            w = torch.softmax(rate / self.temperature, dim=1)
        total = state["sum"] + F
        if (t + 1) % self.epoch == 0:
            state = {"sum": torch.zeros_like(F), "last": total / self.epoch, "before": state["last"]}
        else:
            state = {**state, "sum": total}
        return w, state, Info()
