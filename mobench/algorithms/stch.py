"""Smooth Tchebycheff:  minimise mu log sum_m exp(w_m (f_m - z_m) / mu);
weights w_m softmax(w (f - z) / mu)_m.
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


@dataclass(frozen=True, kw_only=True)
class STCH(Weighting):
    """Gradient descent on the log-sum-exp smoothing of the weighted maximum (TERM in federated learning).

    Fields: `mu` > 0, the smoothing; mu -> 0 gives Tchebycheff. `ideal`: z as in TCH.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "mu"})
    citation: ClassVar[str] = "Lin et al. 2024"

    mu: Real = 0.01
    ideal: str | Real | Sequence[Real] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu > 0:
            raise ConfigError(f"algorithm.mu={self.mu} must be > 0.")

    def init(self, ctx: Context) -> State:
        z = ideal_point(self.ideal, ctx)
        return {"w": ctx.prefs, "scaled": ctx.prefs / self.mu, "offset": -ctx.prefs * z / self.mu}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        soft = torch.softmax(torch.addcmul(state["offset"], state["scaled"], F), dim=-1)
        return state["w"] * soft, state, Info()
