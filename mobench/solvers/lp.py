"""Batched LP over the simplex:  x* = argmax c'x   s.t.  Gx >= h,  x >= 0,  1'x = 1;  and the two LPs of EPO.

On the simplex Gx >= h is (G - h 1')x >= 0: the right-hand side disappears, and rows and objective get a scale
each. Two variables leave an interval, everything else goes through complementary pivoting in
`solvers.kernels.pivoting`.
"""

from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.arrays import Array, arrays
from mobench.kernels.compiled import compiled_solver
from mobench.solvers import plane
from mobench.solvers.host import on_host
from mobench.solvers.qp import LIMITS, rows, solution_of
from mobench.solvers.solution import GROWTH, TINY, Solution, certified


def homogeneous(c: Array, G: Array, h: Array) -> tuple[Array, Array]:
    """Objective and rows as  max c'x, Gx >= 0  with entries of order 1; h = -inf becomes a row of zeros."""
    off = h == -np.inf
    h = np.where(off, 0.0, h)
    scale = np.maximum(np.amax(abs(G), 2), abs(h))
    weight = np.where(off, 0.0, 1 / (scale + TINY))
    G = (G - h[:, :, None]) * weight[:, :, None]
    c = (c - c.mean(1)[:, None]) / (np.amax(abs(c), 1)[:, None] + TINY)
    return c, G


def homogeneous_residual(x: Array, y: Array, c: Array, G: Array) -> Array:
    """Certificate of a homogeneous LP: largest of infeasibility, |1'x - 1|, negative y and relative gap."""
    value = (c * x).sum(1)
    bound = np.amax(c + (y[:, None, :] @ G)[:, 0, :], 1)
    size = np.clip(np.amax(abs(y), 1), 1.0, GROWTH)
    infeasible = -np.minimum(np.amin((G @ x[:, :, None])[:, :, 0], 1), np.amin(x, 1))
    infeasible = np.maximum(infeasible, abs(x.sum(1) - 1))
    dual = np.maximum(abs(bound - value), -np.amin(y, 1)) / size
    return np.maximum(infeasible, dual)


def _best_end(xp: ModuleType, slope: Array, low: Array, high: Array) -> Array:
    """argmax of slope t over low <= t <= high; the middle where all are equal.

    If low > high by rounding, both ends are solutions to rounding; if really, the certificate fails wherever
    t is.
    """
    return xp.where(slope > 0, high, xp.where(slope < 0, low, 0.5 * (low + high)))


def _interval(c: Array, G: Array) -> tuple[Array, Array]:
    """x and y of a homogeneous LP in x = (t, 1 - t): each row is  u t + v (1 - t) >= 0."""
    u = G[:, :, 0]
    v = G[:, :, 1]
    root = v / (v - u)
    down = u < 0
    up = v < 0
    above = np.where(down & ~up, root, 1.0)
    below = np.where(up & ~down, root, 0.0)
    runs = np.arange(len(u))
    first = above.argmin(1)
    last = below.argmax(1)
    high = above[runs, first]
    low = below[runs, last]
    slope = c[:, 0] - c[:, 1]
    rising = slope > 0
    t = _best_end(np, slope, low, high)
    x = np.stack((t, 1 - t), 1)
    row = np.where(rising, first, last)
    binding = np.where(rising, high < 1, low > 0)
    y = np.zeros(u.shape)
    y[runs, row] = np.where(binding, abs(slope / (v - u)[runs, row]), 0.0)
    return x, y


@on_host()
def lp(c: Float[Tensor, "R n"], G: Float[Tensor, "R k n"], h: Float[Tensor, "R k"]) -> Solution:
    """Solve R linear programs over the simplex.

        x* = argmax c'x   s.t.  Gx >= h,  x >= 0,  1'x = 1

    c (R, n), G (R, k, n), h (R, k), -inf where a row is no constraint -> x (R, n).
    """
    if c.shape[1] > 2:
        answer = compiled_solver("pivoting").lp(
            rows(c).copy(), rows(G).copy(), rows(h), LIMITS
        )  # overwrites c and G
        return solution_of(answer, c.dtype)
    with np.errstate(all="ignore"):
        c_, G_ = homogeneous(rows(c), rows(G), rows(h))
        probe = c_.sum(1) + G_.sum((1, 2))
        x, y = _interval(c_, G_)
        return certified(np, x, homogeneous_residual(x, y, c_, G_), probe, c.dtype)


def epo_data(
    K: Float[Tensor, "R M M"],
    Ca: Float[Tensor, "R M"],
    balance: Bool[Tensor, " R"],
    jstar: Int[Tensor, " R"],
    restricted: bool,
) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R k M"], Float[Tensor, "R k"]]:
    """Returns c, G and h of the LPs of `epo_lp`."""
    positive = Ca > 0
    h = torch.where(positive, -torch.inf, torch.where(positive.any(1, keepdim=True), Ca, 0.0))
    h = h.scatter(1, jstar.long()[:, None], 0.0)
    mode = balance[:, None]
    h = torch.where(mode, h, 0.0)
    c = torch.where(mode, Ca, K.sum(1))
    if not restricted:
        return c, K, h
    limit = Ca.amax(1, keepdim=True).clamp_max(0.0)
    return c, torch.cat((K, Ca[:, None]), 1), torch.cat((h, torch.where(mode, -torch.inf, limit)), 1)


def _epo_interval(
    xp: ModuleType, K: Array, Ca: Array, balance: Array, jstar: Array, restricted: bool, dtype: torch.dtype
) -> Solution:
    """Both programs of `epo_lp` for two objectives, column by column.

    x = (t, 1 - t), and row i is u_i t + v_i (1 - t) >= 0. The numbers are those of `epo_data`, `homogeneous`
    and `_interval`, in less time. The residual is the larger of the primal infeasibility and the slack of the
    bound or row that holds t (the duality gap is that slack times the row's multiplier).
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
    if K.shape[1] > 2:
        program = (rows(K), rows(Ca), balance.contiguous().numpy(), jstar.long().contiguous().numpy())
        return solution_of(compiled_solver("pivoting").epo_lp(*program, bool(restricted), LIMITS), K.dtype)
    answer = plane.epo_lp(K, Ca, balance, jstar, restricted)
    if answer is not None:
        return answer
    xp, (K_, Ca_) = arrays(K, Ca)
    mode, j = (balance, jstar) if xp is torch else (balance.numpy(), jstar.numpy())
    with np.errstate(all="ignore"):
        return _epo_interval(xp, K_, Ca_, mode, j, restricted, K.dtype)
