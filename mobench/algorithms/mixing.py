"""A base class of methods that start from a combination of the gradients, and the cosines of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, State, Weighting
from mobench.errors import choose

MIXTURES = ("mean", "preference")


@dataclass(frozen=True, kw_only=True)
class Mixed(Weighting):
    """A method that changes the combination sum_m u_m g_m of the gradients.

    Fields: `mixture`: u = 1/M ("mean") or the preference.
    Raises ConfigError for another rule.
    """

    gramian: ClassVar[bool] = True

    mixture: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.mixture", self.mixture, MIXTURES)

    def init(self, ctx: Context) -> State:
        equal = torch.full_like(ctx.prefs, 1.0 / ctx.spec.M)
        return {"u": ctx.prefs if self.mixture == "preference" else equal}


def cosines(G: Float[Tensor, "R M M"]) -> tuple[Float[Tensor, "R M M"], Float[Tensor, "R M"]]:
    """Gram matrix of the unit gradients, and 1 / |g_m|; both are 0 for a gradient of length 0."""
    length = G.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt()
    scale = torch.where(length > 0, 1.0 / length, torch.zeros_like(length))
    return G * scale.unsqueeze(1) * scale.unsqueeze(2), scale
