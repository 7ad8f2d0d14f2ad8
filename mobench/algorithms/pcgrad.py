"""PCGrad:  d = -sum_m v_m;  v_m = g_m, then for the other j in random order: if <g_j, v_m> < 0:
v_m -= <g_j, v_m> / |g_j|^2 g_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.algorithm import Context, Info, State, Weighting
from mobench.core.random import counter_uniform

STREAM = "pcgrad"


def orders(keys: Int[Tensor, " R"], t: int, M: int) -> Int[Tensor, "R M M"]:
    """For every run and every m an order of all objectives, a function of (key, t) alone."""
    return counter_uniform(keys, STREAM, t, M * M).view(len(keys), M, M).argsort(-1)


@dataclass(frozen=True, kw_only=True)
class PCGrad(Weighting):
    """Each gradient loses its parts along those that it conflicts with, one after the other; it ignores the
    preference.

    Done on coefficients of the gradients, by their Gram matrix, for all m at once. A gradient of length 0
    projects nothing. The random order is a function of the run's seed and of the step.

    Source: Yu et al. 2020 (PCGrad), Algorithm 1.
    """

    gramian: ClassVar[bool] = True
    citation: ClassVar[str] = "Yu et al. 2020 (PCGrad)"

    def init(self, ctx: Context) -> State:
        R = len(ctx.prefs)
        seeds = torch.zeros(R, dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        return {"seed": seeds.to(ctx.prefs.device)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        R, M = F.shape
        order = orders(state["seed"], t, M).to(G.device)
        own = torch.arange(M, device=G.device)
        V = torch.eye(M, dtype=G.dtype, device=G.device).expand(R, M, M).clone()
        square = G.diagonal(dim1=1, dim2=2)
        for k in range(M):
            j = order[:, :, k]
            inner = (G.gather(1, j.unsqueeze(-1).expand(R, M, M)) * V).sum(-1)
            length = square.gather(1, j)
            conflict = (inner < 0) & (j != own) & (length > 0)
            amount = torch.where(conflict, inner / length, 0.0)
            V = V.scatter_add(-1, j.unsqueeze(-1), -amount.unsqueeze(-1))
        return V.sum(1), state, Info()
