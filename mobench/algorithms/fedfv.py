"""FedFV: gradients that conflict are projected onto each other's normal planes before they are averaged.

for m outside the protected:  v_m = g_m;  for j in ascending order of f:  if <g_j, v_m> < 0:
v_m -= <g_j, v_m> / |g_j|^2 g_j
d = -|mean g| v / |v|,  v = mean of the v_m
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, Real, State, Weighting
from mobench.core.arrays import scalar
from mobench.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedFV(Weighting):
    """Federated fair averaging with all clients in every round; it ignores the preference.

    Everything is done on coefficients of the gradients, by their Gram matrix. Gradients of length 0 project
    nothing.

    Fields:
        alpha: share in [0, 1] of clients that keep their gradient: those at positions >= (M - 1)(1 - alpha)
            of the ascending order of losses (ties: the smaller index first).
        external_from: tau', the round (the first is 1) from which external conflicts are mitigated, 0: never.
            With all clients in every round the only updates that can conflict are those of the same round:
            with s the sum of the g_m that have <g_m, v> < 0, v loses its part along s if <v, s> < 0.
    """

    gramian: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "alpha", "external_from"})
    citation: ClassVar[str] = "Wang et al. 2021 (FedFV)"
    preferred: ClassVar[bool] = False

    alpha: Real = 0.1
    external_from: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"algorithm.alpha={self.alpha} must lie in [0, 1]; it is a share.")
        if self.external_from < 0:
            raise ConfigError(f"algorithm.external_from={self.external_from} must be >= 0 (0 means never).")

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        R, M = F.shape
        order = torch.argsort(F, dim=-1, stable=True)
        position = torch.argsort(order, dim=-1)
        # the small number: 10 x (1 - 0.7) is a little more than 3
        moves = position < torch.ceil((M - 1) * (1.0 - scalar(self.alpha, G)) - 1e-9)
        # row i: coefficients of v_i in the gradients; all i at once, the projections one after the other
        V = torch.eye(M, dtype=G.dtype, device=G.device).expand(R, M, M).clone()
        rows = torch.arange(R, device=G.device)
        for k in range(M):
            j = order[:, k]
            column = G[rows, j]
            square = G[rows, j, j]
            inner = (V @ column.unsqueeze(-1)).squeeze(-1)
            conflict = moves & (inner < 0) & (position != k) & (square > 0).unsqueeze(-1)
            amount = torch.where(
                conflict, inner / square.clamp_min(torch.finfo(G.dtype).tiny).unsqueeze(-1), 0.0
            )
            V[rows, :, j] -= amount
        c = V.mean(1)
        start = scalar(self.external_from, G)
        against = ((G @ c.unsqueeze(-1)).squeeze(-1) < 0) & (start > 0) & (start <= t + 1)
        c = _without(c, against.to(G.dtype), G)
        mean = torch.full_like(c, 1.0 / M)
        # where gradients cancel, only rounding is left of |mean|^2, which may be negative
        square = _product(c, c, G)
        target = _product(mean, mean, G).clamp_min(0.0)
        scale = torch.where(square > 0, (target / square.clamp_min(torch.finfo(G.dtype).tiny)).sqrt(), 0.0)
        return c * scale.unsqueeze(-1), state, Info()


def _product(a: Tensor, b: Tensor, G: Tensor) -> Float[Tensor, " R"]:
    """<J'a, J'b>."""
    return torch.einsum("ri,rij,rj->r", a, G, b)


def _without(
    c: Float[Tensor, "R M"], s: Float[Tensor, "R M"], G: Float[Tensor, "R M M"]
) -> Float[Tensor, "R M"]:
    """J'c without its part along J's, where they conflict."""
    inner = _product(c, s, G)
    square = _product(s, s, G)
    amount = torch.where((inner < 0) & (square > 0), inner / square.clamp_min(torch.finfo(G.dtype).tiny), 0.0)
    return c - amount.unsqueeze(-1) * s
