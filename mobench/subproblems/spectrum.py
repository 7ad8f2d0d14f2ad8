"""Eigenvectors of Gram matrices, with the rank that rounding leaves and a certificate."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, integers, tensor
from mobench.kernels.compiled import kernels
from mobench.subproblems.blocks import same
from mobench.subproblems.host import on_host
from mobench.subproblems.qp import rows
from mobench.subproblems.solution import TINY, TOLERANCE

RANK = 1e-12
"""Eigenvalues below this share of the largest are what rounding leaves of zeros."""
# where Jacobi's rotations of all runs together are faster than LAPACK for one run after the other (measured)
LITTLE = 5  # objectives, of any number of runs
MIDDLE = 12  # objectives, of many
MANY = 32


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
    finite = bool(good.all())
    if not finite:
        G = xp.where(good[:, None, None], G, 0.0)
    R, M = G.shape[:2]
    kernel = kernels("jacobi", tensor(G)) if M <= LITTLE or (M <= MIDDLE and R >= MANY) else None
    if kernel is not None:
        values, vectors, residual = (same(xp, torch.from_numpy(x)) for x in kernel.jacobi(rows(tensor(G))))
    else:
        values, vectors = xp.linalg.eigh(G)
        off = abs(G @ vectors - vectors * values[:, None, :])
        residual = xp.amax(off, (1, 2)) / (values[:, -1] + TINY)
        skew = xp.swapaxes(vectors, 1, 2) @ vectors
        i = integers(G, M)
        skew[:, i, i] -= 1.0
        residual = xp.maximum(residual, xp.amax(abs(skew), (1, 2)))
    top = values[:, -1:]
    kept = (values > RANK * top) & (top > 0)
    if finite:
        return Parts(values, vectors, kept, residual)
    return Parts(values + poison[:, None], vectors + poison[:, None, None], kept, residual + poison)


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
