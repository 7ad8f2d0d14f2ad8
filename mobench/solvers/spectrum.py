"""Eigenvectors of Gram matrices by LAPACK, with the rank that rounding leaves and a certificate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mobench.core.arrays import Array
from mobench.solvers.solution import TINY

RANK = 1e-12
"""Eigenvalues below this share of the largest are rounding of zeros."""


class Spectrum(NamedTuple):
    """G = V diag(values) V' of each run, eigenvalues in ascending order, in NumPy.

    values (R, M); vectors (R, M, M), in columns; nonzero (R, M): whether an eigenvalue counts; residual (R,):
    the largest entry of G V - V diag(values), relative to the largest eigenvalue, or of V'V - 1; NaN where
    G is not finite, as are values and vectors there.
    """

    values: Array
    vectors: Array
    nonzero: Array
    residual: Array

    def apply(self, f: Array, x: Array) -> Array:
        """V diag(f) V' x over the eigenvalues that count."""
        inside = np.where(self.nonzero, f, 0.0) * (x[:, None, :] @ self.vectors)[:, 0]
        return (self.vectors @ inside[:, :, None])[:, :, 0]


def spectrum(G: Array) -> Spectrum:
    """Computes eigenvalues and eigenvectors of R symmetric positive semidefinite matrices (R, M, M)."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(G.sum((1, 2)))
        if not finite.all():
            G = np.where(finite[:, None, None], G, 0.0)
        values, vectors = np.linalg.eigh(G)
        off = abs(G @ vectors - vectors * values[:, None, :])
        skew = vectors.swapaxes(1, 2) @ vectors - np.eye(G.shape[1])
        residual = np.maximum(off.max((1, 2)) / (values[:, -1] + TINY), abs(skew).max((1, 2)))
        nonzero = (values > RANK * values[:, -1:]) & (values[:, -1:] > 0)
        if not finite.all():
            for part in (values, vectors, residual):
                part[~finite] = np.nan
        return Spectrum(values, vectors, nonzero, residual)
