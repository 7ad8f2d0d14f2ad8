"""Projections onto the dual cone of the gradients, run by run in scalar loops for Numba.

    z* = argmin |J'(u + z)|^2   s.t.  z >= 0,          from G = JJ'

Two active-set methods in turn, both exact. First all rows whose sign is wrong change sides at once (block
principal pivoting; Portugal, Judice and Vicente 1994), which takes a handful of factorisations; where that
goes in a circle, rows enter one at a time (Lawson and Hanson 1974, chapter 23), which cannot. The rows with
z_j > 0 are kept independent by a Cholesky factor that grows row by row. A run that is not `done` goes to
`mobench.solvers.dual_cone`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mobench.kernels.jit import Array, entry, kernel

# rows of the room `v` of a run
SLOPE, Z, TRIAL, PULL, ROW, LENGTH, INSIDE, U = 0, 1, 2, 3, 4, 5, 6, 7
VECTORS = 8
PATIENCE = 3  # exchanges of all wrong rows that may leave as many of them wrong as before
TURNS = 5  # more turns than so many times n mean that rounding goes in a circle


class Limits(NamedTuple):
    """Thresholds of `mobench.solvers.dual_cone`, under their names there."""

    independent: float
    tie: float
    growth: float
    good: float


@kernel
def limits_of(a: Array) -> Limits:
    return Limits(a[0], a[1], a[2], a[3])


@kernel
def grown(G: Array, L: Array, held: Array, k: int, j: int, smallest: float) -> bool:
    """Appends row j to the Cholesky factor of the k rows held; False if it depends on them up to rounding.

    The factor's diagonal is stored as its reciprocal.
    """
    rest = G[j, j]
    for a in range(k):
        total = G[j, held[a]]
        for b in range(a):
            total -= L[k, b] * L[a, b]
        L[k, a] = total * L[a, a]
        rest -= L[k, a] * L[k, a]
    if not rest > smallest * G[j, j]:
        return False
    L[k, k] = 1.0 / math.sqrt(rest)
    held[k] = j
    return True


@kernel
def solved(L: Array, held: Array, k: int, v: Array) -> float:
    """TRIAL[:k] = -(G_held)^-1 PULL[held]; the smallest entry."""
    for a in range(k):
        total = -v[PULL, held[a]]
        for b in range(a):
            total -= L[a, b] * v[TRIAL, b]
        v[TRIAL, a] = total * L[a, a]
    least = np.inf
    for c in range(k):
        a = k - 1 - c
        total = v[TRIAL, a]
        for b in range(a + 1, k):
            total -= L[b, a] * v[TRIAL, b]
        v[TRIAL, a] = total * L[a, a]
        least = min(least, v[TRIAL, a])
    return least


@kernel
def slopes(G: Array, held: Array, k: int, v: Array, growth: float) -> float:
    """SLOPE = G (u + z), and the length of its terms, sum |g_j| |u_j| + |g_j| |z_j|.

    z counts no more than `growth` times u there.
    """
    n = len(G)
    length = 0.0
    reach = 0.0
    for j in range(n):
        v[SLOPE, j] = v[PULL, j]
        length += v[LENGTH, j] * abs(v[U, j])
    for a in range(k):
        j = held[a]
        z = v[Z, j]
        reach += v[LENGTH, j] * abs(z)
        for i in range(n):
            v[SLOPE, i] += G[j, i] * z
    return length + min(reach, growth * length)


@kernel
def residual_of(v: Array) -> float:
    """Largest |min(z_j, slope_j)|, z_j in units of length / |g_j| and slope_j in units of |g_j| length.

    length = sum |g_j| |u_j| has no part of z: large weights that cancel do not excuse a slope.
    """
    worst = 0.0
    length = 0.0
    for j in range(v.shape[1]):
        length += v[LENGTH, j] * abs(v[U, j])
    if length == 0.0:
        return worst
    for j in range(v.shape[1]):
        root = v[LENGTH, j]
        if root > 0.0:
            slope = v[SLOPE, j] / (root * length)
            worst = max(worst, abs(min(v[Z, j] * root / length, slope)))
    return worst


@kernel
def exchanged(G: Array, L: Array, held: Array, v: Array, limits: Limits) -> tuple[int, float]:
    """Number of rows held at the minimum, and its residual, by exchanges of all wrong rows at once.

    They start from the rows INSIDE; (-1, inf) if they go in a circle.
    """
    n = len(G)
    fewest = n + 1
    patience = PATIENCE
    for _ in range(TURNS + n):
        k = 0
        for j in range(n):
            v[Z, j] = 0.0
            if v[INSIDE, j] > 0.0:
                if grown(G, L, held, k, j, limits.independent):
                    k += 1
                else:
                    v[INSIDE, j] = 0.0
        solved(L, held, k, v)
        for a in range(k):
            v[Z, held[a]] = v[TRIAL, a]
        length = slopes(G, held, k, v, limits.growth)
        wrong = 0
        last = -1
        for j in range(n):
            low = v[SLOPE, j] < -limits.tie * v[LENGTH, j] * length
            v[ROW, j] = 1.0 if (v[Z, j] < 0.0 if v[INSIDE, j] > 0.0 else low) else 0.0
            if v[ROW, j] > 0.0:
                wrong += 1
                last = j
        if wrong == 0:
            return k, residual_of(v)
        patience -= 1
        if wrong < fewest:
            fewest = wrong
            patience = PATIENCE
        for j in range(n):
            if v[ROW, j] > 0.0 and (patience >= 0 or j == last):
                v[INSIDE, j] = 1.0 - v[INSIDE, j]
    return -1, np.inf


@kernel
def moved(G: Array, L: Array, held: Array, k: int, v: Array, smallest: float) -> int:
    """Moves z >= 0 towards the minimum over the k rows held, dropping those that it would take below 0.

    Returns how many are left at that minimum, -1 if rounding has made them dependent.
    """
    while k > 0 and solved(L, held, k, v) <= 0.0:
        share = 1.0
        first = -1
        for a in range(k):
            if v[TRIAL, a] <= 0.0:
                z = v[Z, held[a]]
                part = z / (z - v[TRIAL, a]) if z > 0.0 else 0.0
                if first < 0 or part < share:
                    share = part
                    first = a
        count = 0
        for a in range(k):
            j = held[a]
            z = v[Z, j] + share * (v[TRIAL, a] - v[Z, j])
            if a == first or (v[TRIAL, a] <= 0.0 and z <= 0.0):
                v[Z, j] = 0.0
            else:
                v[Z, j] = z
                v[ROW, count] = j
                count += 1
        k = 0
        for a in range(count):
            if not grown(G, L, held, k, int(v[ROW, a]), smallest):
                return -1
            k += 1
    for a in range(k):
        v[Z, held[a]] = v[TRIAL, a]
    return k


@kernel
def entered(G: Array, L: Array, held: Array, v: Array, limits: Limits) -> tuple[int, float]:
    """Number of rows held at the minimum, and its residual, by rows that enter one at a time.

    (-1, inf) if rounding forbids it.
    """
    n = len(G)
    k = 0
    for j in range(n):
        v[Z, j] = 0.0
    for _ in range(TURNS * n):
        k = moved(G, L, held, k, v, limits.independent)
        if k < 0:
            break
        length = slopes(G, held, k, v, limits.growth)
        enters = -1
        least = -limits.tie
        for j in range(n):
            unit = v[LENGTH, j] * length
            if v[Z, j] == 0.0 and unit > 0.0 and v[SLOPE, j] < least * unit:
                least = v[SLOPE, j] / unit
                enters = j
        if enters < 0:
            for j in range(n):
                v[INSIDE, j] = 1.0 if v[Z, j] > 0.0 else 0.0
            return k, residual_of(v)
        if k == n or not grown(G, L, held, k, enters, limits.independent):
            break
        k += 1
    return -1, np.inf


@entry
def dual_cone(G: Array, u: Array, limits: Array) -> tuple[Array, Array, Array]:
    """u + z* (R, m, n), the largest residual (R,) and done (R,) of m projections for each Gram matrix.

    G (R, n, n); u (R, m, n) or (1, m, n) for all runs. A run that is not finite is done and gets NaN.
    """
    R, n = G.shape[:2]
    m = u.shape[1]
    limit = limits_of(limits)
    x = np.empty((R, m, n))
    residual = np.zeros(R)
    done = np.ones(R, np.bool_)
    L = np.empty((n, n))
    v = np.empty((VECTORS, n))
    held = np.empty(n, np.int64)
    for r in range(R):
        which = 0 if len(u) == 1 else r
        probe = 0.0
        for j in range(n):
            v[LENGTH, j] = math.sqrt(max(G[r, j, j], 0.0))
            v[INSIDE, j] = 0.0
            for i in range(n):
                probe += G[r, i, j]
            for i in range(m):
                probe += u[which, i, j]
        if not abs(probe) < np.inf:
            x[r] = np.nan
            residual[r] = np.nan
            continue
        for i in range(m):
            for j in range(n):
                v[U, j] = u[which, i, j]
                v[PULL, j] = 0.0
            for j in range(n):
                if v[U, j] != 0.0:
                    for h in range(n):
                        v[PULL, h] += G[r, j, h] * v[U, j]
            for j in range(n):
                v[INSIDE, j] = 1.0 if v[PULL, j] < 0.0 else 0.0
            _, kkt = exchanged(G[r], L, held, v, limit)
            if not kkt <= limit.good:
                _, kkt = entered(G[r], L, held, v, limit)
            residual[r] = max(residual[r], kkt)
            if not kkt <= limit.good:
                done[r] = False
                break
            for j in range(n):
                x[r, i, j] = v[U, j] + max(v[Z, j], 0.0)
    return x, residual, done
