"""CSMOO: stochastic multi-objective optimisation under expectation constraints, by successive convex
surrogates.

f_i(x) = E f_i(x, xi), g_j(x) = E g_j(x, xi); min_x max_i lambda_i (f_i(x) - z_i) s.t. g_j(x) <= 0, x in a box
or ball. Numbers in brackets are the paper's equations. Every loop takes the samples as an argument,
oracle(x, t) -> (values (K,), rows (K, P)): f_1..f_m, g_1..g_n and their gradients at x with the noise of step
t, m = len(lambda) and n = K - m.

Each surrogate is solved as a cone program (Clarabel) whose active set is then polished by Newton's method on
its KKT equations, so that one answer does not hang on the tolerance of the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import clarabel
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csc_matrix, diags

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Oracle = Callable[[Array, int], tuple[Array, Array]]

TRUSTED = 1e-8  # KKT residual (rows scaled to one) up to which a solution counts as one

# ------------------------------------------------------------------------------------------------------------
# The set X


@dataclass(frozen=True)
class Box:
    """lower <= x <= upper, coordinate by coordinate; infinite bounds are no bounds."""

    lower: ArrayLike = -np.inf
    upper: ArrayLike = np.inf

    def project(self, x: Array) -> Array:
        return np.minimum(np.maximum(x, self.lower), self.upper)

    def jacobian(self, x: Array) -> tuple[Array, Array, Array]:
        """(c, A, q) with c + A dx + 1/2 sum_i q_i dx_i^2 <= 0 iff x + dx lies in the set."""
        lower = np.broadcast_to(self.lower, x.shape)
        upper = np.broadcast_to(self.upper, x.shape)
        c = np.concatenate([x - upper, lower - x])
        A = np.vstack([np.eye(len(x)), -np.eye(len(x))])
        finite = np.isfinite(c)
        return c[finite], A[finite], np.zeros((int(finite.sum()), len(x)))


@dataclass(frozen=True)
class Ball:
    """|x|^2 <= power."""

    power: float

    def project(self, x: Array) -> Array:
        norm = np.sqrt(np.sum(x**2))
        radius = np.sqrt(self.power)
        return x.copy() if norm <= radius else x * (radius / norm)

    def jacobian(self, x: Array) -> tuple[Array, Array, Array]:
        return np.array([x @ x - self.power]), 2.0 * x[None, :], np.full((1, len(x)), 2.0)


Region = Box | Ball

# ------------------------------------------------------------------------------------------------------------
# One convex program: min g.v + 1/2 v'diag(q)v  s.t.  c_k + a_k.v + 1/2 v'diag(q_k)v <= 0


class Program(NamedTuple):
    """The solution of one program; multipliers of its rows,
    residual of its KKT conditions (rows scaled to one).
    """

    v: Array
    multipliers: Array
    residual: float


def _clarabel(g: Array, q: Array, c: Array, A: Array, Q: Array) -> tuple[Array, Array]:
    """Linear rows as inequalities, every curved row as a second-order cone: |sqrt(q) v|^2 <= 2 r,
    r = -c - a.v.
    """
    D = len(g)
    curved = np.any(Q > 0.0, axis=1)
    blocks = [A[~curved]]
    rhs = [-c[~curved]]
    cones = []
    if (~curved).any():
        cones.append(clarabel.NonnegativeConeT(int((~curved).sum())))
    for k in np.flatnonzero(curved):
        blocks.append(np.vstack([A[k], -np.diag(np.sqrt(Q[k])), A[k]]))
        rhs.append(np.concatenate([[0.5 - c[k]], np.zeros(D), [-0.5 - c[k]]]))
        cones.append(clarabel.SecondOrderConeT(D + 2))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    P = csc_matrix(diags(q)) if np.any(q) else csc_matrix((D, D))
    solution = clarabel.DefaultSolver(
        P, g, csc_matrix(np.vstack(blocks)), np.concatenate(rhs), cones, settings
    ).solve()
    z = np.array(solution.z)
    mu = np.zeros(len(c))
    linear = int((~curved).sum())
    mu[~curved] = z[:linear]
    for i, k in enumerate(np.flatnonzero(curved)):
        part = z[linear + i * (D + 2) : linear + (i + 1) * (D + 2)]
        mu[k] = part[0] + part[-1]
    return np.array(solution.x), mu


def program(g: Array, q: Array, c: Array, A: Array, Q: Array, newton_steps: int = 12) -> Program:
    """Cone solver, then primal-dual active-set Newton steps while they lower the KKT residual.

    Residual: max of |grad L|, of the violation of any row and of |min(mu_k, -h_k)|; every row divided by its
    largest entry (at least 1) and the objective by its own.
    """
    scale = np.maximum(1.0, np.max(np.abs(np.column_stack([c, A, Q])), axis=1))
    unit = max(1.0, float(np.max(np.abs(g))), float(np.max(q)))
    g = g / unit
    q = q / unit
    c = c / scale
    A = A / scale[:, None]
    Q = Q / scale[:, None]

    def conditions(v: Array, mu: Array) -> tuple[Array, Array, Array, float]:
        h = c + A @ v + 0.5 * Q @ v**2
        J = A + Q * v
        stationarity = g + q * v + J.T @ mu
        worst = float(max(np.max(np.abs(stationarity)), np.max(np.abs(np.minimum(mu, -h)), initial=0.0)))
        return h, J, stationarity, worst if np.isfinite(worst) else np.inf

    v, mu = _clarabel(g, q, c, A, Q)
    if not (np.all(np.isfinite(v)) and np.all(np.isfinite(mu))):
        return Program(np.zeros_like(g), np.zeros_like(c), np.inf)
    best = (v, mu, conditions(v, mu)[3])
    for _ in range(newton_steps):
        h, J, _, _ = conditions(v, mu)
        active = np.flatnonzero(mu + h > 0.0)
        H = np.diag(q + Q.T @ mu)
        Ja = J[active]
        system = np.block([[H, Ja.T], [Ja, np.zeros((len(active), len(active)))]])
        right = np.concatenate([-(g + q * v), -h[active]])
        step = np.linalg.lstsq(system, right, rcond=1e-15)[0]
        v = v + step[: len(v)]
        mu = np.zeros_like(mu)
        mu[active] = step[len(v) :]
        residual = conditions(v, mu)[3]
        if residual < best[2]:
            best = (v, mu, residual)
        elif residual > 1e3 * best[2] or best[2] < 1e-15:
            break
    v, mu, residual = best
    return Program(v, mu * unit / scale, residual)


class Solved(NamedTuple):
    """delta and what it attains: the value of the program,
    the multipliers of the K rows and the KKT residual.
    """

    delta: Array
    value: float
    feasible: bool
    multipliers: Array
    residual: float


def _constraints(
    c: Array,
    A: Array,
    tau: ArrayLike,
    x: Array,
    region: Region,
    y_lower: ArrayLike,
    free: NDArray[np.bool_] | None,
) -> tuple[Array, Array, Array, Array, NDArray[np.bool_]]:
    """The K surrogate rows over those of the region and of dy >= y_lower; curvature (K + 1, D), row 0 the
    objective's.

    Fixed coordinates keep delta = 0: their columns are left out, and with them rows that no longer depend on
    delta.
    """
    K, D = A.shape
    P = len(x)
    curvature = np.asarray(tau, dtype=np.float64)
    if curvature.ndim < 2:
        curvature = np.broadcast_to(curvature, (K + 1,))[:, None] * np.ones(D)
    lower = np.broadcast_to(np.asarray(y_lower, dtype=np.float64), (D - P,))
    c_x, A_x, Q_x = region.jacobian(x)
    below = np.flatnonzero(np.isfinite(lower))
    c_all = np.concatenate([c, c_x, lower[below]])
    A_all = np.zeros((len(c_all), D))
    Q_all = np.zeros((len(c_all), D))
    A_all[:K] = A
    Q_all[:K] = curvature[1:]
    A_all[K : K + len(c_x), :P] = A_x
    Q_all[K : K + len(c_x), :P] = Q_x
    A_all[K + len(c_x) + np.arange(len(below)), P + below] = -1.0
    keep = np.ones(D, dtype=bool)
    if free is not None:
        keep[:P] = free
        used = (
            (np.arange(len(c_all)) < K)
            | np.any(A_all[:, keep] != 0.0, axis=1)
            | np.any(Q_all[:, keep], axis=1)
        )
        c_all = c_all[used]
        A_all = A_all[used]
        Q_all = Q_all[used]
    return c_all, A_all[:, keep], Q_all[:, keep], curvature, keep


def surrogate(
    c: Array,
    a0: Array,
    A: Array,
    tau: ArrayLike,
    x: Array,
    region: Region,
    *,
    y_lower: ArrayLike = -np.inf,
    free: NDArray[np.bool_] | None = None,
) -> Solved:
    """(11) / (14): min a0.d + tau_0/2 |d|^2 s.t. c_k + a_k.d + tau_k/2 |d|^2 <= 0, x + dx in the region,
         dy >= y_lower.

    d = (dx, dy) with dx the first len(x) entries; tau a scalar, (K + 1,) or per coordinate (K + 1, D).
    Infeasible (delta = 0, value inf) where no KKT point was found and phase 1 has a positive value.
    """
    c_all, A_all, Q_all, curvature, keep = _constraints(c, A, tau, x, region, y_lower, free)
    solved = program(a0[keep], curvature[0, keep], c_all, A_all, Q_all)
    if solved.residual > TRUSTED and phase1(c, A, tau, x, region, y_lower=y_lower, free=free).value > 0.0:
        return Solved(np.zeros_like(a0), np.inf, False, np.full(len(c), np.inf), np.inf)
    delta = np.zeros_like(a0)
    delta[keep] = solved.v
    value = float(a0 @ delta + 0.5 * curvature[0] @ delta**2)
    return Solved(delta, value, True, solved.multipliers[: len(c)], solved.residual)


def phase1(
    c: Array,
    A: Array,
    tau: ArrayLike,
    x: Array,
    region: Region,
    *,
    y_lower: ArrayLike = -np.inf,
    free: NDArray[np.bool_] | None = None,
) -> Solved:
    """(13): min over d of max_k h_k(d); the value may be negative, feasible says whether it is at most 0."""
    K, D = A.shape
    c_all, A_all, Q_all, _, keep = _constraints(c, A, tau, x, region, y_lower, free)
    t_column = np.where(np.arange(len(c_all)) < K, -1.0, 0.0)[:, None]
    n = int(keep.sum())
    goal = np.zeros(n + 1)
    goal[-1] = 1.0
    solved = program(
        goal,
        np.zeros(n + 1),
        c_all,
        np.hstack([A_all, t_column]),
        np.hstack([Q_all, np.zeros_like(t_column)]),
    )
    delta = np.zeros(D)
    delta[keep] = solved.v[:-1]
    value = float(solved.v[-1])
    return Solved(delta, value, value <= 0.0, solved.multipliers[:K], solved.residual)


# ------------------------------------------------------------------------------------------------------------
# Step sizes and estimators


@dataclass(frozen=True)
class Power:
    """scale / (t + offset)^exponent for t = 0, 1, ..."""

    scale: float
    exponent: float
    offset: float = 1.0

    def __call__(self, t: int) -> float:
        return self.scale / (t + self.offset) ** self.exponent


RHO = Power(1.0, 0.8)
GAMMA = Power(0.4, 0.95)


@dataclass(frozen=True)
class Blocks:
    """x in blocks of coordinates: which one is refreshed at t (cyclic, or as listed from 0), with which rho,
    and moved.

    rho: "global" is rho_t; "per_block_count" is rho at the number of earlier visits of the block. move:
    "selected" solves for all of x and moves the block (and y) only, "all" moves everything, "restricted"
    solves with the others fixed.
    """

    parts: Sequence[Sequence[int]]
    sequence: Sequence[int] | None = None
    rho: str = "global"
    move: str = "selected"

    def at(self, t: int) -> int:
        return t % len(self.parts) if self.sequence is None else int(self.sequence[t])


@dataclass
class Estimators:
    """Running means (3), (4) of values (K,) and gradients (K, P) from zero; (7):
    only one block of the gradients.
    """

    rho: Callable[[int], float]
    values: Array
    rows: Array
    blocks: Blocks | None = None
    visits: dict[int, int] = field(default_factory=dict)

    @classmethod
    def zero(
        cls, K: int, P: int, rho: Callable[[int], float] = RHO, blocks: Blocks | None = None
    ) -> "Estimators":
        return cls(rho, np.zeros(K), np.zeros((K, P)), blocks)

    def update(self, t: int, values: Array, rows: Array) -> None:
        rho = self.rho(t)
        self.values = rho * values + (1.0 - rho) * self.values
        if self.blocks is None:
            self.rows = rho * rows + (1.0 - rho) * self.rows
            return
        r = self.blocks.at(t)
        if self.blocks.rho == "per_block_count":
            rho = self.rho(self.visits.get(r, 0))
        elif self.blocks.rho != "global":
            raise ValueError(self.blocks.rho)
        self.visits[r] = self.visits.get(r, 0) + 1
        part = list(self.blocks.parts[r])
        self.rows = self.rows.copy()
        self.rows[:, part] = rho * rows[:, part] + (1.0 - rho) * self.rows[:, part]


# ------------------------------------------------------------------------------------------------------------
# Loops


@dataclass
class Path:
    """x (T+1, P) and y (T+1, 1 or 2; no column for the baseline) from the start on; the estimates of every
    step.

    infeasible: the steps whose surrogate had no feasible point. residual: the worst KKT residual of a solved
    program.
    """

    x: Array
    y: Array
    values: Array
    rows: Array
    infeasible: list[int] = field(default_factory=list)
    residual: float = 0.0

    @property
    def n_infeasible(self) -> int:
        return len(self.infeasible)

    @property
    def y0(self) -> Array:
        return self.y[:, 0]

    @property
    def y1(self) -> Array:
        return self.y[:, 1]


def rows_of_epigraph(
    values: Array, rows: Array, lam: Array, z: Array, y: float
) -> tuple[Array, Array, Array]:
    """(10) as (c, a0, A) over (dx, dy): lambda_i (f_i - z_i + Df_i dx) - y - dy and g_j + Dg_j dx;
    objective dy.
    """
    m = len(lam)
    P = rows.shape[1]
    c = values.copy()
    c[:m] = lam * (values[:m] - z) - y
    A = np.zeros((len(values), P + 1))
    A[:m, :P] = lam[:, None] * rows[:m]
    A[m:, :P] = rows[m:]
    A[:m, P] = -1.0
    a0 = np.zeros(P + 1)
    a0[P] = 1.0
    return c, a0, A


def rows_of_penalty(
    values: Array, rows: Array, lam: Array, z: Array, y0: float, y1: float, beta: float
) -> tuple[Array, Array, Array]:
    """(14) as (c, a0, A) over (dx, dy0, dy1): objectives under y0, constraints under y1;
    objective dy0 + beta dy1.
    """
    m = len(lam)
    P = rows.shape[1]
    c = np.concatenate([lam * (values[:m] - z) - y0, values[m:] - y1])
    A = np.zeros((len(values), P + 2))
    A[:m, :P] = lam[:, None] * rows[:m]
    A[m:, :P] = rows[m:]
    A[:m, P] = -1.0
    A[m:, P + 1] = -1.0
    a0 = np.concatenate([np.zeros(P), [1.0, beta]])
    return c, a0, A


def _curvature(tau: ArrayLike, K: int, P: int, prox_on_slack: str) -> Array:
    """(K + 1, P + 2). "objective_only" takes dy1^2 out of the constraints,
    "objective_only_both" dy0^2 as well.
    """
    curvature = np.broadcast_to(np.asarray(tau, dtype=np.float64), (K + 1,))[:, None] * np.ones(P + 2)
    if prox_on_slack == "objective_only":
        curvature[1:, P + 1] = 0.0
    elif prox_on_slack == "objective_only_both":
        curvature[1:, P:] = 0.0
    elif prox_on_slack != "all":
        raise ValueError(prox_on_slack)
    return curvature


Step = Callable[[Array, Array, Array, Array, NDArray[np.bool_] | None], tuple[Array | None, bool, float]]


def _loop(
    oracle: Oracle,
    x0: ArrayLike,
    y_start: Sequence[float],
    step: Step,
    *,
    steps: int,
    K: int,
    rho: Callable[[int], float],
    gamma: Callable[[int], float],
    blocks: Blocks | None,
) -> Path:
    """Sample, update the estimators, solve, move by gamma.
    step -> (delta or None, was feasible, residual).
    """
    x = np.array(x0, dtype=np.float64)
    y = np.array(y_start, dtype=np.float64)
    P = len(x)
    estimators = Estimators.zero(K, P, rho, blocks)
    xs = [x]
    ys = [y]
    values_path = []
    rows_path = []
    infeasible: list[int] = []
    worst = 0.0
    for t in range(steps):
        estimators.update(t, *oracle(x, t))
        values_path.append(estimators.values)
        rows_path.append(estimators.rows)
        selected = np.ones(P, dtype=bool)
        if blocks is not None and blocks.move != "all":
            selected[:] = False
            selected[list(blocks.parts[blocks.at(t)])] = True
        free = selected if blocks is not None and blocks.move == "restricted" else None
        delta, feasible, residual = step(x, y, estimators.values, estimators.rows, free)
        if not feasible:
            infeasible.append(t)
        if delta is not None:
            worst = max(worst, residual)
            x = x + gamma(t) * np.where(selected, delta[:P], 0.0)
            y = y + gamma(t) * delta[P:]
        xs.append(x)
        ys.append(y)
    return Path(np.array(xs), np.array(ys), np.array(values_path), np.array(rows_path), infeasible, worst)


def _weights(lam: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
    lam = np.asarray(lam, dtype=np.float64)
    return lam, np.broadcast_to(np.asarray(z, dtype=np.float64), lam.shape)


def tchebycheff(values: Array, lam: ArrayLike, z: ArrayLike) -> float:
    """V = max_i lambda_i (f_i - z_i) of the values f_1..f_m, g_1..g_n."""
    lam, z = _weights(lam, z)
    return float(np.max(lam * (values[: len(lam)] - z)))


def violation(values: Array, m: int) -> float:
    """max(0, max_j g_j) of the values f_1..f_m, g_1..g_n."""
    return float(max(0.0, np.max(values[m:], initial=0.0)))


def basic(
    oracle: Oracle,
    x0: ArrayLike,
    start_values: Array,
    region: Region,
    *,
    lam: ArrayLike,
    z: ArrayLike,
    steps: int,
    tau: ArrayLike,
    rho: Callable[[int], float] = RHO,
    gamma: Callable[[int], float] = GAMMA,
    blocks: Blocks | None = None,
    recover: bool = False,
) -> Path:
    """(11) at every step; where it is infeasible x and y stay (recover: they follow (13) instead, which is
         CSMOO-1).

    start_values (K,): the exact expectations at x0, y_0 = max_i lambda_i (f_i(x0) - z_i).
    """
    lam, z = _weights(lam, z)

    def step(
        x: Array, y: Array, values: Array, rows: Array, free: NDArray[np.bool_] | None
    ) -> tuple[Array | None, bool, float]:
        c, a0, A = rows_of_epigraph(values, rows, lam, z, float(y[0]))
        solved = surrogate(c, a0, A, tau, x, region, free=free)
        if solved.feasible:
            return solved.delta, True, solved.residual
        if not recover:
            return None, False, 0.0
        nearest = phase1(c, A, tau, x, region, free=free)
        return nearest.delta, False, nearest.residual

    y_start = [tchebycheff(start_values, lam, z)]
    return _loop(
        oracle, x0, y_start, step, steps=steps, K=len(start_values), rho=rho, gamma=gamma, blocks=blocks
    )


def csmoo1(oracle: Oracle, x0: ArrayLike, start_values: Array, region: Region, **options: Any) -> Path:
    """(11) where feasible, else (13); options are those of `basic`."""
    return basic(oracle, x0, start_values, region, recover=True, **options)


def csmoo2(
    oracle: Oracle,
    x0: ArrayLike,
    start_values: Array,
    region: Region,
    *,
    lam: ArrayLike,
    z: ArrayLike,
    steps: int,
    tau: ArrayLike,
    beta: float,
    rho: Callable[[int], float] = RHO,
    gamma: Callable[[int], float] = GAMMA,
    blocks: Blocks | None = None,
    prox_on_slack: str = "all",
) -> Path:
    """(14): y0 over the objectives, y1 >= 0 over the constraints, min y0 + beta y1; phase 1 where it is
    infeasible.

    start_values (K,): the exact expectations at x0; y0 starts at max_i lambda_i (f_i - z_i), y1 at
    max(0, max_j g_j).
    """
    lam, z = _weights(lam, z)
    curvature = _curvature(tau, len(start_values), np.size(x0), prox_on_slack)

    def step(
        x: Array, y: Array, values: Array, rows: Array, free: NDArray[np.bool_] | None
    ) -> tuple[Array | None, bool, float]:
        c, a0, A = rows_of_penalty(values, rows, lam, z, float(y[0]), float(y[1]), beta)
        y_lower = np.array([-np.inf, -y[1]])
        solved = surrogate(c, a0, A, curvature, x, region, y_lower=y_lower, free=free)
        if solved.feasible:
            return solved.delta, True, solved.residual
        nearest = phase1(c, A, curvature, x, region, y_lower=y_lower, free=free)
        return nearest.delta, False, nearest.residual

    y_start = [tchebycheff(start_values, lam, z), violation(start_values, len(lam))]
    return _loop(
        oracle, x0, y_start, step, steps=steps, K=len(start_values), rho=rho, gamma=gamma, blocks=blocks
    )


def penalty(
    oracle: Oracle,
    x0: ArrayLike,
    region: Region,
    *,
    lam: ArrayLike,
    z: ArrayLike,
    steps: int,
    beta: float,
    variant: str = "sgd",
    tau: float = 1.0,
    smoothing: float = 0.05,
    rho: Callable[[int], float] = RHO,
    gamma: Callable[[int], float] = GAMMA,
) -> Path:
    """G = sum_i alpha_i lambda_i Df_i + beta sum_j [g_j > 0] Dg_j on the estimates, alpha a softmax of lambda
    (f - z)/mu.

    sgd: x <- Proj(x - gamma G); prox: x <- x + gamma (Proj(x - G/tau) - x).
    """
    lam, z = _weights(lam, z)
    m = len(lam)
    x = np.array(x0, dtype=np.float64)
    xs = [x]
    values_path = []
    rows_path = []
    estimators: Estimators | None = None
    for t in range(steps):
        values, rows = oracle(x, t)
        if estimators is None:
            estimators = Estimators.zero(*rows.shape, rho)
        estimators.update(t, values, rows)
        values = estimators.values
        rows = estimators.rows
        logits = lam * (values[:m] - z) / smoothing
        alpha = np.exp(logits - np.max(logits))
        alpha = alpha / np.sum(alpha)
        G = np.zeros_like(x)
        for i in range(m):
            G = G + alpha[i] * lam[i] * rows[i]
        for j in range(m, len(values)):
            if values[j] > 0.0:
                G = G + beta * rows[j]
        if variant == "sgd":
            x = region.project(x - gamma(t) * G)
        elif variant == "prox":
            x = x + gamma(t) * (region.project(x - G / tau) - x)
        else:
            raise ValueError(variant)
        xs.append(x)
        values_path.append(values)
        rows_path.append(rows)
    return Path(np.array(xs), np.zeros((steps + 1, 0)), np.array(values_path), np.array(rows_path))


# ------------------------------------------------------------------------------------------------------------
# Synthetic problem (15), with (83) as its third objective

VARIANCE = 0.25
INTERVAL = Box(-5.0, 5.0)
SHIFTS = (0.0, 1.0, -0.5)  # f_i = E (x - shift_i + eps)^2
LIMITS = (1.0, 2.0)  # g_j = E (x - shift_j + eps)^4 - limit_j, shifts 0 and 1


def synthetic_sample(x: Array, eps: ArrayLike, objectives: int = 2) -> tuple[Array, Array]:
    """Means over the draws eps of f_1..f_m, g_1, g_2 at x (1,) and of their derivatives (K, 1)."""
    draws = np.atleast_1d(np.asarray(eps, dtype=np.float64))
    values = []
    slopes = []
    for shift in SHIFTS[:objectives]:
        u = x[0] + draws - shift
        values.append(np.mean(u**2))
        slopes.append(np.mean(2.0 * u))
    for shift, limit in zip(SHIFTS, LIMITS, strict=False):
        u = x[0] + draws - shift
        values.append(np.mean(u**4) - limit)
        slopes.append(np.mean(4.0 * u**3))
    return np.array(values), np.array(slopes)[:, None]


def synthetic_exact(x: Array, objectives: int = 2, variance: float = VARIANCE) -> tuple[Array, Array]:
    """Expectations: E(u + eps)^2 = u^2 + s, E(u + eps)^4 = u^4 + 6 s u^2 + 3 s^2."""
    s = variance
    values = []
    slopes = []
    for shift in SHIFTS[:objectives]:
        u = x[0] - shift
        values.append(u**2 + s)
        slopes.append(2.0 * u)
    for shift, limit in zip(SHIFTS, LIMITS, strict=False):
        u = x[0] - shift
        values.append(u**4 + 6.0 * s * u**2 + 3.0 * s**2 - limit)
        slopes.append(4.0 * u**3 + 12.0 * s * u)
    return np.array(values), np.array(slopes)[:, None]


def synthetic_oracle(noise: Array, objectives: int = 2) -> Oracle:
    """noise[t] are the draws of step t."""
    return lambda x, t: synthetic_sample(x, noise[t], objectives)


def synthetic_feasible(variance: float = VARIANCE) -> tuple[float, float]:
    """|x - shift_j| <= r_j with r_j^2 the positive root of r^4 + 6 s r^2 + 3 s^2 = limit_j."""
    s = variance
    radii = [np.sqrt(-3.0 * s + np.sqrt(6.0 * s**2 + limit)) for limit in LIMITS]
    return (
        float(max(shift - r for shift, r in zip(SHIFTS, radii, strict=False))),
        float(min(shift + r for shift, r in zip(SHIFTS, radii, strict=False))),
    )


def synthetic_ideal(kind: str = "grid", objectives: int = 2, step: float = 1e-4) -> Array:
    """analytic: the variance; limit: the minima over the feasible interval; grid:
    over its points of a grid on X.
    """
    if kind == "analytic":
        return np.full(objectives, VARIANCE)
    low, high = synthetic_feasible()
    if kind == "limit":
        points = np.array([low, high])
    elif kind == "grid":
        points = np.linspace(-5.0, 5.0, round(10.0 / step) + 1)
        points = points[(points >= low) & (points <= high)]
    else:
        raise ValueError(kind)
    return np.array([np.min((points - shift) ** 2) + VARIANCE for shift in SHIFTS[:objectives]])


# ------------------------------------------------------------------------------------------------------------
# Secure beamforming (16), (17)

POWER = 5.0
LEAK = 0.4
SPREAD = 0.05


def pls_pack(W: Complex) -> Array:
    """x = [Re w_1, .., Re w_m, Im w_1, .., Im w_m] of the beams W[i] = w_i."""
    return np.concatenate([W.real.ravel(), W.imag.ravel()])


def pls_unpack(x: Array, users: int = 2) -> Complex:
    """W[i] = w_i."""
    half = len(x) // 2
    return (x[:half] + 1j * x[half:]).reshape(users, -1)


def pls_channels(nominal: Complex, draws: Complex, spread: float = SPREAD) -> Complex:
    """h = hhat + spread * CN(0, 1): nominal (users + 1, antennas), eavesdropper last;
    draws (B, users + 1, antennas).
    """
    return nominal + spread * draws


def pls_sample(x: Array, channels: Complex, leak: float = LEAK) -> tuple[Array, Array]:
    """Means over channels (B, users + 1, antennas) of f_i = -R_i and g_i = C_i - leak, and of their
    gradients.

    R_i = log2(1 + |h_i^H w_i|^2 / (1 + sum_{l != i} |h_i^H w_l|^2)), C_i = log2(1 + |h_e^H w_i|^2); the
    gradient of |h^H w|^2 is 2 h h^H w, real part for Re w, imaginary part for Im w.
    """
    users = channels.shape[1] - 1
    W = pls_unpack(x, users)
    values = np.zeros(2 * users)
    rows = np.zeros((2 * users, len(x)))
    for h in channels:
        for i in range(users):
            inner = [np.vdot(h[i], W[k]) for k in range(users)]
            power = [abs(p) ** 2 for p in inner]
            total = 1.0 + sum(power)
            interference = total - power[i]
            values[i] -= np.log2(1.0 + power[i] / interference)
            slope = np.zeros_like(W)
            for k in range(users):
                d_rate = (1.0 / total - (0.0 if k == i else 1.0 / interference)) / np.log(2.0)
                slope[k] = d_rate * 2.0 * h[i] * inner[k]
            rows[i] -= pls_pack(slope)
            leaked = np.vdot(h[users], W[i])
            values[users + i] += np.log2(1.0 + abs(leaked) ** 2) - leak
            slope = np.zeros_like(W)
            slope[i] = 2.0 * h[users] * leaked / ((1.0 + abs(leaked) ** 2) * np.log(2.0))
            rows[users + i] += pls_pack(slope)
    return values / len(channels), rows / len(channels)


def pls_oracle(nominal: Complex, draws: Complex, spread: float = SPREAD, leak: float = LEAK) -> Oracle:
    """draws (T, B, users + 1, antennas): the CN(0, 1) draws of every step."""
    return lambda x, t: pls_sample(x, pls_channels(nominal, draws[t], spread), leak)


def pls_provisional_ideal(nominal: Complex, power: float = POWER) -> Array:
    """-log2(1 + P |hhat_i|^2) of the users."""
    return -np.log2(1.0 + power * np.sum(np.abs(nominal[:-1]) ** 2, axis=1))
