"""ConFIG:  d = -(sum_m <g_m, v>) v,  v = U^+ 1 / |U^+ 1|,  U the unit gradients."""

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


@dataclass(frozen=True, kw_only=True)
class ConFIG(Weighting):
    """The conflict-free direction with equal cosines; it ignores the preference.

    Its length is the sum of its projections onto the gradients. From the cosines C = UU':

        U^+ 1 = U' C^+ 1,  |U^+ 1|^2 = 1' C^+ 1

    Where no direction has positive cosines (opposed gradients), U^+ 1 may be 0, and then d = 0. A gradient of
    length 0 is left out.

    Source: Liu et al. 2025 (ConFIG), equation 2, with the length of their method section.
    """

    gramian: ClassVar[bool] = True
    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu et al. 2025 (ConFIG)"
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
        b = equal.b
        there = equal.length > 0
        square = np.where(there, b, 0.0).sum(1)[:, None]
        # <g_m, U^+ 1>, summed
        reach = (equal.length * (equal.cosines @ b[:, :, None])[:, :, 0]).sum(1)[:, None]
        unit = b * np.where(there, 1.0 / equal.length, 0.0)
        w = np.where((square > NOTHING) | np.isnan(square), unit * (reach / square), 0.0)
    return Solution(tensor(w, G.dtype), tensor(equal.residual, G.dtype), tensor(equal.residual > TOLERANCE))
