"""Batched LP over the simplex:  x* = argmax c'x   s.t.  Gx >= h,  x >= 0,  1'x = 1;  and the two LPs of EPO.

On the simplex Gx >= h is (G - h 1')x >= 0: the right-hand side disappears, and rows and objective get a scale
each. Two variables leave an interval, everything else goes through complementary pivoting, compiled where
Numba is.
"""

from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.arrays import Array, arrays, integers, tensor, zeros
from mobench.kernels.compiled import kernels
from mobench.subproblems.host import on_host
from mobench.subproblems.pivoting import complementary_pivot, eliminate
from mobench.subproblems.qp import LIMITS, rows
from mobench.subproblems.solution import GROWTH, TINY, Solution, certified


def homogeneous(xp: ModuleType, c: Array, G: Array, h: Array) -> tuple[Array, Array]:
    """Objective and rows in the form  max c'x, Gx >= 0  with entries of order 1;
    h = -inf becomes a row of zeros.
    """
    off = h == -xp.inf
    h = xp.where(off, 0.0, h)
    scale = xp.maximum(xp.amax(abs(G), 2), abs(h))
    weight = xp.where(off, 0.0, 1 / (scale + TINY))
    G = (G - h[:, :, None]) * weight[:, :, None]
    c = (c - c.mean(1)[:, None]) / (xp.amax(abs(c), 1)[:, None] + TINY)
    return c, G


def homogeneous_residual(xp: ModuleType, x: Array, y: Array, c: Array, G: Array) -> Array:
    """Certificate of a homogeneous LP: largest of primal infeasibility, |1'x - 1|,
    negative y and the relative gap.
    """
    value = (c * x).sum(1)
    bound = xp.amax(c + (y[:, None, :] @ G)[:, 0, :], 1)
    size = xp.clip(xp.amax(abs(y), 1), 1.0, GROWTH)
    infeasible = -xp.minimum(xp.amin((G @ x[:, :, None])[:, :, 0], 1), xp.amin(x, 1))
    infeasible = xp.maximum(infeasible, abs(x.sum(1) - 1))
    dual = xp.maximum(abs(bound - value), -xp.amin(y, 1)) / size
    return xp.maximum(infeasible, dual)


def _best_end(xp: ModuleType, slope: Array, low: Array, high: Array) -> Array:
    """argmax of slope t over low <= t <= high; the middle where all are equal.

    If low > high by rounding, both ends are solutions to rounding; if really, the certificate fails wherever
    t is.
    """
    return xp.where(slope > 0, high, xp.where(slope < 0, low, 0.5 * (low + high)))


def _interval(xp: ModuleType, c: Array, G: Array) -> tuple[Array, Array]:
    """x and y of a homogeneous LP in x = (t, 1 - t): each row is  u t + v (1 - t) >= 0."""
    u = G[:, :, 0]
    v = G[:, :, 1]
    root = v / (v - u)
    down = u < 0
    up = v < 0
    above = xp.where(down & ~up, root, 1.0)
    below = xp.where(up & ~down, root, 0.0)
    runs = integers(u, len(u))
    first = above.argmin(1)
    last = below.argmax(1)
    high = above[runs, first]
    low = below[runs, last]
    slope = c[:, 0] - c[:, 1]
    rising = slope > 0
    t = _best_end(xp, slope, low, high)
    x = xp.stack((t, 1 - t), 1)
    row = xp.where(rising, first, last)
    held = xp.where(rising, high < 1, low > 0)
    y = zeros(c, *u.shape)
    y[runs, row] = xp.where(held, abs(slope / (v - u)[runs, row]), 0.0)
    return x, y


def _pivoted(xp: ModuleType, c: Array, G: Array) -> tuple[Array, Array]:
    """x and y of a homogeneous LP by complementary pivoting, from the best vertex of the simplex."""
    R, n = c.shape
    k = G.shape[1]
    one = zeros(c, R, n) + 1
    v = c.argmax(1)
    Z, start, skew, _ = eliminate(xp, one, one[:, 0], v)
    q = -(c - c[integers(c, R), v][:, None]) + start
    room = (G @ start[:, :, None])[:, :, 0]
    G_ = G @ Z
    M = xp.concatenate(
        (xp.concatenate((skew, -xp.swapaxes(G_, 1, 2)), 2), xp.concatenate((G_, zeros(c, R, k, k)), 2)), 1
    )
    q = xp.concatenate((q, room), 1)
    z = complementary_pivot(xp, M, q, q > xp.inf, 1e-9)
    x = start + (Z @ z[:, :n, None])[:, :, 0]
    y = z[:, n:]
    return xp.where(x < 0, 0.0, x), xp.where(y < 0, 0.0, y)


def _solve(xp: ModuleType, c: Array, G: Array, h: Array, dtype: torch.dtype) -> Solution:
    """The LP with its certificate; h may be -inf."""
    c, G = homogeneous(xp, c, G, h)
    probe = c.sum(1) + G.sum((1, 2))
    good = probe - probe == 0
    if not good.all():
        c = xp.where(good[:, None], c, 0.0)
        G = xp.where(good[:, None, None], G, 0.0)
    x, y = _interval(xp, c, G) if c.shape[1] == 2 else _pivoted(xp, c, G)
    return certified(xp, x, homogeneous_residual(xp, x, y, c, G), probe, dtype)


@on_host()
def lp(c: Float[Tensor, "R n"], G: Float[Tensor, "R k n"], h: Float[Tensor, "R k"]) -> Solution:
    """Solve R linear programs over the simplex.

        x* = argmax c'x   s.t.  Gx >= h,  x >= 0,  1'x = 1

    c (R, n), G (R, k, n), h (R, k), -inf where a row is no constraint -> x (R, n).
    """
    kernel = kernels("pivoting", c) if c.shape[1] > 2 else None
    if kernel is not None:  # overwrites c and G
        x, residual, failed = kernel.lp(rows(c).copy(), rows(G).copy(), rows(h), LIMITS)
        return Solution(tensor(x, c.dtype), tensor(residual, c.dtype), tensor(failed))
    xp, (c_, G_, h_) = arrays(c, G, h)
    with np.errstate(all="ignore"):
        return _solve(xp, c_, G_, h_, c.dtype)


def epo_data(
    xp: ModuleType, K: Array, Ca: Array, balance: Array, jstar: Array, restricted: bool
) -> tuple[Array, Array, Array]:
    """c, G and h of the LPs of `epo_lp`."""
    positive = Ca > 0
    h = xp.where(positive, -xp.inf, xp.where(positive.any(1)[:, None], Ca, 0.0))
    h[integers(h, len(h)), jstar] = 0.0
    balance = balance[:, None]
    h = xp.where(balance, h, 0.0)
    c = xp.where(balance, Ca, K.sum(1))
    if not restricted:
        return c, K, h
    largest = xp.amax(Ca, 1)[:, None]
    limit = xp.where(largest < 0, largest, 0.0)
    return (
        c,
        xp.concatenate((K, Ca[:, None, :]), 1),
        xp.concatenate((h, xp.where(balance, -xp.inf, limit)), 1),
    )


def _epo_interval(
    xp: ModuleType, K: Array, Ca: Array, balance: Array, jstar: Array, restricted: bool, dtype: torch.dtype
) -> Solution:
    """Both programs of `epo_lp` for two objectives, column by column: x = (t, 1 - t), row i is u_i t + v_i
    (1 - t) >= 0.

    The same numbers as `epo_data`, `homogeneous` and `_interval` give, in less time. The residual is the
    larger of the primal infeasibility and the slack of what holds t (the duality gap is that slack times the
    row's multiplier).
    """
    k11 = K[:, 0, 0]
    k12 = K[:, 0, 1]
    k22 = K[:, 1, 1]
    c1 = Ca[:, 0]
    c2 = Ca[:, 1]
    probe = k11 + k12 + k22 + c1 + c2
    wide = xp.maximum(abs(k11), abs(k12)), xp.maximum(abs(k12), abs(k22))
    some = (c1 > 0) | (c2 > 0)
    low = 0.0 * k11
    high = 0.0 * k11 + 1
    rows = []
    for j, c, left, right in ((0, c1, k11, k12), (1, c2, k12, k22)):
        free = balance & (c > 0) & (jstar != j)
        h = xp.where(balance & some & (c <= 0) & (jstar != j), c, 0.0)
        scale = xp.where(free, 0.0, 1 / (xp.maximum(wide[j], abs(h)) + TINY))
        rows.append(((left - h) * scale, (right - h) * scale))
    if restricted:
        limit = xp.minimum(xp.maximum(c1, c2), 0.0 * c1)
        scale = xp.where(balance, 0.0, 1 / (xp.maximum(abs(c1), abs(c2)) + TINY))
        rows.append(((c1 - limit) * scale, (c2 - limit) * scale))
    for u, v in rows:
        root = v / (v - u)
        high = xp.where((u < 0) & (v >= 0), xp.minimum(high, root), high)
        low = xp.where((v < 0) & (u >= 0), xp.maximum(low, root), low)
    slope = xp.where(balance, c1 - c2, k11 - k22)
    t = _best_end(xp, slope, low, high)
    # primal feasibility, and optimality: in the direction in which the objective grows, a bound of t or a row
    # must hold it
    least = 0.0 * t
    slack = xp.where(slope > 0, 1 - t, xp.where(slope < 0, t, 0.0 * t))
    for u, v in rows:
        value = u * t + v * (1 - t)
        least = xp.minimum(least, value)
        slack = xp.where((u - v) * slope < 0, xp.minimum(slack, value), slack)
    residual = xp.maximum(xp.maximum(-least, slack), xp.maximum(-t, t - 1))
    return certified(xp, (t, 1 - t), residual, probe, dtype)


@on_host(closed=lambda K, *_, **__: K.shape[1] == 2)
def epo_lp(
    K: Float[Tensor, "R M M"],
    Ca: Float[Tensor, "R M"],
    balance: Bool[Tensor, " R"],
    jstar: Int[Tensor, " R"],
    restricted: bool = True,
) -> Solution:
    """Weights of EPO search: each run balances or descends.

        balance:  max beta'Ca    s.t.  (K beta)_j >= Ca_j  where Ca_j <= 0,  (K beta)_j* >= 0
            (some Ca_j > 0)
                                       K beta >= 0                                              (none)
        descent:  max 1'K beta   s.t.  K beta >= 0,  and if restricted  beta'Ca >= min(0, max_j Ca_j)

    K (R, M, M) Gram matrix; Ca (R, M) = K a for the adjustment a; balance (R,); jstar (R,) the objective with
    the largest r_j f_j -> x (R, M) = beta.

    Source: Mahapatra & Rajan 2020, in the form of their public code.
    """
    kernel = kernels("pivoting", K) if K.shape[1] > 2 else None
    if kernel is not None:
        program = (rows(K), rows(Ca), balance.contiguous().numpy(), jstar.long().contiguous().numpy())
        x, residual, failed = kernel.epo_lp(*program, bool(restricted), LIMITS)
        return Solution(tensor(x, K.dtype), tensor(residual, K.dtype), tensor(failed))
    xp, (K_, Ca_) = arrays(K, Ca)
    mode, j = (balance, jstar) if xp is torch else (balance.numpy(), jstar.numpy())
    with np.errstate(all="ignore"):
        if K.shape[1] == 2:
            return _epo_interval(xp, K_, Ca_, mode, j, restricted, K.dtype)
        return _solve(xp, *epo_data(xp, K_, Ca_, mode, j, restricted), K.dtype)
