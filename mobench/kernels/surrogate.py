"""CSMOO's surrogate run by run in scalar loops for Numba: Newton's method in the dual, step and certificate.

The formulas are those of `mobench.subproblems` (`interior.newton`, `blocks`, `surrogate`), where they are
explained. Runs that Newton's method does not finish, and runs that are infeasible or not finite, are not
`done`: the caller gives them to those modules.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mobench.kernels.jit import Array, entry, kernel


class Limits(NamedTuple):
    """Thresholds of `mobench.subproblems`, under their names there."""

    good: float
    tolerance: float
    tiny: float
    loose: float
    shift: float
    first: float
    cancelled: float
    newton: float
    model: float


# rows of `v` (VECTORS, K)
MU, TRIAL, BEST, H, TRIAL_H, SIZE, RIDGE, ACTIVE, RIGHT, NEXT, LENGTH = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
VECTORS = 11


@kernel
def limits_of(a: Array) -> Limits:
    return Limits(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8])


@kernel
def bounded_part(
    a: Array, tau: Array, low: Array, high: Array, lengths: Array, J: Array, v: Array, bend: Array,
    limits: Limits,
) -> tuple[float, float]:  # fmt: skip
    """Adds what variables with bounds give to TRIAL_H, SIZE and the Hessian; objective and size of its terms.

    a, tau (K + 1, D); lengths of the rows of a (K + 1,); J (K + 1, D) is overwritten. `blocks.Rows.at`.
    """
    K1, D = a.shape
    value = 0.0
    objective = 0.0
    pull = lengths[0]
    unit = 1.0
    for k in range(1, K1):
        pull += lengths[k] * v[TRIAL, k - 1]
    for p in range(D):
        s = tau[0, p]
        raw = a[0, p]
        for k in range(1, K1):
            s += tau[k, p] * v[TRIAL, k - 1]
            raw += a[k, p] * v[TRIAL, k - 1]
        raw = -raw / s
        if p == 0:
            unit = s
        d = min(max(raw, low[p]), high[p])
        inner = 1 / s if raw > low[p] and raw < high[p] else 0.0
        for k in range(K1):
            bent = tau[k, p] * d
            linear = a[k, p] * d
            J[k, p] = a[k, p] + bent
            if k == 0:
                value += linear + 0.5 * d * bent
                objective += abs(linear) + 0.5 * d * bent
            else:
                v[TRIAL_H, k - 1] += linear + 0.5 * d * bent
                v[SIZE, k - 1] += abs(linear) + 0.5 * d * bent
        if inner > 0:
            for k in range(1, K1):
                for j in range(1, k + 1):
                    bend[k - 1, j - 1] += J[k, p] * inner * J[j, p]
    for k in range(1, K1):
        v[SIZE, k - 1] += limits.loose * lengths[k] * (pull / unit)
    # the row of the objective has a share of its own, as the others
    return value, objective + limits.loose * lengths[0] * (pull / unit)


@kernel
def ball_part(
    G: Array, u: Array, xx: float, square: float, tau: Array, w: Array, v: Array, bend: Array, limits: Limits
) -> float:
    """The same for variables in a ball around 0, by their products; value = size. `blocks.Gram.at`.

    w (4, K): a_k'v / s, a_k'(x - v / s), a_k'd without the tangent's missing part, |a_k|.
    """
    K = len(u)
    s = tau[0]
    for k in range(K):
        s += tau[k + 1] * v[TRIAL, k]
    vv = 0.0
    xv = 0.0
    pull = 0.0
    for k in range(K):
        value = 0.0
        for j in range(K):
            value += G[k, j] * v[TRIAL, j]
        w[0, k] = value / s
        vv += w[0, k] * v[TRIAL, k] / s
        xv += u[k] * v[TRIAL, k] / s
        pull += w[3, k] * v[TRIAL, k]
    pp = xx - 2 * xv + vv
    outside = pp > square
    rho = math.sqrt(square / pp) if outside else 1.0
    inverse = 1 / pp if outside else 0.0
    less = rho - 1
    dd = less * less * xx - 2 * rho * less * xv + rho * rho * vv
    dp = rho * pp - (xx - xv)
    curved = dd - inverse * dp * dp
    for k in range(K):
        linear = less * u[k] - rho * w[0, k]
        w[1, k] = u[k] - w[0, k]
        w[2, k] = linear - w[1, k] * (inverse * dp)
        quadratic = 0.5 * tau[k + 1] * dd
        v[TRIAL_H, k] += linear + quadratic
        v[SIZE, k] += abs(linear) + quadratic + limits.loose * w[3, k] * (pull / s)
    for k in range(K):
        for j in range(k + 1):
            value = G[k, j] - w[1, k] * inverse * w[1, j] + tau[k + 1] * w[2, j] + w[2, k] * tau[j + 1]
            bend[k, j] += (value + tau[k + 1] * tau[j + 1] * curved) * (rho / s)
    return 0.5 * tau[0] * dd


@kernel
def solve(M: Array, v: Array) -> None:
    """RIGHT <- the solution of M x = RIGHT; overwrites M (K, K), symmetric and positive definite."""
    K = len(M)
    for j in range(K - 1):
        for i in range(j + 1, K):
            factor = M[i, j] / M[j, j]
            if factor != 0.0:
                for c in range(j + 1, K):
                    M[i, c] -= factor * M[j, c]
                v[RIGHT, i] -= factor * v[RIGHT, j]
    for i in range(K - 1, -1, -1):
        for c in range(i + 1, K):
            v[RIGHT, i] -= M[i, c] * v[RIGHT, c]
        v[RIGHT, i] /= M[i, i]


@kernel
def modelled(bend: Array, M: Array, v: Array, damp: float, limits: Limits) -> None:
    """TRIAL <- maximiser x >= 0 of the damped quadratic model at MU, by active sets. `interior._model`."""
    K = len(bend)
    top = 0.0
    for k in range(K):
        top = max(top, bend[k, k])
    for k in range(K):
        v[RIDGE, k] = damp * (bend[k, k] + 1e-4 * top + limits.tiny)
        v[ACTIVE, k] = 1.0 if v[MU, k] * (bend[k, k] + v[RIDGE, k]) + v[H, k] > 0 else 0.0
    for turn in range(int(limits.model)):
        for k in range(K):
            on = v[ACTIVE, k] > 0
            v[RIGHT, k] = v[H, k] if on else 0.0
            for j in range(K):
                also = v[ACTIVE, j] > 0
                M[k, j] = bend[k, j] if on and also else 0.0
                if on and not also:
                    v[RIGHT, k] += bend[k, j] * v[MU, j]
            M[k, k] = bend[k, k] + v[RIDGE, k] if on else 1.0
        solve(M, v)
        same = True
        for k in range(K):
            v[TRIAL, k] = v[MU, k] + v[RIGHT, k] if v[ACTIVE, k] > 0 else 0.0
        if turn + 1 < int(limits.model):
            for k in range(K):
                change = v[TRIAL, k] - v[MU, k]
                slope = v[H, k] - v[RIDGE, k] * change
                for j in range(K):
                    slope -= bend[k, j] * (v[TRIAL, j] - v[MU, j])
                v[NEXT, k] = 1.0 if v[TRIAL, k] * (bend[k, k] + v[RIDGE, k]) + slope > 0 else 0.0
                same = same and v[NEXT, k] == v[ACTIVE, k]
            for k in range(K):
                v[ACTIVE, k] = v[NEXT, k]
        if same:
            break
    for k in range(K):
        v[TRIAL, k] = v[TRIAL, k] if v[TRIAL, k] > 0 else 0.0


@kernel
def newton(
    c: Array, a: Array, tau: Array, low: Array, high: Array, lengths: Array, J: Array, ball: bool, G: Array,
    u: Array, xx: float, square: float, tau_x: Array, w: Array, v: Array, bend: Array, kept: Array, M: Array,
    limits: Limits,
) -> float:  # fmt: skip
    """BEST <- the best multipliers seen from TRIAL on; returns their residual. `interior.newton`."""
    K = len(c)
    for k in range(K + 1):  # the same in every iteration
        length = 0.0
        for p in range(a.shape[1]):
            length += a[k, p] * a[k, p]
        lengths[k] = math.sqrt(length)
    if ball:
        for k in range(K):
            w[3, k] = math.sqrt(G[k, k])
    damp = limits.shift
    least = np.inf
    q = -np.inf
    residual = np.inf
    for turn in range(int(limits.newton) + 1):
        bend[:, :] = 0.0
        for k in range(K):
            v[TRIAL_H, k] = c[k]
            v[SIZE, k] = abs(c[k])
        value, objective = bounded_part(a, tau, low, high, lengths, J, v, bend, limits)
        if ball:
            own = ball_part(G, u, xx, square, tau_x, w, v, bend, limits)
            value += own
            objective += own
        terms = objective + limits.tiny
        lagrangian = 0.0
        products = 0.0
        worst = -np.inf
        for k in range(K):
            terms += v[TRIAL, k] * v[SIZE, k]
            lagrangian += v[TRIAL, k] * v[TRIAL_H, k]
            products += v[TRIAL, k] * abs(v[TRIAL_H, k])
            worst = max(worst, v[TRIAL_H, k] / (v[SIZE, k] + limits.tiny))
            for j in range(k):
                bend[j, k] = bend[k, j]
        found = max(worst, products / terms)
        if not found < np.inf:
            return np.inf
        if turn == 0 or found < least:
            least = found
            v[BEST] = v[TRIAL]
        if least <= 0.1 * limits.good or turn == int(limits.newton):
            break
        if turn == 0 or value + lagrangian >= q - 1e-13 * terms or found < residual:
            if turn > 0:
                damp = 0.1 * damp if damp > 10 * limits.shift else limits.shift
            v[MU] = v[TRIAL]
            v[H] = v[TRIAL_H]
            kept[:, :] = bend
            q = value + lagrangian
            residual = found
        else:  # taken back, and damped more
            damp = max(10 * damp, limits.first)
        modelled(kept, M, v, damp, limits)
    return least


@kernel
def stepped(
    rows: Array, slopes: Array, tau: Array, tau_y: Array, x: Array, low: Array, kind: int, inner: float,
    outer: float, v: Array, dx: Array, dy: Array,
) -> None:  # fmt: skip
    """d of BEST; kind 0: any x, 1: inner <= x <= outer, 2: |x| <= outer. `surrogate._step`."""
    K, P = rows.shape
    s = tau[0]
    for k in range(K):
        s += tau[k + 1] * v[BEST, k]
    dx[:] = 0.0
    for k in range(K):
        if v[BEST, k] != 0.0:
            for p in range(P):
                dx[p] += v[BEST, k] * rows[k, p]
    length = 0.0
    for p in range(P):
        dx[p] = x[p] - dx[p] / s
        length += dx[p] * dx[p]
    length = math.sqrt(length)
    factor = outer / length if kind == 2 and length > outer * (1 + 4 * 2.220446049250313e-16) else 1.0
    for p in range(P):
        if kind == 1:
            dx[p] = min(max(dx[p], inner), outer)
        dx[p] = dx[p] * factor - x[p]
    for p in range(len(dy)):
        slope = slopes[0, p]
        s = tau_y[0, p]
        for k in range(K):
            slope += v[BEST, k] * slopes[k + 1, p]
            s += v[BEST, k] * tau_y[k + 1, p]
        dy[p] = max(-slope / s, low[p])


@kernel
def cancelled(rows: Array, slopes: Array, tau: Array, tau_y: Array, x: Array, v: Array, share: float) -> None:
    """Adds a share of the terms that cancel in a_k'd to SIZE. `surrogate._terms`."""
    K, P = rows.shape
    s = tau[0]
    away = 0.0
    pull = 0.0
    for k in range(K):
        length = 0.0
        for p in range(P):
            length += rows[k, p] * rows[k, p]
        for p in range(slopes.shape[1]):
            length += slopes[k + 1, p] * slopes[k + 1, p]
        v[LENGTH, k] = math.sqrt(length)
        s += v[BEST, k] * tau[k + 1]
        pull += v[BEST, k] * v[LENGTH, k]
    own = 0.0
    for p in range(slopes.shape[1]):
        other = tau_y[0, p]
        own += slopes[0, p] * slopes[0, p]
        for k in range(K):
            other += v[BEST, k] * tau_y[k + 1, p]
        s = min(s, other)
    for p in range(P):
        away += x[p] * x[p]
    for k in range(K):
        v[SIZE, k] += share * v[LENGTH, k] * ((pull + math.sqrt(own)) / s + math.sqrt(away))


@kernel
def certified(
    c: Array, rows: Array, slopes: Array, tau: Array, tau_y: Array, x: Array, v: Array, dx: Array, dy: Array,
    limits: Limits,
) -> tuple[float, float]:  # fmt: skip
    """max_k h_k at the step, and its residual from the rows. `surrogate._certificate`."""
    K, P = rows.shape
    dd = 0.0
    for p in range(P):
        dd += dx[p] * dx[p]
    zero = 0.5 * dd * tau[0]
    for p in range(len(dy)):
        zero += abs(dy[p]) * abs(slopes[0, p]) + 0.5 * dy[p] * dy[p] * tau_y[0, p]
    worst = -np.inf
    products = 0.0
    for k in range(K):
        linear = 0.0
        for p in range(P):
            linear += rows[k, p] * dx[p]
        bent = 0.5 * dd * tau[k + 1]
        along = 0.0
        size = 0.0
        for p in range(len(dy)):
            along += dy[p] * slopes[k + 1, p]
            size += abs(dy[p] * slopes[k + 1, p])
            bent += 0.5 * dy[p] * dy[p] * tau_y[k + 1, p]
        v[H, k] = c[k] + linear + along + bent
        v[SIZE, k] = abs(c[k]) + abs(linear) + size + bent
        worst = max(worst, v[H, k])
        products += abs(v[BEST, k] * v[H, k])
    residual = np.inf
    for turn in range(2):
        terms = zero + limits.tiny
        violated = 0.0
        for k in range(K):
            terms += v[BEST, k] * v[SIZE, k]
            if v[H, k] > 0:
                violated = max(violated, v[H, k] / (v[SIZE, k] + limits.tiny))
        residual = max(violated, products / terms)
        if turn == 0:
            if residual <= limits.good:
                break
            cancelled(rows, slopes, tau, tau_y, x, v, limits.cancelled)
    return worst, residual


@kernel
def boxed(rows: Array, x: Array, inner: float, outer: float, a: Array, low: Array, high: Array) -> None:
    """Rows and bounds of the variables x in a box, beside those of y."""
    K, P = rows.shape
    for p in range(P):
        low[p] = inner - x[p]
        high[p] = outer - x[p]
        for k in range(K):
            a[k + 1, p] = rows[k, p]


@kernel
def products(rows: Array, x: Array, G: Array, u: Array) -> float:
    """G_kl = a_k'a_l and u_k = a_k'x; returns |x|^2."""
    K, P = rows.shape
    for k in range(K):
        u[k] = 0.0
        for p in range(P):
            u[k] += rows[k, p] * x[p]
        for j in range(k + 1):
            value = 0.0
            for p in range(P):
                value += rows[k, p] * rows[j, p]
            G[k, j] = value
            G[j, k] = value
    xx = 0.0
    for p in range(P):
        xx += x[p] * x[p]
    return xx


@entry
def solve_surrogate(
    cs: Array, rows: Array, slopes: Array, tau: Array, tau_y: Array, xs: Array, lows: Array, start: Array,
    kind: int, inner: float, outer: float, limits: Array,
) -> tuple[Array, Array, Array, Array, Array, Array]:  # fmt: skip
    """dx (R, P), dy (R, q), mu (R, K), max_k h_k (R,), residual (R,) and which runs are done (R,)."""
    R, K, P = rows.shape
    q = slopes.shape[1]
    limit = limits_of(limits)
    box = P if kind == 1 else 0  # a box shares one block with y
    a = np.zeros((K + 1, box + q))
    taus = np.empty((K + 1, box + q))
    low = np.empty(box + q)
    high = np.full(box + q, np.inf)
    lengths = np.empty(K + 1)
    J = np.empty((K + 1, box + q))
    G = np.zeros((K, K))
    u = np.zeros(K)
    w = np.empty((4, K))
    v = np.empty((VECTORS, K))
    bend = np.empty((K, K))
    kept = np.empty((K, K))
    M = np.empty((K, K))
    for k in range(K + 1):
        taus[k, :box] = tau[k]
        taus[k, box:] = tau_y[k]
        a[k, box:] = slopes[k]
    dx = np.empty((R, P))
    dy = np.empty((R, q))
    mu = np.empty((R, K))
    worst = np.empty(R)
    residual = np.full(R, np.inf)
    done = np.zeros(R, np.bool_)
    for i in range(R):
        x = xs[i]
        if not abs(cs[i].sum() + rows[i].sum() + x.sum()) < np.inf:
            continue
        xx = 0.0
        low[box:] = lows[i]
        if box > 0:
            boxed(rows[i], x, inner, outer, a, low, high)
        else:
            xx = products(rows[i], x, G, u)
        for k in range(K):
            v[TRIAL, k] = max(start[i, k], 0.0) if abs(start[i, k]) < np.inf else 1.0
        square = outer * outer
        least = newton(
            cs[i], a, taus, low, high, lengths, J, box == 0, G, u, xx, square, tau, w, v, bend, kept, M, limit
        )  # fmt: skip
        if not least <= limit.good:
            continue
        stepped(rows[i], slopes, tau, tau_y, x, lows[i], kind, inner, outer, v, dx[i], dy[i])
        worst[i], residual[i] = certified(
            cs[i], rows[i], slopes, tau, tau_y, x, v, dx[i], dy[i], limit
        )  # fmt: skip
        mu[i] = v[BEST]
        done[i] = residual[i] <= limit.tolerance
    return dx, dy, mu, worst, residual, done
