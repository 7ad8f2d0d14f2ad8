"""Quadratically constrained surrogate of CSMOO, solved in its small dual.

    minimise  h_0(d) = a_0'd + 1/2 d'T_0 d   s.t.   h_k(d) = c_k + a_k'd + 1/2 d'T_k d <= 0,  k = 1..K,
        d in Q
    Q = {d = (dx, dy) : x + dx in X,  dy >= low},   T_k = tau_k on x, diag(tau_y,k) on y
        (11), (14)

For mu >= 0 (and mu_0 = 1) the Lagrangian is an isotropic quadratic on x and on each y. Its minimiser over Q
is a projection, and the dual lives in K dimensions whatever the size of x:

    d(mu) = P_Q(-v/s),  v = sum mu_k a_k,  s = sum mu_k T_k,   dq/dmu_k = h_k(d(mu))
    generalised Hessian of q:  -H,  H = sum over blocks of variables of J B J'/s,  J_k = a_k + T_k d,
        B = DP_Q

Source: CSMOO paper, (10), (11), (13), (14). The paper calls CVXPY; the dual and its certificates are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, runs_last, tensor, zeros
from mobench.core.sets import Ball, Box, Free, Set, project_moving
from mobench.kernels.compiled import kernels
from mobench.subproblems.blocks import LOOSE, Block, General, Gram, Rows, same
from mobench.subproblems.host import on_host
from mobench.subproblems.interior import FIRST, MODEL, NEWTON, SHIFT, bound, indices, interior, newton
from mobench.subproblems.qp import rows as in_rows
from mobench.subproblems.solution import GOOD, TINY, TOLERANCE

CANCELLED = 1e-5  # share of the terms that cancel in d which counts as size of h: TOLERANCE of it is ROUNDING
# what the compiled kernel has to know, in the order of `mobench.kernels.surrogate.Limits`
LIMITS = np.array([GOOD, TOLERANCE, TINY, LOOSE, SHIFT, FIRST, CANCELLED, NEWTON, MODEL])
SHORT = 1024  # rows up to this length are multiplied as fast in the kernel as by a library
ROUNDING = 1e-14  # of the terms that cancel in d: what is not larger may be zero


class SurrogateSolution(NamedTuple):
    """Steps and multipliers of R surrogates, with their certificates.

    dx (R, P), dy (R, q)  minimiser; where infeasible the minimiser of max_k h_k over Q (13); NaN where failed
    mu (R, K)             multipliers; where infeasible those of (13), in the simplex: min over Q of mu'h > 0
                          proves it
    worst (R,)            max_k h_k at (dx, dy)
    residual (R,)         largest of constraint violation and duality gap, relative to their own terms
    infeasible (R,)       no point of Q satisfies the constraints: proved by mu, not said by a solver
    failed (R,)           neither solved to `TOLERANCE` nor proved infeasible (a run that is not finite has
                          diverged)
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

    c (R, K); rows (R, K, P) of the constraints in x (the objective has none there); slopes (K + 1, q) of
    objective and constraints in y; tau (K + 1,) > 0 on x; tau_y (K + 1, q) >= 0, positive in the objective; x
    (R, P) the iterate; low (R, q) lower bounds of dy (-inf: none); moving (R, P): coordinates of x that may
    change, None for all.
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

    xp: ClassVar[ModuleType] = torch

    def take(self, runs: Tensor) -> Surrogate:
        """The surrogates of some of the runs."""
        chosen = {name: getattr(self, name)[runs] for name in ("c", "rows", "x", "low")}
        return replace(self, **chosen, moving=None if self.moving is None else self.moving[runs])


class _Arrays(NamedTuple):
    """A surrogate in the array library that suits its size; fields as in `Surrogate`."""

    xp: ModuleType
    c: Array
    rows: Array
    slopes: Array
    tau: Array
    tau_y: Array
    x: Array
    low: Array
    X: Set
    moving: Tensor | None

    def take(self, runs: Array) -> _Arrays:
        moving = (
            None if self.moving is None else self.moving[torch.as_tensor(runs, device=self.moving.device)]
        )
        c = self.c[runs]
        rows = self.rows[runs]
        x = self.x[runs]
        low = self.low[runs]
        return self._replace(c=c, rows=rows, x=x, low=low, moving=moving)


Program = Surrogate | _Arrays


def _in_arrays(p: Program) -> _Arrays:
    if isinstance(p, _Arrays):
        return p
    xp, (rows, c, slopes, tau, tau_y, x, low) = arrays(p.rows, p.c, p.slopes, p.tau, p.tau_y, p.x, p.low)
    return _Arrays(xp, c, rows, slopes, tau, tau_y, x, low, p.X, p.moving)


@on_host()
def solve_surrogate(program: Surrogate, warm: Float[Tensor, "R K"] | None = None) -> SurrogateSolution:
    """Solve R surrogates at once; `warm`: multipliers to start from, such as those of the last iteration.

    A damped Newton iteration from `warm`; runs that it leaves go through a primal-dual interior-point method
    and the same iteration again; runs that this leaves get problem (13) and either a proof of infeasibility
    or `failed`. The certificate is computed from the step itself, by rows, whatever formula found it.
    Where Numba is, the first iteration is compiled, with its step and certificate.

    Raises:
        ValueError: blocks of variables on a set that is neither Free, Box nor Ball.
    """
    quick = _compiled(program, warm)
    if quick is None:
        solution = _solve(program, warm)
    else:
        solution, done = quick
        if not bool(done.all()):
            runs = (~done).nonzero()[:, 0]
            rest = _solve(program.take(runs), None if warm is None else warm[runs])
            for whole, part in zip(solution, rest, strict=True):
                whole[runs] = part
    if bool((program.tau_y[1:] > 0).all()):
        return solution
    return _checked(program, solution)


def _checked(program: Surrogate, found: SurrogateSolution) -> SurrogateSolution:
    """Takes back solutions that violate a constraint by more than rounding of the step and of x.

    Where a y has no quadratic term in the constraints, multipliers of an infeasible surrogate grow beyond
    all bounds while the curvature along y stays, and so does the size of the terms to which the certificate
    compares a violation.
    """
    h, size = _constraints(program, found.dx, found.dy)
    lengths = ((program.rows**2).sum(2) + (program.slopes[1:] ** 2).sum(1)) ** 0.5
    step = ((found.dx**2).sum(1) + (program.x**2).sum(1) + (found.dy**2).sum(1)) ** 0.5
    over = (h / (size + lengths * step.unsqueeze(1) + TINY)).amax(1)
    violated = (over > TOLERANCE) & ~found.infeasible
    lost = violated.unsqueeze(1)
    dx, dy, mu = (torch.where(lost, torch.nan, part) for part in (found.dx, found.dy, found.mu))
    residual = torch.where(violated, torch.fmax(over, found.residual), found.residual)
    return found._replace(dx=dx, dy=dy, mu=mu, residual=residual, failed=found.failed | violated)


def _compiled(
    program: Surrogate, warm: Float[Tensor, "R K"] | None
) -> tuple[SurrogateSolution, Bool[Tensor, " R"]] | None:
    """The runs that Newton's method solves, by one kernel, and which they are; None where there is none."""
    X = program.X
    R, _, P = program.rows.shape
    q = program.slopes.shape[1]
    if type(X) not in (Free, Box, Ball) or program.moving is not None or P > SHORT or q == 0:
        return None
    kernel = kernels("surrogate", program.c)
    if kernel is None:
        return None
    fields = ("c", "rows", "slopes", "tau", "tau_y", "x", "low")
    start = torch.ones_like(program.c) if warm is None else warm
    kind = (Free, Box, Ball).index(type(X))
    inner = X.lower if isinstance(X, Box) else -np.inf
    outer = X.upper if isinstance(X, Box) else X.radius if isinstance(X, Ball) else np.inf
    found = kernel.solve_surrogate(
        *(in_rows(getattr(program, name)) for name in fields),
        in_rows(start),
        kind,
        float(inner),
        float(outer),
        LIMITS,
    )
    dx, dy, mu, worst, residual, done = (tensor(a) for a in found)
    none = torch.zeros(R, dtype=torch.bool)
    return SurrogateSolution(dx, dy, mu, worst, residual, none, none.clone()), done


def _solve(program: Surrogate, warm: Float[Tensor, "R K"] | None) -> SurrogateSolution:
    """The same by array operations."""
    p = _in_arrays(program)
    xp = p.xp
    start = torch.ones_like(program.c) if warm is None else torch.where(torch.isfinite(warm), warm, 1.0)
    with np.errstate(all="ignore"):
        good = xp.isfinite(p.c.sum(1) + p.rows.sum(2).sum(1) + p.x.sum(1))
        healthy = bool(good.all())
        if not healthy:  # a diverged run gets a harmless problem, its neighbours do not notice
            p = p._replace(
                c=xp.where(good[:, None], p.c, 0.0),
                rows=xp.where(good[:, None, None], p.rows, 0.0),
                x=xp.where(good[:, None], p.x, 0.0),
                low=xp.where(good[:, None], p.low, -1.0),
            )
        mu = _multipliers(p, start.double())
        dx, dy = _step(p, mu)
        worst, residual = _certificate(p, mu, dx, dy)
        unsolved = ~(residual <= TOLERANCE)
        infeasible = good & False
        if healthy and not bool(unsolved.any()):
            return SurrogateSolution(
                *(tensor(a) for a in (dx, dy, mu, worst, residual, infeasible, unsolved))
            )
        if bool(unsolved.any()) and bool((p.tau_y[1:] > 0).all()):
            runs = indices(xp, unsolved)
            sub = p.take(runs)
            relaxed = _relaxed(sub, mu[runs])
            ex, ey = _step(sub, relaxed, objective=False)
            h, size = _constraints(sub, ex, ey)
            # bounds of the value of (13)
            below = (relaxed * h).sum(1)
            above = xp.amax(h, 1)
            scale = xp.amax(size, 1) + TINY
            # beyond rounding: no point of Q makes mu'h smaller
            proved = below > GOOD * (relaxed * size).sum(1)
            # value 0: the minimiser of (13) is the only point that satisfies the constraints, (11) has no
            # multipliers
            noise = ROUNDING * xp.amax(_terms(sub, relaxed, objective=False), 1)
            single = ~proved & (xp.fmax(abs(above), abs(below)) <= noise)
            scale = xp.where(single, xp.inf, scale)
            infeasible[runs[proved]] = True
            settled = proved | single
            take = runs[settled]
            for whole, piece in ((dx, ex), (dy, ey), (mu, relaxed), (worst, above)):
                whole[take] = piece[settled]
            residual[take] = ((above - below) / scale)[settled]
        residual = xp.where(good, residual, xp.nan)
        failed = ~(residual <= TOLERANCE) & good
        lost = (failed | ~good)[:, None]
        infeasible &= ~failed & good
        dx, dy, mu = (xp.where(lost, xp.nan, a) for a in (dx, dy, mu))
        return SurrogateSolution(*(tensor(a) for a in (dx, dy, mu, worst, residual, infeasible, failed)))


# multipliers


def _multipliers(p: _Arrays, start: Float[Tensor, "R K"]) -> Array:
    """mu (R, K) of (11)."""
    xp, c, blocks = _blocks(p)
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
    return _runs_first(p, mu)


def _relaxed(p: _Arrays, start: Array) -> Array:
    """mu (R, K) of (13)."""
    xp, c, blocks = _blocks(p)
    mu, residual = newton(xp, c, blocks, runs_last(xp, same(xp, start)), relaxed=True)
    # a value that is no proof may be zero: it is to be known as exactly as rounding lets it be
    left = indices(xp, ~((residual <= GOOD) & (bound(c, blocks, mu) > GOOD)))
    if len(left):
        part = [block.take(left) for block in blocks]
        point = interior(xp, c[:, left], part, relaxed=True)
        other, least = newton(xp, c[:, left], part, point, relaxed=True)
        better = (least < residual[left]) | xp.isnan(residual[left])
        mu[:, left] = xp.where(better, other, mu[:, left])
    return _runs_first(p, mu)


def _runs_first(p: _Arrays, mu: Array) -> Array:
    """(K, R) -> (R, K), in the library of p: the dual of rows that are long may be small."""
    mu = mu.swapaxes(0, 1)
    return np.ascontiguousarray(mu) if p.xp is np else tensor(mu).contiguous()


# the step of given multipliers, and what it is worth


def _step(p: Program, mu: Array, objective: bool = True) -> tuple[Array, Array]:
    """d(mu): dx (R, P), dy (R, q). `objective=False`: mu_0 = 0, as in (13)."""
    zero = 1.0 if objective else 0.0
    s = zero * p.tau[0] + mu @ p.tau[1:]
    raw = (mu[:, None] @ p.rows)[:, 0] / -s[:, None]
    dx = same(p.xp, project_moving(p.X, tensor(p.x + raw), tensor(p.x), p.moving)) - p.x
    slope = zero * p.slopes[0] + mu @ p.slopes[1:]
    dy = p.xp.maximum(-slope / (zero * p.tau_y[0] + mu @ p.tau_y[1:]), p.low)
    return dx, dy


def _constraints(p: Program, dx: Array, dy: Array) -> tuple[Array, Array]:
    """h (R, K) and the size of its terms (R, K)."""
    linear = (p.rows @ dx[:, :, None])[:, :, 0]
    along = dy[:, None] * p.slopes[1:]
    bent = 0.5 * ((dx * dx).sum(1)[:, None] * p.tau[1:] + ((dy * dy)[:, None] * p.tau_y[1:]).sum(2))
    return p.c + linear + along.sum(2) + bent, abs(p.c) + abs(linear) + abs(along).sum(2) + bent


def _terms(p: Program, mu: Array, objective: bool = True) -> Array:
    """Size (R, K) of the terms that cancel in a_k'd(mu): |a_k| (sum mu_l |a_l| / s + |x|).

    Rounding is relative to it.
    """
    zero = 1.0 if objective else 0.0
    lengths = ((p.rows * p.rows).sum(2) + (p.slopes[1:] ** 2).sum(1)) ** 0.5
    pull = (mu * lengths).sum(1) + zero * (p.slopes[0] ** 2).sum() ** 0.5
    s = p.xp.minimum(zero * p.tau[0] + mu @ p.tau[1:], p.xp.amin(zero * p.tau_y[0] + mu @ p.tau_y[1:], 1))
    return lengths * (pull / s + (p.x * p.x).sum(1) ** 0.5)[:, None]


def _certificate(p: Program, mu: Array, dx: Array, dy: Array) -> tuple[Array, Array]:
    """max_k h_k, and the residual: violation max h_k+ and duality gap |mu'h|, relative to their own terms.

    d(mu) minimises the Lagrangian, therefore h_0(d) - q(mu) = -mu'h is the duality gap. At a fixed point d
    and all its terms vanish; there a small share of what cancels in d counts.
    """
    xp = p.xp
    h, size = _constraints(p, dx, dy)
    zero = abs(dy) @ abs(p.slopes[0]) + 0.5 * ((dx * dx).sum(1) * p.tau[0] + (dy * dy) @ p.tau_y[0])
    # NaN stays NaN
    over = xp.where(h > 0, h, 0.0 * h)
    products = abs(mu * h).sum(1)

    def relative(size: Array) -> Array:
        return xp.fmax(xp.amax(over / (size + TINY), 1), products / (zero + (mu * size).sum(1) + TINY))

    residual = relative(size)
    if not bool((residual <= GOOD).all()):  # run by run: no residual may depend on the neighbours
        residual = xp.where(residual <= GOOD, residual, relative(size + CANCELLED * _terms(p, mu)))
    return xp.amax(h, 1), residual


def _blocks(p: Program) -> tuple[ModuleType, Array, list[Block]]:
    """The array library, c (K, R) and the blocks of variables. A box shares one block with y."""
    p = _in_arrays(p)
    gram = isinstance(p.X, (Free, Ball))
    xp = arrays(tensor(p.c))[0] if gram else p.xp  # what decides the size of the problem
    c, slopes, tau, tau_y, low = (same(xp, t) for t in (p.c, p.slopes, p.tau, p.tau_y, p.low))
    R, K = c.shape
    c = runs_last(xp, c)
    low = runs_last(xp, low)
    a = zeros(c, K + 1, len(low), R) + slopes[:, :, None]
    high = zeros(c, *low.shape) + xp.inf
    moving = None if p.moving is None else same(p.xp, p.moving)
    if isinstance(p.X, Box):
        below = p.X.lower - p.x
        above = p.X.upper - p.x
        if moving is not None:
            below = xp.where(moving, below, 0.0)
            above = xp.where(moving, above, 0.0)
        P = p.x.shape[1]
        whole = zeros(c, K + 1, P + len(low), R)
        whole[1:, :P] = runs_last(xp, p.rows)
        whole[:, P:] = a
        taus = xp.concatenate((zeros(c, K + 1, P) + tau[:, None], tau_y), 1)
        lows = xp.concatenate((runs_last(xp, below), low), 0)
        highs = xp.concatenate((runs_last(xp, above), high), 0)
        return xp, c, [Rows(xp, whole, taus, lows, highs)]
    y = Rows(xp, a, tau_y, low, high)
    if not gram:
        if moving is not None:
            raise ValueError(f"Blocks of variables need X to be Free, Box or Ball, not {type(p.X).__name__}")
        return xp, c, [General(xp, p.X, tensor(p.x), tensor(p.rows), tensor(p.tau)), y]
    rows = p.rows
    x = p.x
    largest = np.inf if isinstance(p.X, Free) else p.X.radius**2  # type: ignore[attr-defined]
    square = zeros(p.c, R) + largest
    if moving is not None:
        still = p.xp.where(moving, 0.0, x)
        square = square - (still * still).sum(1)
        square = p.xp.where(square > 0, square, 0.0)
        rows = p.xp.where(moving[:, None], rows, 0.0)
        x = p.xp.where(moving, x, 0.0)
    G = rows @ rows.swapaxes(1, 2)
    u = (rows @ x[:, :, None])[:, :, 0]
    G, u, xx, square = (runs_last(xp, same(xp, t)) for t in (G, u, (x * x).sum(1), square))
    return xp, c, [Gram(xp, G, u, xx, square, tau), y]
