"""Tchebycheff scalarization max_m w_m f_m and its smooth form mu log sum_m exp(w_m f_m / mu);
ideal point 0.
"""

import numpy as np

from tests.reference.common import Array, Box, Problem, Trajectory, descend


def tch(
    problem: Problem,
    x0: Array,
    w: Array,
    *,
    steps: int,
    step_size: float,
    weighted: bool = True,
    box: Box | None = None,
) -> Trajectory:
    """d = -w_k grad f_k (weighted) or -grad f_k, k the first argmax of w_m f_m."""
    w = np.asarray(w, dtype=np.float64)

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        k = int(np.argmax(w * F))
        return -(w[k] if weighted else 1.0) * J[k], step_size

    return descend(problem, x0, direction, steps=steps, box=box)


def stch(
    problem: Problem,
    x0: Array,
    w: Array,
    *,
    steps: int,
    step_size: float,
    mu: float = 0.01,
    box: Box | None = None,
) -> Trajectory:
    """d = -sum_m w_m softmax_m(w f / mu) grad f_m."""
    w = np.asarray(w, dtype=np.float64)

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        z = w * F / mu
        e = np.exp(z - z.max())
        return -J.T @ (w * e / e.sum()), step_size

    return descend(problem, x0, direction, steps=steps, box=box)
