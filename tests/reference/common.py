"""Shared parts of the reference loops: trajectories, projections, the min-norm point, rays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]
Box = tuple[float | Array, float | Array]


class Problem(Protocol):
    """Values and Jacobian of M objectives of n variables."""

    def f(self, x: Array) -> Array: ...

    def jacobian(self, x: Array) -> Array: ...


@dataclass
class Trajectory:
    """x (T+1, n) with x[0] the start, f (T+1, M) the values at x,
    and what the algorithm recorded on the way.
    """

    x: Array
    f: Array
    extra: dict[str, Any] = field(default_factory=dict)


def descend(
    problem: Problem,
    x0: Array,
    direction: Callable[[int, Array, Array, Array], tuple[Array, float]],
    *,
    steps: int,
    box: Box | None = None,
    stop: float = 0.0,
) -> Trajectory:
    """x <- Proj_box(x + step * d) for (d, step) = direction(t, x, F, J).

    With stop > 0 the run rests for good at the first x where the largest entry of |d| is below it: x then
    repeats.
    """
    x = np.array(x0, dtype=np.float64)
    xs = [x.copy()]
    fs = [problem.f(x)]
    stopped_at = steps
    for t in range(steps):
        d, step = direction(t, x, fs[-1], problem.jacobian(x))
        if np.max(np.abs(d)) < stop:
            stopped_at = t
            break
        x = x + step * d
        if box is not None:
            x = np.clip(x, box[0], box[1])
        xs.append(x.copy())
        fs.append(problem.f(x))
    while len(xs) < steps + 1:
        xs.append(xs[-1].copy())
        fs.append(fs[-1].copy())
    return Trajectory(np.array(xs), np.array(fs), {"stopped_at": stopped_at})


def min_norm(rows: Array) -> Array:
    """Weights on the simplex of the shortest vector in the convex hull of the rows.

    Least squares with non-negative x on |rows^T x|^2 + (1^T x - 1)^2: for x = t * lambda the best t turns the
    value into D / (1 + D) with D = |rows^T lambda|^2, which grows with D, so x / sum(x) is the min-norm
    point.
    """
    scale = np.sqrt(np.mean(np.sum(rows**2, axis=1)))
    if scale == 0.0:
        return np.full(len(rows), 1.0 / len(rows))
    stacked = np.vstack([rows.T / scale, np.ones(len(rows))])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    x, _ = nnls(stacked, target)
    return x / x.sum()


def project_simplex(y: Array) -> Array:
    """Nearest point with x >= 0, sum x = 1."""
    return project_weighted_simplex(y, np.ones_like(y), 1.0)


def project_weighted_simplex(y: Array, weights: Array, total: float) -> Array:
    """Nearest point with x >= 0, weights . x = total (> 0); weights >= 0,
    a zero weight only clips its entry.
    """
    x = np.maximum(y, 0.0)
    on = weights > 0.0
    if not on.any() or total <= 0.0:
        raise ValueError("the weighted simplex is empty or unbounded: weights and total must be positive")
    w = weights[on]
    z = y[on]
    order = np.argsort(-z / w, kind="stable")
    ws = w[order]
    zs = z[order]
    tau = (np.cumsum(ws * zs) - total) / np.cumsum(ws**2)
    last = np.nonzero(zs / ws > tau)[0][-1]
    x[on] = np.maximum(z - tau[last] * w, 0.0)
    return x


def ray_of(w: Array) -> Array:
    """Unit vector along 1/w: where all w_m f_m are equal."""
    v = 1.0 / np.asarray(w, dtype=np.float64)
    return v / np.linalg.norm(v)


def ray_at(degrees: float) -> Array:
    """Unit vector in the plane at an angle from the first axis."""
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
