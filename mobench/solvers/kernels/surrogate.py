"""CSMOO's surrogate run by run in scalar loops for Numba: the dual, the step, its certificate or a proof.

    maximise q(mu) over mu >= 0,  dq/dmu = h(d(mu)),  Hessian -H:  see `surrogate.py`

Newton's method with active sets starts from a guess. Where it fails, a primal-dual interior-point method
finds a better start for it. Variables come in blocks, each of which adds its part to h and H at d(mu):
variables with bounds by their rows (y, and x in a box); x in R^P or in a ball by products alone, whatever P
is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mobench.kernels.jit import Array, entry, kernel

FREE, BOX, BALL = 0, 1, 2  # kinds of X


class Limits(NamedTuple):
    """Thresholds of `mobench.solvers.surrogate`, under their names there."""

    good: float
    tolerance: float
    tiny: float
    loose: float
    shift: float
    first: float
    cancelled: float
    rounding: float
    far: float
    newton: float
    proof: float
    model: float
    interior: float


class Program(NamedTuple):
    """One run of `Surrogate`: bounds (P,) of a box, the radius of a ball; moving (P,), or (0,) for all."""

    c: Array
    rows: Array
    slopes: Array
    tau: Array
    tau_y: Array
    x: Array
    low: Array
    kind: int
    inner: Array
    outer: Array
    radius: float
    moving: Array


class Bounded(NamedTuple):
    """Variables with bounds low <= d <= high (D,).

    Rows a, curvatures tau and derivatives J of the constraints are (D, K) so that loops over the constraints
    run along memory; cost (2, D): row and curvature of the objective; the rows' lengths (K + 1,), and the
    room e (STATES, D) of both iterations.
    """

    a: Array
    tau: Array
    cost: Array
    low: Array
    high: Array
    lengths: Array
    J: Array
    e: Array


class Whole(NamedTuple):
    """x by its products: G_kl = a_k'a_l, u_k = a_k'x, xx = |x|^2, square = radius^2 (inf: R^P).

    curve (3,): coefficients of the Hessian at d.
    """

    G: Array
    u: Array
    xx: float
    square: float
    w: Array
    curve: Array


# rows of `v` (VECTORS, K)
MU, TRIAL, BEST, H, TRIAL_H, SIZE, RIDGE, ACTIVE, RIGHT, SLOPE, LENGTH = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
ONE, SLACK, MOVE, MOVE_SLACK, OLD, OLD_SLACK, LAG, PULL, KEPT, AT = 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
VECTORS = 21
# rows of `Bounded.e`: d and the multipliers of its bounds, their changes and old values, s and v + s d; in
# Newton's method 1/s between the bounds and 0 at them
D, ZL, ZU, DD, DL, DU, D0, ZL0, ZU0, S, V, INNER = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
STATES = 12


@kernel
def limits_of(a: Array) -> Limits:
    return Limits(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12]
    )  # fmt: skip


@kernel
def copied(to: Array, of: Array) -> None:
    """to <- of. Numba compiles a loop in less time than `to[:] = of`, each use of which is compiled anew."""
    for i in range(len(to)):
        to[i] = of[i]


@kernel
def filled(a: Array, value: float) -> None:
    for i in range(len(a)):
        a[i] = value


@kernel
def cleared(a: Array) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = 0.0


# the parts of the blocks of variables in h and in the sizes of its terms at d(TRIAL), with what the Hessian
# needs, which only an accepted step computes; zero: mu_0


@kernel
def bounded_part(y: Bounded, v: Array, zero: float, limits: Limits) -> tuple[float, float]:
    """The objective and the size of its terms, of variables with bounds."""
    a = y.a
    taus = y.tau
    cost = y.cost
    low = y.low
    high = y.high
    lengths = y.lengths
    J = y.J
    e = y.e
    n, K = a.shape
    value = 0.0
    objective = 0.0
    pull = zero * lengths[0]
    unit = 1.0
    for k in range(K):
        pull += lengths[k + 1] * v[TRIAL, k]
    for p in range(n):
        e[S, p] = zero * cost[1, p]
        e[V, p] = zero * cost[0, p]
    for k in range(K):
        mu = v[TRIAL, k]
        if mu != 0.0:
            for p in range(n):
                e[S, p] += taus[p, k] * mu
                e[V, p] += a[p, k] * mu
    for p in range(n):
        s = e[S, p]
        raw = -e[V, p] / s
        if p == 0:
            unit = s
        d = min(max(raw, low[p]), high[p])
        e[INNER, p] = 1 / s if raw > low[p] and raw < high[p] else 0.0
        bent = cost[1, p] * d
        linear = cost[0, p] * d
        value += linear + 0.5 * d * bent
        objective += abs(linear) + 0.5 * d * bent
        for k in range(K):
            bent = taus[p, k] * d
            linear = a[p, k] * d
            J[p, k] = a[p, k] + bent
            v[TRIAL_H, k] += linear + 0.5 * d * bent
            v[SIZE, k] += abs(linear) + 0.5 * d * bent
    for k in range(K):  # a share of the terms that cancel in a_k'd counts as size of h on the way
        v[SIZE, k] += limits.loose * lengths[k + 1] * (pull / unit)
    return value, objective + limits.loose * lengths[0] * (pull / unit)


@kernel
def bounded_bend(y: Bounded, bend: Array) -> None:
    """The lower triangle of their part of the Hessian."""
    J = y.J
    e = y.e
    n, K = J.shape
    for p in range(n):
        inner = e[INNER, p]
        if inner > 0:
            for k in range(K):
                factor = J[p, k] * inner
                for j in range(k + 1):
                    bend[k, j] += factor * J[p, j]


@kernel
def ball_part(x: Whole, tau: Array, v: Array, zero: float, limits: Limits) -> float:
    """The same, value and size being one, for variables in a ball around 0 (R^P: radius inf). With
    p = x - v/s: d = rho p - x, rho = min(1, radius/|p|); the derivative of the projection is
    rho (I - pp'/|p|^2) outside of the ball.

    w (4, K): a_k'v / s, a_k'(x - v / s), a_k'd without the tangent's missing part, |a_k|.
    """
    G = x.G
    u = x.u
    K = len(u)
    w = x.w
    curve = x.curve
    s = zero * tau[0]
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
    pp = x.xx - 2 * xv + vv
    outside = pp > x.square
    rho = math.sqrt(x.square / pp) if outside else 1.0
    inverse = 1 / pp if outside else 0.0
    less = rho - 1
    dd = less * less * x.xx - 2 * rho * less * xv + rho * rho * vv
    dp = rho * pp - (x.xx - xv)
    curve[0] = rho / s
    curve[1] = inverse
    curve[2] = dd - inverse * dp * dp
    for k in range(K):
        linear = less * u[k] - rho * w[0, k]
        w[1, k] = u[k] - w[0, k]
        w[2, k] = linear - w[1, k] * (inverse * dp)
        quadratic = 0.5 * tau[k + 1] * dd
        v[TRIAL_H, k] += linear + quadratic
        v[SIZE, k] += abs(linear) + quadratic + limits.loose * w[3, k] * (pull / s)
    return 0.5 * tau[0] * dd


@kernel
def ball_bend(x: Whole, tau: Array, bend: Array) -> None:
    """The lower triangle of its part of the Hessian."""
    G = x.G
    w = x.w
    share, inverse, curved = x.curve
    for k in range(len(G)):
        for j in range(k + 1):
            value = G[k, j] - w[1, k] * inverse * w[1, j] + tau[k + 1] * w[2, j] + w[2, k] * tau[j + 1]
            bend[k, j] += (value + tau[k + 1] * tau[j + 1] * curved) * share


@kernel
def parts(p: Program, x: Whole, y: Bounded, v: Array, zero: float, limits: Limits) -> tuple[float, float]:
    """TRIAL_H and SIZE at TRIAL; the objective and the size of its terms."""
    c = p.c
    for k in range(len(c)):
        v[TRIAL_H, k] = c[k]
        v[SIZE, k] = abs(c[k])
    value, objective = bounded_part(y, v, zero, limits)
    ball_value = 0.0
    if p.kind != BOX:
        ball_value = ball_part(x, p.tau, v, zero, limits)
    return value + ball_value, objective + ball_value


@kernel
def bends(p: Program, x: Whole, y: Bounded, bend: Array) -> None:
    """bend <- the Hessian at the last point of `parts`."""
    cleared(bend)
    bounded_bend(y, bend)
    if p.kind != BOX:
        ball_bend(x, p.tau, bend)
    for k in range(len(bend)):
        for j in range(k):
            bend[j, k] = bend[k, j]


@kernel
def bound(p: Program, x: Whole, y: Bounded, v: Array, row: int, limits: Limits) -> float:
    """A lower bound of the value of (13), relative to its terms, from the direction of row `row` of v."""
    total = 0.0
    for k in range(len(p.c)):
        total += v[row, k]
    if not (total > 0 and total < np.inf):
        return -np.inf
    for k in range(len(p.c)):
        v[TRIAL, k] = v[row, k] / total
    parts(p, x, y, v, 0.0, limits)
    value = 0.0
    size = limits.tiny
    for k in range(len(p.c)):
        value += v[TRIAL, k] * v[TRIAL_H, k]
        size += v[TRIAL, k] * v[SIZE, k]
    return value / size


@kernel
def solve(M: Array, v: Array, n: int, both: bool) -> None:
    """RIGHT[:n] <- the solution of M x = RIGHT, and likewise ONE if `both`.

    Overwrites M[:n, :n], which is symmetric and positive definite.
    """
    for j in range(n - 1):
        for i in range(j + 1, n):
            factor = M[i, j] / M[j, j]
            if factor != 0.0:
                for c in range(j + 1, n):
                    M[i, c] -= factor * M[j, c]
                v[RIGHT, i] -= factor * v[RIGHT, j]
                if both:
                    v[ONE, i] -= factor * v[ONE, j]
    for i in range(n - 1, -1, -1):
        for c in range(i + 1, n):
            v[RIGHT, i] -= M[i, c] * v[RIGHT, c]
            if both:
                v[ONE, i] -= M[i, c] * v[ONE, c]
        v[RIGHT, i] /= M[i, i]
        if both:
            v[ONE, i] /= M[i, i]


# Newton's method


@kernel
def modelled(bend: Array, M: Array, v: Array, damp: float, relaxed: bool, limits: Limits) -> None:
    """TRIAL <- maximiser x >= 0 of the quadratic model, by active sets; `relaxed`: on sum x = 1.

    The model is H'(x - MU) - 1/2 (x - MU)'(bend + ridge)(x - MU). Active are the k with x_k + (slope_k -
    t)/bend_kk > 0; there the slope of the model is t (not relaxed: 0), else x = 0.
    """
    K = len(bend)
    top = 0.0
    mean = 0.0
    for k in range(K):
        top = max(top, bend[k, k])
        mean += v[MU, k] * v[H, k]
    for k in range(K):
        # relaxed: of the order of the error, so that less cancels in t
        v[PULL, k] = v[H, k] - mean if relaxed else v[H, k]
        v[RIDGE, k] = damp * (bend[k, k] + 1e-4 * top + limits.tiny)
        v[ACTIVE, k] = 1.0 if v[MU, k] * (bend[k, k] + v[RIDGE, k]) + v[PULL, k] > 0 else 0.0
    for turn in range(int(limits.model)):
        # the system of the active ones, in the first rows of M
        active = 0
        for k in range(K):
            if v[ACTIVE, k] > 0:
                v[AT, active] = k
                v[RIGHT, active] = v[PULL, k]
                v[ONE, active] = 1.0
                active += 1
        for j in range(K):
            if v[ACTIVE, j] == 0 and v[MU, j] != 0.0:
                for m in range(active):
                    v[RIGHT, m] += bend[int(v[AT, m]), j] * v[MU, j]
        for m in range(active):
            k = int(v[AT, m])
            for n in range(active):
                M[m, n] = bend[k, int(v[AT, n])]
            M[m, m] += v[RIDGE, k]
        solve(M, v, active, relaxed)
        t = 0.0
        if relaxed:
            total = 0.0
            weight = 0.0
            m = 0
            for k in range(K):
                if v[ACTIVE, k] > 0:
                    total += v[RIGHT, m]
                    weight += v[ONE, m]
                    m += 1
                else:
                    total -= v[MU, k]
            t = total / weight
            for m in range(active):
                v[RIGHT, m] -= v[ONE, m] * t
        for k in range(K):
            v[TRIAL, k] = 0.0
        for m in range(active):
            k = int(v[AT, m])
            v[TRIAL, k] = v[MU, k] + v[RIGHT, m]
        same = True
        if turn + 1 < int(limits.model):
            for k in range(K):
                v[SLOPE, k] = v[PULL, k] - t - v[RIDGE, k] * (v[TRIAL, k] - v[MU, k])
            for j in range(K):
                change = v[TRIAL, j] - v[MU, j]
                if change != 0.0:
                    for k in range(K):
                        v[SLOPE, k] -= bend[j, k] * change
            for k in range(K):
                now = 1.0 if v[TRIAL, k] * (bend[k, k] + v[RIDGE, k]) + v[SLOPE, k] > 0 else 0.0
                same = same and now == v[ACTIVE, k]
                v[ACTIVE, k] = now
        if same:
            break
    total = 0.0
    for k in range(K):
        v[TRIAL, k] = v[TRIAL, k] if v[TRIAL, k] > 0 else 0.0
        total += v[TRIAL, k]
    if relaxed:
        for k in range(K):
            v[TRIAL, k] /= total


@kernel
def newton(
    p: Program, x: Whole, y: Bounded, v: Array, bend: Array, M: Array, relaxed: bool, limits: Limits
) -> float:
    """BEST <- the best multipliers seen from TRIAL on; returns their residual. `relaxed`: those of (13).

    Each step is for the quadratic model of q at MU, damped by damp * diag(H); where q has not grown it is
    taken back and damped more, so that kinks of q do no harm.
    """
    K = len(p.c)
    steps = int(limits.newton)
    zero = 0.0 if relaxed else 1.0
    if relaxed:
        total = 0.0
        for k in range(K):
            total += v[TRIAL, k]
        for k in range(K):
            v[TRIAL, k] /= total
    damp = limits.shift
    least = np.inf
    q = -np.inf
    residual = np.inf
    for turn in range(steps + 1):
        value, objective = parts(p, x, y, v, zero, limits)
        terms = objective + limits.tiny
        lagrangian = 0.0
        products = 0.0
        worst = -np.inf
        top = -np.inf
        largest = 0.0
        for k in range(K):
            terms += v[TRIAL, k] * v[SIZE, k]
            lagrangian += v[TRIAL, k] * v[TRIAL_H, k]
            products += v[TRIAL, k] * abs(v[TRIAL_H, k])
            worst = max(worst, v[TRIAL_H, k] / (v[SIZE, k] + limits.tiny))
            top = max(top, v[TRIAL_H, k])
            largest = max(largest, v[SIZE, k])
        kkt = max(worst, products / terms)
        reached = value + lagrangian
        if relaxed:
            terms = largest + limits.tiny
            kkt = (top - lagrangian) / terms
            reached = lagrangian
        finite = abs(reached) < np.inf and abs(kkt) < np.inf
        if turn == 0 and not finite:
            copied(v[BEST], v[TRIAL])
            break
        if finite and kkt < least:
            least = kkt
            copied(v[BEST], v[TRIAL])
        if least <= 0.1 * limits.good or turn == steps:
            break
        if turn == 0 or (finite and (reached >= q - 1e-13 * terms or kkt < residual)):
            if turn > 0:
                damp = 0.1 * damp if damp > 10 * limits.shift else limits.shift
            copied(v[MU], v[TRIAL])
            copied(v[H], v[TRIAL_H])
            bends(p, x, y, bend)
            q = reached
            residual = kkt
        else:  # taken back, and damped more
            damp = max(10 * damp, limits.first)
        # multipliers that run away are a proof that (11) is infeasible: nothing to wait for
        hopeless = turn == int(limits.proof) and not relaxed
        if hopeless and bound(p, x, y, v, MU, limits) > limits.tolerance:
            break
        modelled(bend, M, v, damp, relaxed, limits)
    return least


# the interior-point method on (mu, w, d), w the slacks of -h, keeps the kinks of bounds and of a ball as
# further variables, which it eliminates:
#     h(d) + w = t,  mu w = eps,  and with bounds  v + s d = zl - zu,  zl (d - low) = zu (high - d) = eps
#     (H + diag(w/mu)) dmu + dt = h - t + eps/mu - J r/S,   dw = (eps - mu w - w dmu)/mu


@kernel
def reach(x: float, dx: float) -> float:
    """Returns the step along dx at which an x > 0 vanishes (inf: never)."""
    return -x / dx if dx < 0 else np.inf


class Sums(NamedTuple):
    """Size of the objective's terms; sum and number of complementary products; the relative dual residual."""

    objective: float
    products: float
    pairs: float
    dual: float


@kernel
def bounded_system(y: Bounded, v: Array, zero: float, limits: Limits) -> Sums:
    """Adds the terms of variables with bounds to TRIAL_H and SIZE at their d; J, s and v + s d."""
    a = y.a
    taus = y.tau
    cost = y.cost
    low = y.low
    high = y.high
    J = y.J
    n, K = a.shape
    e = y.e
    objective = 0.0
    products = 0.0
    pairs = 0.0
    dual = 0.0
    for i in range(n):
        d = e[D, i]
        s = zero * cost[1, i]
        pull = zero * cost[0, i]
        size = abs(pull)
        bent = cost[1, i] * d
        linear = cost[0, i] * d
        objective += abs(linear) + 0.5 * d * bent
        for k in range(K):
            bent = taus[i, k] * d
            linear = a[i, k] * d
            J[i, k] = a[i, k] + bent
            v[TRIAL_H, k] += linear + 0.5 * d * bent
            v[SIZE, k] += abs(linear) + 0.5 * d * bent
        for k in range(K):
            s += taus[i, k] * v[TRIAL, k]
            pull += a[i, k] * v[TRIAL, k]
            size += abs(a[i, k] * v[TRIAL, k])
        e[S, i] = s
        e[V, i] = pull + s * d
        if e[ZL, i] > 0:
            products += e[ZL, i] * (d - low[i])
            pairs += 1.0
        if e[ZU, i] > 0:
            products += e[ZU, i] * (high[i] - d)
            pairs += 1.0
        if high[i] > low[i]:
            off = abs(e[V, i] - e[ZL, i] + e[ZU, i])
            dual = max(dual, off / (size + s * abs(d) + limits.tiny))
    return Sums(objective, products, pairs, dual)


@kernel
def local(y: Bounded, i: int, eps: float) -> tuple[float, float]:
    """S and r of variable i after elimination of the multipliers of its bounds."""
    low = y.low
    high = y.high
    e = y.e
    curvature = e[S, i]
    rest = e[V, i]
    if e[ZL, i] > 0:
        below = e[D, i] - low[i]
        curvature += e[ZL, i] / below
        rest -= eps / below
    if e[ZU, i] > 0:
        above = high[i] - e[D, i]
        curvature += e[ZU, i] / above
        rest += eps / above
    return (curvature if high[i] > low[i] else np.inf), rest


@kernel
def bounded_move(y: Bounded, v: Array, eps: float) -> float:
    """Changes of d and of the multipliers of its bounds for MOVE of mu, and how far they can go."""
    low = y.low
    high = y.high
    J = y.J
    e = y.e
    far = np.inf
    for i in range(len(low)):
        curvature, rest = local(y, i, eps)
        for k in range(v.shape[1]):
            rest += J[i, k] * v[MOVE, k]
        e[DD, i] = -rest / curvature
        below = e[D, i] - low[i]
        above = high[i] - e[D, i]
        e[DL, i] = eps / below - e[ZL, i] - e[ZL, i] / below * e[DD, i] if e[ZL, i] > 0 else 0.0
        e[DU, i] = eps / above - e[ZU, i] + e[ZU, i] / above * e[DD, i] if e[ZU, i] > 0 else 0.0
        far = min(far, min(reach(e[ZL, i], e[DL, i]), reach(e[ZU, i], e[DU, i])))
        far = min(far, min(reach(below, e[DD, i]), reach(above, -e[DD, i])))
    return far


@kernel
def ball_system(
    x: Whole, tau: Array, nu: float, omega: float, v: Array, bend: Array, zero: float, limits: Limits
) -> tuple[Sums, float, float]:
    """The same for x in a ball, one more constraint |x + d|^2 <= radius^2 with multiplier nu and slack omega.

    Puts H into bend and the constraint's row of H into w[1]; returns its violation and its curvature, too.
    d = -(v + 2 nu x)/S, S = s + 2 nu, is smooth.
    """
    G = x.G
    u = x.u
    K = len(u)
    w = x.w
    s = zero * tau[0] + 2 * nu
    for k in range(K):
        s += tau[k + 1] * v[TRIAL, k]
    vv = 0.0
    xv = 0.0
    for k in range(K):
        w[0, k] = 0.0
        for j in range(K):
            w[0, k] += G[k, j] * v[TRIAL, j]
        vv += w[0, k] * v[TRIAL, k]
        xv += u[k] * v[TRIAL, k]
    xd = -(xv + 2 * nu * x.xx) / s
    dd = (vv + 4 * nu * xv + 4 * nu * nu * x.xx) / (s * s)
    for k in range(K):
        linear = -(w[0, k] + 2 * nu * u[k]) / s
        w[2, k] = linear
        w[1, k] = 2 * (u[k] + linear + tau[k + 1] * (xd + dd)) / s
        v[TRIAL_H, k] += linear + 0.5 * tau[k + 1] * dd
        v[SIZE, k] += abs(linear) + 0.5 * tau[k + 1] * dd
    for k in range(K):
        for j in range(K):
            value = G[k, j] + tau[k + 1] * w[2, j] + w[2, k] * tau[j + 1] + tau[k + 1] * tau[j + 1] * dd
            bend[k, j] += value / s
    if not nu > 0:
        return Sums(0.5 * tau[0] * dd, 0.0, 0.0, 0.0), 0.0, 0.0
    out = x.xx + 2 * xd + dd
    over = out - x.square
    sums = Sums(0.5 * tau[0] * dd, nu * omega, 1.0, abs(over + omega) / (x.square + out + limits.tiny))
    return sums, over, 4 * out / s


@kernel
def system(
    p: Program, x: Whole, y: Bounded, nu: float, omega: float, v: Array, bend: Array, zero: float,
    limits: Limits,
) -> tuple[Sums, float, float]:  # fmt: skip
    """TRIAL_H, SIZE and the sums of all blocks at TRIAL, d, nu and omega."""
    c = p.c
    cleared(bend)
    for k in range(len(c)):
        v[TRIAL_H, k] = c[k]
        v[SIZE, k] = abs(c[k])
    one = bounded_system(y, v, zero, limits)
    other = Sums(0.0, 0.0, 0.0, 0.0)
    over = 0.0
    curvature = 0.0
    if p.kind != BOX:
        other, over, curvature = ball_system(x, p.tau, nu, omega, v, bend, zero, limits)
    sums = Sums(
        one.objective + other.objective, one.products + other.products, one.pairs + other.pairs,
        max(one.dual, other.dual),
    )  # fmt: skip
    return sums, over, curvature


@kernel
def started(p: Program, x: Whole, y: Bounded, v: Array, zero: float, limits: Limits) -> tuple[float, float]:
    """d strictly inside its bounds, their multipliers; nu and omega of a ball."""
    a = y.a
    taus = y.tau
    cost = y.cost
    low = y.low
    high = y.high
    e = y.e
    for i in range(len(low)):
        s = zero * cost[1, i]
        raw = zero * cost[0, i]
        for k in range(len(p.c)):
            s += taus[i, k] * v[TRIAL, k]
            raw += a[i, k] * v[TRIAL, k]
        room = high[i] - low[i]
        margin = 0.25 * room if room < 4.0 else 1.0
        e[D, i] = min(max(-raw / s, low[i] + margin), high[i] - margin)
        e[ZL, i] = 1.0 if low[i] > -np.inf and room > 0 else 0.0
        e[ZU, i] = 1.0 if high[i] < np.inf and room > 0 else 0.0
    if p.kind != BALL:
        return 0.0, 1.0
    return 1.0, max(x.square - x.xx, 0.1 * x.square + limits.tiny)


@kernel
def merit_of(v: Array, t: float, eps: float) -> float:
    merit = 0.0
    for k in range(v.shape[1]):
        merit += abs(v[TRIAL_H, k] - t + v[SLACK, k]) + abs(v[TRIAL, k] * v[SLACK, k] - eps)
    return merit


@kernel
def interior(
    p: Program, x: Whole, y: Bounded, v: Array, bend: Array, M: Array, relaxed: bool, limits: Limits
) -> None:
    """TRIAL <- multipliers by the interior-point method; `relaxed` (13): mu_0 = 0, t is free and sum mu = 1.

    eps is a tenth of the mean product; steps go 0.995 of the way to the boundary at most and are halved while
    the residual grows much.
    """
    c = p.c
    w = x.w
    J = y.J
    K = len(c)
    n = len(y.low)
    e = y.e
    zero = 0.0 if relaxed else 1.0
    top = 0.0
    for k in range(K):
        v[TRIAL, k] = 1.0 / K if relaxed else 1.0
        top = max(top, abs(c[k]))
    nu, omega = started(p, x, y, v, zero, limits)
    sums, over, curvature = system(p, x, y, nu, omega, v, bend, zero, limits)
    floor = 0.1 * (top + limits.tiny) if relaxed else 1.0
    t = 0.0
    if relaxed:
        t = -np.inf
        for k in range(K):
            t = max(t, v[TRIAL_H, k])
        t += floor
    for k in range(K):
        v[SLACK, k] = max(t - v[TRIAL_H, k], floor)
    for _ in range(int(limits.interior)):
        mean = sums.products
        terms = sums.objective + limits.tiny
        primal = sums.dual
        largest = 0.0
        for k in range(K):
            mean += v[TRIAL, k] * v[SLACK, k]
            terms += v[TRIAL, k] * v[SIZE, k]
            primal = max(primal, abs(v[TRIAL_H, k] - t + v[SLACK, k]) / (v[SIZE, k] + limits.tiny))
            largest = max(largest, v[TRIAL, k])
        mean /= K + sums.pairs
        if not ((K * mean > 1e-14 * terms or primal > 1e-13) and largest < limits.far):
            break
        eps = 0.1 * mean
        # the matrix and the right side after elimination of d and nu
        pivot = curvature + omega / nu if nu > 0 else np.inf
        rest = over + eps / nu if nu > 0 else 0.0
        for k in range(K):
            v[LAG, k] = 0.0
            for j in range(K):
                M[k, j] = bend[k, j]
            if nu > 0:
                v[LAG, k] = w[1, k] / pivot * rest
                for j in range(K):
                    M[k, j] -= w[1, k] / pivot * w[1, j]
            M[k, k] += v[SLACK, k] / v[TRIAL, k]
        for i in range(n):
            S_i, r_i = local(y, i, eps)
            for k in range(K):
                share = J[i, k] / S_i
                v[LAG, k] += share * r_i
                for j in range(K):
                    M[k, j] += share * J[i, j]
        weight = 1.0
        for k in range(K):
            v[RIGHT, k] = v[TRIAL_H, k] - t + eps / v[TRIAL, k] - v[LAG, k]
            v[ONE, k] = 1.0
            weight -= v[TRIAL, k]
        solve(M, v, K, relaxed)
        dt = 0.0
        if relaxed:
            total = -weight
            weight = 0.0
            for k in range(K):
                total += v[RIGHT, k]
                weight += v[ONE, k]
            dt = total / weight
        far = np.inf
        probe = dt
        for k in range(K):
            v[MOVE, k] = v[RIGHT, k] - v[ONE, k] * dt if relaxed else v[RIGHT, k]
            v[MOVE_SLACK, k] = (eps - v[TRIAL, k] * v[SLACK, k] - v[SLACK, k] * v[MOVE, k]) / v[TRIAL, k]
            far = min(far, min(reach(v[TRIAL, k], v[MOVE, k]), reach(v[SLACK, k], v[MOVE_SLACK, k])))
            probe += v[MOVE, k] + v[MOVE_SLACK, k]
        far = min(far, bounded_move(y, v, eps))
        dnu = 0.0
        domega = 0.0
        if nu > 0:
            dnu = rest
            for k in range(K):
                dnu -= w[1, k] * v[MOVE, k]
            dnu /= pivot
            domega = (eps - nu * omega - omega * dnu) / nu
            far = min(far, min(reach(nu, dnu), reach(omega, domega)))
        for i in range(n):
            probe += e[DD, i] + e[DL, i] + e[DU, i]
        if not abs(probe + dnu + domega) < np.inf:
            break
        length = min(0.995 * far, 1.0)
        merit = merit_of(v, t, eps)
        copied(v[OLD], v[TRIAL])
        copied(v[OLD_SLACK], v[SLACK])
        copied(e[D0], e[D])
        copied(e[ZL0], e[ZL])
        copied(e[ZU0], e[ZU])
        t0 = t
        nu0 = nu
        omega0 = omega
        for _ in range(6):
            for k in range(K):
                v[TRIAL, k] = v[OLD, k] + length * v[MOVE, k]
                v[SLACK, k] = v[OLD_SLACK, k] + length * v[MOVE_SLACK, k]
            for i in range(n):
                e[D, i] = e[D0, i] + length * e[DD, i]
                e[ZL, i] = e[ZL0, i] + length * e[DL, i]
                e[ZU, i] = e[ZU0, i] + length * e[DU, i]
            t = t0 + length * dt
            nu = nu0 + length * dnu
            omega = omega0 + length * domega
            sums, over, curvature = system(p, x, y, nu, omega, v, bend, zero, limits)
            if not merit_of(v, t, eps) > 2 * merit:
                break
            length *= 0.5


@kernel
def multipliers(
    p: Program, x: Whole, y: Bounded, v: Array, bend: Array, M: Array, relaxed: bool, limits: Limits
) -> None:
    """BEST <- multipliers of (11), or of (13) if `relaxed`, from TRIAL."""
    residual = np.inf
    for turn in range(2):  # each kernel is called in one place: LLVM compiles one copy of it
        lower = newton(p, x, y, v, bend, M, relaxed, limits)
        if turn == 1:
            if not lower < residual:
                copied(v[BEST], v[KEPT])
            break
        residual = lower
        good = residual <= limits.good
        if good and not relaxed:
            break
        below = bound(p, x, y, v, BEST, limits)
        # (11): the direction of multipliers that have run away proves already that it is infeasible.
        # (13): a value that is no proof may be zero, and is to be known as exactly as rounding lets it be
        if (good and below > limits.good) if relaxed else below > limits.tolerance:
            break
        copied(v[KEPT], v[BEST])
        interior(p, x, y, v, bend, M, relaxed, limits)


# the step of the multipliers BEST, and its certificate


@kernel
def stepped(p: Program, v: Array, zero: float, dx: Array, dy: Array) -> None:
    """d(BEST), the projection of -v/s."""
    rows = p.rows
    slopes = p.slopes
    tau = p.tau
    tau_y = p.tau_y
    at = p.x
    lowest = p.low
    inner = p.inner
    outer = p.outer
    moving = p.moving
    K, P = rows.shape
    s = zero * tau[0]
    for k in range(K):
        s += tau[k + 1] * v[BEST, k]
    filled(dx, 0.0)
    for k in range(K):
        if v[BEST, k] != 0.0:
            for i in range(P):
                dx[i] += v[BEST, k] * rows[k, i]
    some = len(moving) > 0
    length = 0.0
    still = 0.0
    for i in range(P):
        dx[i] = at[i] - dx[i] / s
        if some and not moving[i]:
            still += at[i] * at[i]
        else:
            length += dx[i] * dx[i]
    factor = 1.0
    if p.kind == BALL and some:
        room = max(p.radius * p.radius - still, 0.0)
        factor = math.sqrt(room / length) if length > room else 1.0
    elif p.kind == BALL:
        length = math.sqrt(length)
        factor = p.radius / length if length > p.radius * (1 + 4 * 2.220446049250313e-16) else 1.0
    for i in range(P):
        if p.kind == BOX:
            dx[i] = min(max(dx[i], inner[i]), outer[i])
        dx[i] = 0.0 if some and not moving[i] else dx[i] * factor - at[i]
    for i in range(len(dy)):
        slope = zero * slopes[0, i]
        s = zero * tau_y[0, i]
        for k in range(K):
            slope += v[BEST, k] * slopes[k + 1, i]
            s += v[BEST, k] * tau_y[k + 1, i]
        dy[i] = max(-slope / s, lowest[i])


@kernel
def cancelled(p: Program, v: Array, zero: float) -> None:
    """LENGTH <- the size of the terms that cancel in a_k'd(BEST), to which rounding is relative.

    It is |a_k| (sum mu_l |a_l| / s + |x|).
    """
    rows = p.rows
    slopes = p.slopes
    tau = p.tau
    tau_y = p.tau_y
    at = p.x
    K, P = rows.shape
    s = zero * tau[0]
    away = 0.0
    pull = 0.0
    for k in range(K):
        length = 0.0
        for i in range(P):
            length += rows[k, i] * rows[k, i]
        for i in range(slopes.shape[1]):
            length += slopes[k + 1, i] * slopes[k + 1, i]
        v[LENGTH, k] = math.sqrt(length)
        s += v[BEST, k] * tau[k + 1]
        pull += v[BEST, k] * v[LENGTH, k]
    square = 0.0
    for i in range(slopes.shape[1]):
        other = zero * tau_y[0, i]
        square += slopes[0, i] * slopes[0, i]
        for k in range(K):
            other += v[BEST, k] * tau_y[k + 1, i]
        s = min(s, other)
    for i in range(P):
        away += at[i] * at[i]
    for k in range(K):
        v[LENGTH, k] *= (pull + zero * math.sqrt(square)) / s + math.sqrt(away)


@kernel
def constrained(p: Program, v: Array, dx: Array, dy: Array) -> tuple[float, float]:
    """H and SIZE of the constraints at the step from the rows; the largest, and the size of the objective."""
    c = p.c
    rows = p.rows
    slopes = p.slopes
    tau = p.tau
    tau_y = p.tau_y
    K, P = rows.shape
    dd = 0.0
    for i in range(P):
        dd += dx[i] * dx[i]
    zero = 0.5 * dd * tau[0]
    for i in range(len(dy)):
        zero += abs(dy[i]) * abs(slopes[0, i]) + 0.5 * dy[i] * dy[i] * tau_y[0, i]
    worst = -np.inf
    for k in range(K):
        linear = 0.0
        for i in range(P):
            linear += rows[k, i] * dx[i]
        bent = 0.5 * dd * tau[k + 1]
        along = 0.0
        size = 0.0
        for i in range(len(dy)):
            along += dy[i] * slopes[k + 1, i]
            size += abs(dy[i] * slopes[k + 1, i])
            bent += 0.5 * dy[i] * dy[i] * tau_y[k + 1, i]
        v[H, k] = c[k] + linear + along + bent
        v[SIZE, k] = abs(c[k]) + abs(linear) + size + bent
        worst = max(worst, v[H, k])
    return worst, zero


@kernel
def certified(p: Program, v: Array, dx: Array, dy: Array, limits: Limits) -> tuple[float, float]:
    """max_k h_k at the step, and the residual: violation max h_k+ and duality gap |mu'h| over their terms.

    d(mu) minimises the Lagrangian, therefore h_0(d) - q(mu) = -mu'h is the duality gap. At a fixed point d
    and all its terms vanish; there a small share of the terms that cancel in d counts.
    """
    K = len(p.c)
    worst, zero = constrained(p, v, dx, dy)
    residual = np.inf
    for turn in range(2):
        terms = zero + limits.tiny
        violated = 0.0
        products = 0.0
        for k in range(K):
            terms += v[BEST, k] * v[SIZE, k]
            products += abs(v[BEST, k] * v[H, k])
            if v[H, k] > 0:
                violated = max(violated, v[H, k] / (v[SIZE, k] + limits.tiny))
        gap = products / terms
        residual = max(violated, gap) if gap < np.inf and abs(worst) < np.inf else np.inf
        if turn == 0:
            if residual <= limits.good:
                break
            cancelled(p, v, 1.0)
            for k in range(K):
                v[SIZE, k] += limits.cancelled * v[LENGTH, k]
    return worst, residual


@kernel
def proved(p: Program, v: Array, dx: Array, dy: Array, limits: Limits) -> tuple[bool, float, float]:
    """Returns whether BEST proves that no point of Q is feasible, max_k h_k at the step, and the gap of (13).

    The gap is inf where nothing is settled.
    """
    K = len(p.c)
    above, _ = constrained(p, v, dx, dy)
    below = 0.0
    size = 0.0
    scale = limits.tiny
    cancelled(p, v, 0.0)
    noise = 0.0
    for k in range(K):
        below += v[BEST, k] * v[H, k]
        size += v[BEST, k] * v[SIZE, k]
        scale = max(scale, v[SIZE, k] + limits.tiny)
        noise = max(noise, limits.rounding * v[LENGTH, k])
    if not (abs(below) < np.inf and abs(above) < np.inf):
        return False, above, np.inf
    if below > limits.good * size:  # beyond rounding: no point of Q makes mu'h smaller
        return True, above, (above - below) / scale
    # value 0: the minimiser of (13) is the only point that satisfies the constraints, (11) has no multipliers
    return False, above, 0.0 if max(abs(above), abs(below)) <= noise else np.inf


# all runs


@kernel
def boxed(p: Program, y: Bounded) -> None:
    """Rows and bounds of the variables x in a box, beside those of y."""
    rows = p.rows
    at = p.x
    inner = p.inner
    outer = p.outer
    moving = p.moving
    a = y.a
    low = y.low
    high = y.high
    K, P = rows.shape
    for i in range(P):
        still = len(moving) > 0 and not moving[i]
        low[i] = 0.0 if still else inner[i] - at[i]
        high[i] = 0.0 if still else outer[i] - at[i]
        for k in range(K):
            a[i, k] = rows[k, i]


@kernel
def multiplied(p: Program, G: Array, u: Array, masked: Array) -> tuple[float, float]:
    """G_kl = a_k'a_l and u_k = a_k'x over the coordinates that move.

    Returns |x|^2 over them and the square of the ball's radius in their section.
    """
    rows = p.rows
    at = p.x
    moving = p.moving
    K, P = rows.shape
    still = 0.0
    xx = 0.0
    if len(moving) > 0:
        for i in range(P):
            still += 0.0 if moving[i] else at[i] * at[i]
            for k in range(K):
                masked[k, i] = rows[k, i] if moving[i] else 0.0
        rows = masked
    for k in range(K):
        u[k] = 0.0
        for i in range(P):
            u[k] += rows[k, i] * at[i]
        for j in range(k + 1):
            value = 0.0
            for i in range(P):
                value += rows[k, i] * rows[j, i]
            G[k, j] = value
            G[j, k] = value
    for i in range(P):
        if not (len(moving) > 0 and not moving[i]):
            xx += at[i] * at[i]
    return xx, max(p.radius * p.radius - still, 0.0)


@kernel
def lengths_of(p: Program, x: Whole, y: Bounded) -> None:
    """The lengths of the rows in both blocks, the same in every iteration."""
    c = p.c
    G = x.G
    w = x.w
    a = y.a
    cost = y.cost
    lengths = y.lengths
    filled(lengths, 0.0)
    for i in range(len(a)):
        lengths[0] += cost[0, i] * cost[0, i]
        for k in range(len(c)):
            lengths[k + 1] += a[i, k] * a[i, k]
    for k in range(len(c) + 1):
        lengths[k] = math.sqrt(lengths[k])
    for k in range(len(c)):
        if p.kind != BOX:
            w[3, k] = math.sqrt(G[k, k])


@entry
def solve_surrogate(
    cs: Array, rows: Array, slopes: Array, tau: Array, tau_y: Array, xs: Array, lows: Array, moving: Array,
    start: Array, kind: int, inner: Array, outer: Array, radius: float, limits: Array,
) -> tuple[Array, Array, Array, Array, Array, Array]:  # fmt: skip
    """dx (R, P), dy (R, q), mu (R, K), max_k h_k (R,), residual (R,) and infeasible (R,).

    A run that is not finite gets NaN. moving (R, P), or (0, 0) for all; inner, outer (P,): the bounds of a
    box.
    """
    R, K, P = rows.shape
    q = slopes.shape[1]
    limit = limits_of(limits)
    box = P if kind == BOX else 0  # a box shares one block with y
    n = box + q
    y = Bounded(
        np.empty((n, K)), np.empty((n, K)), np.zeros((2, n)), np.empty(n), np.full(n, np.inf),
        np.empty(K + 1), np.empty((n, K)), np.empty((STATES, n)),
    )  # fmt: skip
    G = np.zeros((K, K))
    u = np.zeros(K)
    w = np.empty((4, K))
    curve = np.empty(3)
    masked = np.empty((K if len(moving) > 0 else 0, P))
    everything = np.empty(0, np.bool_)
    v = np.empty((VECTORS, K))
    bend = np.empty((K, K))
    M = np.empty((K, K))
    relaxable = True
    for i in range(n):
        y.cost[1, i] = tau[0] if i < box else tau_y[0, i - box]
        for k in range(K):
            y.tau[i, k] = tau[k + 1] if i < box else tau_y[k + 1, i - box]
    for i in range(q):
        y.cost[0, box + i] = slopes[0, i]
        for k in range(K):
            y.a[box + i, k] = slopes[k + 1, i]
            relaxable = relaxable and tau_y[k + 1, i] > 0
    dx = np.empty((R, P))
    dy = np.empty((R, q))
    mu = np.empty((R, K))
    ex = np.empty(P)
    ey = np.empty(q)
    worst = np.full(R, np.nan)
    residual = np.full(R, np.nan)
    infeasible = np.zeros(R, np.bool_)
    for r in range(R):
        mask = moving[r] if len(moving) > 0 else everything
        p = Program(
            cs[r], rows[r], slopes, tau, tau_y, xs[r], lows[r], kind, inner, outer, radius, mask
        )  # fmt: skip
        if not abs(cs[r].sum() + rows[r].sum() + xs[r].sum()) < np.inf:
            filled(dx[r], np.nan)
            filled(dy[r], np.nan)
            filled(mu[r], np.nan)
            continue
        xx = 0.0
        square = np.inf
        copied(y.low[box:], lows[r])
        if kind == BOX:
            boxed(p, y)
        else:
            xx, square = multiplied(p, G, u, masked)
        x = Whole(G, u, xx, square, w, curve)
        lengths_of(p, x, y)
        for k in range(K):
            v[TRIAL, k] = max(start[r, k], 0.0) if abs(start[r, k]) < np.inf else 1.0
        for relaxed in (False, True):
            multipliers(p, x, y, v, bend, M, relaxed, limit)
            to_x = ex if relaxed else dx[r]
            to_y = ey if relaxed else dy[r]
            stepped(p, v, 0.0 if relaxed else 1.0, to_x, to_y)
            if relaxed:
                infeasible[r], above, gap = proved(p, v, ex, ey, limit)
            else:
                above, gap = certified(p, v, to_x, to_y, limit)
            if relaxed and gap < np.inf:
                copied(dx[r], ex)
                copied(dy[r], ey)
            if not relaxed or gap < np.inf:
                copied(mu[r], v[BEST])
                worst[r] = above
                residual[r] = gap
            if residual[r] <= limit.tolerance or not relaxable:
                break
            copied(v[TRIAL], v[BEST])
        if not residual[r] <= limit.tolerance:
            infeasible[r] = False
            filled(dx[r], np.nan)
            filled(dy[r], np.nan)
            filled(mu[r], np.nan)
    return dx, dy, mu, worst, residual, infeasible
