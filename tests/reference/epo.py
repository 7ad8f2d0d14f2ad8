"""EPO search: balance the weighted losses r_m f_m, then descend together; weights from a linear program."""

import numpy as np
from scipy.optimize import linprog

from tests.reference.common import Array, Box, Problem, Trajectory, descend


def non_uniformity(F: Array, r: Array) -> tuple[float, Array]:
    """mu = sum h log(M h) for h = r F / sum(r F), and the adjustment a = r (log(M h) - mu)."""
    h = r * F / np.sum(r * F)
    logs = np.log(len(F) * h)
    mu = float(h @ logs)
    return mu, r * (logs - mu)


def program(
    K: Array, F: Array, r: Array, threshold: float = 1e-4, restricted: bool = True
) -> tuple[Array, Array, Array, bool, float]:
    """(objective to maximise, rows R, bounds b with R beta >= b, balance mode?, mu);
    K divided by its trace.
    """
    mu, a = non_uniformity(F, r)
    K = K / np.trace(K)
    Ca = K @ a
    if mu > threshold:
        rising = Ca > 0.0
        bounds = np.where(rising, -np.inf, Ca) if rising.any() else np.zeros(len(F))
        bounds[int(np.argmax(r * F))] = 0.0
        return Ca, K, bounds, True, mu
    rows = K
    bounds = np.zeros(len(F))
    if restricted:
        rows = np.vstack([K, Ca])
        bounds = np.append(bounds, -max(0.0, -float(Ca.max())))
    return K.sum(axis=0), rows, bounds, False, mu


def weights_linprog(objective: Array, rows: Array, bounds: Array) -> Array:
    """The program by HiGHS; a failure is an error, never replaced."""
    keep = np.isfinite(bounds)
    scale = np.maximum(np.abs(rows[keep]).max(axis=1), 1e-300)
    answer = linprog(
        -objective / max(float(np.abs(objective).max()), 1e-300),
        A_ub=-rows[keep] / scale[:, None],
        b_ub=-bounds[keep] / scale,
        A_eq=np.ones((1, len(objective))),
        b_eq=[1.0],
        bounds=(0.0, None),
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"EPO's linear program failed: {answer.message}")
    beta = np.maximum(answer.x, 0.0)
    return beta / beta.sum()


def weights_interval(objective: Array, rows: Array, bounds: Array) -> Array:
    """M = 2 without a solver: beta = (u, 1-u), every row bounds u, the best end of the interval wins.

    On the front the interval can be empty by rounding; then its middle is taken when it is empty by at most
    1e-7.
    """
    low = 0.0
    high = 1.0
    for row, bound in zip(rows, bounds, strict=True):
        if not np.isfinite(bound):
            continue
        slope = row[0] - row[1]
        rest = bound - row[1]
        if slope > 0.0:
            low = max(low, rest / slope)
        elif slope < 0.0:
            high = min(high, rest / slope)
    if low > high:
        if low - high > 1e-7:
            raise RuntimeError(f"EPO's interval is empty: [{low}, {high}]")
        low = high = 0.5 * (low + high)
    u = high if objective[0] > objective[1] else low
    return np.array([u, 1.0 - u])


def run(
    problem: Problem,
    x0: Array,
    w: Array,
    *,
    steps: int,
    step_size: float,
    threshold: float = 1e-4,
    restricted: bool = True,
    gain: float = 10.0,
    solver: str = "linprog",
    box: Box | None = None,
    stop: float = 0.0,
) -> Trajectory:
    """d = -J^T beta with step gain * max(mu, 0.1) * step_size; r = w as given."""
    r = np.asarray(w, dtype=np.float64)
    weights = []
    mus = []
    balance = []
    solve = {"linprog": weights_linprog, "interval": weights_interval}[solver]

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        objective, rows, bounds, balancing, mu = program(J @ J.T, F, r, threshold, restricted)
        beta = solve(objective, rows, bounds)
        weights.append(beta)
        mus.append(mu)
        balance.append(balancing)
        return -J.T @ beta, gain * max(mu, 0.1) * step_size

    trajectory = descend(problem, x0, direction, steps=steps, box=box, stop=stop)
    trajectory.extra.update(weights=np.array(weights), mu=np.array(mus), balance=np.array(balance))
    return trajectory
