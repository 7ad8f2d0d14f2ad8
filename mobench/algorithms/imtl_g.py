"""IMTL-G:  d = -J^T w,  <d, g_m / |g_m|> equal for all m,  sum_m w_m = 1;
w_m proportional to (C^+ 1)_m / |g_m|,  C the cosines of the gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, State, Weighting
from mobench.core.arrays import tensor
from mobench.solvers.alike import NOTHING, alike
from mobench.solvers.host import on_host
from mobench.solvers.qp import rows
from mobench.solvers.solution import TOLERANCE, Solution

SUM = 1e-12
"""|sum w_m| below this share of sum |w_m| is rounding of 0."""


@dataclass(frozen=True, kw_only=True)
class IMTLG(Weighting):
    """The direction with equal projections onto all unit gradients; it ignores the preference.

    Weights may be negative. Where they sum to 0, d = 0; where the sum is negative, d raises the objectives,
    as in the paper.

    Source: Liu et al. 2021 (IMTL), closed form of the gradient balance. Departure: dependent gradients, which
    that form excludes: the least-squares solution of smallest norm of equal projections onto the unit
    gradients; Quinton and Rey 2024 take that of the gradients as they are. A gradient of length 0 gets no
    weight.
    """

    gramian: ClassVar[bool] = True
    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu et al. 2021 (IMTL)"
    preferred: ClassVar[bool] = False

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        w, residual, failed = _weights(G)
        return w, state, Info(residual, failed)


@on_host()
def _weights(G: Float[Tensor, "R M M"]) -> Solution:
    with np.errstate(all="ignore"):
        equal = alike(rows(G))
        there = equal.length > 0
        w = equal.b * np.where(there, 1.0 / equal.length, 0.0)
        total = w.sum(1)[:, None]
        # collinear gradients, half against half: b is rounding of 0, and so are all sums of w
        square = np.where(there, equal.b, 0.0).sum(1)[:, None]
        some = (square > NOTHING) & (abs(total) > SUM * abs(w).sum(1)[:, None]) | np.isnan(total)
        w = np.where(some, w / total, 0.0)
    return Solution(tensor(w, G.dtype), tensor(equal.residual, G.dtype), tensor(equal.residual > TOLERANCE))
