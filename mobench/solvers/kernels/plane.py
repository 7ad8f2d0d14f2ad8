"""The closed forms of `mobench.solvers` for two objectives, run by run in scalar loops.

They do the same operations as the formulas in arrays, in the same order, so that both give the same bits (but
for the residual of `sector` of one run with many rays, whose sum NumPy takes in another order).
`mobench.solvers` explains them.
Functions get addresses and sizes; all numbers are float64. `mobench.kernels.native` compiles this file anew
when it changes.
"""

from __future__ import annotations

from typing import Any

from mobench.kernels.native import INTEGERS, NUMBER, NUMBERS, SIZE, TRUTHS, inner, outer

TINY = 1e-150  # of `mobench.solvers.solution`, as is the next
TOLERANCE = 1e-9
GROWTH = 1e4
SAME = 1e-9  # of `mobench.solvers.sector`
NAN = float("nan")
INFINITE = float("inf")


@inner
def lesser(a: float, b: float) -> float:
    """NaN if one is NaN."""
    return a if a < b or a != a else b


@inner
def larger(a: float, b: float) -> float:
    """NaN if one is NaN."""
    return a if a > b or a != a else b


@inner
def certify(
    i: int, x1: float, x2: float, residual: float, probe: float, x: Any, residuals: Any, failed: Any
) -> None:
    """`mobench.solvers.solution.certified` of run i."""
    zero = probe - probe
    if zero != 0.0:  # NaN
        residual = NAN
    elif residual != residual:
        residual = INFINITE
    poison = 0.0 if residual <= TOLERANCE else NAN
    x[2 * i] = x1 + poison
    x[2 * i + 1] = x2 + poison
    residuals[i] = residual
    failed[i] = residual > TOLERANCE


@inner
def shares(
    q11: float, q12: float, q22: float, b1: float, b2: float, a1: float, a2: float, r: float, linear: bool
) -> tuple[float, float, float, float]:
    """x, residual and probe of `mobench.solvers.qp.segment`; linear: whether there is a b."""
    trace = q11 + q22
    probe = trace + q12
    P = a2 * q11 - a1 * q12
    S = a1 * q22 - a2 * q12
    V = r * S
    W = r * P
    top = larger(a1, a2)
    gamma = trace * r / top
    beta = 0.0
    if linear:
        beta = a2 * b1 - a1 * b2
        V = V + a2 * beta
        W = W - a1 * beta
        gamma = larger(gamma, larger(abs(b1), abs(b2)))
        probe = probe + beta
    V = abs(V) + V
    W = abs(W) + W
    if V + W == 0.0:
        V = V + a1
        W = W + a2
    scale = r / (a1 * V + a2 * W)
    x1 = V * scale
    x2 = W * scale
    delta = x1 * P - x2 * S
    z1 = a1 * x1 / r
    z2 = a2 * x2 / r
    if linear:
        delta = delta - beta
    gamma = gamma + TINY
    steep = lesser(larger(trace * larger(x1, x2), gamma), GROWTH * gamma)
    delta = delta / (r * steep)
    unit = trace / gamma
    e1 = lesser(larger(unit * x1, z1), x2 * delta)
    e2 = lesser(larger(unit * x2, z2), -x1 * delta)
    residual = larger(larger(abs(e1), abs(e2)), abs(z1 + z2 - 1.0))
    if r == 0.0 and top == 0.0 and (not linear or (b1 == 0.0 and b2 == 0.0)):
        x1 = 0.0
        x2 = 0.0
        residual = 0.0
    return x1, x2, residual, probe + r + top


@outer(NUMBERS, SIZE, NUMBERS, NUMBERS, TRUTHS)
def min_norm(G: Any, R: int, x: Any, residuals: Any, failed: Any) -> None:
    """`mobench.solvers.min_norm` of G (R, 2, 2)."""
    for i in range(R):
        q11 = G[4 * i]
        q12 = G[4 * i + 1]
        q22 = G[4 * i + 3]
        trace = q11 + q22
        P = q11 - q12
        S = q22 - q12
        V = abs(S) + S
        W = abs(P) + P
        if V + W == 0.0:
            V = V + 1.0
            W = W + 1.0
        scale = 1.0 / (V + W)
        x1 = V * scale
        x2 = W * scale
        delta = (x1 * P - x2 * S) / (trace + TINY)
        e1 = lesser(x1, x2 * delta)
        e2 = lesser(x2, -x1 * delta)
        certify(i, x1, x2, larger(abs(e1), abs(e2)), trace + q12, x, residuals, failed)


@outer(NUMBERS, NUMBERS, NUMBERS, NUMBERS, SIZE, SIZE, NUMBERS, NUMBERS, TRUTHS)
def qp(Q: Any, b: Any, a: Any, r: Any, linear: int, R: int, x: Any, residuals: Any, failed: Any) -> None:
    """`mobench.solvers.qp` of two variables >= 0 with a'x = r; linear: 0 if there is no b."""
    for i in range(R):
        b1 = 0.0
        b2 = 0.0
        if linear > 0:
            b1 = b[2 * i]
            b2 = b[2 * i + 1]
        x1, x2, residual, probe = shares(
            Q[4 * i], Q[4 * i + 1], Q[4 * i + 3], b1, b2, a[2 * i], a[2 * i + 1], r[i], linear > 0
        )
        certify(i, x1, x2, residual, probe, x, residuals, failed)


@inner
def remaining(u: float, v: float, low: float, high: float) -> tuple[float, float]:
    """Returns the part of low <= t <= high in which u t + v (1 - t) >= 0."""
    cut = v / (v - u)
    if u < 0.0 and v >= 0.0:
        high = lesser(high, cut)
    if v < 0.0 and u >= 0.0:
        low = larger(low, cut)
    return low, high


@inner
def held(u: float, v: float, t: float, slope: float, least: float, slack: float) -> tuple[float, float]:
    """`least` and `slack` with one row more: the least value of all rows, and of those that hold t."""
    value = u * t + v * (1.0 - t)
    least = lesser(least, value)
    if (u - v) * slope < 0.0:
        slack = lesser(slack, value)
    return least, slack


@inner
def bound(c: float, wide: float, balance: bool, some: bool, worst: bool) -> tuple[float, float]:
    """Right-hand side and scale of a row of `epo_lp`."""
    h = 0.0
    if balance and some and c <= 0.0 and not worst:
        h = c
    if balance and c > 0.0 and not worst:
        return h, 0.0
    return h, 1.0 / (larger(wide, abs(h)) + TINY)


@outer(NUMBERS, NUMBERS, TRUTHS, INTEGERS, SIZE, SIZE, NUMBERS, NUMBERS, TRUTHS)
def epo_lp(
    K: Any, Ca: Any, balance: Any, jstar: Any, restricted: int, R: int, x: Any, residuals: Any, failed: Any
) -> None:
    """`mobench.solvers.epo_lp` of K (R, 2, 2)."""
    for i in range(R):
        k11 = K[4 * i]
        k12 = K[4 * i + 1]
        k22 = K[4 * i + 3]
        c1 = Ca[2 * i]
        c2 = Ca[2 * i + 1]
        mode = balance[i] != 0
        probe = k11 + k12 + k22 + c1 + c2
        some = c1 > 0.0 or c2 > 0.0
        h, scale = bound(c1, larger(abs(k11), abs(k12)), mode, some, jstar[i] == 0)
        u1 = (k11 - h) * scale
        v1 = (k12 - h) * scale
        h, scale = bound(c2, larger(abs(k12), abs(k22)), mode, some, jstar[i] == 1)
        u2 = (k12 - h) * scale
        v2 = (k22 - h) * scale
        low = 0.0 * k11
        high = 0.0 * k11 + 1.0
        low, high = remaining(u1, v1, low, high)
        low, high = remaining(u2, v2, low, high)
        u3 = 0.0
        v3 = 0.0
        if restricted > 0:
            limit = lesser(larger(c1, c2), 0.0 * c1)
            scale = 0.0 if mode else 1.0 / (larger(abs(c1), abs(c2)) + TINY)
            u3 = (c1 - limit) * scale
            v3 = (c2 - limit) * scale
            low, high = remaining(u3, v3, low, high)
        slope = c1 - c2 if mode else k11 - k22
        t = 0.5 * (low + high)
        slack = 0.0 * t
        if slope > 0.0:
            t = high
            slack = 1.0 - t
        elif slope < 0.0:
            t = low
            slack = t
        least = 0.0 * t
        least, slack = held(u1, v1, t, slope, least, slack)
        least, slack = held(u2, v2, t, slope, least, slack)
        if restricted > 0:
            least, slack = held(u3, v3, t, slope, least, slack)
        residual = larger(larger(-least, slack), larger(-t, t - 1.0))
        certify(i, t, 1.0 - t, residual, probe, x, residuals, failed)


@outer(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBER, SIZE, SIZE, NUMBERS, NUMBERS, TRUTHS)
def ferero_dual(
    K: Any, F: Any, rows: Any, bh: Any, c_h: float, adaptive: int, R: int, w: Any, residuals: Any, failed: Any
) -> None:
    """`mobench.solvers.dual.ferero_dual` of K (R, 2, 2), rows (R, 3, 2) and bh (R, 1)."""
    for i in range(R):
        k11 = K[4 * i]
        k12 = K[4 * i + 1]
        k21 = K[4 * i + 2]
        k22 = K[4 * i + 3]
        f1 = F[2 * i]
        f2 = F[2 * i + 1]
        A11 = rows[6 * i]
        A12 = rows[6 * i + 1]
        A21 = rows[6 * i + 2]
        A22 = rows[6 * i + 3]
        b1 = rows[6 * i + 4]
        b2 = rows[6 * i + 5]
        p1 = k11 * b1 + k12 * b2
        p2 = k21 * b1 + k22 * b2
        S = b1 * p1 + b2 * p2
        lost = 1e-26 * (k11 + k22) >= S
        a1 = A11 * f1 + A12 * f2
        a2 = A21 * f1 + A22 * f2
        target = c_h * (b1 * f1 + b2 * f2 + bh[i])
        m1 = A12 * b1 - A11 * b2
        m2 = A22 * b1 - A21 * b2
        squares = k11 * p2 * p2 + k22 * p1 * p1
        curvature = squares - 2.0 * k12 * p1 * p2
        bend = 0.0
        if not curvature <= 1e-14 * squares:
            bend = curvature / (S * S)
        r = a1 + a2
        if adaptive == 0:
            r = 1.0
            a1 = 1.0 if A11 != 0.0 or A12 != 0.0 else 0.0
            a2 = 1.0 if A21 != 0.0 or A22 != 0.0 else 0.0
        share = target / S
        q11 = bend * m1 * m1
        q12 = bend * m1 * m2
        q22 = bend * m2 * m2
        l1 = -share * (A11 * p1 + A12 * p2)
        l2 = -share * (A21 * p1 + A22 * p2)
        ak11 = A11 * k11 + A12 * k21
        ak12 = A11 * k12 + A12 * k22
        ak21 = A21 * k11 + A22 * k21
        ak22 = A21 * k12 + A22 * k22
        if lost:
            q11 = ak11 * A11 + ak12 * A12
            q12 = ak11 * A21 + ak12 * A22
            q22 = ak21 * A21 + ak22 * A22
            l1 = 0.0
            l2 = 0.0
        x1, x2, residual, probe = shares(q11, q12, q22, l1, l2, a1, a2, r, True)
        y = (m1 * x1 + m2 * x2) / S
        w1 = share * b1 - y * p2
        w2 = share * b2 + y * p1
        terms = abs(share) * (abs(p1) * abs(b1) + abs(p2) * abs(b2)) + 2.0 * abs(y * p1 * p2)
        if lost:
            w1 = A11 * x1 + A21 * x2
            w2 = A12 * x1 + A22 * x2
            largest = larger(larger(abs(ak11), abs(ak21)), larger(abs(ak12), abs(ak22)))
            largest = larger(largest, larger(abs(p1), abs(p2)))
            terms = largest * larger(abs(w1), abs(w2))
        equality = abs(target - (p1 * w1 + p2 * w2)) / (abs(target) + terms + TINY)
        certify(i, w1, w2, residual, probe, w, residuals, failed)
        residuals[i] = larger(residual + (probe - probe), equality)
        failed[i] = failed[i] != 0 or equality > TOLERANCE


@inner
def active(u: Any, j: int, v1: float, v2: float, f1: float, f2: float) -> bool:
    p1 = u[2 * j] - v1
    p2 = u[2 * j + 1] - v2
    return p1 * f1 + p2 * f2 > 0.0 and larger(abs(p1), abs(p2)) > SAME


@inner
def arc(u: Any, L: int, v1: float, v2: float, f1: float, f2: float) -> tuple[int, int]:
    """The first and the last active ray, in the order in which they come; 0 and 0 without any."""
    near = 0
    far = 0
    shortest = INFINITE
    longest = -INFINITE
    for j in range(L):
        if active(u, j, v1, v2, f1, f2):
            p1 = u[2 * j] - v1
            p2 = u[2 * j + 1] - v2
            length = p1 * p1 + p2 * p2
            if length < shortest:
                shortest = length
                near = j
            if length > longest:
                longest = length
                far = j
    return min(near, far), max(near, far)


@inner
def square(p1: float, p2: float, g11: float, g12: float, g22: float) -> float:
    return p1 * (g11 * p1 + g12 * p2) + p2 * (g12 * p1 + g22 * p2)


@inner
def nearest(p: Any, on: Any, n: int, g11: float, g12: float, g22: float, x: Any) -> float:
    """Fills the shares x of n rows p in the point that is nearest to 0; returns the least square of a row."""
    least = INFINITE
    row = 0
    for j in range(n):
        x[j] = 0.0
        if on[j]:
            length = square(p[2 * j], p[2 * j + 1], g11, g12, g22)
            if length < least:
                least = length
                row = j
    x[row] = 1.0
    best = INFINITE
    first = 0
    last = 1
    to_first = 1.0
    to_last = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            if not (on[i] and on[j]):
                continue
            product = (g11 * p[2 * i] + g12 * p[2 * i + 1]) * p[2 * j]
            product = product + (g12 * p[2 * i] + g22 * p[2 * i + 1]) * p[2 * j + 1]
            to_j = square(p[2 * i], p[2 * i + 1], g11, g12, g22) - product
            to_i = square(p[2 * j], p[2 * j + 1], g11, g12, g22) - product
            if to_j > 0.0 and to_i > 0.0:
                cross = p[2 * i] * p[2 * j + 1] - p[2 * i + 1] * p[2 * j]
                height = cross * cross / (to_i + to_j)
                if height < best:
                    best = height
                    first = i
                    last = j
                    to_first = to_i
                    to_last = to_j
    det = g11 * g22 - g12 * g12
    if best * 0.5 * (det + abs(det)) < least:
        t = to_first / (to_first + to_last)
        x[row] = 0.0
        x[first] = t
        x[last] = 1.0 - t
    return least


@outer(
    NUMBERS, SIZE, NUMBERS, NUMBERS, NUMBERS, SIZE, SIZE, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, TRUTHS
)  # fmt: skip
def sector(
    u: Any, L: int, v: Any, G: Any, F: Any, objectives: int, R: int, p: Any, on: Any, x: Any, w: Any,
    residuals: Any, failed: Any,
) -> None:  # fmt: skip
    """`mobench.solvers.sector.sector_min_norm` of rays u (L, 2) and v (R, 2).

    p (4, 2), on (4,) and x (4,) are room for four rows, whether they count, and their shares.
    """
    for i in range(R):
        v1 = v[2 * i]
        v2 = v[2 * i + 1]
        g11 = G[4 * i]
        g12 = G[4 * i + 1]
        g22 = G[4 * i + 3]
        f1 = F[2 * i]
        f2 = F[2 * i + 1]
        always = 0
        if objectives > 0:
            always = 2
            p[0] = 1.0
            p[1] = 0.0
            p[2] = 0.0
            p[3] = 1.0
            on[0] = 1.0
            on[1] = 1.0
        early, late = arc(u, L, v1, v2, f1, f2)
        p[2 * always] = u[2 * early] - v1
        p[2 * always + 1] = u[2 * early + 1] - v2
        p[2 * always + 2] = u[2 * late] - v1
        p[2 * always + 3] = u[2 * late + 1] - v2
        on[always] = 1.0 if active(u, early, v1, v2, f1, f2) else 0.0
        on[always + 1] = 1.0 if late != early and active(u, late, v1, v2, f1, f2) else 0.0
        least = nearest(p, on, always + 2, g11, g12, g22, x)
        w1 = x[0] * p[0] + x[1] * p[2]
        w2 = x[0] * p[1] + x[1] * p[3]
        if objectives > 0:
            w1 = w1 + x[2] * p[4] + x[3] * p[6]
            w2 = w2 + x[2] * p[5] + x[3] * p[7]
        z1 = g11 * w1 + g12 * w2
        z2 = g12 * w1 + g22 * w2
        level = w1 * z1 + w2 * z2
        total = 0.0
        lowest = INFINITE
        for j in range(always):
            total = total + square(p[2 * j], p[2 * j + 1], g11, g12, g22)
            lowest = lesser(lowest, p[2 * j] * z1 + p[2 * j + 1] * z2 - level)
        for j in range(L):
            slope = 0.0
            if active(u, j, v1, v2, f1, f2):
                p1 = u[2 * j] - v1
                p2 = u[2 * j + 1] - v2
                total = total + square(p1, p2, g11, g12, g22)
                slope = p1 * z1 + p2 * z2 - level
            lowest = lesser(lowest, slope)
        total = total + TINY
        residual = -(lowest / total)
        for j in range(always + 2):
            slope = 0.0
            if j < always or active(u, early if j == always else late, v1, v2, f1, f2):
                slope = (p[2 * j] * z1 + p[2 * j + 1] * z2 - level) / total
            residual = larger(residual, abs(slope if slope < x[j] else x[j]))
        if not least < INFINITE:
            w1 = 0.0
            w2 = 0.0
            residual = 0.0
        certify(i, w1, w2, residual, g11 + g12 + g22 + f1 + f2, w, residuals, failed)
