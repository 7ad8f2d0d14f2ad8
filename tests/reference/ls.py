"""Linear scalarization."""

import numpy as np

from tests.reference.common import Array, Box, Problem, Trajectory, descend


def run(
    problem: Problem,
    x0: Array,
    w: Array,
    *,
    steps: int,
    step_size: float,
    box: Box | None = None,
    stop: float = 0.0,
) -> Trajectory:
    """d = -J^T w; w is used as given (no normalisation)."""
    w = np.asarray(w, dtype=np.float64)
    return descend(problem, x0, lambda t, x, F, J: (-J.T @ w, step_size), steps=steps, box=box, stop=stop)
