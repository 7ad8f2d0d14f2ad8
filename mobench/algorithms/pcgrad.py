"""PCGrad:  d = -sum_m v_m;  v_m = g_m, then for the other j in random order: if <g_j, v_m> < 0:
v_m -= <g_j, v_m> / |g_j|^2 g_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.algorithm import Context, Info, State, Weighting
from mobench.core.arrays import arrays, integers, tensor, zeros
from mobench.core.random import counter_uniform

STREAM = "pcgrad"


def orders(keys: Int[Tensor, " R"], t: int, M: int) -> Int[Tensor, "R M M"]:
    """For every run and every m an order of all objectives, a function of (key, t) alone."""
    return counter_uniform(keys, STREAM, t, M * M).view(len(keys), M, M).argsort(-1)


@dataclass(frozen=True, kw_only=True)
class PCGrad(Weighting):
    """Each gradient loses its parts along those that it conflicts with; it ignores the preference.

    It loses one after the other. This is done on coefficients of the gradients, by their Gram matrix, for all
    m at once. A gradient of length 0 projects nothing. The random order is a function of the run's seed and
    of the step.

    Source: Yu et al. 2020 (PCGrad), Algorithm 1.
    """

    gramian: ClassVar[bool] = True
    citation: ClassVar[str] = "Yu et al. 2020 (PCGrad)"
    preferred: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False  # gradients are projected in a random order of their numbers

    def init(self, ctx: Context) -> State:
        R = len(ctx.prefs)
        seeds = torch.zeros(R, dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        return {"seed": seeds.to(ctx.prefs.device)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        if F.shape[1] == 2:  # either order
            inner = G[:, :1, 1].clamp_max(0.0)
            square = G.diagonal(dim1=1, dim2=2)
            return 1.0 - torch.where(square > 0, inner / square, 0.0), state, Info()
        return _projected(G, orders(state["seed"], t, F.shape[1])), state, Info()


def _projected(G: Float[Tensor, "R M M"], order: Int[Tensor, "R M M"]) -> Float[Tensor, "R M"]:
    """The sum of the coefficients of all v_m."""
    xp, (G_,) = arrays(G)
    R, M = G_.shape[:2]
    order_ = order.numpy() if xp is np else order.to(G.device)
    objective = integers(G_, M)
    run = integers(G_, R)[:, None]
    V = zeros(G_, R, M, M)
    V[:, objective, objective] = 1.0
    square = xp.diagonal(G_, 0, 1, 2)
    with np.errstate(all="ignore"):
        for k in range(M):
            j = order_[:, :, k]
            inner = (G_[run, j] * V).sum(-1)
            length = square[run, j]
            conflict = (inner < 0) & (j != objective) & (length > 0)
            V[run, objective, j] -= xp.where(conflict, inner / length, 0.0)
    return tensor(V.sum(1), G.dtype)
