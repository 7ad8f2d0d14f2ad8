"""The subproblems through CVXPY, one run at a time: CLARABEL for QPs and CSMOO's surrogates, HIGHS for LPs.

They serve `subproblem: cvxpy`, and tests compare the batched solvers with them. Each problem is
normalised before CVXPY sees it, because its tolerances are absolute: at gradients of size 1e-6 an
unnormalised min-norm problem comes back "optimal" with weights that are wrong by 0.03.
"""

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.arrays import Array
from mobench.core.sets import Ball, Box, Free, project_moving
from mobench.solvers.lp import epo_data, homogeneous, homogeneous_residual
from mobench.solvers.qp import qp_residual
from mobench.solvers.solution import TINY, TOLERANCE, Solution, certified
from mobench.solvers.surrogate import Surrogate, SurrogateSolution, constraints

# of an interior-point solver; the certificate is the same as that of the exact solvers
REFERENCE_TOLERANCE = 1e-6
CLARABEL = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "tol_ktratio": 1e-10}


def _solved(problem: Any, **options: Any) -> bool:
    """Runs CVXPY and returns whether there is an answer, which the certificate judges later."""
    import cvxpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # otherwise CVXPY hands new data to the solver of the last run, which keeps its scaling of the old
            problem.solve(warm_start=False, **options)
        except cvxpy.SolverError:
            return False
    return problem.status in ("optimal", "optimal_inaccurate")


def _shortest(*bounds: Array) -> float:
    """The smallest finite |bound| that is not 0; 0 if there is none."""
    size = np.abs(np.concatenate(bounds))
    return float(min(size[(size > 0) & (size < np.inf)], default=0.0))


def qp(
    Q: Float[Tensor, "R n n"],
    b: Float[Tensor, "R n"] | None,
    a: Float[Tensor, "R n"] | None = None,
    r: Float[Tensor, " R"] | None = None,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> Solution:
    """As `mobench.solvers.qp`; failed means a residual above `REFERENCE_TOLERANCE`."""
    import cvxpy

    R, n = Q.shape[:2]

    def full(value: float | Tensor | None, default: float, *shape: int) -> Array:
        value = default if value is None else value
        return torch.as_tensor(value, dtype=torch.float64, device="cpu").expand(*shape).numpy()

    Q_ = full(Q.detach().cpu(), 0.0, R, n, n)
    b_ = full(b, 0.0, R, n)
    a_ = full(a, 0.0, R, n)
    r_ = full(r, 1.0, R)
    low = full(lower, 0.0, R, n)
    high = full(upper, np.inf, R, n)
    x = np.full((R, n), np.nan)
    probe = Q_.sum((1, 2)) + b_.sum(1) + a_.sum(1) + r_
    for i in np.flatnonzero(np.isfinite(probe)):
        # In units of x and of the objective in which the data are of order 1.
        trace = np.trace(Q_[i])
        steep = np.abs(b_[i]).max()
        top = a_[i].max() or 1.0
        outside = np.maximum(np.maximum(low[i], -high[i]), 0).max()  # how far the bounds keep x from 0
        if a is not None:
            unit = max(abs(r_[i]) / top, outside) or 1.0
        else:
            unit = max(steep / trace if trace > 0 else 0.0, outside) or _shortest(low[i], high[i]) or 1.0
        gamma = max(trace * unit, steep) or 1.0
        y = cvxpy.Variable(n)
        P = Q_[i] * (unit / gamma)
        q = b_[i] / gamma
        value = 0.5 * cvxpy.quad_form(y, cvxpy.psd_wrap(P)) - q @ y
        below = np.isfinite(low[i])
        above = np.isfinite(high[i])
        rules = []
        if below.any():
            rules.append(y[below] >= low[i][below] / unit)
        if above.any():
            rules.append(y[above] <= high[i][above] / unit)
        if a is not None:
            rules.append((a_[i] / top) @ y == r_[i] / (top * unit))
        if _solved(cvxpy.Problem(cvxpy.Minimize(value), rules), solver="CLARABEL", **CLARABEL):
            x[i] = np.clip(np.asarray(y.value) * unit, low[i], high[i])
    bounds = (torch.from_numpy(low.copy()), torch.from_numpy(high.copy()))
    x_, Q_t, b_t, a_t, r_t = (torch.from_numpy(array.copy()) for array in (x, Q_, b_, a_, r_))
    equality = (None, None) if a is None else (a_t, r_t)
    residual = qp_residual(x_, Q_t, b_t, equality[0], equality[1], bounds[0], bounds[1]).numpy()
    with np.errstate(all="ignore"):
        solution = certified(np, x, residual, probe, Q.dtype, REFERENCE_TOLERANCE)
    return Solution(*(t.to(Q.device) for t in solution))


def min_norm(gram: Float[Tensor, "R n n"], active: Bool[Tensor, "R n"] | None = None) -> Solution:
    """As `mobench.solvers.min_norm`."""
    ones = torch.ones_like(gram[:, 0])
    if active is None:
        return qp(gram, None, ones)
    empty = ~active.any(1)
    keep = active | empty.unsqueeze(1)
    gram = gram.masked_fill(~(active.unsqueeze(1) & active.unsqueeze(2)), 0)
    x, residual, failed = qp(gram, None, ones, upper=torch.where(keep, 2.0, 0.0))
    return Solution(x.masked_fill(empty.unsqueeze(1), 0), residual.masked_fill(empty, 0), failed & ~empty)


def lp(c: Float[Tensor, "R n"], G: Float[Tensor, "R k n"], h: Float[Tensor, "R k"]) -> Solution:
    """As `mobench.solvers.lp`; failed means a residual above `REFERENCE_TOLERANCE`."""
    import cvxpy

    c_, G_, h_ = (t.detach().cpu().double().numpy() for t in (c, G, h))
    with np.errstate(all="ignore"):
        probe = c_.sum(1) + G_.sum((1, 2)) + np.where(h_ == -np.inf, 0.0, h_).sum(1)
        c_, G_ = homogeneous(c_, G_, h_)
    x = np.full(c_.shape, np.nan)
    y = np.full(G_.shape[:2], np.nan)
    for i in np.flatnonzero(np.isfinite(probe)):
        beta = cvxpy.Variable(c_.shape[1])
        rows = G_[i] @ beta >= 0
        problem = cvxpy.Problem(cvxpy.Maximize(c_[i] @ beta), [rows, beta >= 0, cvxpy.sum(beta) == 1])
        if _solved(problem, solver="HIGHS"):
            x[i] = beta.value
            y[i] = np.abs(rows.dual_value)
    with np.errstate(all="ignore"):
        residual = homogeneous_residual(x, y, c_, G_)
        solution = certified(np, x, residual, probe, c.dtype, REFERENCE_TOLERANCE)
    return Solution(*(t.to(c.device) for t in solution))


def epo_lp(
    K: Float[Tensor, "R M M"],
    Ca: Float[Tensor, "R M"],
    balance: Bool[Tensor, " R"],
    jstar: Int[Tensor, " R"],
    restricted: bool = True,
) -> Solution:
    """As `mobench.solvers.epo_lp`."""
    return lp(*epo_data(K.detach(), Ca.detach(), balance, jstar, restricted))


@dataclass(frozen=True)
class _Compiled:
    """(11), or (13) if relaxed, for one shape: compiled once, and solved with new parameters."""

    problem: Any
    parameters: dict[str, Any]
    dx: Any
    dy: Any
    rules: Any

    def solve(self, **values: Array) -> tuple[Array, Array, Array] | None:
        """dx (P,), dy (q,) and multipliers (K,) of the constraints; None where CLARABEL has no answer."""
        for name, parameter in self.parameters.items():
            parameter.value = values[name]
        if not _solved(self.problem, solver="CLARABEL", **CLARABEL) or self.rules.dual_value is None:
            return None
        return self.dx.value, self.dy.value, np.maximum(self.rules.dual_value, 0.0)


@lru_cache(maxsize=64)
def _surrogate_problem(
    K: int, P: int, bounded: tuple[bool, ...], ball: bool, below: bool, above: bool, relaxed: bool
) -> _Compiled:
    """Disciplined parametrised program of K constraints in x in R^P and one y for each entry of `bounded`.

    square >= |dx|^2 and the like for y stand for the quadratic terms: one cone for all rows, since they are
    linear in it.
    """
    import cvxpy

    q = len(bounded)
    sizes: dict[str, Any] = {"c": K, "rows": (K, P), "slopes": (K, q), "low": q}
    if not relaxed:
        sizes |= {"slopes_0": q}
    parameters = {name: cvxpy.Parameter(shape) for name, shape in sizes.items()}
    curved: dict[str, Any] = {"tau": K, "tau_y": (K, q)} | ({} if relaxed else {"tau_0": 1, "tau_y_0": q})
    parameters |= {name: cvxpy.Parameter(shape, nonneg=True) for name, shape in curved.items()}
    p = parameters
    dx = cvxpy.Variable(P)
    dy = cvxpy.Variable(q)
    square = cvxpy.Variable(1)
    squares = cvxpy.Variable(q)
    t = cvxpy.Variable() if relaxed else 0.0
    rules = p["c"] + p["rows"] @ dx + p["slopes"] @ dy + 0.5 * (p["tau"] * square + p["tau_y"] @ squares) <= t
    conditions = [rules, square >= cvxpy.sum_squares(dx), squares >= cvxpy.square(dy)]
    free = [k for k in range(q) if bounded[k]]
    if free:
        conditions.append(dy[free] >= p["low"][free])
    if ball:
        p["x"] = cvxpy.Parameter(P)
        p["radius"] = cvxpy.Parameter(nonneg=True)
        conditions.append(cvxpy.norm(p["x"] + dx) <= p["radius"])
    for name, there in (("lower", below), ("upper", above)):
        if there:
            p[name] = cvxpy.Parameter(P)
            conditions.append(dx >= p[name] if name == "lower" else dx <= p[name])
    cost = t if relaxed else p["slopes_0"] @ dy + 0.5 * (p["tau_0"] @ square + p["tau_y_0"] @ squares)
    problem = cvxpy.Problem(cvxpy.Minimize(cost), conditions)
    return _Compiled(problem, parameters, dx, dy, rules)


# of d, tried until one reaches TOLERANCE: CLARABEL's tolerances are absolute
UNITS = (10.0, 1.0, 100.0, 0.1, 1000.0)


@dataclass(frozen=True)
class Scaled:
    """The program of one run in units in which its data are of order 1.

    d is in units of max |c_k|/|a_k| (times a factor), every h_k in units of its largest coefficient, and the
    objective too.

    Args:
        compiled: the program for this shape.
        values: of its parameters.
        d: the unit of dx and dy.
        weights: factors of the multipliers; None of (13), whose multipliers sum to 1.
    """

    compiled: _Compiled
    values: dict[str, Array]
    d: float
    weights: Array | None


def scaled_surrogate(p: Surrogate, relaxed: bool = False, unit: float = UNITS[0]) -> Scaled:
    """Returns (11), or (13) if relaxed, of the only run of `p`, scaled."""
    c, rows, low, x = (t[0].cpu().numpy() for t in (p.c, p.rows, p.low, p.x))
    slopes, tau, tau_y = (t.double().cpu().numpy() for t in (p.slopes, p.tau, p.tau_y))
    if p.moving is not None:
        moving = p.moving[0].cpu().numpy()
        rows = np.where(moving, rows, 0.0)
    K, P = rows.shape
    length = np.sqrt((rows**2).sum(1) + (slopes[1:] ** 2).sum(1))
    ratio = np.abs(c) / (length + TINY)
    d = unit * float(np.clip(ratio[length > 0].max(initial=0.0), 1e-3, 1e3) or 1.0)
    rows = rows * d
    slopes = slopes * d
    tau = tau * d * d
    tau_y = tau_y * d * d
    size = np.max(np.abs(np.column_stack([c, rows, slopes[1:], tau[1:], tau_y[1:]])), axis=1) + TINY
    if relaxed:  # one unit: t is the same for all
        size = np.full(K, size.max())
    top = max(np.abs(slopes[0]).max(), tau[0], tau_y[0].max())
    values: dict[str, Any] = {
        "c": c / size,
        "rows": rows / size[:, None],
        "slopes": slopes[1:] / size[:, None],
        "tau": tau[1:] / size,
        "tau_y": tau_y[1:] / size[:, None],
        "low": np.where(np.isfinite(low), low, 0.0) / d,
    }
    if not relaxed:
        values |= {"slopes_0": slopes[0] / top, "tau_0": tau[:1] / top, "tau_y_0": tau_y[0] / top}
    below = above = False
    if isinstance(p.X, Ball):
        room = p.X.radius**2
        if p.moving is not None:
            room = max(room - float((np.where(moving, 0.0, x) ** 2).sum()), 0.0)
            x = np.where(moving, x, 0.0)
        values |= {"x": x / d, "radius": np.sqrt(room) / d}
    elif isinstance(p.X, Box):
        below = bool(np.isfinite(p.X.lower))
        above = bool(np.isfinite(p.X.upper))
        keep = 1.0 if p.moving is None else moving
        values |= {"lower": (p.X.lower - x) * keep / d} if below else {}
        values |= {"upper": (p.X.upper - x) * keep / d} if above else {}
    compiled = _surrogate_problem(
        K, P, tuple(np.isfinite(low).tolist()), isinstance(p.X, Ball), below, above, relaxed
    )
    return Scaled(compiled, values, d, None if relaxed else top / size)


def _surrogate_solution(p: Surrogate, relaxed: bool, unit: float) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns dx (1, P), dy (1, q), mu (1, K) of the only run of `p`; None where CLARABEL has no answer."""
    program = scaled_surrogate(p, relaxed, unit)
    answer = program.compiled.solve(**program.values)
    if answer is None:
        return None
    ex, ey, mu = answer
    mu = mu / (mu.sum() + TINY) if program.weights is None else mu * program.weights
    dx, dy, nu = (torch.from_numpy(np.array(v))[None].to(p.c) for v in (ex * program.d, ey * program.d, mu))
    dx = p.X.project(p.x + dx) - p.x  # rounding must not leave the set
    return dx if p.moving is None else torch.where(p.moving, dx, 0.0), torch.maximum(dy, p.low), nu


def _step(p: Surrogate, mu: Tensor, objective: bool = True) -> tuple[Tensor, Tensor]:
    """d(mu): dx (R, P), dy (R, q). `objective=False`: mu_0 = 0, as in (13)."""
    zero = 1.0 if objective else 0.0
    raw = (mu[:, None] @ p.rows)[:, 0] / -(zero * p.tau[0] + mu @ p.tau[1:])[:, None]
    slope = zero * p.slopes[0] + mu @ p.slopes[1:]
    dy = torch.maximum(-slope / (zero * p.tau_y[0] + mu @ p.tau_y[1:]), p.low)
    return project_moving(p.X, p.x + raw, p.x, p.moving) - p.x, dy


def _surrogate_judged(
    p: Surrogate, mu: Tensor, dx: Tensor, dy: Tensor, relaxed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Largest constraint, residual and proof for anybody's d and mu.

    The residual is the larger of violation and duality gap, relative to their terms. The gap is h_0(d) minus
    the dual value q(mu), which holds for every mu >= 0. Of (13): max_k h_k(d) minus q(mu), whose sign is the
    proof that the constraints cannot be satisfied.
    """
    h, size = constraints(p, dx, dy)
    high = h.amax(1)
    scale = size.amax(1) + TINY
    ex, ey = _step(p, mu, objective=not relaxed)
    dual = (mu * constraints(p, ex, ey)[0]).sum(1)
    if relaxed:
        return high, (high - dual) / scale, dual > TOLERANCE * scale

    def objective(dx: Tensor, dy: Tensor) -> Tensor:
        return dy @ p.slopes[0] + 0.5 * (dx.square().sum(1) * p.tau[0] + dy.square() @ p.tau_y[0])

    terms = dy.abs() @ p.slopes[0].abs() + objective(dx, 0 * dy) + (mu * size).sum(1) + TINY
    gap = (objective(dx, dy) - objective(ex, ey) - dual).abs() / terms
    violation = (h.clamp_min(0) / (size + TINY)).amax(1)
    return high, torch.fmax(violation, gap), torch.ones_like(high, dtype=torch.bool)


def solve_surrogate(program: Surrogate, warm: Float[Tensor, "R K"] | None = None) -> SurrogateSolution:
    """As `mobench.solvers.surrogate.solve_surrogate`, for X Free, Box or Ball, from a cold start.

    Failed means a residual above `REFERENCE_TOLERANCE`. The multipliers prove how good the step is, and,
    those of (13), that no point satisfies the constraints; CLARABEL's status alone proves nothing.
    """
    if not isinstance(program.X, (Free, Box, Ball)):
        raise ValueError(
            f"The CVXPY surrogate needs X to be Free, Box or Ball, not {type(program.X).__name__}"
        )
    program = replace(
        program, **{n: getattr(program, n).detach().double() for n in ("c", "rows", "x", "low")}
    )
    good = torch.isfinite(program.c.sum(1) + program.rows.sum((1, 2)) + program.x.sum(1))
    dx, dy, mu = (torch.full_like(t, torch.nan) for t in (program.x, program.low, program.c))
    worst = torch.full_like(dx[:, 0], torch.nan)
    residual = torch.where(good, torch.inf, worst)
    infeasible = torch.zeros_like(good)
    for i in good.nonzero()[:, 0].tolist():
        one = program.take(torch.tensor([i], device=good.device))
        for unit, relaxed in product(UNITS, (False, True)):
            if bool(residual[i] <= TOLERANCE):
                break
            if infeasible[i] and not relaxed:  # a proof outweighs a small violation
                continue
            solution = _surrogate_solution(one, relaxed, unit)
            if solution is None:
                continue
            ex, ey, nu = solution
            high, error, proof = _surrogate_judged(one, nu, ex, ey, relaxed)
            if bool(proof & ((error < residual[i]) | (relaxed and not infeasible[i]))):
                for whole, piece in ((dx, ex), (dy, ey), (mu, nu), (worst, high), (residual, error)):
                    whole[i] = piece[0]
                infeasible[i] = relaxed
    failed = good & ~(residual <= REFERENCE_TOLERANCE)
    lost = (failed | ~good)[:, None]
    dx, dy, mu = (torch.where(lost, torch.nan, whole) for whole in (dx, dy, mu))
    return SurrogateSolution(dx, dy, mu, worst, residual, infeasible & ~failed, failed)
