"""FERERO: descent in a cone order {y : A y >= 0} under linear preference constraints on the objectives.

Per step the multipliers lambda = [lf; lg; lh] minimise 1/2 lambda^T Q lambda - lambda^T p, Q = S K S^T with
S = [A; B_g; B_h], p = [0; c_g G; c_h H], over lf >= 0 with one equality, lg >= 0, lh free; d = -J^T S^T
lambda.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.reference.common import Array, Box, Problem, Trajectory, descend, project_weighted_simplex


@dataclass(frozen=True)
class Constraints:
    """Rows of the linear preferences: B_g F + b_g <= 0 and B_h F + b_h = 0."""

    B_h: Array
    b_h: Array
    B_g: Array
    b_g: Array


def complement(v: Array) -> Array:
    """Orthonormal rows spanning the complement of v: (v2, -v1) for M = 2,
    else rows 2..M of a Householder matrix.
    """
    v = np.asarray(v, dtype=np.float64)
    v = v / np.linalg.norm(v)
    if len(v) == 2:
        return np.array([[v[1], -v[0]]])
    u = v - np.eye(len(v))[0]
    if np.linalg.norm(u) < 1e-12:
        return np.eye(len(v))[1:]
    return (np.eye(len(v)) - 2.0 * np.outer(u, u) / (u @ u))[1:]


def constraints(
    ray: Array | None = None,
    through: Array | None = None,
    B_g: Array | None = None,
    b_g: Array | None = None,
    M: int | None = None,
) -> Constraints:
    """The line {through + s ray} (through = 0 when absent; no equality when ray is None) plus inequality
    rows.
    """
    M = M if M is not None else len(ray) if ray is not None else np.shape(B_g)[1]
    B_h = np.zeros((0, M)) if ray is None else complement(ray)
    b_h = np.zeros(len(B_h)) if through is None else -B_h @ np.asarray(through, dtype=np.float64)
    B_g = np.zeros((0, M)) if B_g is None else np.atleast_2d(np.asarray(B_g, dtype=np.float64))
    b_g = np.zeros(len(B_g)) if b_g is None else np.atleast_1d(np.asarray(b_g, dtype=np.float64))
    return Constraints(B_h, b_h, B_g, b_g)


@dataclass(frozen=True)
class Dual:
    """The dual program at one point."""

    Q: Array
    p: Array
    stacked: Array
    weights: Array  # of lf's equality: weights . lf = total
    total: float
    n_f: int
    n_g: int

    def project(self, lam: Array) -> Array:
        out = lam.copy()
        out[: self.n_f] = project_weighted_simplex(lam[: self.n_f], self.weights, self.total)
        out[self.n_f : self.n_f + self.n_g] = np.maximum(lam[self.n_f : self.n_f + self.n_g], 0.0)
        return out

    def value(self, lam: Array) -> float:
        return float(0.5 * lam @ self.Q @ lam - lam @ self.p)


def dual(
    K: Array,
    F: Array,
    A: Array,
    con: Constraints,
    c_h: float = 1.0,
    c_g: float | None = None,
    domain: str = "adaptive",
) -> Dual:
    """Assemble the program from the Gram matrix and the values; c_g = c_h when not given."""
    c_g = c_h if c_g is None else c_g
    stacked = np.vstack([A, con.B_g, con.B_h])
    p = np.concatenate([np.zeros(len(A)), c_g * (con.B_g @ F + con.b_g), c_h * (con.B_h @ F + con.b_h)])
    if domain == "adaptive":
        weights = A @ F
        if weights.sum() <= 0.0:
            raise ValueError("1^T A F must be positive; shift the objectives")
        weights = np.where(weights > 1e-14 * weights.sum(), weights, 0.0)
        total = float(weights.sum())
    elif domain == "simplex":
        weights = np.ones(len(A))
        total = 1.0
    else:
        raise ValueError(domain)
    return Dual(stacked @ K @ stacked.T, p, stacked, weights, total, len(A), len(con.B_g))


def solve_enumeration(program: Dual) -> Array:
    """Exact: solve the equality-constrained problem on every support of (lf, lg) and keep the best feasible
    answer.

    Everything is divided by the trace of Q first. Singular systems get the least-norm solution.
    """
    scale = np.trace(program.Q)
    n = len(program.p)
    if scale == 0.0:
        return program.project(np.concatenate([np.ones(program.n_f), np.zeros(n - program.n_f)]))
    Q = program.Q / scale
    p = program.p / scale
    row = np.zeros(n)
    row[: program.n_f] = program.weights / program.total
    signed = program.n_f + program.n_g
    best = None
    best_value = np.inf
    for bits in product((False, True), repeat=signed):
        on = np.array([*bits, *[True] * (n - signed)])
        if not row[on].any():
            continue
        k = int(on.sum())
        system = np.zeros((k + 1, k + 1))
        system[:k, :k] = Q[np.ix_(on, on)]
        system[:k, k] = system[k, :k] = row[on]
        right = np.append(p[on], 1.0)
        answer = np.linalg.lstsq(system, right, rcond=1e-14)[0]
        if np.max(np.abs(system @ answer - right)) > 1e-9 * (1.0 + np.max(np.abs(right))):
            continue
        lam = np.zeros(n)
        lam[on] = answer[:k]
        if np.min(lam[:signed]) < -1e-12 * (1.0 + np.max(np.abs(lam))):
            continue
        lam[:signed] = np.maximum(lam[:signed], 0.0)
        value = 0.5 * lam @ Q @ lam - lam @ p
        if value < best_value - 1e-15 * (1.0 + abs(value)):
            best = lam
            best_value = value
    if best is None:
        raise RuntimeError("no support gives a feasible answer")
    return best


def solve_pgd(program: Dual, start: Array, gamma: float, max_steps: int, tol: float) -> tuple[Array, int]:
    """lambda <- Proj(lambda - gamma (Q lambda - p)), at most max_steps;
    ends once the L1 change of w is below tol.
    """
    lam = start
    for k in range(max_steps):
        new = program.project(lam - gamma * (program.Q @ lam - program.p))
        change = np.sum(np.abs(program.stacked.T @ (new - lam)))
        lam = new
        if change < tol:
            return lam, k + 1
    return lam, max_steps


def run(
    problem: Problem,
    x0: Array,
    con: Constraints,
    *,
    steps: int,
    step_size: float,
    A: Array | None = None,
    c_h: float = 1.0,
    c_g: float | None = None,
    domain: str = "adaptive",
    inner: str = "pgd",
    gamma: float = 0.1,
    max_inner: int = 250,
    tol: float = 1e-5,
    warm: bool = True,
    box: Box | None = None,
) -> Trajectory:
    """Algorithm 1. inner: pgd or exact (support enumeration).

    Warm: lf projected onto the new domain, lg and lh kept; at first lf = 1, lg = lh = 0. Cold: every solve
    starts at lf = 1/M_A (projected), lg = 0, lh = 1.
    """
    M = con.B_h.shape[1]
    A = np.eye(M) if A is None else np.asarray(A, dtype=np.float64)
    m_a = len(A)
    m_g = len(con.B_g)
    m_h = len(con.B_h)
    state = {"lam": np.concatenate([np.ones(m_a), np.zeros(m_g + m_h)])}
    cold = np.concatenate([np.full(m_a, 1.0 / m_a), np.zeros(m_g), np.ones(m_h)])
    multipliers = []
    counts = []
    weights = []

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        program = dual(J @ J.T, F, A, con, c_h, c_g, domain)
        count = 0
        if inner == "pgd":
            start = program.project(state["lam"] if warm else cold)
            lam, count = solve_pgd(program, start, gamma, max_inner, tol)
        elif inner == "exact":
            lam = solve_enumeration(program)
        else:
            raise ValueError(inner)
        state["lam"] = lam
        w = program.stacked.T @ lam
        multipliers.append(lam)
        counts.append(count)
        weights.append(w)
        return -J.T @ w, step_size

    trajectory = descend(problem, x0, direction, steps=steps, box=box)
    trajectory.extra.update(
        multipliers=np.array(multipliers),
        inner_steps=np.array(counts),
        weights=np.array(weights),
        G=trajectory.f @ con.B_g.T + con.b_g,
        H=trajectory.f @ con.B_h.T + con.b_h,
    )
    return trajectory


def run_sa(
    problem: Problem,
    x0: Array,
    con: Constraints,
    *,
    steps: int,
    step_size: float,
    gamma: float,
    A: Array | None = None,
    c_h: float = 1.0,
    domain: str = "adaptive",
    lf0: float = 1.0,
    lh0: float = 0.0,
    box: Box | None = None,
) -> Trajectory:
    """Algorithm 2: one multiplier step per step of x, both from the quantities at the old x and the old
    multipliers.

    The new lf is projected onto the domain of the old x; it is used as it stands at the new one.
    """
    M = con.B_h.shape[1]
    A = np.eye(M) if A is None else np.asarray(A, dtype=np.float64)
    state: dict[str, Array | None] = {"lam": None}
    multipliers = []

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        program = dual(J @ J.T, F, A, con, c_h, None, domain)
        lam = state["lam"]
        if lam is None:
            lam = program.project(np.concatenate([np.full(len(A), lf0), np.full(len(con.B_h), lh0)]))
        multipliers.append(lam)
        state["lam"] = program.project(lam - gamma * (program.Q @ lam - program.p))
        return -J.T @ (program.stacked.T @ lam), step_size

    if len(con.B_g):
        raise ValueError("the single loop takes equality rows only")
    trajectory = descend(problem, x0, direction, steps=steps, box=box)
    trajectory.extra.update(multipliers=np.array(multipliers), H=trajectory.f @ con.B_h.T + con.b_h)
    return trajectory


def merit_terms(trajectory: Trajectory, con: Constraints, n_f: int, step_size: float) -> dict[str, float]:
    """The terms of the merits of Theorems 1 to 4, summed over the steps: the steps themselves are
    -step_size J^T S^T lambda.
    """
    n_g = len(con.B_g)
    total = dict.fromkeys(("stationarity", "slackness", "violation", "violation_square"), 0.0)
    for t, lam in enumerate(trajectory.extra["multipliers"]):
        moved = (trajectory.x[t + 1] - trajectory.x[t]) / step_size
        G = con.B_g @ trajectory.f[t] + con.b_g
        H = con.B_h @ trajectory.f[t] + con.b_h
        total["stationarity"] += float(moved @ moved)
        total["slackness"] += sum(lam[n_f + j] * max(-G[j], 0.0) for j in range(n_g))
        total["violation"] += sum(max(x, 0.0) for x in G) + sum(abs(x) for x in H)
        total["violation_square"] += sum(x * x for x in H)
    return total
