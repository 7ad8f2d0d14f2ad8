"""Batched convex QP:  x* = argmin 1/2 x'Qx - b'x   s.t.  lower <= x <= upper,  a'x = r.

The min-norm problem of MGDA and PMTL is Q = JJ', b = 0, a = 1, r = 1; FERERO's dual after elimination of its
free multipliers is Q = K_r, b = -l, a = AF, r = 1'AF. Two variables on {x >= 0, a'x = r} have a closed form,
everything else goes through complementary pivoting in `solvers.kernels.pivoting`.
"""

from functools import lru_cache
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, tensor
from mobench.kernels.compiled import compiled_solver
from mobench.solvers import plane
from mobench.solvers.host import on_host
from mobench.solvers.solution import GOOD, GROWTH, TINY, TOLERANCE, Solution, certified

DUST = 1e-30  # a coordinate of this size, in units of its scale, is a zero that rounding has missed
FLAT = 1e-16  # Q_ii below this, relative to the largest, is rounding of a zero
DROPS = 3  # solves without bounds that are far from x: each shows more of them
TIE = 1e-14  # basic variables that a step leaves below this are tied, and the perturbation decides
# times the tolerance: a largest diagonal below this is the end of a singular block of free variables
RANK = 1e-2
RIDGES = (0.0, 1e-13, 1e-12, 1e-11, 1e-10)  # tried in turn where Q is singular only up to rounding
# in the order of `mobench.solvers.kernels.pivoting.Limits`
LIMITS = np.array([GOOD, TOLERANCE, GROWTH, TINY, DUST, FLAT, TIE, RANK, DROPS])
NONE = np.zeros((0, 0))
NO_SHARE = np.zeros(0)


def segment(
    xp: ModuleType, Q: Array, b: Array | None, a: Array | None, r: Array | None
) -> tuple[tuple[Array, Array], Array, Array]:
    """Both coordinates, residual and probe of the QP of two variables with x >= 0, a'x = r > 0.

    a = 1 and r = 1 if a is None. A run without an equality (a = 0, r = 0) and without b has x = 0.

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


def rows(x: Tensor) -> Array:
    """x as the kernels read it: a float64 array in one piece; not copied if it is so already."""
    return np.ascontiguousarray(x.detach().double().numpy())


@lru_cache(maxsize=64)
def _constant(n: int, value: float) -> Array:
    return np.full((1, n), value)


def _bound(value: float | Tensor | None, shape: torch.Size) -> Array:
    """A bound of `qp` as rows; None: no row."""
    if value is None:
        return NONE
    if isinstance(value, Tensor):
        return rows(value.expand(shape))
    return _constant(shape[1], float(value))


def _program(
    Q: Tensor,
    b: Tensor | None,
    a: Tensor | None,
    r: Tensor | None,
    lower: float | Tensor,
    upper: float | Tensor | None,
) -> tuple[Array, ...]:
    """The program as the kernels read it: rows, one for all runs, or none."""
    shape = Q.shape[:2]
    weights = NONE if a is None else rows(a)
    share = NO_SHARE if a is None else (_constant(1, 1.0)[0] if r is None else rows(r))
    linear = NONE if b is None else rows(b)
    return rows(Q), linear, weights, share, _bound(lower, shape), _bound(upper, shape)


def _closed(
    Q: Tensor,
    b: Tensor | None = None,
    a: Tensor | None = None,
    r: Tensor | None = None,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> bool:
    """Returns whether `qp` has a closed form."""
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
    are 0; on a GPU a run with a = 0, r = 0 and another b comes back as failed). The rest: shift to lower = 0,
    scale x so that Q has a unit diagonal (rows of very different length), eliminate the equality, pivot;
    where the certificate shows that rounding has spoilt the answer, again without the bounds that are far
    from x (if there are any) and with rows nearer to their lengths, then with units of their own for
    variables with a_i = 0, which the equality gives no size, and then with the smallest ridge that helps.
    Infeasible and unbounded runs come back as failed. The answer does not depend on the scale of (Q, b), nor
    on the other runs of the batch.
    """
    if _closed(Q, b, a, r, lower, upper):
        assert a is not None
        answer = plane.qp(Q, b, a, r)
        if answer is None:
            xp, (Q_, b_, a_, r_) = arrays(Q, b, a, Q.new_ones(len(Q)) if r is None else r)
            with np.errstate(all="ignore"):
                answer = certified(xp, *segment(xp, Q_, b_, a_, r_), Q.dtype)
        if b is None or r is None or Q.device.type != "cpu":  # a GPU is not waited for
            return answer
        # a run without an equality (a = 0, r = 0) but with a linear term, such as that of a loss of 0
        loose = (r == 0) & (a == 0).all(1) & (b != 0).any(1)
        return _replaced(answer, loose, Q, b, a, r) if bool(loose.any()) else answer
    return _pivoted(_program(Q, b, a, r, lower, upper), Q.dtype)


def _pivoted(program: tuple[Array, ...], dtype: torch.dtype) -> Solution:
    return solution_of(compiled_solver("pivoting").qp(*program, np.array(RIDGES), LIMITS), dtype)


def _replaced(
    answer: Solution, some: Bool[Tensor, " R"], Q: Tensor, b: Tensor, a: Tensor, r: Tensor
) -> Solution:
    """The answer with that of pivoting for some of the runs."""
    other = _pivoted(_program(Q[some], b[some], a[some], r[some], 0.0, None), Q.dtype)
    merged = [part.clone() for part in (answer.x, answer.residual, answer.failed)]
    for part, better in zip(merged, (other.x, other.residual, other.failed), strict=True):
        part[some] = better
    return Solution(*merged)


def solution_of(answer: tuple[Array, Array, Array], dtype: torch.dtype) -> Solution:
    """Returns x, residual and failed of a kernel as tensors."""
    x, residual, failed = answer
    return Solution(tensor(x, dtype), tensor(residual, dtype), tensor(failed))


@on_host()
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
    program = _program(Q, b, a, r, lower, upper)
    return tensor(compiled_solver("pivoting").qp_residual(*program, rows(x), LIMITS), x.dtype)


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
        answer = plane.min_norm(gram)
        if answer is not None:
            return answer
        xp, (Q,) = arrays(gram)
        with np.errstate(all="ignore"):
            return certified(xp, *segment(xp, Q, None, None, None), gram.dtype)
    if active is None:
        n = gram.shape[1]
        one = _constant(n, 1.0)
        program = (rows(gram), NONE, one, one[0, :1], _constant(n, 0.0), NONE)
        return solution_of(compiled_solver("pivoting").qp(*program, np.array(RIDGES), LIMITS), gram.dtype)
    # An inactive variable gets a separate axis and leaves the equality: it can only be 0.
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
