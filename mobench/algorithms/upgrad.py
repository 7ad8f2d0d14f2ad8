"""UPGrad:  d = -sum_m u_m pi(g_m),  pi the projection onto the dual cone {v: <g_j, v> >= 0 for all j}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import Mixed
from mobench.core.algorithm import Info, State
from mobench.solvers.dual_cone import dual_cone
from mobench.solvers.nearest import nearest


@dataclass(frozen=True, kw_only=True)
class UPGrad(Mixed):
    """Every gradient is projected to where it raises no objective, and the projections are averaged.

    Fields: `mixture`: u = 1/M ("mean") or the preference.
    Source: Quinton and Rey 2024 (Jacobian descent), equation 3 (projection) and Proposition 1 (weights).
    Gradients that depend on others up to rounding are projected without their Gram matrix
    (`mobench.solvers.nearest`). Departure: their code adds 1e-4 to the diagonal of the normalised Gram
    matrix; here it is as it is.
    """

    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Quinton and Rey 2024 (UPGrad)"
    preferred: ClassVar[bool] = False

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        R, M = F.shape
        rows = torch.eye(M, dtype=G.dtype, device=G.device).unsqueeze(0)
        x, residual, failed, hard = dual_cone(G, rows)
        w = torch.einsum("rm,rmj->rj", state["u"], x.view(R, M, M))
        return w, state, Info(residual, failed, hard=hard)

    def from_rows(
        self, J: Float[Tensor, "M P"], state: State, r: int
    ) -> tuple[Float[Tensor, " M"], Float[Tensor, " P"], float, bool]:
        u = state["u"][r]
        projected = nearest(J, torch.eye(len(J), dtype=u.dtype, device=u.device))
        return projected.x.mT.mv(u), projected.d.mT.mv(u), projected.residual, projected.failed
