"""Eigenvectors of Gram matrices, with the rank that rounding leaves and a certificate."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, integers, tensor
from mobench.subproblems.host import on_host
from mobench.subproblems.solution import TINY, TOLERANCE

RANK = 1e-12
"""Eigenvalues below this share of the largest are what rounding leaves of zeros."""


class Spectrum(NamedTuple):
    """G = V diag(values) V' of each run, eigenvalues in ascending order.

    values (R, M); vectors (R, M, M), in columns; kept (R, M): whether an eigenvalue counts; residual (R,):
    the largest entry of G V - V diag(values), relative to the largest eigenvalue, or of V'V - 1; NaN where
    G is not finite, as are values and vectors there. failed (R,): a finite G with a residual above
    `TOLERANCE`.
    """

    values: Float[Tensor, "R M"]
    vectors: Float[Tensor, "R M M"]
    kept: Bool[Tensor, "R M"]
    residual: Float[Tensor, " R"]
    failed: Bool[Tensor, " R"]

    def apply(self, f: Float[Tensor, "R M"], x: Float[Tensor, "R M"]) -> Float[Tensor, "R M"]:
        """V diag(f) V' x over the eigenvalues that count."""
        inside = torch.where(self.kept, f, 0.0) * (self.vectors.mT @ x.unsqueeze(-1)).squeeze(-1)
        return (self.vectors @ inside.unsqueeze(-1)).squeeze(-1)


class Parts(NamedTuple):
    """As `Spectrum`, in the library of the solvers, without the judgement."""

    values: Array
    vectors: Array
    kept: Array
    residual: Array

    def apply(self, f: Array, x: Array) -> Array:
        """V diag(f) V' x over the eigenvalues that count."""
        inside = f * self.kept * (x[:, None, :] @ self.vectors)[:, 0]
        return (self.vectors @ inside[:, :, None])[:, :, 0]


def decomposed(xp: ModuleType, G: Array) -> Parts:
    """Eigenvalues and eigenvectors with their residual; NaN where G is not finite."""
    probe = G.sum((1, 2))
    poison = probe - probe  # 0, or NaN
    good = poison == 0
    if not good.all():
        G = xp.where(good[:, None, None], G, 0.0)
    values, vectors = xp.linalg.eigh(G)
    top = values[:, -1:]
    off = abs(G @ vectors - vectors * values[:, None, :])
    residual = xp.amax(off, (1, 2)) / (top[:, 0] + TINY)
    skew = xp.swapaxes(vectors, 1, 2) @ vectors
    i = integers(G, G.shape[1])
    skew[:, i, i] -= 1.0
    residual = xp.maximum(residual, xp.amax(abs(skew), (1, 2))) + poison
    kept = (values > RANK * top) & (top > 0)
    return Parts(values + poison[:, None], vectors + poison[:, None, None], kept, residual)


@on_host()
def spectrum(G: Float[Tensor, "R M M"]) -> Spectrum:
    """Eigenvalues and eigenvectors of R symmetric positive semidefinite matrices."""
    xp, (G_,) = arrays(G)
    with np.errstate(all="ignore"):
        values, vectors, kept, residual = decomposed(xp, G_)
    return Spectrum(
        tensor(values, G.dtype),
        tensor(vectors, G.dtype),
        tensor(kept),
        tensor(residual, G.dtype),
        tensor(residual > TOLERANCE),
    )
