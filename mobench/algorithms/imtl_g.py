"""IMTL-G:  d = -J^T w,  <d, g_m / |g_m|> equal for all m,  sum_m w_m = 1;
w_m proportional to (C^+ 1)_m / |g_m|,  C the cosines of the gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import cosines
from mobench.core.algorithm import Info, State, Weighting
from mobench.subproblems.spectrum import spectrum

NOTHING = 1e-12
"""|sum w_m| below this share of sum |w_m| is what rounding leaves of 0."""


@dataclass(frozen=True, kw_only=True)
class IMTLG(Weighting):
    """The direction with equal projections onto all unit gradients; it ignores the preference.

    Weights may be negative. Where they sum to 0, d = 0; where the sum is negative, d raises the objectives,
    as in the paper.

    Source: Liu et al. 2021 (IMTL), equation 6. Departure: dependent gradients, which their closed form
    excludes: the least-squares solution of smallest norm of equal projections onto the unit gradients;
    Quinton and Rey 2024 take that of the gradients as they are. A gradient of length 0 gets no weight.
    """

    gramian: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu et al. 2021 (IMTL)"

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        C, scale = cosines(G)
        found = spectrum(C)
        w = scale * found.apply(1.0 / found.values, (scale > 0).to(G))
        total = w.sum(1, keepdim=True)
        some = total.abs() > NOTHING * w.abs().sum(1, keepdim=True)
        w = torch.where(some | total.isnan(), w / total, 0.0)
        return w, state, Info(found.residual, found.failed)
