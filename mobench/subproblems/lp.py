"""Batched LP over the simplex:  x* = argmax c'x   s.t.  Gx >= h,  x >= 0,  1'x = 1;  and the two LPs of EPO.

On the simplex Gx >= h is (G - h 1')x >= 0: the right-hand side disappears, and rows and objective get a scale each.
Two variables leave an interval, everything else goes through complementary pivoting.
"""

from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.subproblems.arrays import Array, arrays, integers, zeros
from mobench.subproblems.pivoting import complementary_pivot, eliminate
from mobench.subproblems.solution import GROWTH, TINY, Solution, best_try, certified

RELAXATIONS = (0.0, 1e-13, 1e-12, 1e-11, 1e-10)  # of the rows, tried in turn where rounding leaves nothing feasible


def homogeneous(xp: ModuleType, c: Array, G: Array, h: Array) -> tuple[Array, Array]:
    """Objective and rows in the form  max c'x, Gx >= 0  with entries of order 1; h = -inf becomes a row of zeros."""
    off = h == -xp.inf
    h = xp.where(off, 0.0, h)
    scale = xp.maximum(xp.amax(abs(G), 2), abs(h))
    weight = xp.where(off, 0.0, 1 / (scale + TINY))
    G = (G - h[:, :, None]) * weight[:, :, None]
    c = (c - c.mean(1)[:, None]) / (xp.amax(abs(c), 1)[:, None] + TINY)
    return c, G


def homogeneous_residual(xp: ModuleType, x: Array, y: Array, c: Array, G: Array) -> Array:
    """Certificate of a homogeneous LP: largest of primal infeasibility, |1'x - 1|, negative y and the relative gap."""
    value = (c * x).sum(1)
    bound = xp.amax(c + (y[:, None, :] @ G)[:, 0, :], 1)
    size = xp.amax(abs(y), 1)
    size = xp.where(size > 1, size, 1.0)
    size = xp.where(size < GROWTH, size, GROWTH)
    infeasible = -xp.minimum(xp.amin((G @ x[:, :, None])[:, :, 0], 1), xp.amin(x, 1))
    infeasible = xp.maximum(infeasible, abs(x.sum(1) - 1))
    dual = xp.maximum(abs(bound - value), -xp.amin(y, 1)) / size
    return xp.maximum(infeasible, dual)


def _interval(xp: ModuleType, c: Array, G: Array) -> tuple[Array, Array]:
    """x and y of a homogeneous LP in x = (t, 1 - t): each row is  u t + v (1 - t) >= 0."""
    u, v = G[:, :, 0], G[:, :, 1]
    root = v / (v - u)
    above = xp.where((u < 0) & (v >= 0), root, 1.0)
    below = xp.where((v < 0) & (u >= 0), root, 0.0)
    above, below = xp.where(above < 1, above, 1.0), xp.where(below > 0, below, 0.0)
    high, low = xp.amin(above, 1), xp.amax(below, 1)
    slope = c[:, 0] - c[:, 1]
    # If low > high by rounding, both ends are solutions to rounding; if really, the certificate fails wherever t is.
    t = xp.where(slope > 0, high, xp.where(slope < 0, low, 0.5 * (low + high)))
    x = xp.stack((t, 1 - t), 1)
    runs = integers(t, len(t))
    row = xp.where(slope > 0, above.argmin(1), below.argmax(1))
    held = xp.where(slope > 0, high < 1, low > 0)
    y = zeros(c, *u.shape)
    y[runs, row] = xp.where(held, abs(slope) / (abs((v - u)[runs, row]) + TINY), 0.0)
    return x, y


def _pivoted(xp: ModuleType, relaxation: float, c: Array, G: Array) -> tuple[Array, Array]:
    """x and residual of a homogeneous LP by complementary pivoting, from the best vertex of the simplex."""
    (R, n), k = c.shape, G.shape[1]
    one = zeros(c, R, n) + 1
    v = c.argmax(1)
    Z, start, skew, _ = eliminate(xp, one, one[:, 0], v)
    q = -(c - c[integers(c, R), v][:, None]) + start
    room = (G @ start[:, :, None])[:, :, 0] + relaxation
    G_ = G @ Z
    M = xp.concatenate(
        (xp.concatenate((skew, -xp.swapaxes(G_, 1, 2)), 2), xp.concatenate((G_, zeros(c, R, k, k)), 2)), 1
    )
    q = xp.concatenate((q, room), 1)
    z, solved = complementary_pivot(xp, M, q, q > xp.inf, 1e-9)
    z = xp.where(solved[:, None], z, xp.nan)
    x, y = start + (Z @ z[:, :n, None])[:, :, 0], z[:, n:]
    x, y = xp.where(x < 0, 0.0, x), xp.where(y < 0, 0.0, y)
    return x, homogeneous_residual(xp, x, y, c, G)


def _solve(xp: ModuleType, c: Array, G: Array, h: Array, dtype: torch.dtype) -> Solution:
    """h may be -inf. A feasible set lost to rounding is tried again with relaxed rows."""
    probe = c.sum(1) + G.sum((1, 2)) + xp.where(h == -xp.inf, 0.0, h).sum(1)
    good = probe - probe == 0
    c, G, h = xp.where(good[:, None], c, 0.0), xp.where(good[:, None, None], G, 0.0), xp.where(good[:, None], h, 0.0)
    c, G = homogeneous(xp, c, G, h)
    if c.shape[1] == 2:
        x, y = _interval(xp, c, G)
        return certified(xp, x, homogeneous_residual(xp, x, y, c, G), probe, dtype)
    x, residual = best_try(xp, _pivoted, RELAXATIONS, c, G)
    return certified(xp, x, residual, probe, dtype)


def lp(c: Float[Tensor, "R n"], G: Float[Tensor, "R k n"], h: Float[Tensor, "R k"]) -> Solution:
    """Solve R linear programs over the simplex.

        x* = argmax c'x   s.t.  Gx >= h,  x >= 0,  1'x = 1

    c (R, n), G (R, k, n), h (R, k), -inf where a row is no constraint -> x (R, n).
    """
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


def epo_lp(
    K: Float[Tensor, "R M M"],
    Ca: Float[Tensor, "R M"],
    balance: Bool[Tensor, " R"],
    jstar: Int[Tensor, " R"],
    restricted: bool = True,
) -> Solution:
    """Weights of EPO search: each run balances or descends.

        balance:  max beta'Ca    s.t.  (K beta)_j >= Ca_j  where Ca_j <= 0,  (K beta)_j* >= 0   (some Ca_j > 0)
                                       K beta >= 0                                              (none)
        descent:  max 1'K beta   s.t.  K beta >= 0,  and if restricted  beta'Ca >= min(0, max_j Ca_j)

    K (R, M, M) Gram matrix; Ca (R, M) = K a for the adjustment a; balance (R,); jstar (R,) the objective with the
    largest r_j f_j -> x (R, M) = beta.

    Source: Mahapatra & Rajan 2020, in the form of their public code.
    """
    xp, (K_, Ca_) = arrays(K, Ca)
    mode, j = (balance, jstar) if xp is torch else (balance.numpy(), jstar.numpy())
    with np.errstate(all="ignore"):
        return _solve(xp, *epo_data(xp, K_, Ca_, mode, j, restricted), K.dtype)
