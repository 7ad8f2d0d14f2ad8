"""Aligned-MTL:  d = -J^T B u,  B = sqrt(sigma) V diag(1 / sqrt(lambda)) V'  of  G = V diag(lambda) V'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import Mixed
from mobench.core.algorithm import Info, State
from mobench.core.arrays import Array, tensor
from mobench.errors import choose
from mobench.solvers.host import on_host
from mobench.solvers.qp import rows
from mobench.solvers.solution import TOLERANCE, Solution
from mobench.solvers.spectrum import Spectrum, spectrum


@dataclass(frozen=True, kw_only=True)
class AlignedMTL(Mixed):
    """The gradients BJ are orthogonal and equally long: principal components count the same.

    Fields: `mixture`: u = 1/M ("mean") or the preference. `scale`: sigma is the least eigenvalue that is not
    0 ("min", the paper's), their median or their mean ("rmse").
    Source: Senushkin et al. 2023 (Aligned-MTL), Algorithm 1. Eigenvalues below 1e-12 of the largest count as
    0; gradients whose lengths differ by a factor of a million therefore count as dependent.
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
    parts = spectrum(rows(G))
    with np.errstate(all="ignore"):
        w = parts.apply((_sigma(parts, scale) / parts.values) ** 0.5, rows(u))
    return Solution(tensor(w, G.dtype), tensor(parts.residual, G.dtype), tensor(parts.residual > TOLERANCE))


def _sigma(parts: Spectrum, scale: str) -> Array:
    """The eigenvalue sigma that replaces all, (R, 1); nonzero ones are the last, in ascending order."""
    R, M = parts.values.shape
    rank = parts.nonzero.sum(1)
    if scale == "rmse":
        return (np.where(parts.nonzero, parts.values, 0.0).sum(1) / np.where(rank > 0, rank, 1))[:, None]
    first = M - rank
    if scale == "median":
        first = first + np.where(rank > 0, rank - 1, 0) // 2
    first = np.where(first < M, first, M - 1)
    return parts.values[np.arange(R), first][:, None]
