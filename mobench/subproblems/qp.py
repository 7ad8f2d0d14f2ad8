"""Batched convex QP:  x* = argmin 1/2 x'Qx - b'x   s.t.  lower <= x <= upper,  a'x = r.

The min-norm problem of MGDA and PMTL is Q = JJ', b = 0, a = 1, r = 1; FERERO's dual after elimination of its
free multipliers is Q = K_r, b = -l, a = AF, r = 1'AF. Two variables on {x >= 0, a'x = r} have a closed form,
everything else goes through complementary pivoting: run by run where Numba compiles `kernels.pivoting`, else
by array operations on all runs. Same formulas, same certificate.
"""

from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, integers, tensor, zeros
from mobench.kernels.compiled import kernels
from mobench.subproblems.host import on_host
from mobench.subproblems.pivoting import RANK, TIE, complementary_pivot, eliminate
from mobench.subproblems.solution import GOOD, GROWTH, TINY, TOLERANCE, Solution, best_try, certified

DUST = 1e-30  # a coordinate of this size, in units of its scale, is a zero that rounding has missed
FLAT = 1e-16  # Q_ii below this, relative to the largest, is what rounding leaves of a zero
DROPS = 3  # solves without bounds that are far from x: each shows more of them
RIDGES = (0.0, 1e-13, 1e-12, 1e-11, 1e-10)  # tried in turn where Q is singular only up to rounding


# what the compiled kernels have to know, in the order of `mobench.kernels.pivoting.Limits`
LIMITS = np.array([GOOD, TOLERANCE, GROWTH, TINY, DUST, FLAT, TIE, RANK, DROPS])
NONE = np.zeros((0, 0))
NO_SHARE = np.zeros(0)


def segment(
    xp: ModuleType, Q: Array, b: Array | None, a: Array | None, r: Array | None
) -> tuple[tuple[Array, Array], Array, Array]:
    """Both coordinates, the residual and a probe of: two variables, x >= 0, a'x = r > 0
    (a = 1, r = 1 if a is None). A run without an equality (a = 0, r = 0) and without b has x = 0.

        P = a_2 Q_11 - a_1 Q_12,  S = a_1 Q_22 - a_2 Q_12,  beta = a_2 b_1 - a_1 b_2
        V = (r S + a_2 beta)+,    W = (r P - a_1 beta)+,    x = r (V, W) / (a_1 V + a_2 W)

    V and W are the slopes at the two ends (times positive factors), so nothing cancels but the data
    themselves, both ends are reached exactly, and a_i = 0 (a ray) needs no case of its own. If both vanish
    every point is optimal.
    """
    q11 = Q[:, 0, 0]
    q12 = Q[:, 0, 1]
    q22 = Q[:, 1, 1]
    trace = q11 + q22
    probe = trace + q12
    if a is None:
        P = q11 - q12
        S = q22 - q12
        V = abs(S) + S
        W = abs(P) + P
        tie = V + W == 0
        V = V + tie
        W = W + tie
        scale = 1 / (V + W)
        x1 = V * scale
        x2 = W * scale
        # With nu = x'g the reduced gradients are x_2 delta and -x_1 delta, delta = g_1 - g_2.
        delta = (x1 * P - x2 * S) / (trace + TINY)
        e1 = xp.minimum(x1, x2 * delta)
        e2 = xp.minimum(x2, -x1 * delta)
        return (x1, x2), xp.maximum(abs(e1), abs(e2)), probe
    assert r is not None
    a1 = a[:, 0]
    a2 = a[:, 1]
    P = a2 * q11 - a1 * q12
    S = a1 * q22 - a2 * q12
    V = r * S
    W = r * P
    top = xp.maximum(a1, a2)
    gamma = trace * r / top
    if b is not None:
        b1 = b[:, 0]
        b2 = b[:, 1]
        beta = a2 * b1 - a1 * b2
        V = V + a2 * beta
        W = W - a1 * beta
        gamma = xp.maximum(gamma, xp.maximum(abs(b1), abs(b2)))
        probe = probe + beta
    V = abs(V) + V
    W = abs(W) + W
    tie = V + W == 0
    V = V + tie * a1
    W = W + tie * a2
    scale = r / (a1 * V + a2 * W)
    x1 = V * scale
    x2 = W * scale
    delta = x1 * P - x2 * S
    z1 = a1 * x1 / r
    z2 = a2 * x2 / r
    if b is not None:
        delta = delta - beta
    gamma = gamma + TINY
    steep = xp.minimum(xp.maximum(trace * xp.maximum(x1, x2), gamma), GROWTH * gamma)
    delta = delta / (r * steep)
    unit = trace / gamma
    e1 = xp.minimum(xp.maximum(unit * x1, z1), x2 * delta)
    e2 = xp.minimum(xp.maximum(unit * x2, z2), -x1 * delta)
    residual = xp.maximum(xp.maximum(abs(e1), abs(e2)), abs(z1 + z2 - 1))
    if xp is not np or not r.all():
        empty = (r == 0) & (top == 0)
        if b is not None:
            empty = empty & (b1 == 0) & (b2 == 0)
        x1 = xp.where(empty, 0.0, x1)
        x2 = xp.where(empty, 0.0, x2)
        residual = xp.where(empty, 0.0, residual)
    return (x1, x2), residual, probe + r + top


def _root(xp: ModuleType, x: Array) -> Array:
    """Square root; 0 of what rounding has left below 0."""
    return xp.where(x > 0, x, 0.0) ** 0.5


def _bounded_size(
    xp: ModuleType, x: Array, homogeneous: Array, lower: Array, upper: Array | None
) -> Array | None:
    """How much of |x_i| the bounds account for, (R, n); None for 0, which is the case of lower = 0 without
    upper bounds.

    On a side of 0 that a bound closes: |x_i|, up to that bound. On a side that is open: the distance of 0
    from the bounds. In a `homogeneous` program (R,), b = 0 and r = 0, at least the shortest bound: nothing
    else gives it a scale.
    """
    if upper is None and (lower == 0).all():
        return None
    least = xp.where(lower > 0, lower, 0.0)
    most = xp.where(lower > -xp.inf, -lower, 0.0)
    if upper is not None:
        least = xp.where(upper < xp.inf, upper, least)
        most = xp.where(lower > -xp.inf, -lower, -upper)
    size = xp.where(x > 0, xp.minimum(x, least), xp.minimum(-x, most))
    size = xp.where(size > 0, size, 0.0)
    if homogeneous.any():
        ends = abs(lower) if upper is None else xp.concatenate((abs(lower), abs(upper)), 1)
        shortest = xp.amin(xp.where(ends > 0, ends, xp.inf), 1)
        shortest = xp.where(homogeneous & (shortest < xp.inf), shortest, 0.0)
        size = xp.maximum(size, shortest[:, None])
    return size


def program_residual(
    xp: ModuleType,
    x: Array,
    Q: Array,
    b: Array,
    a: Array | None,
    r: Array | None,
    lower: Array,
    upper: Array | None,
) -> Array:
    """The certificate of `qp_residual`; every array has its full size, lower may be -inf, upper +inf."""
    g = (Q @ x[:, :, None])[:, :, 0] - b
    diagonal = xp.diagonal(Q, 0, 1, 2)
    held = 0 * x > 0 if a is None else a > 0
    loose = None if held.all() else 1.0 * ~held
    trace = diagonal
    size = abs(x)
    gamma = abs(b)
    idle = xp.amax(gamma, 1) == 0
    bounded = _bounded_size(xp, x, idle if a is None or r is None else idle & (r == 0), lower, upper)
    if loose is not None:
        trace = trace * held
        size = size * held
        gamma = gamma * held
    trace = trace.sum(1)
    size = xp.amax(size, 1)
    gamma = xp.amax(gamma, 1)
    reached = abs(x)
    if bounded is not None:
        gamma = xp.maximum(gamma, trace * xp.amax(bounded * held, 1))
        reached = xp.maximum(reached, bounded)
    span = xp.inf if upper is None else upper - lower
    slope = g[:, None, :]
    unit = 0.0 * size
    if a is not None and r is not None:
        unit = abs(r) / (xp.amax(a, 1) + TINY)
        gamma = xp.maximum(gamma, trace * unit)
        rest = abs(r - xp.where(held, a * lower, 0.0).sum(1))
        reach = xp.where(held, rest[:, None] / a, xp.inf)
        span = reach if upper is None else xp.minimum(span, reach)
        # Complementarity gives the multiplier when there are no upper bounds; else some free entry does, or
        # the ends of the interval of multipliers that suit a vertex.
        ratio = xp.where(held, g / a, xp.inf)
        inner = xp.where(held & (x > lower), x - lower, 0.0)
        inner = xp.where(inner < xp.inf, inner, 1.0)
        nu = ((inner * g).sum(1) / (inner * a).sum(1))[:, None]
        if upper is not None:
            nu = xp.concatenate((nu, ratio), 1)
        least = xp.amin(ratio, 1)[:, None]
        nu = xp.where(abs(nu) < xp.inf, nu, xp.where(least < xp.inf, least, 0.0))
        slope = slope - nu[:, :, None] * a[:, None, :]
    gamma = gamma + TINY
    sigma = xp.where(trace > 0, gamma / (trace + TINY), xp.maximum(unit, size))[:, None]
    steep = xp.minimum(xp.maximum(trace * size, gamma), GROWTH * gamma)[:, None]
    if loose is not None:
        # |J_i| and |J'x| of Q = JJ', the latter as the sum of its terms
        row = _root(xp, diagonal)
        length = _root(xp, trace)
        scale = length * unit
        terms = row * reached
        height = abs(b)
        far = xp.amax(loose * xp.where(row > 0, height / row, 0.0), 1)
        if bounded is not None:
            far = xp.maximum(far, (row * bounded).sum(1))
        part = xp.minimum((loose * terms).sum(1), xp.maximum(scale, GROWTH * far))
        whole = (part + xp.minimum((held * terms).sum(1), GROWTH * scale))[:, None]
        energy = whole * whole + (loose * height * abs(x)).sum(1)[:, None]
        steep = xp.where(
            held, xp.maximum(steep, (length * part)[:, None]), xp.maximum(height, row * whole) + TINY
        )
        share = whole / (row + TINY)
        if bounded is not None:
            share = xp.where(row > 0, share, xp.inf)  # Q_ii = 0: the objective alone says how far x_i matters
        share = xp.minimum(share, energy / (height + TINY))
        if (scale == 0).any():
            # nothing else sets a scale: x_i = 0 is told from rounding by b_i / Q_ii
            alone = xp.where((scale[:, None] == 0) & (row > 0), height / diagonal, 0.0)
            share = xp.maximum(share, alone)
        sigma = xp.where(held, sigma, share)
    sigma = (
        sigma + 0 * x if isinstance(span, float) else xp.where(span > 0, xp.minimum(sigma, span), sigma)
    ) + TINY
    natural = xp.minimum(slope / steep[:, None], ((x - lower) / sigma)[:, None, :])
    if upper is not None:
        natural = xp.maximum(natural, ((x - upper) / sigma)[:, None, :])
    residual = xp.amin(xp.amax(abs(natural), 2), 1)
    if a is None or r is None:
        return residual
    return xp.maximum(
        residual, abs((a * x).sum(1) - r) / (xp.maximum(abs(r), xp.amax(a * reached, 1)) + TINY)
    )


def _own_units(
    xp: ModuleType,
    P: Array,
    g: Array,
    held: Array,
    free: Array,
    span: Array | None,
    unit: Array,
    gamma: Array,
    length: Array,
) -> tuple[Array, Array]:
    """Units of all x_i and of all gradients, (R, n) each, where not every variable is in the equality.

        l = max(length, max |g_i| / sqrt(P_ii)),   u_i = l / sqrt(P_ii),   gamma_i = max(|g_i|, l sqrt(P_ii))

    The maximum is over the variables outside the equality that want to leave their bound: l is how far the
    gradients of all variables will be moved (|J'x| where P = JJ'). Those in the equality keep `unit`, and
    `gamma` unless the others move them further. Rows and columns are scaled differently, which a
    complementarity problem allows.
    """
    root = _root(xp, xp.diagonal(P, 0, 1, 2))
    pull = xp.where(~held & (root > 0), xp.where(free, abs(g), -g) / root, 0.0)
    length = xp.maximum(length, xp.amax(pull, 1))
    length = xp.where(length > 0, length, 1.0)[:, None]
    u = xp.where(root > 0, length / root, 1.0)
    if span is not None:
        u = xp.where((span > 0) & (span < u), span, u)
    u = xp.where(held, unit[:, None], xp.exp2(xp.round(xp.log2(u))))
    moved = xp.amax(xp.amax(abs(P) * u[:, None, :] * held[:, :, None] * ~held[:, None, :], 2), 1)
    return u, xp.where(held, xp.maximum(gamma, moved)[:, None], xp.maximum(abs(g), root * length)) + TINY


class How(NamedTuple):
    """A way to solve: `ridge` times the identity is added to the scaled Q; `apart`: the variables outside the
    equality get units of their own; `dropping`: bounds that are far from a small x_i, whose digits are lost
    beside them, are dropped, and what is left is solved again; `levelled`: how far rows of Q of different
    length are made alike (1: to one length, 0: not at all), at which the equality and the bounds become
    unlike.
    """

    ridge: float = 0.0
    apart: bool = False
    dropping: bool = False
    levelled: float = 1.0


def _pivoted(
    xp: ModuleType,
    how: How,
    Q: Array,
    b: Array,
    a: Array | None,
    r: Array | None,
    lower: Array,
    upper: Array | None,
) -> tuple[Array, Array]:
    """x and residual of the QP by complementary pivoting.

    Whatever `how` drops or adds, the certificate knows the program.
    """
    x = _pivot(xp, how, Q, b, a, r, lower, upper)
    below = lower
    above = upper
    for _ in range(DROPS if how.dropping else 0):
        size = 2 * abs(x)
        far = (abs(below) > size) & (below > -xp.inf)
        below = xp.where(far, -xp.inf, below)
        if above is not None:
            beyond = (abs(above) > size) & (above < xp.inf)
            above = xp.where(beyond, xp.inf, above)
            far = far | beyond
        if not far.any():
            break
        x = _pivot(xp, how, Q, b, a, r, below, above)
        x = xp.where(x < lower, lower, x)
        if upper is not None:
            x = xp.where(x > upper, upper, x)
    # x = 0 where the bounds allow it and nothing pulls: there is nothing to round
    still = ((b == 0) & (lower <= 0)).all(1)
    if upper is not None:
        still = still & (upper >= 0).all(1)
    if r is not None:
        still = still & (r == 0)
    x = xp.where(still[:, None], 0.0, x)
    return x, program_residual(xp, x, Q, b, a, r, lower, upper)


def _pivot(
    xp: ModuleType,
    how: How,
    Q: Array,
    b: Array,
    a: Array | None,
    r: Array | None,
    lower: Array,
    upper: Array | None,
) -> Array:
    """x of the QP by complementary pivoting."""
    ridge = how.ridge
    apart = how.apart
    R, n = b.shape
    i = integers(Q, n)
    runs = integers(Q, R)
    free = lower == -xp.inf
    mirror: Array = 1.0
    if upper is not None and (free & (upper < xp.inf)).any():
        # a variable with an upper bound alone: its negative has a lower bound, from which pivoting can start
        turned = free & (upper < xp.inf)
        mirror = xp.where(turned, -1.0, 1.0)
        Q = mirror[:, :, None] * Q * mirror[:, None, :]
        b = mirror * b
        a = None if a is None else mirror * a
        lower = xp.where(turned, -upper, lower)
        upper = xp.where(turned, xp.inf, upper)
        free = lower == -xp.inf
    base = xp.where(free, 0.0, lower)
    g = (Q @ base[:, :, None])[:, :, 0] - b
    # Rows of very different length: x_i in units D_i in which Q has a unit diagonal. Powers of 2: nothing is
    # rounded.
    diagonal = xp.diagonal(Q, 0, 1, 2)
    longest = xp.amax(diagonal, 1)[:, None] + TINY
    D = xp.where(
        diagonal == 0, 1.0, xp.exp2(xp.round(-0.5 * how.levelled * xp.log2(abs(diagonal) / longest + FLAT)))
    )
    P = D[:, :, None] * Q * D[:, None, :]
    g = g * D
    if apart:
        held = 0 * g > 0 if a is None else a != 0
        trace = (xp.diagonal(P, 0, 1, 2) * held).sum(1)
        steep = xp.amax(abs(g) * held, 1)
    else:
        trace = xp.diagonal(P, 0, 1, 2).sum(1)
        steep = xp.amax(abs(g), 1)
    if a is not None:
        rest = r - (a * base).sum(1)
        aD = a * D
        unit = abs(rest) / xp.amax(abs(aD), 1)
        unit = xp.where((unit > 0) & (unit < xp.inf), unit, 1.0)
        # a'x = r limits no variable of its own where one of them is free, or where they come with both signs.
        endless = (free & (a != 0)).any(1) | ((a > 0).any(1) & (a < 0).any(1))
        endless = endless & (trace * unit < steep) & (trace > 0)
        unit = xp.where(endless, steep / (trace + TINY), unit)
    else:
        unit = xp.where((trace > 0) & (steep > 0), steep / (trace + TINY), 1.0)
    gamma = xp.maximum(trace * unit, steep)
    U = unit[:, None]
    if apart:
        span = None if upper is None else (upper - base) / D
        U, gamma = _own_units(xp, P, g, held, free, span, unit, gamma, _root(xp, trace) * unit)
    else:
        gamma = gamma[:, None] + TINY
    P = P * (U[:, None, :] / gamma[:, :, None])
    if ridge:
        P[:, i, i] += ridge * (xp.where(held, 1.0, P[:, i, i]) if apart else 1.0)
    g = g / gamma
    U = D * U
    skew = 0.0
    start = 0.0
    unsigned = free
    if a is not None:
        # Start from the vertex of least value, or from a free variable.
        size = abs(aD)
        top = xp.amax(size, 1)[:, None]
        score = (
            (0.5 * P[:, i, i] * (rest / unit)[:, None] / aD + g) / aD * xp.where(rest < 0, -1.0, 1.0)[:, None]
        )
        score = xp.where(size > 0.1 * top, score, xp.inf)
        k = xp.where(free & (size > 0), -1 / TINY * (size / top), score).argmin(1)
        Z, start, skew, has = eliminate(xp, aD, rest / unit, k)
        g = (xp.swapaxes(Z, 1, 2) @ (g + (P @ start[:, :, None])[:, :, 0])[:, :, None])[:, :, 0]
        P = xp.swapaxes(Z, 1, 2) @ P @ Z
        g[runs, k] = xp.where(has, start[runs, k], g[runs, k])
    M = P + skew
    if upper is not None:
        # Slacks of x <= upper below; +inf is a slack that never changes.
        E = zeros(Q, R, n, n)
        E[:, i, i] = 0 * g + (upper < xp.inf)
        room = xp.where(upper < xp.inf, (upper - base) / U - start, 1.0)
        E = E if a is None else E @ Z
        M = xp.concatenate((xp.concatenate((M, xp.swapaxes(E, 1, 2)), 2), xp.concatenate((-E, 0 * E), 2)), 1)
        g = xp.concatenate((g, room), 1)
        unsigned = xp.concatenate((free, free & False), 1)
    z = complementary_pivot(xp, M, g, unsigned, 1e-12 if ridge else 1e-9)
    z = z[:, :n]
    x = z if a is None else start + (Z @ z[:, :, None])[:, :, 0]
    x = xp.where(free | (x > DUST), x, 0.0) * U
    if upper is None and a is not None:
        # Coordinates that rounding had put below 0 are 0 now: the others pay for them, or a'x exceeds r by as
        # much.
        total = (a * x).sum(1)
        off = abs(total - rest)
        spoilt = (off > 2e-15 * total) & (off < 1e-9 * total) & ~free.any(1)
        x = x * xp.where(spoilt, rest / total, 1.0)[:, None]
    x = x + base
    if upper is not None:
        x = xp.where(x > upper, upper, x)
    return x * mirror


def rows(x: Tensor) -> Array:
    """As the kernels want them: float64, in one piece; without a copy if x is both."""
    return np.ascontiguousarray(x.detach().double().numpy())


def ridges() -> Array:
    """`RIDGES` as the kernels want them."""
    return np.array(RIDGES)


@lru_cache(maxsize=64)
def _constant(n: int, value: float) -> Array:
    return np.full((1, n), value)


def _bound(value: float | Tensor, Q: Tensor) -> Array:
    """A bound of `qp` as rows."""
    if isinstance(value, Tensor):
        return rows(value.expand(Q.shape[:2]))
    return _constant(Q.shape[1], float(value))


def _compiled(
    kernel: ModuleType,
    Q: Tensor,
    b: Tensor | None,
    a: Array,
    r: Array,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> Solution:
    """`qp` by `mobench.kernels.pivoting`; a and r: rows, one for all runs, or none."""
    x, residual, failed = kernel.qp(
        rows(Q),
        NONE if b is None else rows(b),
        a,
        r,
        _bound(lower, Q),
        NONE if upper is None else _bound(upper, Q),
        ridges(),
        LIMITS,
    )
    return Solution(tensor(x, Q.dtype), tensor(residual, Q.dtype), tensor(failed))


def _closed(
    Q: Tensor,
    b: Tensor | None = None,
    a: Tensor | None = None,
    r: Tensor | None = None,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> bool:
    """Whether `qp` has a closed form."""
    zero = not isinstance(lower, Tensor) and lower == 0.0
    return Q.shape[1] == 2 and a is not None and upper is None and zero


@on_host(closed=_closed)
def qp(
    Q: Float[Tensor, "R n n"],
    b: Float[Tensor, "R n"] | None,
    a: Float[Tensor, "R n"] | None = None,
    r: Float[Tensor, " R"] | None = None,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> Solution:
    """Solve R convex QPs at once.

        x* = argmin 1/2 x'Qx - b'x   s.t.  lower <= x <= upper,  a'x = r

    Q (R, n, n) symmetric PSD, possibly singular or zero; b (R, n) or None for 0; a (R, n) >= 0, entries may
    be 0, or None for no equality; r (R,), default 1; lower and upper: numbers or tensors that broadcast to
    (R, n), -inf and +inf for no bound. float32 is solved in float64 and rounded.

    n = 2 with an equality, lower = 0 and no upper bound is a closed form (r > 0, or x = 0 where a, r and b
    are 0). The rest: shift to lower = 0, scale x so that Q has a unit diagonal (rows of very different
    length), eliminate the equality, pivot; where the certificate shows that rounding has spoilt the answer,
    again without the bounds that are far from x (if there are any) and with rows nearer to their lengths,
    then with units of their own for variables with a_i = 0, which the equality gives no size, and then with
    the smallest ridge that helps.
    Infeasible and unbounded runs come back as failed. The answer does not depend on the scale of (Q, b), nor
    on the other runs of the batch.
    """
    R, n = Q.shape[:2]
    dtype = Q.dtype
    if a is not None and r is None:
        r = Q.new_ones(R)
    if n == 2 and a is not None and upper is None and isinstance(lower, (int, float)) and lower == 0:
        xp, (Q_, b_, a_, r_) = arrays(Q, b, a, r)
        with np.errstate(all="ignore"):
            x, residual, probe = segment(xp, Q_, b_, a_, r_)
            return certified(xp, x, residual, probe, dtype)
    kernel = kernels("pivoting", Q)
    if kernel is not None:
        share = NO_SHARE if r is None else rows(r)
        return _compiled(kernel, Q, b, NONE if a is None else rows(a), share, lower, upper)
    b = Q.new_zeros(R, n) if b is None else b
    low = torch.as_tensor(lower, dtype=dtype, device=Q.device).expand(R, n)
    high = None if upper is None else torch.as_tensor(upper, dtype=dtype, device=Q.device).expand(R, n)
    xp, (Q_, b_, a_, r_, low_, high_) = arrays(Q, b, a, r, low, high)
    with np.errstate(all="ignore"):
        probe = Q_.sum((1, 2)) + b_.sum(1)
        if a_ is not None:
            probe = probe + a_.sum(1) + r_
        # A diverged run gets a harmless problem: nothing it holds reaches its neighbours, and nobody waits
        # for it.
        good = probe - probe == 0
        problem = [Q_, b_, a_, r_, low_, high_]
        if not good.all():
            problem = [
                None if p is None else xp.where(good.reshape(-1, *[1] * (p.ndim - 1)), p, 0.0)
                for p in problem
            ]
        apart = a_ is None or not problem[2].all()
        tries = [How()]
        if upper is not None or (low_ != 0).any():
            tries += [How(dropping=True, levelled=part) for part in (1.0, 0.0, 0.5)]
            tries += [How(apart=True, dropping=True)] * apart
        else:
            tries += [How(levelled=part) for part in (0.0, 0.5)]
        tries += [How(ridge, apart) for ridge in RIDGES[not apart :]]
        x, residual = best_try(xp, _pivoted, tries, *problem)
        return certified(xp, x, residual, probe, dtype)


def qp_residual(
    x: Float[Tensor, "R n"],
    Q: Float[Tensor, "R n n"],
    b: Float[Tensor, "R n"] | None = None,
    a: Float[Tensor, "R n"] | None = None,
    r: Float[Tensor, " R"] | None = None,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> Float[Tensor, " R"]:
    """Certificate of anybody's solution of `qp`: its relative KKT residual, 0 at an exact minimiser.

        natural residual   e = x - Pi(x - (Qx - b - nu a)),  Pi the projection onto lower <= x <= upper
        result             max(min over nu of |e|_inf, |a'x - r|)           in the scaled problem below

    It covers stationarity, signs of multipliers, complementarity and bounds at once. Variables in the
    equality (a_i > 0) are judged together, in units in which their part of the problem has unit trace and
    data of size 1, the others (which nothing bounds: one may be 1e16 times another) each by its own. Sums and
    maxima over a_i > 0: E.

        rho_Z = sum over a_i = 0 of sqrt(Q_ii) |x_i|,   rho = rho_Z + E-sum of sqrt(Q_ii) |x_i|
        a_i > 0:  gradient in  max(tr(Q_E) r / max(a), |b_E|_inf, sqrt(tr(Q_E)) rho_Z)
                  x_i in       max(tr(Q_E) r / max(a), |b_E|_inf) / tr(Q_E)
        a_i = 0:  gradient in  max(|b_i|, sqrt(Q_ii) rho)
                  x_i in       min(rho / sqrt(Q_ii), (rho^2 + sum over a_j = 0 of |b_j x_j|) / |b_i|)

    With Q = JJ' rho is |J'x| before its terms cancel, so a gradient is relative to its own terms, and x_i = 0
    is relative to what x_i could add to J'x and to the objective. Or x_i in the length of its own range if
    that is shorter; or in |b_i| / Q_ii where no variable of the equality sets a scale. The value is the same
    for (s Q, s b), for x in other units, and for each x_i with a_i = 0 in a unit of its own.
    Gradients are excused by |x| where a solution is larger than its data (nearly singular Q), but by no more
    than `GROWTH` (rho_Z: than max(sqrt(tr(Q_E)) r / max(a), `GROWTH` max |b_i| / sqrt(Q_ii) over a_i = 0)): a
    point far out on a ray of an unbounded problem is no solution.
    Bounds are data, too. With s_i for the part of |x_i| that they account for (`|x_i|` as far as a bound
    closes that side of 0, else the distance of 0 from the bounds; if b = 0 and r = 0 no less than the
    shortest bound), tr(Q_E) max s_i joins the maxima over a_i > 0, and the sum of sqrt(Q_ii) s_i that over
    a_i = 0; |x_i| is not less than s_i anywhere. nu is any of (x - lower)'g / (x - lower)'a over E and, if
    there are upper bounds, the g_i / a_i (g = Qx - b); at a minimiser one of them is the multiplier, and
    elsewhere the result is an upper bound.
    """
    R, n = x.shape
    b = torch.zeros_like(x) if b is None else b
    if a is not None and r is None:
        r = x.new_ones(R)
    low = torch.as_tensor(lower, dtype=x.dtype, device=x.device).expand(R, n)
    high = torch.as_tensor(torch.inf if upper is None else upper, dtype=x.dtype, device=x.device).expand(R, n)
    xp, (x_, Q_, b_, a_, r_, low_, high_) = arrays(x, Q, b, a, r, low, high)
    with np.errstate(all="ignore"):
        return torch.as_tensor(program_residual(xp, x_, Q_, b_, a_, r_, low_, high_)).to(x.dtype)


@on_host(closed=lambda gram, active=None: gram.shape[1] == 2 and active is None)
def min_norm(gram: Float[Tensor, "R n n"], active: Bool[Tensor, "R n"] | None = None) -> Solution:
    """Weights of the shortest vector in the convex hull of the rows of J, from the Gram matrix G = JJ'.

        lam* = argmin 1/2 lam'G lam   s.t.  lam >= 0,  1'lam = 1,  lam_i = 0 where inactive

    gram (R, n, n), active (R, n) -> x (R, n). Runs without any active row get x = 0 and residual 0.
    n = 2:  lam_1 : lam_2 = (G_22 - G_12)+ : (G_11 - G_12)+, without the cancellation of the usual quotient;
    equal rows share the weight equally.

    Source: Desideri 2012 (MGDA); Lin et al. 2019 (PMTL). Departure: two-row weights reach 0 and 1, where
    common code clips them at 0.001 and 0.999.
    """
    if gram.shape[1] == 2 and active is None:
        xp, (Q,) = arrays(gram)
        with np.errstate(all="ignore"):
            x, residual, probe = segment(xp, Q, None, None, None)
            return certified(xp, x, residual, probe, gram.dtype)
    if active is None:
        kernel = kernels("pivoting", gram)
        if kernel is not None:
            one = _constant(gram.shape[1], 1.0)
            return _compiled(kernel, gram, None, one, one[0, :1])
        return qp(gram, None, torch.ones_like(gram[:, 0]))
    # An inactive variable is put on an axis of its own and out of the equality: it can only be 0.
    inactive = ~active
    empty = inactive.all(1)
    gram = gram.detach().masked_fill(inactive.unsqueeze(1) | inactive.unsqueeze(2), 0)
    diagonal = gram.diagonal(dim1=1, dim2=2)
    diagonal.add_(inactive * diagonal.sum(1, keepdim=True))
    solution = qp(gram, None, (active | empty.unsqueeze(1)).to(gram.dtype))
    return Solution(
        solution.x.masked_fill(empty.unsqueeze(1), 0),
        solution.residual.masked_fill(empty, 0),
        solution.failed & ~empty,
    )
