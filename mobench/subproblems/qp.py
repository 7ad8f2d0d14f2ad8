"""Batched convex QP:  x* = argmin 1/2 x'Qx - b'x   s.t.  lower <= x <= upper,  a'x = r.

The min-norm problem of MGDA and PMTL is Q = JJ', b = 0, a = 1, r = 1; FERERO's dual after elimination of its free
multipliers is Q = K_r, b = -l, a = AF, r = 1'AF. Two variables on the segment {x >= 0, a'x = r} have a closed form, everything
else goes through complementary pivoting.
"""

from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.subproblems.arrays import Array, arrays, integers, zeros
from mobench.subproblems.pivoting import complementary_pivot
from mobench.subproblems.solution import GROWTH, TINY, Solution, best_try, certified


def _segment(
    xp: ModuleType, Q: Array, b: Array | None, a: Array | None, r: Array | None
) -> tuple[tuple[Array, Array], Array, Array]:
    """Both coordinates, the residual and a probe of: two variables, x >= 0, a'x = r (a = 1, r = 1 if a is None).

        P = a_2 Q_11 - a_1 Q_12,  S = a_1 Q_22 - a_2 Q_12,  beta = a_2 b_1 - a_1 b_2
        V = (r S + a_2 beta)+,    W = (r P - a_1 beta)+,    x = r (V, W) / (a_1 V + a_2 W)

    V and W are the slopes at the two ends (times positive factors), so nothing cancels but the data themselves, both ends
    are reached exactly, and a_i = 0 (a ray) needs no case of its own. If both vanish every point is optimal.
    """
    q11, q12, q22 = Q[:, 0, 0], Q[:, 0, 1], Q[:, 1, 1]
    trace = q11 + q22
    probe = trace + q12
    if a is None:
        P, S = q11 - q12, q22 - q12
        V, W = abs(S) + S + TINY, abs(P) + P + TINY
        scale = 1 / (V + W)
        x1, x2 = V * scale, W * scale
        # With nu = x'g the reduced gradients are x_2 delta and -x_1 delta, delta = g_1 - g_2.
        delta = (x1 * P - x2 * S) / (trace + TINY)
        e1, e2 = xp.minimum(x1, x2 * delta), xp.minimum(x2, -x1 * delta)
        return (x1, x2), xp.maximum(abs(e1), abs(e2)), probe
    assert r is not None
    a1, a2 = a[:, 0], a[:, 1]
    P, S = a2 * q11 - a1 * q12, a1 * q22 - a2 * q12
    V, W = r * S, r * P
    top = xp.maximum(a1, a2)
    gamma = trace * r / top
    if b is not None:
        b1, b2 = b[:, 0], b[:, 1]
        beta = a2 * b1 - a1 * b2
        V, W = V + a2 * beta, W - a1 * beta
        gamma = xp.maximum(gamma, xp.maximum(abs(b1), abs(b2)))
        probe = probe + beta
    V, W = abs(V) + V + TINY * a1, abs(W) + W + TINY * a2
    scale = r / (a1 * V + a2 * W)
    x1, x2 = V * scale, W * scale
    delta = x1 * P - x2 * S
    z1, z2 = a1 * x1 / r, a2 * x2 / r
    if b is not None:
        delta = delta - beta
    gamma = gamma + TINY
    steep = xp.minimum(xp.maximum(trace * xp.maximum(x1, x2), gamma), GROWTH * gamma)
    delta = delta / (r * steep)
    unit = trace / gamma
    e1 = xp.minimum(xp.maximum(unit * x1, z1), x2 * delta)
    e2 = xp.minimum(xp.maximum(unit * x2, z2), -x1 * delta)
    residual = xp.maximum(xp.maximum(abs(e1), abs(e2)), abs(z1 + z2 - 1))
    return (x1, x2), residual, probe + r + top


def _residual(
    xp: ModuleType, x: Array, Q: Array, b: Array, a: Array | None, r: Array | None, lower: Array, upper: Array | None
) -> Array:
    """The certificate of `qp_residual`, all arrays full size; lower may be -inf, upper +inf."""
    g = (Q @ x[:, :, None])[:, :, 0] - b
    trace = xp.diagonal(Q, 0, 1, 2).sum(1)
    size = xp.amax(abs(x), 1)
    gamma = xp.amax(abs(b), 1)
    upper = xp.where(lower < xp.inf, xp.inf, lower) if upper is None else upper
    span = upper - lower
    slope = g[:, None, :]
    unit = size
    feasible = 0.0
    if a is not None:
        assert r is not None
        top = xp.amax(abs(a), 1)
        unit = abs(r) / (top + TINY)
        gamma = xp.maximum(gamma, trace * unit)
        rest = r - xp.where(a > 0, a * lower, 0.0).sum(1)
        span = xp.minimum(span, xp.where(a > 0, abs(rest)[:, None] / a, xp.inf))
        nu = xp.where(a > 0, g / a, 0.0)
        nu = xp.concatenate((nu, ((x * g).sum(1) / (x * a).sum(1))[:, None]), 1)
        nu = xp.where(abs(nu) < xp.inf, nu, 0.0)
        slope = slope - nu[:, :, None] * a[:, None, :]
        ax = a * x
        feasible = abs(ax.sum(1) - r) / (xp.maximum(abs(r), xp.amax(abs(ax), 1)) + TINY)
    gamma = gamma + TINY
    sigma = xp.where(trace > 0, gamma / (trace + TINY), xp.maximum(unit, size))
    sigma = (xp.minimum(sigma[:, None], span) + TINY)[:, None, :]
    steep = xp.minimum(xp.maximum(trace * size, gamma), GROWTH * gamma)
    natural = xp.maximum(slope / steep[:, None, None], (x - upper)[:, None, :] / sigma)
    natural = xp.minimum(natural, (x - lower)[:, None, :] / sigma)
    stationary = xp.amin(xp.amax(abs(natural), 2), 1)
    return xp.maximum(stationary, feasible + 0 * stationary)


def _general(
    xp: ModuleType,
    ridge: float,
    Q: Array,
    b: Array,
    a: Array | None,
    r: Array | None,
    lower: Array,
    upper: Array | None,
) -> tuple[Array, Array]:
    """x and residual of the QP by complementary pivoting, in the units in which Q, b, a, r are of order 1."""
    R, n = b.shape
    problem = (Q, b, a, r, lower, upper)
    free = lower == -xp.inf
    base = xp.where(free, 0.0, lower)
    b = b - (Q @ base[:, :, None])[:, :, 0]
    diagonal = xp.diagonal(Q, 0, 1, 2)
    # Rows of very different length: in units of x_i in which Q has a unit diagonal (to a power of 2, so exactly).
    longest = xp.amax(diagonal, 1)[:, None]
    D = xp.where(diagonal > EQUI * longest, diagonal / (longest + TINY), EQUI)
    D = xp.exp2(xp.round(-0.5 * xp.log2(D)))
    Q = D[:, :, None] * Q * D[:, None, :]
    b = b * D
    trace = xp.diagonal(Q, 0, 1, 2).sum(1)
    bmax = xp.amax(abs(b), 1)
    if a is not None:
        r = r - (a * base).sum(1)
        a = a * D
        top = xp.amax(abs(a), 1) + TINY
        r = r / top
        a = a / top[:, None]
        unit = xp.where(r > 0, r, 1.0)
    else:
        unit = xp.where((trace > 0) & (bmax > 0), bmax / (trace + TINY), 1.0)
    gamma = xp.maximum(trace * unit, bmax) + TINY
    m = n + (a is not None) + (n if upper is not None else 0)
    M, q, unsigned = zeros(Q, R, m, m), zeros(Q, R, m), zeros(Q, R, m) > 0
    M[:, :n, :n] = Q * (unit / gamma)[:, None, None]
    q[:, :n] = -b / gamma[:, None]
    unsigned[:, :n] = free
    equality, start = None, None
    if a is not None:
        equality = n
        M[:, :n, n], M[:, n, :n] = -a, a
        q[:, n] = -r / unit
        unsigned[:, n] = True
        # The vertex of least value, among those that are no needles.
        score = xp.where(a > 0.1, (0.5 * xp.diagonal(M, 0, 1, 2)[:, :n] / (a + TINY) + q[:, :n]) / (a + TINY), xp.inf)
        start = xp.where(free & (a > 0), -xp.inf, score).argmin(1)
    if upper is not None:
        k, i = m - n, integers(Q, n)
        bounded = xp.where(upper < xp.inf, 1.0, 0.0)
        M[:, i, k + i], M[:, k + i, i] = bounded, -bounded
        q[:, k:] = xp.where(upper < xp.inf, (upper - base) / (unit[:, None] * D), 1.0)
    if ridge:
        i = integers(Q, n)
        M[:, i, i] += ridge
    z, solved = complementary_pivot(xp, M, q, unsigned, equality, start, 1e-12 if ridge else 1e-9)
    x = z[:, :n]
    x = xp.where(~free & (x < 0), 0.0, x) * unit[:, None] * D
    x = xp.where(solved[:, None], x, xp.nan)
    x = x + base
    return x, _residual(xp, x, *problem)


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

    Q (R, n, n) symmetric PSD, possibly singular or zero; b (R, n) or None for 0; a (R, n) >= 0, entries may be 0; r (R,),
    default 1; lower: number or anything that broadcasts to (R, n), -inf for free variables; upper likewise, +inf allowed.
    """
    R, n = Q.shape[:2]
    dtype = Q.dtype
    if a is not None and r is None:
        r = Q.new_ones(R)
    if n == 2 and a is not None and upper is None and isinstance(lower, (int, float)) and lower == 0:
        xp, (Q_, b_, a_, r_) = arrays(Q, b, a, r)
        with np.errstate(all="ignore"):
            x, residual, probe = _segment(xp, Q_, b_, a_, r_)
            return certified(xp, x, residual, probe, dtype)
    b = Q.new_zeros(R, n) if b is None else b
    low = torch.as_tensor(lower, dtype=dtype, device=Q.device).expand(R, n)
    high = None if upper is None else torch.as_tensor(upper, dtype=dtype, device=Q.device).expand(R, n)
    xp, (Q_, b_, a_, r_, low_, high_) = arrays(Q, b, a, r, low, high)
    with np.errstate(all="ignore"):
        probe = Q_.sum((1, 2)) + b_.sum(1)
        if a_ is not None:
            probe = probe + a_.sum(1) + r_
        # A diverged run gets a harmless problem, so that nothing it holds can reach its neighbours.
        good = probe - probe == 0
        problem = [
            None if p is None else xp.where(good.reshape(-1, *[1] * (p.ndim - 1)), p, 0.0)
            for p in (Q_, b_, a_, r_, low_, high_)
        ]
        x, residual = best_try(xp, _general, RIDGES, *problem)
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
    """Relative KKT residual."""
    R, n = x.shape
    b = torch.zeros_like(x) if b is None else b
    if a is not None and r is None:
        r = x.new_ones(R)
    low = torch.as_tensor(lower, dtype=x.dtype, device=x.device).expand(R, n)
    high = torch.as_tensor(torch.inf if upper is None else upper, dtype=x.dtype, device=x.device).expand(R, n)
    xp, (x_, Q_, b_, a_, r_, low_, high_) = arrays(x, Q, b, a, r, low, high)
    with np.errstate(all="ignore"):
        return torch.as_tensor(_residual(xp, x_, Q_, b_, a_, r_, low_, high_)).to(x.dtype)


def min_norm(gram: Float[Tensor, "R n n"], active: Bool[Tensor, "R n"] | None = None) -> Solution:
    """Weights of the shortest vector in the convex hull of the rows of J, from the Gram matrix G = JJ'.

        lam* = argmin 1/2 lam'G lam   s.t.  lam >= 0,  1'lam = 1,  lam_i = 0 where inactive

    gram (R, n, n), active (R, n) -> x (R, n). Runs without any active row get x = 0 and residual 0.
    n = 2:  lam_1 : lam_2 = (G_22 - G_12)+ : (G_11 - G_12)+, without the cancellation of the usual quotient; equal rows
    share the weight equally.

    Source: Desideri 2012 (MGDA); Lin et al. 2019 (PMTL). Departure: two-row weights reach 0 and 1, where common code
    clips them at 0.001 and 0.999.
    """
    if gram.shape[1] == 2 and active is None:
        xp, (Q,) = arrays(gram)
        with np.errstate(all="ignore"):
            x, residual, probe = _segment(xp, Q, None, None, None)
            return certified(xp, x, residual, probe, gram.dtype)
    if active is None:
        return qp(gram, None, torch.ones_like(gram[:, 0]))
    trace = torch.where(active, gram.diagonal(dim1=1, dim2=2), 0).sum(1)
    raise NotImplementedError
