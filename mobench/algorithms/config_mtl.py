"""ConFIG:  d = -(sum_m <g_m, v>) v,  v = U^+ 1 / |U^+ 1|,  U the unit gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import cosines
from mobench.core.algorithm import Info, State, Weighting
from mobench.subproblems.spectrum import spectrum

NOTHING = 1e-20
"""|U^+ 1|^2 below this is what rounding leaves of 0."""


@dataclass(frozen=True, kw_only=True)
class ConFIG(Weighting):
    """The conflict-free direction with equal cosines, as long as its projections onto the gradients together;
    it ignores the preference.

    From the cosines C = UU':  U^+ 1 = U' C^+ 1,  |U^+ 1|^2 = 1' C^+ 1.
    Where no direction has positive cosines (opposed gradients), U^+ 1 may be 0, and then d = 0. A gradient of
    length 0 is left out.

    Source: Liu et al. 2025 (ConFIG), equations 1 to 3.
    """

    gramian: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu et al. 2025 (ConFIG)"

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        C, scale = cosines(G)
        found = spectrum(C)
        there = (scale > 0).to(G)
        beta = found.apply(1.0 / found.values, there)
        square = (there * beta).sum(1, keepdim=True)
        equal = (C @ beta.unsqueeze(-1)).squeeze(-1)  # <g_m, U^+ 1> / |g_m|
        length = torch.where(scale > 0, equal / scale, 0.0).sum(1, keepdim=True)
        w = torch.where((square > NOTHING) | square.isnan(), scale * beta * length / square, 0.0)
        return w, state, Info(found.residual, found.failed)
