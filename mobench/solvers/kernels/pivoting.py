"""Complementary pivoting and the small programs on top of it, run by run in scalar loops for Numba.

Formulas, scales and thresholds of the programs are explained in `mobench.solvers` (`qp`, `lp`, `dual`). One
run is solved after the other, so a run never depends on its neighbours.

Complementary pivoting:  w = q + M z,  w >= 0,  z >= 0,  w'z = 0,  with M = symmetric PSD + skew. The
optimality conditions of convex quadratic and of linear programs have this form (z: variables and
multipliers, w: reduced gradients and slacks), and stepping from basis to basis solves both exactly, in
finitely many steps. Free variables (z_i has no sign and w_i = 0) enter the basis first and stay. Then
Lemke's covering variable z0 makes the rest feasible and is driven out again. Ties are broken by a second
right-hand side, p in q + epsilon p, against cycling. If z0 cannot be driven out, the program is infeasible
or unbounded and z is no solution, which the certificate shows: where only rounding keeps z0 in, at some
1e-12, z is as good as any.

An equality a'x = r is solved for x_k:  x = x_0 + Z z  with  Z = I - e_k alpha',  alpha = a / a_k, x_0 = (r /
a_k) e_k. z_k is then free for the complement of x_k, the reduced gradient w_k, and the skew coupling alpha
e_k' - e_k alpha' exchanges the two.

Source: Lemke 1965; Cottle and Dantzig 1968. Departures: one column of perturbations instead of the full
lexicographic order; two steps of refinement against the original data, which undo the rounding of the
pivots.

All kernels are in one file because Numba compiles a function again when its file has changed, but not when
only a file that it calls into has. Thresholds come as an argument for the same reason. What a run needs lies
in the rows of two arrays: each array that a function takes costs time, to compile and to call. Arrays are
copied in loops: for `to[:] = of` Numba compiles the message of an error, which takes seconds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mobench.kernels.jit import Array, entry, kernel


class Limits(NamedTuple):
    """Thresholds of `mobench.solvers`, under their names there."""

    good: float
    tolerance: float
    growth: float
    tiny: float
    dust: float
    flat: float
    tie: float
    rank: float
    drops: float


# rows of the room `w` of a run: its program, and numbers of a solve beside its tableau
B, A, LOWER, UPPER, X, OTHER = 0, 1, 2, 3, 4, 5
G, D, U, GAMMA, ALPHA, MIRROR = 6, 7, 8, 9, 10, 11
LOW, HIGH, BASE, HELD, BELOW, BEYOND = 12, 13, 14, 15, 16, 17
ROOM = 18
# rows of `v` (VECTORS, m), which belongs to a tableau
RIGHT, FREE, ENTRIES, ERROR, PENDING, BASIS = 0, 1, 2, 3, 4, 5
VECTORS = 6


@kernel
def limits_of(a: Array) -> Limits:
    return Limits(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8])


# complementary pivoting: M (m, m), T (m, 2 m + 3), v (VECTORS, m), z (2 m + 1,)


@kernel
def exchange(T: Array, v: Array, row: int, col: int) -> None:
    """Gauss-Jordan step: column `col` becomes the unit vector of `row`."""
    m, width = T.shape
    for i in range(m):
        v[ENTRIES, i] = T[i, col]
    pivot = T[row, col]
    for j in range(width):
        T[row, j] = T[row, j] / pivot
    for i in range(m):
        entry = v[ENTRIES, i]
        if i != row and entry != 0.0:
            for j in range(width):
                T[i, j] -= entry * T[row, j]
    v[BASIS, row] = col


@kernel
def begin(M: Array, T: Array, v: Array) -> None:
    """The tableau [-M, I, -1, q, p]; the column of the covering variable is still empty."""
    m = len(M)
    for i in range(m):
        for j in range(m):
            T[i, j] = -M[i, j]
            T[i, m + j] = 0.0
        T[i, m + i] = 1.0
        T[i, 2 * m] = 0.0
        T[i, 2 * m + 1] = v[RIGHT, i]
        T[i, 2 * m + 2] = 0.5 + (0.6180339887498949 * (i + 1)) % 1
        v[BASIS, i] = m + i
        v[PENDING, i] = 1.0 if v[FREE, i] > 0 and abs(M[i, i]) > 0 else 0.0


@kernel
def free_row(T: Array, v: Array, smallest: float) -> int:
    """The free variable of largest diagonal that is not basic yet, -1 at the end of its block."""
    row = -1
    for i in range(len(T)):
        if v[PENDING, i] > 0 and abs(T[i, i]) > smallest:
            smallest = abs(T[i, i])
            row = i
    if row >= 0:
        v[PENDING, row] = 0.0
    return row


@kernel
def first_row(T: Array, v: Array, tie: float) -> int:
    """The row that the covering variable enters, -1 if the start is feasible; fills its column."""
    m = len(T)
    least = np.inf
    for i in range(m):
        T[i, 2 * m] = 0.0 if v[FREE, i] > 0 else -1.0
        if not v[FREE, i] > 0 and T[i, 2 * m + 1] < least:
            least = T[i, 2 * m + 1]
    row = -1
    order = np.inf
    if least < -tie:
        for i in range(m):
            low = not v[FREE, i] > 0 and T[i, 2 * m + 1] <= least + tie
            if low and T[i, 2 * m + 2] < order:
                order = T[i, 2 * m + 2]
                row = i
    return row


@kernel
def leaving_row(T: Array, v: Array, col: int, tolerance: float, tie: float) -> int:
    """The row that stops the entering column, -1 if none does (a ray)."""
    m = len(T)
    z0 = 2 * m
    largest = 0.0
    for i in range(m):
        largest = max(largest, abs(T[i, col]))
    threshold = tolerance * (1 + largest)
    step = np.inf
    row = -1
    for i in range(m):
        if T[i, col] > threshold and not v[FREE, i] > 0:
            ratio = T[i, z0 + 1] / T[i, col]
            if ratio < step:
                step = ratio
                row = i
    if row < 0:
        return -1
    step = max(step, 0.0)
    order = np.inf
    for i in range(m):
        entry = T[i, col]
        if entry > threshold and not v[FREE, i] > 0 and T[i, z0 + 1] - step * entry <= tie:
            ratio = -np.inf if v[BASIS, i] == z0 else T[i, z0 + 2] / entry
            if ratio < order:
                order = ratio
                row = i
    return row


@kernel
def refined(M: Array, T: Array, v: Array, z: Array) -> None:
    """z from the basis, after two steps of refinement against the data, which undo the pivots' rounding."""
    m = len(M)
    for turn in range(3):
        z[:] = 0.0
        for i in range(m):
            if turn == 0:
                v[ENTRIES, i] = T[i, 2 * m + 1]
            z[int(v[BASIS, i])] = v[ENTRIES, i]
        if turn == 2:
            break
        for i in range(m):
            error = v[RIGHT, i] - z[m + i]
            if not v[FREE, i] > 0:
                error += z[2 * m]
            for j in range(m):
                error += M[i, j] * z[j]
            v[ERROR, i] = error
        for i in range(m):
            change = 0.0
            for j in range(m):
                change += T[i, m + j] * v[ERROR, j]
            v[ENTRIES, i] += change


@kernel
def complementary_pivot(M: Array, T: Array, v: Array, z: Array, tolerance: float, limits: Limits) -> None:
    """z of the mixed problem in z[:m]; see above."""
    m = len(M)
    begin(M, T, v)
    freeing = True
    row = 0
    col = 0
    left = 20 * m + 20
    while left > 0:
        if freeing:
            row = free_row(T, v, limits.rank * tolerance)
            col = row
            if row < 0:
                freeing = False
                row = first_row(T, v, limits.tie)
                col = 2 * m
        if row < 0:
            break
        leaving = int(v[BASIS, row])
        exchange(T, v, row, col)
        if freeing:
            continue
        left -= 1
        if leaving == 2 * m:
            break
        col = (leaving + m) % (2 * m)  # the complement of the variable that has left enters
        row = leaving_row(T, v, col, tolerance, limits.tie)
    refined(M, T, v, z)


# convex QPs:  min 1/2 x'Qx - b'x  over  lower <= x <= upper  and, where `equality`, a'x = r;
# `above`: there are upper bounds


@kernel
def root(x: float) -> float:
    """Square root; 0 of a negative number, which is rounding of 0."""
    return math.sqrt(x) if x > 0 else 0.0


@kernel
def power(x: float) -> float:
    """2^x for x rounded to an integer."""
    return 2.0 ** np.rint(x)


@kernel
def shifted(Q: Array, w: Array, P: Array, above: bool, levelled: float, limits: Limits) -> None:
    """Q and gradient with lower = 0 and rows made alike, for the bounds BELOW and BEYOND."""
    n = len(Q)
    longest = 0.0
    for i in range(n):
        low = w[BELOW, i]
        high = w[BEYOND, i]
        w[MIRROR, i] = 1.0
        if above and low == -np.inf and high < np.inf:
            # its negative has a lower bound, from which pivoting can start
            w[MIRROR, i] = -1.0
            low = -high
            high = np.inf
        w[LOW, i] = low
        w[HIGH, i] = high
        w[BASE, i] = 0.0 if low == -np.inf else low
        longest = max(longest, Q[i, i])
    longest += limits.tiny
    for i in range(n):
        gradient = 0.0
        for j in range(n):
            P[i, j] = w[MIRROR, i] * Q[i, j] * w[MIRROR, j]
            gradient += P[i, j] * w[BASE, j]
        w[D, i] = 1.0
        if Q[i, i] != 0.0:
            w[D, i] = power(-0.5 * levelled * math.log2(abs(Q[i, i]) / longest + limits.flat))
        w[G, i] = (gradient - w[MIRROR, i] * w[B, i]) * w[D, i]
    for i in range(n):
        w[ALPHA, i] = w[MIRROR, i] * w[A, i] * w[D, i]
        for j in range(n):
            P[i, j] = w[D, i] * P[i, j] * w[D, j]


@kernel
def unit_of(
    w: Array, r: float, equality: bool, trace: float, steep: float, tiny: float
) -> tuple[float, float]:
    """The unit of x and the rest of a'x = r."""
    if not equality:
        return (steep / (trace + tiny) if trace > 0 and steep > 0 else 1.0), 0.0
    rest = r
    largest = 0.0
    plus = False
    minus = False
    endless = False
    for i in range(w.shape[1]):
        a = w[MIRROR, i] * w[A, i]
        rest -= a * w[BASE, i]
        largest = max(largest, abs(w[ALPHA, i]))
        plus |= a > 0
        minus |= a < 0
        endless |= w[LOW, i] == -np.inf and a != 0
    unit = abs(rest) / largest
    if not (unit > 0 and unit < np.inf):
        unit = 1.0
    # a'x = r limits no single variable where one of them is free, or where coefficients have both signs
    if (endless or (plus and minus)) and trace * unit < steep and trace > 0:
        unit = steep / (trace + tiny)
    return unit, rest


@kernel
def own_units(w: Array, P: Array, above: bool, unit: float, gamma: float, length: float, tiny: float) -> None:
    """Units of all x_i and of all gradients where not every variable is in the equality."""
    n = len(P)
    for i in range(n):
        side = root(P[i, i])
        if w[HELD, i] == 0 and side > 0:
            pull = abs(w[G, i]) if w[LOW, i] == -np.inf else -w[G, i]
            length = max(length, pull / side)
    if not length > 0:
        length = 1.0
    for i in range(n):
        side = root(P[i, i])
        w[U, i] = unit
        if w[HELD, i] == 0:
            u = length / side if side > 0 else 1.0
            if above:
                span = (w[HIGH, i] - w[BASE, i]) / w[D, i]
                if span > 0 and span < u:
                    u = span
            w[U, i] = power(math.log2(u))
    moved = 0.0
    for i in range(n):
        for j in range(n):
            if w[HELD, i] > 0 and w[HELD, j] == 0:
                moved = max(moved, abs(P[i, j]) * w[U, j])
    for i in range(n):
        steep = max(abs(w[G, i]), root(P[i, i]) * length)
        w[GAMMA, i] = (max(gamma, moved) if w[HELD, i] > 0 else steep) + tiny


@kernel
def scaled(
    w: Array, P: Array, r: float, equality: bool, above: bool, ridge: float, apart: bool, tiny: float
) -> tuple[float, float]:
    """P and gradient in units of size 1; U becomes the unit of each x_i. Returns the unit, the rest."""
    n = len(P)
    trace = 0.0
    steep = 0.0
    for i in range(n):
        w[HELD, i] = 1.0 if equality and w[A, i] != 0 else 0.0
        if w[HELD, i] > 0 or not apart:
            trace += P[i, i]
            steep = max(steep, abs(w[G, i]))
    unit, rest = unit_of(w, r, equality, trace, steep, tiny)
    gamma = max(trace * unit, steep)
    if apart:
        own_units(w, P, above, unit, gamma, root(trace) * unit, tiny)
    else:
        for i in range(n):
            w[U, i] = unit
            w[GAMMA, i] = gamma + tiny
    for i in range(n):
        for j in range(n):
            P[i, j] = P[i, j] * (w[U, j] / w[GAMMA, i])
        w[G, i] = w[G, i] / w[GAMMA, i]
    for i in range(n):
        if ridge > 0:
            P[i, i] += ridge * (1.0 if w[HELD, i] > 0 or not apart else P[i, i])
        w[U, i] = w[D, i] * w[U, i]
    return unit, rest


@kernel
def vertex(w: Array, P: Array, rest: float, unit: float, tiny: float) -> int:
    """The variable that the equality is solved for: a free one, or the vertex of least value."""
    n = len(P)
    top = 0.0
    for i in range(n):
        top = max(top, abs(w[ALPHA, i]))
    k = 0
    best = np.inf
    for i in range(n):
        a = w[ALPHA, i]
        score = np.inf
        if w[LOW, i] == -np.inf and abs(a) > 0:
            score = -1 / tiny * (abs(a) / top)
        elif abs(a) > 0.1 * top:
            score = (0.5 * P[i, i] * (rest / unit) / a + w[G, i]) / a * (-1.0 if rest < 0 else 1.0)
        if score < best:
            best = score
            k = i
    return k


@kernel
def eliminated(w: Array, P: Array, M: Array, v: Array, k: int, share: float) -> float:
    """Z'PZ + coupling and Z'(g + P x_0) into the tableau, for a'x = share solved for x_k; returns x_0,k.

    ALPHA: from a in its units to alpha = a / a_k.
    """
    n = len(P)
    pivot = w[ALPHA, k]
    has = pivot != 0
    start = share / pivot if has else 0.0
    for i in range(n):
        w[ALPHA, i] = w[ALPHA, i] / pivot if has else 0.0
        w[G, i] += P[i, k] * start
    for i in range(n):
        v[RIGHT, i] = w[G, i] - w[ALPHA, i] * w[G, k]
        corner = P[i, k] - w[ALPHA, i] * P[k, k]
        for j in range(n):
            M[i, j] = P[i, j] - w[ALPHA, i] * P[k, j] - corner * w[ALPHA, j]
    if has:
        v[RIGHT, k] = start
        for i in range(n):
            M[i, k] += w[ALPHA, i]
        for j in range(n):
            M[k, j] -= w[ALPHA, j]
    return start


@kernel
def bounded_above(w: Array, M: Array, v: Array, k: int, start: float) -> None:
    """Slacks of x <= upper below the rows of the tableau; +inf is a slack that never changes."""
    n = w.shape[1]
    for i in range(n):
        known = w[HIGH, i] < np.inf
        begun = start if i == k else 0.0
        v[RIGHT, n + i] = (w[HIGH, i] - w[BASE, i]) / w[U, i] - begun if known else 1.0
        v[FREE, n + i] = 0.0
        for j in range(n):
            entry = 1.0 if i == j else 0.0
            if i == k:
                entry -= w[ALPHA, j]
            entry = entry if known else 0.0
            M[n + i, j] = -entry
            M[j, n + i] = entry
            M[n + i, n + j] = 0.0


@kernel
def gathered(
    w: Array, z: Array, x: int, k: int, start: float, rest: float, exact: bool, limits: Limits
) -> None:
    """x from z, in units of x, into row x of w; `exact`: x >= 0 and a'x = rest are all constraints."""
    n = w.shape[1]
    if k >= 0:
        value = 0.0
        for j in range(n):
            if j != k:  # z_k is the reduced gradient
                value -= w[ALPHA, j] * z[j]
        z[k] = start + value
    total = 0.0
    for i in range(n):
        free = w[LOW, i] == -np.inf
        exact = exact and not free
        w[x, i] = (z[i] if free or z[i] > limits.dust else 0.0) * w[U, i]
        total += w[MIRROR, i] * w[A, i] * w[x, i]
    # coordinates that rounding had put below 0 are 0 now: the others pay for them
    off = abs(total - rest)
    factor = rest / total if exact and off > 2e-15 * total and off < 1e-9 * total else 1.0
    for i in range(n):
        value = w[x, i] * factor + w[BASE, i]
        w[x, i] = (w[HIGH, i] if value > w[HIGH, i] else value) * w[MIRROR, i]


@kernel
def pivoted(
    Q: Array, w: Array, P: Array, M: Array, T: Array, v: Array, z: Array, r: float, equality: bool,
    above: bool, x: int, ridge: float, apart: bool, levelled: float, limits: Limits,
) -> None:  # fmt: skip
    """Row x of w: the QP between BELOW and BEYOND by complementary pivoting."""
    n = len(Q)
    shifted(Q, w, P, above, levelled, limits)
    unit, rest = scaled(w, P, r, equality, above, ridge, apart, limits.tiny)
    start = 0.0
    k = -1
    if equality:
        k = vertex(w, P, rest, unit, limits.tiny)
        start = eliminated(w, P, M, v, k, rest / unit)
        if w[ALPHA, k] == 0:
            k = -1
    for i in range(n):
        v[FREE, i] = 1.0 if w[LOW, i] == -np.inf else 0.0
        if not equality:
            v[RIGHT, i] = w[G, i]
            for j in range(n):
                M[i, j] = P[i, j]
    if above:
        bounded_above(w, M, v, k, start)
    complementary_pivot(M, T, v, z, 1e-12 if ridge > 0 else 1e-9, limits)
    gathered(w, z, x, k, start, rest, equality and not above, limits)


# the certificate of `qp_residual`; it needs G, the rows of scales, and ALPHA (how much of |x_i| the bounds
# account for)


@kernel
def bounded_size(w: Array, x: int, r: float, equality: bool, above: bool) -> bool:
    """Returns the part of |x_i| that the bounds account for; False where lower = 0 without upper bounds."""
    n = w.shape[1]
    limited = above
    idle = not equality or r == 0
    shortest = np.inf
    for i in range(n):
        limited |= w[LOWER, i] != 0
        idle = idle and w[B, i] == 0
        for end in (abs(w[LOWER, i]), abs(w[UPPER, i])):
            if end > 0:
                shortest = min(shortest, end)
    if not (limited and idle and shortest < np.inf):
        shortest = 0.0
    for i in range(n):
        low = w[LOWER, i]
        high = w[UPPER, i]
        least = high if high < np.inf else max(low, 0.0)
        most = -low if low > -np.inf else (-high if above else 0.0)
        size = min(w[x, i], least) if w[x, i] > 0 else min(-w[x, i], most)
        w[ALPHA, i] = max(size, shortest) if size > 0 else shortest
    return limited


@kernel
def sizes(Q: Array, w: Array, x: int, r: float, equality: bool, limited: bool, limits: Limits) -> None:
    """Units of each gradient (GAMMA) and of each distance to a bound (U)."""
    n = len(Q)
    trace = 0.0
    size = 0.0
    gamma = 0.0
    near = 0.0
    top = 0.0
    every = equality
    for i in range(n):
        if equality and w[A, i] > 0:
            trace += Q[i, i]
            size = max(size, abs(w[x, i]))
            gamma = max(gamma, abs(w[B, i]))
            near = max(near, w[ALPHA, i])
            top = max(top, w[A, i])
        else:
            every = False
    unit = abs(r) / (top + limits.tiny) if equality else 0.0
    gamma = max(gamma, trace * max(near, unit)) + limits.tiny
    for i in range(n):
        w[GAMMA, i] = min(max(trace * size, gamma), limits.growth * gamma)
        w[U, i] = gamma / (trace + limits.tiny) if trace > 0 else max(unit, size)
    if not every:
        loose_sizes(Q, w, x, equality, limited, trace, unit, limits)


@kernel
def loose_sizes(
    Q: Array, w: Array, x: int, equality: bool, limited: bool, trace: float, unit: float, limits: Limits
) -> None:
    """The same where some variables are in no equality: each of these has separate units.

    |J_i| and |J'x| of Q = JJ', the latter as the sum of its terms.
    """
    n = len(Q)
    length = root(trace)
    scale = length * unit
    far = 0.0
    bounds = 0.0
    outside = 0.0
    inside = 0.0
    extra = 0.0
    for i in range(n):
        row = root(Q[i, i])
        term = row * max(abs(w[x, i]), w[ALPHA, i])
        bounds += row * w[ALPHA, i]
        if equality and w[A, i] > 0:
            inside += term
        else:
            outside += term
            extra += abs(w[B, i]) * abs(w[x, i])
            if row > 0:
                far = max(far, abs(w[B, i]) / row)
    if limited:
        far = max(far, bounds)
    part = min(outside, max(scale, limits.growth * far))
    whole = part + min(inside, limits.growth * scale)
    for i in range(n):
        if equality and w[A, i] > 0:
            w[GAMMA, i] = max(w[GAMMA, i], length * part)
        else:
            row = root(Q[i, i])
            height = abs(w[B, i])
            w[GAMMA, i] = max(height, row * whole) + limits.tiny
            share = np.inf if limited and not row > 0 else whole / (row + limits.tiny)
            share = min(share, (whole * whole + extra) / (height + limits.tiny))
            if scale == 0 and row > 0:
                share = max(share, height / Q[i, i])
            w[U, i] = share


@kernel
def natural(w: Array, x: int, nu: float, above: bool) -> float:
    """Largest entry of x - Pi(x - (g - nu a)) in its units; inf if one is NaN."""
    worst = 0.0
    for i in range(w.shape[1]):
        slope = (w[G, i] - nu * w[A, i]) / w[GAMMA, i]
        low = (w[x, i] - w[LOWER, i]) / w[U, i]
        high = (w[x, i] - w[UPPER, i]) / w[U, i] if above else -np.inf
        if slope != slope or low != low or high != high:
            return np.inf
        worst = max(worst, abs(max(min(slope, low), high)))
    return worst


@kernel
def program_residual(
    Q: Array, w: Array, x: int, r: float, equality: bool, above: bool, limits: Limits
) -> float:
    """The certificate of row x; inf where it cannot be computed."""
    n = len(Q)
    sizes(Q, w, x, r, equality, bounded_size(w, x, r, equality, above), limits)
    rest = r
    pulled = 0.0
    weight = 0.0
    least = np.inf
    total = 0.0
    largest = abs(r)
    for i in range(n):
        gradient = 0.0
        for j in range(n):
            gradient += Q[i, j] * w[x, j]
        gradient -= w[B, i]
        w[G, i] = gradient
        a = w[A, i]
        total += a * w[x, i]
        largest = max(largest, a * max(abs(w[x, i]), w[ALPHA, i]))
        if a > 0:
            rest -= a * w[LOWER, i]
            least = min(least, gradient / a)
            inner = w[x, i] - w[LOWER, i] if w[x, i] > w[LOWER, i] else 0.0
            inner = inner if inner < np.inf else 1.0
            pulled += inner * gradient
            weight += inner * a
    for i in range(n):
        span = w[UPPER, i] - w[LOWER, i]
        if equality and w[A, i] > 0:
            span = min(span, abs(rest) / w[A, i])
        if span > 0:
            w[U, i] = min(w[U, i], span)
        w[U, i] += limits.tiny
    residual = np.inf
    for c in range(-1, n if equality and above else 0):
        nu = 0.0
        if equality:
            nu = pulled / weight if c < 0 else (w[G, c] / w[A, c] if w[A, c] > 0 else np.inf)
            if not abs(nu) < np.inf:
                nu = least if least < np.inf else 0.0
        residual = min(residual, natural(w, x, nu, above))
    off = abs(total - r) / (largest + limits.tiny) if equality else 0.0
    return max(residual, off) if off <= np.inf else np.inf


@kernel
def dropped(w: Array, x: int) -> bool:
    """Drops bounds far from a small x_i, whose digits are lost beside them; True if there were any."""
    far = False
    for i in range(w.shape[1]):
        size = 2 * abs(w[x, i])
        if abs(w[BELOW, i]) > size and w[BELOW, i] > -np.inf:
            w[BELOW, i] = -np.inf
            far = True
        if abs(w[BEYOND, i]) > size and w[BEYOND, i] < np.inf:
            w[BEYOND, i] = np.inf
            far = True
    return far


@kernel
def attempt(
    Q: Array, w: Array, P: Array, M: Array, T: Array, v: Array, z: Array, r: float, equality: bool,
    above: bool, x: int, ridge: float, apart: bool, drops: int, levelled: float, limits: Limits,
) -> float:  # fmt: skip
    """Solves the QP into row x of w by one way, and returns its residual."""
    n = len(Q)
    for i in range(n):
        w[BELOW, i] = w[LOWER, i]
        w[BEYOND, i] = w[UPPER, i]
    for turn in range(drops + 1):
        pivoted(Q, w, P, M, T, v, z, r, equality, above, x, ridge, apart, levelled, limits)
        if turn > 0:
            for i in range(n):
                w[x, i] = max(w[x, i], w[LOWER, i]) if w[x, i] == w[x, i] else w[x, i]
                w[x, i] = min(w[x, i], w[UPPER, i]) if w[x, i] == w[x, i] else w[x, i]
        if turn == drops or not dropped(w, x):
            break
    # x = 0 where the bounds allow it and nothing pulls: there is nothing to round
    still = not equality or r == 0
    for i in range(n):
        still = still and w[B, i] == 0 and w[LOWER, i] <= 0 and w[UPPER, i] >= 0
    if still:
        w[x] = 0.0
    return program_residual(Q, w, x, r, equality, above, limits)


@kernel
def solved(
    Q: Array, w: Array, P: Array, M: Array, T: Array, v: Array, z: Array, r: float, equality: bool,
    above: bool, ridges: Array, limits: Limits,
) -> float:  # fmt: skip
    """Solves the QP into row X of w by one way after another until one is good; returns the residual."""
    bounded = above
    apart = not equality
    for i in range(len(Q)):
        bounded |= w[LOWER, i] != 0
        apart |= equality and w[A, i] == 0
    ways = (4 if apart else 3) if bounded else 2
    nearer = 2 if bounded else 1  # the turn from which on rows are nearer to their lengths
    first = 0 if apart else 1
    residual = np.inf
    for turn in range(1 + ways + len(ridges) - first):
        plain = turn == 0 or turn > ways
        ridge = ridges[turn - 1 - ways + first] if turn > ways else 0.0
        levelled = 0.0 if turn == nearer and not plain else (0.5 if turn == nearer + 1 and not plain else 1.0)
        separate = apart and turn > 0 and (turn > ways or (bounded and turn == 4))
        x = X if turn == 0 else OTHER
        drops = 0 if plain or not bounded else int(limits.drops)
        lower = attempt(
            Q, w, P, M, T, v, z, r, equality, above, x, ridge, separate, drops, levelled, limits
        )  # fmt: skip
        if turn == 0 or lower < residual:
            residual = lower
            for i in range(len(Q)):
                w[X, i] = w[x, i]
        if residual <= limits.good:
            break
    return residual


@kernel
def put(w: Array, row: int, values: Array, i: int, default: float) -> None:
    """Row i of values into a row of w; one row stands for all runs, no row for the default."""
    one = 0 if len(values) == 1 else i
    for j in range(w.shape[1]):
        w[row, j] = values[one, j] if len(values) > 0 else default


@entry
def qp(
    Q: Array, b: Array, a: Array, r: Array, lower: Array, upper: Array, ridges: Array, limits: Array
) -> tuple[Array, Array, Array]:
    """x (R, n), residual (R,) and failed (R,) of R convex QPs; a run that is not finite gets NaN.

    Q (R, n, n); b, a, lower, upper (R, n), one row for all runs, or no row for none (b and lower: 0); r (R,)
    the same, with a row if a has one.
    """
    R, n = Q.shape[:2]
    limit = limits_of(limits)
    equality = len(a) > 0
    above = len(upper) > 0
    m = 2 * n if above else n
    w = np.empty((ROOM, n))
    P = np.empty((n, n))
    M = np.empty((m, m))
    T = np.empty((m, 2 * m + 3))
    v = np.empty((VECTORS, m))
    z = np.empty(2 * m + 1)
    x = np.empty((R, n))
    residual = np.empty(R)
    failed = np.zeros(R, np.bool_)
    for i in range(R):
        put(w, B, b, i, 0.0)
        put(w, A, a, i, 0.0)
        put(w, LOWER, lower, i, 0.0)
        put(w, UPPER, upper, i, np.inf)
        share = r[0 if len(r) == 1 else i] if equality else 0.0
        probe = share
        for j in range(n):
            probe += w[B, j] + w[A, j]
            for k in range(n):
                probe += Q[i, j, k]
        if not abs(probe) < np.inf:
            x[i] = np.nan
            residual[i] = np.nan
            continue
        residual[i] = solved(Q[i], w, P, M, T, v, z, share, equality, above, ridges, limit)
        failed[i] = not residual[i] <= limit.tolerance
        for j in range(n):
            x[i, j] = np.nan if failed[i] else w[X, j]
    return x, residual, failed


@entry
def qp_residual(
    Q: Array, b: Array, a: Array, r: Array, lower: Array, upper: Array, x: Array, limits: Array
) -> Array:
    """The certificate (R,) of anybody's x (R, n) for the programs of `qp`; inf where it has none."""
    R, n = x.shape
    w = np.empty((ROOM, n))
    out = np.empty(R)
    for i in range(R):
        put(w, B, b, i, 0.0)
        put(w, A, a, i, 0.0)
        put(w, LOWER, lower, i, 0.0)
        put(w, UPPER, upper, i, np.inf)
        put(w, X, x, i, 0.0)
        share = r[0 if len(r) == 1 else i] if len(a) > 0 else 0.0
        Q_ = Q[0 if len(Q) == 1 else i]
        out[i] = program_residual(Q_, w, X, share, len(a) > 0, len(upper) > 0, limits_of(limits))
    return out


# linear programs over the simplex:  max c'x,  Gx >= 0,  c and each row of G scaled (`lp.homogeneous`)


@kernel
def linear_solved(
    c: Array, G: Array, h: Array, M: Array, T: Array, v: Array, z: Array, limits: Limits
) -> float:
    """x and multipliers of max c'x, Gx >= h in z, and their residual; NaN where a number is not finite.

    Overwrites c and G by the homogeneous form, M and T by the tableau.
    """
    k, n = G.shape
    mean = 0.0
    size = 0.0
    for j in range(n):
        mean += c[j] / n
        size = max(size, abs(c[j]))
    probe = 0.0
    top = 0
    for j in range(n):
        c[j] = (c[j] - mean) / (size + limits.tiny)
        probe += c[j]
        if c[j] > c[top]:
            top = j
    for i in range(k):
        low = 0.0 if h[i] == -np.inf else h[i]
        size = abs(low)
        for j in range(n):
            size = max(size, abs(G[i, j]))
        weight = 0.0 if h[i] == -np.inf else 1 / (size + limits.tiny)
        for j in range(n):
            G[i, j] = (G[i, j] - low) * weight
            probe += G[i, j]
    if not abs(probe) < np.inf:
        return np.nan
    M[:, :] = 0.0
    v[FREE] = 0.0
    for j in range(n):
        v[RIGHT, j] = c[top] - c[j]
        M[j, top] += 1.0
        M[top, j] -= 1.0
        for i in range(k):
            M[n + i, j] = G[i, j] - G[i, top]
            M[j, n + i] = -M[n + i, j]
    v[RIGHT, top] += 1.0
    for i in range(k):
        v[RIGHT, n + i] = G[i, top]
    complementary_pivot(M, T, v, z, 1e-9, limits)
    rest = 0.0
    for j in range(n):
        if j != top:
            rest += z[j]
    z[top] = 1.0 - rest
    for j in range(n + k):
        z[j] = 0.0 if z[j] < 0 else z[j]
    return linear_residual(c, G, z, limits.growth)


@kernel
def linear_residual(c: Array, G: Array, z: Array, growth: float) -> float:
    """Primal infeasibility, and the gap relative to the multipliers, of x and y >= 0 in z."""
    k, n = G.shape
    value = 0.0
    total = 0.0
    bound = -np.inf
    size = 1.0
    worst = 0.0
    for i in range(k):
        size = max(size, z[n + i])
        row = 0.0
        for j in range(n):
            row += G[i, j] * z[j]
        if row != row:
            return np.inf
        worst = max(worst, -row)
    for j in range(n):
        value += c[j] * z[j]
        total += z[j]
        column = c[j]
        for i in range(k):
            column += z[n + i] * G[i, j]
        if column != column:
            return np.inf
        bound = max(bound, column)
    gap = abs(bound - value) / min(size, growth)
    off = abs(total - 1)
    return max(max(worst, off), gap) if gap + off < np.inf else np.inf


@kernel
def put_solution(x: Array, z: Array, residual: float, tolerance: float) -> bool:
    """Puts the solution into x, NaN where it is none; returns whether the run failed."""
    good = residual <= tolerance
    for j in range(len(x)):
        x[j] = z[j] if good else np.nan
    return not good and residual == residual


@entry
def lp(c: Array, G: Array, h: Array, limits: Array) -> tuple[Array, Array, Array]:
    """x (R, n), residual (R,), failed (R,) of max c'x over Gx >= h and the simplex; overwrites c and G."""
    R, k, n = G.shape
    limit = limits_of(limits)
    m = n + k
    M = np.empty((m, m))
    T = np.empty((m, 2 * m + 3))
    v = np.empty((VECTORS, m))
    z = np.empty(2 * m + 1)
    x = np.empty((R, n))
    residual = np.empty(R)
    failed = np.empty(R, np.bool_)
    for i in range(R):
        residual[i] = linear_solved(c[i], G[i], h[i], M, T, v, z, limit)
        failed[i] = put_solution(x[i], z, residual[i], limit.tolerance)
    return x, residual, failed


@entry
def epo_lp(
    K: Array, Ca: Array, balance: Array, jstar: Array, restricted: bool, limits: Array
) -> tuple[Array, Array, Array]:
    """As `lp`, for the programs of EPO; see `mobench.solvers.lp.epo_data`."""
    R, n = Ca.shape
    limit = limits_of(limits)
    k = n + 1 if restricted else n
    m = n + k
    M = np.empty((m, m))
    T = np.empty((m, 2 * m + 3))
    v = np.empty((VECTORS, m))
    z = np.empty(2 * m + 1)
    c = np.empty(n)
    G = np.empty((k, n))
    h = np.empty(k)
    x = np.empty((R, n))
    residual = np.empty(R)
    failed = np.empty(R, np.bool_)
    for i in range(R):
        largest = Ca[i, 0]
        for j in range(n):
            largest = Ca[i, j] if Ca[i, j] > largest else largest
            c[j] = Ca[i, j] if balance[i] else 0.0
            for row in range(n):
                G[row, j] = K[i, row, j]
                c[j] += 0.0 if balance[i] else K[i, row, j]
            if restricted:
                G[n, j] = Ca[i, j]
        for j in range(n):
            bound = Ca[i, j] if largest > 0 else 0.0
            h[j] = 0.0 if j == jstar[i] or not balance[i] else (-np.inf if Ca[i, j] > 0 else bound)
        if restricted:
            h[n] = -np.inf if balance[i] else (largest if largest < 0 else 0.0)
        residual[i] = linear_solved(c, G, h, M, T, v, z, limit)
        failed[i] = put_solution(x[i], z, residual[i], limit.tolerance)
    return x, residual, failed


# FERERO's dual; the names are those of `mobench.solvers.dual`


@kernel
def times(X: Array, Y: Array, out: Array, sign: float) -> None:
    """out += sign X Y; zeros of X cost nothing."""
    n, m = X.shape
    k = Y.shape[1]
    for i in range(n):
        for j in range(m):
            factor = sign * X[i, j]
            if factor != 0.0:
                for c in range(k):
                    out[i, c] += factor * Y[j, c]


@kernel
def turned(X: Array, out: Array) -> None:
    """out = X'."""
    n, m = X.shape
    for i in range(n):
        for j in range(m):
            out[j, i] = X[i, j]


@kernel
def inverted(S: Array, L: Array, out: Array) -> bool:
    """out = S^-1 by Cholesky's factors; False where S is too near to singular to be sure of its rank."""
    n = len(S)
    out[:, :] = 0.0
    for i in range(n):
        for j in range(i + 1):
            value = S[i, j]
            for k in range(j):
                value -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = value / L[j, j]
            elif value > 1e-10 * S[i, i] and value > 0:
                L[i, i] = math.sqrt(value)
            else:
                return False
    # the columns of L^-1 in the upper half, then S^-1 = L^-T L^-1
    for j in range(n):
        out[j, j] = 1 / L[j, j]
        for i in range(j + 1, n):
            value = 0.0
            for k in range(j, i):
                value -= L[i, k] * out[j, k]
            out[j, i] = value / L[i, i]
    size = 0.0
    length = 0.0
    for i in range(n):
        for j in range(i, n):
            value = 0.0
            for k in range(j, n):
                value += out[i, k] * out[j, k]
            L[j, i] = value
            size += S[i, j] * S[i, j] * (1 if i == j else 2)
            length += value * value * (1 if i == j else 2)
    for i in range(n):
        for j in range(i + 1):
            out[i, j] = L[i, j]
            out[j, i] = L[i, j]
    return size * length < 1e20


@kernel
def spectral(S: Array, V: Array, out: Array) -> None:
    """out = S^+ by Jacobi's rotations; eigenvalues up to 1e-13 of the largest are 0. Overwrites S."""
    n = len(S)
    V[:, :] = 0.0
    for i in range(n):
        V[i, i] = 1.0
    for _ in range(60):
        off = 0.0
        for p in range(n):
            for q in range(p + 1, n):
                if abs(S[p, q]) <= 1e-17 * math.sqrt(abs(S[p, p] * S[q, q])) or S[p, q] == 0.0:
                    continue
                off += 1.0
                theta = (S[q, q] - S[p, p]) / (2 * S[p, q])
                t = (1.0 if theta >= 0 else -1.0) / (abs(theta) + math.sqrt(theta * theta + 1))
                if not abs(theta) < 1e150:
                    t = 0.5 / theta
                c = 1 / math.sqrt(t * t + 1)
                s = t * c
                for k in range(n):
                    first = S[k, p]
                    S[k, p] = c * first - s * S[k, q]
                    S[k, q] = s * first + c * S[k, q]
                for k in range(n):
                    first = S[p, k]
                    S[p, k] = c * first - s * S[q, k]
                    S[q, k] = s * first + c * S[q, k]
                    first = V[k, p]
                    V[k, p] = c * first - s * V[k, q]
                    V[k, q] = s * first + c * V[k, q]
                S[p, q] = 0.0
                S[q, p] = 0.0
        if off == 0.0:
            break
    largest = 0.0
    for k in range(n):
        largest = max(largest, S[k, k])
    out[:, :] = 0.0
    for k in range(n):
        if S[k, k] > 1e-13 * largest:
            for i in range(n):
                for j in range(n):
                    out[i, j] += V[i, k] * V[j, k] / S[k, k]


@kernel
def pseudoinverse(S: Array, V: Array, out: Array, trace: float) -> None:
    """out = S^+; overwrites S. NaN where S is not finite.

    One row: a division. More: eigenvalues below 1e-13 of the largest are taken as 0, so that an equality that
    no direction can move (B_h J = 0) leaves its multiplier at 0; whether it holds is then judged by the
    certificate.
    """
    h = len(S)
    if h == 1:
        out[0, 0] = 0.0 if S[0, 0] - 1e-26 * trace <= 0 else 1 / S[0, 0]
        return
    unit = trace if trace != 0 else 1.0
    probe = trace
    for i in range(h):
        for j in range(i + 1):
            value = 0.5 * (S[i, j] + S[j, i]) / unit
            S[i, j] = value
            S[j, i] = value
            probe += value
    if not abs(probe) < np.inf:
        out[:, :] = np.nan
        return
    if not inverted(S, V, out):
        spectral(S, V, out)
    for i in range(h):
        for j in range(h):
            out[i, j] = out[i, j] / unit


@kernel
def dual_program(
    rows: Array, rows_k: Array, C: Array, SH: Array, P: Array, Q: Array, w: Array, affine: Array, bg: Array,
    K: Array, n: int, c_g: float, adaptive: bool,
) -> float:  # fmt: skip
    """Puts linear term and equality of the QP into w, and removes rounding of zeros from Q; returns r."""
    e, M = P.shape
    trace = 0.0
    terms = 0.0
    for i in range(e):
        trace += Q[i, i]
        for k in range(M):
            terms += rows_k[i, k] * rows[i, k]
    small = trace <= 1e-14 * terms
    total = 0.0
    for i in range(e):
        w[LOWER, i] = 0.0
        w[UPPER, i] = np.inf
        w[A, i] = 0.0
        if i < n:
            w[A, i] = affine[i]
            if not adaptive:
                some = False
                for k in range(M):
                    some |= rows[i, k] != 0
                w[A, i] = 1.0 if some else 0.0
            total += w[A, i]
        w[B, i] = 0.0
        for k in range(len(SH)):
            w[B, i] -= C[k, i] * SH[k]
        for j in range(i + 1):
            value = 0.0 if small else 0.5 * (Q[i, j] + Q[j, i])
            Q[i, j] = value
            Q[j, i] = value
    for i in range(n, e):
        w[B, i] += c_g * (affine[i] + bg[i - n])
    for i in range(e if e > n else 0):
        length = 0.0
        square = 0.0
        for k in range(M):
            length += abs(P[i, k]) * math.sqrt(K[k, k])
            square += rows_k[i, k] * rows[i, k]
        if Q[i, i] <= 1e-14 * length * length + 1e-26 * square:
            Q[i, :] = 0.0
            Q[:, i] = 0.0
            if i >= n:
                terms = c_g * (abs(affine[i]) + abs(bg[i - n]))
                for k in range(len(SH)):
                    terms += abs(C[k, i] * SH[k])
                if abs(w[B, i]) <= 1e-12 * terms:
                    w[B, i] = 0.0
    return total if adaptive else 1.0


@kernel
def solved_equalities(
    rows: Array, rows_k: Array, inverse: Array, target: Array, broken: Array, weights: Array, limits: Limits
) -> float:
    """Corrects the weights for the equalities B_h J d + c_h H = 0; returns their residual.

    It is relative to their terms. For rows of B_h J that are nearly dependent S^+ is good to eps cond(S)
    only; the rest is solved for again, at most twice.
    """
    L, M = rows.shape
    h = len(target)
    e = L - h
    largest = 0.0
    aim = 0.0
    for i in range(L):
        for k in range(M):
            largest = max(largest, abs(rows_k[i, k]))
    for i in range(h):
        aim = max(aim, abs(target[i]))
    equality = 0.0
    for turn in range(3):
        worst = 0.0
        size = 0.0
        for k in range(M):
            size = max(size, abs(weights[k]))
        for i in range(h):
            value = target[i]
            for k in range(M):
                value -= rows_k[e + i, k] * weights[k]
            broken[i] = value
            worst = max(worst, abs(value))
        equality = worst / (aim + largest * size + limits.tiny)
        if turn == 2 or not equality > limits.good:
            break
        for i in range(h):
            value = 0.0
            for j in range(h):
                value += inverse[i, j] * broken[j]
            for k in range(M):
                weights[k] += rows[e + i, k] * value
    return equality


@kernel
def dual_products(
    rows: Array, K: Array, F: Array, rows_k: Array, across: Array, products: Array, affine: Array
) -> None:
    """A_ag K, B_h K A_ag' and A_ag F."""
    L, M = rows.shape
    rows_k[:, :] = 0.0
    times(rows, K, rows_k, 1.0)
    turned(rows, across)
    products[:, :] = 0.0
    times(rows_k[L - len(products) :], across, products, 1.0)
    for j in range(L):
        affine[j] = 0.0
        for k in range(M):
            affine[j] += rows[j, k] * F[k]


@kernel
def dual_curvature(
    rows: Array, rows_k: Array, inverse: Array, products: Array, SC: Array, CS: Array, P: Array, PK: Array,
    PT: Array, Q: Array,
) -> None:  # fmt: skip
    """S^+ C, P and Q = P K P'."""
    e = len(P)
    SC[:, :] = 0.0
    times(inverse, products[:, :e], SC, 1.0)
    turned(SC, CS)
    for i in range(e):
        for k in range(P.shape[1]):
            P[i, k] = rows[i, k]
            PK[i, k] = rows_k[i, k]
    times(CS, rows[e:], P, -1.0)
    times(CS, rows_k[e:], PK, -1.0)
    turned(P, PT)
    Q[:, :] = 0.0
    times(PK, PT, Q, 1.0)


@kernel
def dual_weights(rows: Array, w: Array, SC: Array, SH: Array, weights: Array) -> None:
    """w = A_ag' lambda, lambda = (x, S^+ (c_h H - C x))."""
    L, M = rows.shape
    e = SC.shape[1]
    for k in range(M):
        weights[k] = 0.0
    for j in range(L):
        lam = w[X, j] if j < e else SH[j - e]
        for k in range(e if j >= e else 0):
            lam -= SC[j - e, k] * w[X, k]
        for k in range(M):
            weights[k] += rows[j, k] * lam


@entry
def ferero_dual(
    rows: Array, bg: Array, bh: Array, c_g: float, c_h: float, adaptive: bool, Ks: Array, Fs: Array,
    ridges: Array, limits: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Weights (R, M), residual (R,) and failed (R,) of `mobench.solvers.dual.ferero_dual`."""
    R, L, M = rows.shape
    g = bg.shape[1]
    h = bh.shape[1]
    e = L - h
    n = e - g
    limit = limits_of(limits)
    rows_k = np.empty((L, M))
    across = np.empty((M, L))
    products = np.empty((h, L))
    S = np.empty((h, h))
    V = np.empty((h, h))
    inverse = np.empty((h, h))
    SC = np.empty((h, e))
    CS = np.empty((e, h))
    P = np.empty((e, M))
    PK = np.empty((e, M))
    PT = np.empty((M, e))
    Q = np.empty((e, e))
    affine = np.empty(L)
    target = np.empty(h)
    broken = np.empty(h)
    SH = np.empty(h)
    w = np.empty((ROOM, e))
    room = np.empty((e, e))
    inner = np.empty((e, e))
    T = np.empty((e, 2 * e + 3))
    v = np.empty((VECTORS, e))
    z = np.empty(2 * e + 1)
    weights = np.empty((R, M))
    residual = np.empty(R)
    failed = np.zeros(R, np.bool_)
    equality, above = e > 0, e < 0  # always and never: literals would have the kernels of `qp` compiled again
    for i in range(R):
        K = Ks[i]
        A_ag = rows[i]
        dual_products(A_ag, K, Fs[i], rows_k, across, products, affine)
        for j in range(h):
            for k in range(h):
                S[j, k] = products[j, e + k]
        trace = 0.0
        for k in range(M):
            trace += K[k, k]
        pseudoinverse(S, V, inverse, trace)
        for j in range(h):
            target[j] = c_h * (affine[e + j] + bh[i, j])
        for j in range(h):
            SH[j] = 0.0
            for k in range(h):
                SH[j] += inverse[j, k] * target[k]
        dual_curvature(A_ag, rows_k, inverse, products, SC, CS, P, PK, PT, Q)
        r = dual_program(A_ag, rows_k, products, SH, P, Q, w, affine, bg[i], K, n, c_g, adaptive)
        probe = r + Q.sum() + w[A].sum() + w[B].sum() + K.sum() + Fs[i].sum()
        weights[i] = np.nan
        residual[i] = np.nan
        if not abs(probe) < np.inf:
            continue
        kkt = solved(Q, w, room, inner, T, v, z, r, equality, above, ridges, limit)
        failed[i] = not kkt <= limit.tolerance
        if failed[i]:
            continue
        dual_weights(A_ag, w, SC, SH, weights[i])
        broken_by = solved_equalities(A_ag, rows_k, inverse, target, broken, weights[i], limit)
        residual[i] = max(kkt, broken_by)
        failed[i] = broken_by > limit.tolerance
    return weights, residual, failed
