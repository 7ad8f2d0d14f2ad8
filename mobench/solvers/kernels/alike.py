"""Combinations of unit gradients with equal projections onto them, run by run in scalar loops for Numba:

    C b = 1,  C = L L' the cosines of the gradients, by their Cholesky factor.

A run whose cosines are close to singular is `hard` and goes to `mobench.solvers.alike`.
"""

from __future__ import annotations

import math

import numpy as np

from mobench.kernels.jit import Array, entry, kernel


@kernel
def inverse_factor(C: Array, L: Array) -> float:
    """L^-1, lower triangular, in L; the squared Frobenius norm of C^-1 = L^-T L^-1, inf without a factor."""
    n = len(C)
    for i in range(n):
        for j in range(i + 1):
            total = C[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = total * L[j, j]
            elif total > 0.0:
                L[i, i] = 1.0 / math.sqrt(total)  # the diagonal is stored as its reciprocal
            else:
                return np.inf
    for j in range(n):
        for i in range(j + 1, n):
            total = 0.0
            for k in range(j, i):
                total += L[i, k] * L[k, j]
            L[i, j] = -total * L[i, i]
    square = 0.0
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, n):
                total += L[k, i] * L[k, j]
            square += total * total if i == j else 2.0 * total * total
    return square


@entry
def alike(G: Array, sure: float) -> tuple[Array, Array, Array, Array, Array]:
    """b (R, n), the gradients' lengths (R, n), C (R, n, n), the largest |(C b)_i - 1| (R,) and `hard` (R,).

    G (R, n, n). `sure`: Frobenius norm of C^-1 above which a run is hard. A gradient of length 0 has b = 0
    and a row of zeros in C. A run that is not finite gets NaN.
    """
    R, n = G.shape[:2]
    b = np.empty((R, n))
    length = np.empty((R, n))
    C = np.empty((R, n, n))
    residual = np.zeros(R)
    hard = np.zeros(R, np.bool_)
    full = np.empty((n, n))
    L = np.empty((n, n))
    one = np.empty(n)
    half = np.empty(n)
    for r in range(R):
        probe = 0.0
        for i in range(n):
            square = G[r, i, i]
            length[r, i] = math.sqrt(square) if square > 0.0 else 0.0
            one[i] = 1.0 / length[r, i] if square > 0.0 else 0.0
            for j in range(n):
                probe += G[r, i, j]
        for i in range(n):
            for j in range(n):
                C[r, i, j] = G[r, i, j] * one[i] * one[j]
                full[i, j] = C[r, i, j]
        if not abs(probe) < np.inf:
            b[r] = np.nan
            residual[r] = np.nan
            continue
        for i in range(n):
            if one[i] > 0.0:
                one[i] = 1.0
            else:
                full[i, i] = 1.0
        if not inverse_factor(full, L) <= sure * sure:
            hard[r] = True
            continue
        for i in range(n):
            half[i] = 0.0
            for j in range(i + 1):
                half[i] += L[i, j] * one[j]
        for i in range(n):
            b[r, i] = 0.0
            for k in range(i, n):
                b[r, i] += L[k, i] * half[k]
        for i in range(n):
            off = -one[i]
            for j in range(n):
                off += full[i, j] * b[r, j]
            residual[r] = max(residual[r], abs(off))
    return b, length, C, residual, hard
