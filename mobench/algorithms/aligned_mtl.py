"""Aligned-MTL:  d = -J^T B u,  B = sqrt(sigma) V diag(1 / sqrt(lambda)) V'  of  G = V diag(lambda) V'."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import Mixed
from mobench.core.algorithm import Info, State
from mobench.core.arrays import Array, arrays, integers, tensor
from mobench.errors import choose
from mobench.subproblems.host import on_host
from mobench.subproblems.solution import TOLERANCE, Solution
from mobench.subproblems.spectrum import Parts, decomposed


@dataclass(frozen=True, kw_only=True)
class AlignedMTL(Mixed):
    """The gradients BJ are orthogonal and equally long: principal components count the same.

    Fields: `mixture`: u = 1/M ("mean") or the preference. `scale`: sigma is the least eigenvalue that is not
    0 ("min", the paper's), their median or their mean ("rmse").
    Source: Senushkin et al. 2023 (Aligned-MTL), Algorithm 1. Eigenvalues below 1e-12 of the largest count as
    0; gradients whose lengths differ by a factor of a million are therefore not told from dependent ones.
    """

    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Senushkin et al. 2023 (Aligned-MTL)"
    preferred: ClassVar[bool] = False

    scale: str = "min"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.scale", self.scale, ("min", "median", "rmse"))

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        w, residual, failed = _weights(G, state["u"], self.scale)
        return w, state, Info(residual, failed)


@on_host()
def _weights(G: Float[Tensor, "R M M"], u: Float[Tensor, "R M"], scale: str) -> Solution:
    xp, (G_, u_) = arrays(G, u)
    with np.errstate(all="ignore"):
        found = decomposed(xp, G_)
        factor = (_sigma(xp, found, scale) / found.values) ** 0.5
        w = found.apply(xp.where(found.kept, factor, 0.0), u_)
        w = xp.where(xp.isnan(found.residual)[:, None], xp.nan, w)
    return Solution(tensor(w, G.dtype), tensor(found.residual, G.dtype), tensor(found.residual > TOLERANCE))


def _sigma(xp: ModuleType, found: Parts, scale: str) -> Array:
    """The eigenvalue that all get, (R, 1); kept ones are the last, in ascending order."""
    R, M = found.values.shape
    kept = found.kept.sum(1)
    if scale == "rmse":
        return (xp.where(found.kept, found.values, 0.0).sum(1) / xp.where(kept > 0, kept, 1))[:, None]
    first = M - kept
    if scale == "median":
        first = first + xp.where(kept > 0, kept - 1, 0) // 2
    first = xp.where(first < M, first, M - 1)
    return found.values[integers(found.values, R), first][:, None]
