"""Quadratically constrained surrogate of CSMOO, solved in its small dual.

    minimise  h_0(d) = a_0'd + 1/2 d'T_0 d   s.t.   h_k(d) = c_k + a_k'd + 1/2 d'T_k d <= 0,  k = 1..K,   d in Q
    Q = {d = (dx, dy) : x + dx in X,  dy >= low},   T_k = tau_k on x, diag(tau_y,k) on y                (11), (14)

For mu >= 0 (and mu_0 = 1) the Lagrangian is an isotropic quadratic on x and on each y. Its minimiser over Q is a
projection, and the dual lives in K dimensions whatever the size of x:

    d(mu) = P_Q(-v/s),  v = sum mu_k a_k,  s = sum mu_k T_k,   dq/dmu_k = h_k(d(mu))
    generalised Hessian of q:  -H,  H = sum over blocks of variables of J B J'/s,  J_k = a_k + T_k d,  B = DP_Q

Source: CSMOO paper, (10), (11), (13), (14). The paper calls CVXPY; the dual and its certificates are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.sets import Ball, Box, Free, Set, project_moving
from mobench.subproblems.arrays import Array, arrays, runs_last, tensor, zeros
from mobench.subproblems.blocks import Block, General, Gram, Rows, same
from mobench.subproblems.interior import bound, indices, interior, newton
from mobench.subproblems.solution import GOOD, TINY, TOLERANCE

CANCELLED = 1e-5  # share of the terms that cancel in d which counts as size of h: TOLERANCE of it is ROUNDING
ROUNDING = 1e-14  # of the terms that cancel in d: what is not larger may be zero


class SurrogateSolution(NamedTuple):
    """Steps and multipliers of R surrogates, with their certificates.

    dx (R, P), dy (R, q)  minimiser; where infeasible the minimiser of max_k h_k over Q (13); NaN where failed
    mu (R, K)             multipliers; where infeasible those of (13), in the simplex: min over Q of mu'h > 0 proves it
    worst (R,)            max_k h_k at (dx, dy)
    residual (R,)         largest of constraint violation and duality gap, relative to their own terms
    infeasible (R,)       no point of Q satisfies the constraints: proved by mu, not said by a solver
    failed (R,)           neither solved to `TOLERANCE` nor proved infeasible (a run that is not finite has diverged)
    """

    dx: Float[Tensor, "R P"]
    dy: Float[Tensor, "R q"]
    mu: Float[Tensor, "R K"]
    worst: Float[Tensor, " R"]
    residual: Float[Tensor, " R"]
    infeasible: Bool[Tensor, " R"]
    failed: Bool[Tensor, " R"]


@dataclass(frozen=True)
class Surrogate:
    """R surrogates with K constraints, P variables x in X and q auxiliary variables y.

    c (R, K); rows (R, K, P) of the constraints in x (the objective has none there); slopes (K + 1, q) of objective
    and constraints in y; tau (K + 1,) > 0 on x; tau_y (K + 1, q) >= 0, positive in the objective; x (R, P) the iterate;
    low (R, q) lower bounds of dy (-inf: none); moving (R, P): coordinates of x that may change, None for all.
    """

    c: Float[Tensor, "R K"]
    rows: Float[Tensor, "R K P"]
    slopes: Float[Tensor, "K1 q"]
    tau: Float[Tensor, " K1"]
    tau_y: Float[Tensor, "K1 q"]
    x: Float[Tensor, "R P"]
    low: Float[Tensor, "R q"]
    X: Set
    moving: Bool[Tensor, "R P"] | None = None

    def take(self, runs: Tensor) -> Surrogate:
        """The surrogates of some of the runs."""
        chosen = {name: getattr(self, name)[runs] for name in ("c", "rows", "x", "low")}
        return replace(self, **chosen, moving=None if self.moving is None else self.moving[runs])


def solve_surrogate(program: Surrogate, warm: Float[Tensor, "R K"] | None = None) -> SurrogateSolution:
    """Solve R surrogates at once; `warm`: multipliers to start from, such as those of the last iteration.

    A damped Newton iteration from `warm`; runs that it leaves go through a primal-dual interior-point method and
    the same iteration again; runs that this leaves get problem (13) and either a proof of infeasibility or `failed`.
    The certificate is computed from the step itself, by rows, whatever formula found it.

    Raises:
        ValueError: blocks of variables on a set that is neither Free, Box nor Ball.
    """
    program = replace(program, **{n: getattr(program, n).detach().double() for n in ("c", "rows", "x", "low")})
    probe = program.c.sum(1) + program.rows.sum((1, 2)) + program.x.sum(1)
    good = torch.isfinite(probe)
    healthy = bool(good.all())
    if not healthy:  # a diverged run gets a harmless problem, its neighbours do not notice
        program = replace(
            program,
            c=torch.where(good[:, None], program.c, 0.0),
            rows=torch.where(good[:, None, None], program.rows, 0.0),
            x=torch.where(good[:, None], program.x, 0.0),
            low=torch.where(good[:, None], program.low, -1.0),
        )
    start = torch.ones_like(program.c) if warm is None else torch.where(torch.isfinite(warm), warm, 1.0).double()
    with np.errstate(all="ignore"):
        xp, c, blocks = _blocks(program)
        mu, residual = newton(xp, c, blocks, runs_last(xp, same(xp, start)))
        left = indices(xp, ~(residual <= GOOD))
        if len(left):  # where multipliers have run away their direction may prove already that (11) is infeasible
            part = [block.take(left) for block in blocks]
            left = left[indices(xp, ~(bound(c[:, left], part, mu[:, left]) > TOLERANCE))]
        if len(left):
            part = [block.take(left) for block in blocks]
            inner, lower = newton(xp, c[:, left], part, interior(xp, c[:, left], part))
            better = (lower < residual[left]) | xp.isnan(residual[left])
            mu[:, left] = xp.where(better, inner, mu[:, left])
        mu_ = tensor(mu.swapaxes(0, 1)).contiguous()
    dx, dy = _step(program, mu_)
    worst, residual_ = _certificate(program, mu_, dx, dy)
    unsolved = ~(residual_ <= TOLERANCE)
    infeasible = torch.zeros_like(unsolved)
    hard = bool(unsolved.any())
    if healthy and not hard:
        return SurrogateSolution(dx, dy, mu_, worst, residual_, infeasible, unsolved)
    if hard and bool((program.tau_y[1:] > 0).all()):
        runs = unsolved.nonzero()[:, 0]
        sub = program.take(runs)
        with np.errstate(all="ignore"):
            xp, c, blocks = _blocks(sub)
            inner, lower = newton(xp, c, blocks, runs_last(xp, same(xp, mu_[runs])), relaxed=True)
            # a value that is no proof may be zero: it is to be known as exactly as rounding lets it be
            left = indices(xp, ~((lower <= GOOD) & (bound(c, blocks, inner) > GOOD)))
            if len(left):
                part = [block.take(left) for block in blocks]
                point = interior(xp, c[:, left], part, relaxed=True)
                other, least = newton(xp, c[:, left], part, point, relaxed=True)
                better = (least < lower[left]) | xp.isnan(lower[left])
                inner[:, left] = xp.where(better, other, inner[:, left])
            relaxed = tensor(inner.swapaxes(0, 1)).contiguous()
        ex, ey = _step(sub, relaxed, objective=False)
        h, size = _constraints(sub, ex, ey)
        below, above = (relaxed * h).sum(1), h.amax(1)  # bounds of the value of (13)
        scale = size.amax(1) + TINY
        proved = below > GOOD * (relaxed * size).sum(1)  # beyond rounding: no point of Q makes mu'h smaller
        # value 0: the minimiser of (13) is the only point that satisfies the constraints, (11) has no multipliers
        noise = ROUNDING * _terms(sub, relaxed, objective=False).amax(1)
        single = ~proved & (torch.fmax(above.abs(), below.abs()) <= noise)
        scale = torch.where(single, torch.inf, scale)
        infeasible[runs[proved]] = True
        settled = proved | single
        take = runs[settled]
        for whole, piece in ((dx, ex), (dy, ey), (mu_, relaxed), (worst, above)):
            whole[take] = piece[settled]
        residual_[take] = ((above - below) / scale)[settled]
    residual_ = torch.where(good, residual_, torch.nan)
    failed = ~(residual_ <= TOLERANCE) & good
    lost = (failed | ~good)[:, None]
    infeasible &= ~failed & good
    return SurrogateSolution(
        torch.where(lost, torch.nan, dx),
        torch.where(lost, torch.nan, dy),
        torch.where(lost, torch.nan, mu_),
        worst,
        residual_,
        infeasible,
        failed,
    )


# the step of given multipliers, and what it is worth


def _step(program: Surrogate, mu: Float[Tensor, "R K"], objective: bool = True) -> tuple[Tensor, Tensor]:
    """d(mu): dx (R, P), dy (R, q). `objective=False`: mu_0 = 0, as in (13)."""
    p = program
    zero = 1.0 if objective else 0.0
    s = zero * p.tau[0] + mu @ p.tau[1:]
    v = torch.bmm(mu.unsqueeze(1), p.rows).squeeze(1)
    raw = -v / s.unsqueeze(1)
    dx = project_moving(p.X, p.x + raw, p.x, p.moving) - p.x
    slope = zero * p.slopes[0] + mu @ p.slopes[1:]
    dy = torch.maximum(-slope / (zero * p.tau_y[0] + mu @ p.tau_y[1:]), p.low)
    return dx, dy


def _constraints(program: Surrogate, dx: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """h (R, K) and the size of its terms (R, K)."""
    p = program
    linear = torch.bmm(p.rows, dx.unsqueeze(2)).squeeze(2)
    along = dy @ p.slopes[1:].T
    bent = 0.5 * (dx.square().sum(1, keepdim=True) * p.tau[1:] + dy.square() @ p.tau_y[1:].T)
    return p.c + linear + along + bent, p.c.abs() + linear.abs() + dy.abs() @ p.slopes[1:].abs().T + bent


def _terms(program: Surrogate, mu: Tensor, objective: bool = True) -> Tensor:
    """Size (R, K) of the terms that cancel in a_k'd(mu): |a_k| (sum mu_l |a_l| / s + |x|). Rounding is relative to it."""
    p = program
    zero = 1.0 if objective else 0.0
    lengths = (p.rows.square().sum(2) + p.slopes[1:].square().sum(1)).sqrt()
    pull = (mu * lengths).sum(1) + zero * p.slopes[0].norm()
    s = torch.minimum(zero * p.tau[0] + mu @ p.tau[1:], (zero * p.tau_y[0] + mu @ p.tau_y[1:]).amin(1))
    return lengths * (pull / s + p.x.norm(dim=1)).unsqueeze(1)


def _certificate(program: Surrogate, mu: Tensor, dx: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """max_k h_k, and the residual: violation max h_k+ and duality gap |mu'h|, relative to their own terms.

    d(mu) minimises the Lagrangian, therefore h_0(d) - q(mu) = -mu'h is the duality gap. At a fixed point d and all its
    terms vanish; there a small share of what cancels in d counts.
    """
    p = program
    h, size = _constraints(p, dx, dy)
    zero = dy.abs() @ p.slopes[0].abs() + 0.5 * (dx.square().sum(1) * p.tau[0] + dy.square() @ p.tau_y[0])

    def relative(size: Tensor) -> Tensor:
        violation = (h.clamp_min(0) / (size + TINY)).amax(1)
        gap = (mu * h).abs().sum(1) / (zero + (mu * size).sum(1) + TINY)
        return torch.fmax(violation, gap)

    residual = relative(size)
    if not bool((residual <= GOOD).all()):  # run by run: no residual may depend on the neighbours
        residual = torch.where(residual <= GOOD, residual, relative(size + CANCELLED * _terms(p, mu)))
    return h.amax(1), residual


def _blocks(program: Surrogate) -> tuple[ModuleType, Array, list[Block]]:
    """The array library, c (K, R) and the blocks of variables. A box shares one block with y."""
    p = program
    gram = isinstance(p.X, (Free, Ball))
    xp, _ = arrays(p.c if gram else p.rows)  # what decides the size of the problem
    c, slopes, tau, tau_y, low = (same(xp, t) for t in (p.c, p.slopes, p.tau, p.tau_y, p.low))
    R, K = p.c.shape
    c, low = runs_last(xp, c), runs_last(xp, low)
    a = zeros(c, K + 1, len(low), R) + slopes[:, :, None]
    high = zeros(c, *low.shape) + xp.inf
    if isinstance(p.X, Box):
        moving = p.moving
        below, above = p.X.lower - p.x, p.X.upper - p.x
        if moving is not None:
            below, above = torch.where(moving, below, 0.0), torch.where(moving, above, 0.0)
        rows = runs_last(xp, same(xp, p.rows))
        whole = zeros(c, K + 1, p.x.shape[1] + len(low), R)
        whole[1:, : p.x.shape[1]] = rows
        whole[:, p.x.shape[1] :] = a
        taus = xp.concatenate((zeros(c, K + 1, p.x.shape[1]) + tau[:, None], tau_y), 1)
        lows = xp.concatenate((runs_last(xp, same(xp, below)), low), 0)
        highs = xp.concatenate((runs_last(xp, same(xp, above)), high), 0)
        return xp, c, [Rows(xp, whole, taus, lows, highs)]
    y = Rows(xp, a, tau_y, low, high)
    if not gram:
        if p.moving is not None:
            raise ValueError(f"blocks of variables need X to be Free, Box or Ball, not {type(p.X).__name__}")
        return xp, c, [General(xp, p.X, p.x, p.rows, p.tau), y]
    rows_, x_ = p.rows, p.x
    square = torch.full_like(p.c[:, 0], torch.inf if isinstance(p.X, Free) else p.X.radius**2)  # type: ignore[attr-defined]
    if p.moving is not None:
        square = (square - torch.where(p.moving, 0.0, p.x).square().sum(1)).clamp_min(0.0)
        rows_, x_ = torch.where(p.moving[:, None], rows_, 0.0), torch.where(p.moving, x_, 0.0)
    G = torch.bmm(rows_, rows_.mT)
    u = torch.bmm(rows_, x_.unsqueeze(2)).squeeze(2)
    G_, u_, xx, r2 = (runs_last(xp, same(xp, t)) for t in (G, u, x_.square().sum(1), square))
    return xp, c, [Gram(xp, G_, u_, xx, r2, tau), y]
