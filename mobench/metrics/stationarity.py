"""Pareto-stationarity on a convex set:  |d*|,  d* = argmin_d  max_m <grad f_m, d> + 1/2 |d|^2   s.t.
x + d in X.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.point import Point
from mobench.core.sets import Free
from mobench.errors import MobenchError
from mobench.solvers import min_norm, qp

ITERATIONS = 50
PATIENCE = 2  # iterations in which no unsolved run halves its gap: only rounding is left
ROUNDING = 2e-15  # of |J| |d|: a gap up to this may be 0
CLOSED = 1e-6
"""Largest accepted error sqrt(2 gap) of d, relative to the largest gradient."""
ACTIVE = 5e-3
"""A constraint this far inside binds: iterates of penalty methods end 1e-4 to 1e-3 inside."""


class Descent(NamedTuple):
    """The steepest common descent direction d, its weights in the simplex, and the duality gap.

    The primal objective is strongly convex, therefore |d - d*| <= sqrt(2 gap): the gap is a proof.
    """

    d: Float[Tensor, "R P"]
    weights: Float[Tensor, "R M"]
    gap: Float[Tensor, " R"]


def common_descent(point: Point) -> Descent:
    """Solve the projected steepest descent problem for all runs at once, in float64, through its dual

        max over the simplex of  q(lam) = <J'lam, d> + 1/2 |d|^2,   d = d(lam) = P_X(x - J'lam) - x
        gradient of q: J d,   generalised Hessian: -J DP J',   DP the projection's derivative at x - J'lam
        gap = max_m (J d)_m - lam'J d

    Each iteration maximises the quadratic model of q exactly and then searches the segment to that maximiser;
    q is piecewise quadratic on a box, so that few iterations end it. On X = R^P the first weights (min-norm)
    are exact.

    Source: Grana Drummond & Iusem 2004, A projected gradient method for vector optimization problems, for the
    primal problem (Fliege & Svaiter 2000 without X). The dual iteration is ours.

    Raises:
        MobenchError: the point has functional constraints, which this certificate does not know.
    """
    if point.values().shape[-1] > point.M:
        raise MobenchError(
            "stationarity: the problem has functional constraints, but this certificate supports only sets X."
        )
    x = point.x.detach().double()
    J = point.jacobian("f").detach().double()
    X = point.X

    def at(lam: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x - J'lam (R, P), d (R, P), J d less its maximum (R, M), and the gap (R,)."""
        raw = x - (lam.unsqueeze(1) @ J).squeeze(1)
        d = X.project(raw) - x
        slope = (J @ d.unsqueeze(2)).squeeze(2)
        slope = slope - slope.amax(1, keepdim=True)  # a shift changes nothing on the simplex but rounding
        return raw, d, slope, -(lam * slope).sum(1)

    ones = torch.ones_like(J[:, :, 0])
    size = J.square().sum(-1).amax(-1).sqrt()
    lam = min_norm(J @ J.mT).x
    lam = torch.where(lam.isfinite(), lam, ones / point.M)  # a beginning: any weights will do
    raw, d, slope, gap = at(lam)
    best = Descent(d, lam, gap)
    idle = 0
    for _ in range(ITERATIONS):
        unsolved = best.gap > ROUNDING * size * torch.linalg.vector_norm(best.d, dim=-1)
        if idle == PATIENCE or not bool(unsolved.any()):
            break
        Q = X.tangent(raw, J) @ J.mT
        Q = 0.5 * (Q + Q.mT)
        model = qp(Q, slope + (Q @ lam.unsqueeze(2)).squeeze(2), ones).x
        step = torch.where(model.isfinite(), model - lam, 0.0)
        lam = lam + _length(partial(_slope_along, at, lam, step), ones[:, :1]) * step
        raw, d, slope, gap = at(lam)
        idle = 0 if bool((unsolved & (gap < 0.5 * best.gap)).any()) else idle + 1
        better = gap < best.gap
        keep = better.unsqueeze(1)
        best = Descent(
            torch.where(keep, d, best.d),
            torch.where(keep, lam, best.weights),
            torch.where(better, gap, best.gap),
        )
    return best


def _slope_along(at: Callable[[Tensor], tuple[Tensor, ...]], lam: Tensor, step: Tensor, t: Tensor) -> Tensor:
    """Derivative of q(lam + t step) in t (R, 1)."""
    return (at(lam + t * step)[2] * step).sum(1, keepdim=True)


def _length(slope: Callable[[Tensor], Tensor], one: Float[Tensor, "R 1"]) -> Float[Tensor, "R 1"]:
    """The t in [0, 1] where the falling function slope(t) changes its sign, by 50 halvings, else 1."""
    beyond = slope(one) < 0
    if not bool(beyond.any()):
        return one
    low = torch.zeros_like(one)
    high = one
    for _ in range(50):
        t = 0.5 * (low + high)
        rising = slope(t) > 0
        low = torch.where(rising, t, low)
        high = torch.where(rising, high, t)
    return torch.where(beyond, 0.5 * (low + high), one)


def stationarity(point: Point) -> Float[Tensor, " R"]:
    """|d*| (R,), zero exactly where no direction into X improves all objectives to first order.

    It equals min over the simplex of |J'lam| where X does not bind, and |x - P_X(x - J'lam*)| in general:
    also next to the boundary it is continuous in x, which the norm on the tangent cone is not. Necessary for
    Pareto optimality, not sufficient: weak optima (x_1 = 0 in ZDT1, whatever g is), local fronts (ZDT3) and
    plateaus (VLMOP2 far from its wells, where all gradients vanish) have zero or small values too. It is in
    the units of a gradient (a unit step), hence not invariant under scaling of objectives.

    NaN for a run whose numbers are not finite, or whose gap leaves an error of more than 1e-6 of its largest
    gradient.
    """
    descent = common_descent(point)
    size = point.jacobian("f").detach().double().square().sum(-1).amax(-1)
    proved = 2.0 * descent.gap <= CLOSED**2 * size
    return torch.where(proved, torch.linalg.vector_norm(descent.d, dim=-1), torch.nan).to(point.x.dtype)


def constrained_kkt(point: Point) -> Float[Tensor, " R"]:
    """min |J_f'lam + J_g'nu|  over lam in the simplex, nu >= 0, nu_j = 0 where g_j < -ACTIVE:
    (R,), for X = R^P.

    0 exactly at the Karush-Kuhn-Tucker points of the constrained problem, where `ACTIVE` tells which
    constraints bind; whether x is feasible is another question (violation). In the units of a gradient.

    NaN for a run whose numbers are not finite or whose program is not solved.

    Raises:
        MobenchError: X is not the whole space.
    """
    if not isinstance(point.X, Free):
        raise MobenchError(
            f"constrained_kkt: the feasible set must be the whole space, not {type(point.X).__name__}."
        )
    K = point.gramian("all")
    M = point.M
    one = torch.ones_like(K[:, :M, 0])
    a = torch.cat([one, torch.zeros_like(K[:, M:, 0])], dim=1)
    live = torch.cat([one, (-ACTIVE <= point.G).to(K)], dim=1)
    # a constraint that does not bind gets a separate axis in the program, where its multiplier is 0
    scale = K.diagonal(dim1=1, dim2=2).amax(1, keepdim=True).clamp_min(torch.finfo(K.dtype).tiny)
    x = qp(K * live.unsqueeze(1) * live.unsqueeze(2) + torch.diag_embed(scale * (live == 0)), None, a).x
    d = (x.unsqueeze(1) @ point.jacobian().double()).squeeze(1)
    return torch.linalg.vector_norm(d, dim=1).to(point.x.dtype)
