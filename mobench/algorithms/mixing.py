"""What several methods share: the combination of the gradients that they start from, and unit gradients."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context
from mobench.errors import choose

MIXTURES = ("mean", "preference")


def check_mixture(rule: str) -> None:
    """Raises ConfigError unless the rule is known."""
    choose("algorithm.mixture", rule, MIXTURES)


def mixture(rule: str, ctx: Context) -> Float[Tensor, "R M"]:
    """1/M for "mean", the preference for "preference"."""
    return ctx.prefs if rule == "preference" else torch.full_like(ctx.prefs, 1.0 / ctx.spec.M)


def cosines(G: Float[Tensor, "R M M"]) -> tuple[Float[Tensor, "R M M"], Float[Tensor, "R M"]]:
    """Gram matrix of the unit gradients, and 1 / |g_m|; a gradient of length 0 stays 0 and has 0 for 1 /
    |g_m|.
    """
    length = G.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt()
    scale = torch.where(length > 0, 1.0 / length, torch.zeros_like(length))
    return G * scale.unsqueeze(1) * scale.unsqueeze(2), scale
