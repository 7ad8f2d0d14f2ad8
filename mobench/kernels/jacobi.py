"""Eigenvectors of many small Gram matrices at once, for Numba: Jacobi's cyclic rotations.

    A <- J' A J,  V <- V J,  with the rotation J of rows p and q that makes A_pq zero

All runs take the same rotations in turn, and their numbers lie next to each other, so that a rotation is a
few sweeps over vectors of R numbers. LAPACK, which solves one matrix after the other, is faster for few runs.

Source: Golub and Van Loan 2013, Section 8.5 (the angle of the smaller rotation, cyclic by rows).
"""

from __future__ import annotations

import math

import numpy as np

from mobench.kernels.jit import Array, entry, kernel

SWEEPS = 30  # convergence is quadratic: five to eight suffice
SMALL = 1e-16  # entries beside the diagonal that count as zero, where the largest on it is 1


@kernel
def angles(app: Array, aqq: Array, apq: Array, t: Array, c: Array, s: Array) -> None:
    """Tangent, cosine and sine of each run's rotation; the diagonal afterwards, and zero beside it."""
    for r in range(len(t)):
        apart = aqq[r] - app[r]
        twice = 2.0 * apq[r]
        length = abs(apart) + math.sqrt(apart * apart + twice * twice)
        tangent = twice / length if length > 0.0 else 0.0
        tangent = -tangent if apart < 0.0 else tangent
        cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
        t[r] = tangent
        c[r] = cosine
        s[r] = tangent * cosine
        app[r] -= tangent * apq[r]
        aqq[r] += tangent * apq[r]
        apq[r] = 0.0


@kernel
def turned(x: Array, y: Array, c: Array, s: Array) -> None:
    """(x, y) <- (c x - s y, s x + c y), run by run."""
    for r in range(len(c)):
        u = x[r]
        v = y[r]
        x[r] = c[r] * u - s[r] * v
        y[r] = s[r] * u + c[r] * v


@kernel
def beside(A: Array) -> float:
    """The largest entry above the diagonal, of all runs."""
    n = len(A)
    largest = 0.0
    for p in range(n):
        for q in range(p + 1, n):
            row = A[p, q]
            for r in range(len(row)):
                largest = max(largest, abs(row[r]))
    return largest


@kernel
def residuals(B: Array, A: Array, V: Array, row: Array, out: Array) -> None:
    """The largest entry of B V - V diag(A), and of V'V - 1, of each run."""
    n = len(A)
    for i in range(n):
        for j in range(n):
            for r in range(len(out)):
                row[r] = -V[i, j, r] * A[j, j, r]
            for k in range(n):
                for r in range(len(out)):
                    row[r] += B[i, k, r] * V[k, j, r]
            for r in range(len(out)):
                out[r] = max(out[r], abs(row[r]))
    for i in range(n):
        for j in range(i, n):
            row[:] = -1.0 if i == j else 0.0
            for k in range(n):
                for r in range(len(out)):
                    row[r] += V[k, i, r] * V[k, j, r]
            for r in range(len(out)):
                out[r] = max(out[r], abs(row[r]))


@entry
def jacobi(G: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues (R, n) in ascending order, eigenvectors V (R, n, n), in columns, and residuals (R,), of
    finite G (R, n, n). A residual is the largest entry of G V - V diag(values), relative to the largest entry
    of the diagonal of G, or of V'V - 1.
    """
    R, n = G.shape[:2]
    values = np.empty((R, n))
    vectors = np.empty((R, n, n))
    residual = np.zeros(R)
    A = np.empty((n, n, R))  # its upper triangle counts
    V = np.zeros((n, n, R))
    scale = np.empty(R)
    t = np.empty(R)
    c = np.empty(R)
    s = np.empty(R)
    for r in range(R):
        largest = 0.0
        for i in range(n):
            largest = max(largest, abs(G[r, i, i]))
        scale[r] = largest if largest > 0.0 else 1.0
        for i in range(n):
            V[i, i, r] = 1.0
            for j in range(n):
                A[i, j, r] = G[r, i, j] / scale[r]
    B = A.copy()
    for _ in range(SWEEPS):
        if beside(A) <= SMALL:
            break
        for p in range(n):
            for q in range(p + 1, n):
                angles(A[p, p], A[q, q], A[p, q], t, c, s)
                for k in range(p):
                    turned(A[k, p], A[k, q], c, s)
                for k in range(p + 1, q):
                    turned(A[p, k], A[k, q], c, s)
                for k in range(q + 1, n):
                    turned(A[p, k], A[q, k], c, s)
                for k in range(n):
                    turned(V[k, p], V[k, q], c, s)
    residuals(B, A, V, t, residual)
    order = np.empty(n, np.int64)
    for r in range(R):
        for i in range(n):
            k = i
            while k > 0 and A[order[k - 1], order[k - 1], r] > A[i, i, r]:
                order[k] = order[k - 1]
                k -= 1
            order[k] = i
        for j in range(n):
            values[r, j] = scale[r] * A[order[j], order[j], r]
            for i in range(n):
                vectors[r, i, j] = V[i, order[j], r]
    return values, vectors, residual
