"""PBI:  minimise d_1 + theta d_2,  d_1 = <f - z, v>,  d_2 = |f - z - d_1 v|,  v the unit vector of the ray;
weights v + theta (f - z - d_1 v) / d_2.
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
from mobench.core.preferences import ray
from mobench.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PBI(Weighting):
    """Penalty-based boundary intersection: along the ray of the preference, with a penalty for leaving it.

    Weights may be negative: an objective below the ray may rise. On the ray itself (d_2 = 0) they are v, a
    subgradient.

    Fields: `theta` >= 0: the penalty. `ideal`: z as in TCH.
    Source: Zhang and Li 2007 (MOEA/D), boundary intersection. Departures: v is the ray along 1/w on which all
    w_m f_m are equal, as everywhere here (they search along w itself), and z is not updated.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "theta"})
    citation: ClassVar[str] = "Zhang and Li 2007 (MOEA/D)"

    theta: Real = 5.0
    ideal: str | Real | Sequence[Real] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.theta < float("inf"):
            raise ConfigError(f"algorithm.theta={self.theta} must be a number >= 0.")

    def init(self, ctx: Context) -> State:
        return {"v": ray(ctx.prefs), "z": ideal_point(self.ideal, ctx).expand_as(ctx.prefs).clone()}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        v = state["v"]
        f = F - state["z"]
        across = f - (f * v).sum(1, keepdim=True) * v
        d2 = torch.linalg.vector_norm(across, dim=1, keepdim=True)
        # on the ray `across` is rounding alone, which has no direction
        off = d2 > 1e-14 * torch.linalg.vector_norm(f, dim=1, keepdim=True)
        return v + self.theta * torch.where(off, across / d2, 0.0), state, Info()
