"""MGDA: the shortest vector in the convex hull of the gradients."""

import numpy as np

from tests.reference.common import Array, Box, Problem, Trajectory, descend, min_norm


def two_objective_weights(K: Array) -> Array:
    """Closed form for M = 2 from the Gram matrix, weights allowed to reach 0 and 1."""
    spread = K[0, 0] - 2.0 * K[0, 1] + K[1, 1]
    u = 0.5 if spread <= 0.0 else float(np.clip((K[1, 1] - K[0, 1]) / spread, 0.0, 1.0))
    return np.array([u, 1.0 - u])


def run(
    problem: Problem,
    x0: Array,
    w: Array | None = None,
    *,
    steps: int,
    step_size: float,
    box: Box | None = None,
) -> Trajectory:
    """d = -J^T lambda, lambda = argmin over the simplex of |J^T lambda|^2;
    takes no preference (w is ignored).
    """
    weights: list[Array] = []

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        lam = two_objective_weights(J @ J.T) if len(F) == 2 else min_norm(J)
        weights.append(lam)
        return -J.T @ lam, step_size

    trajectory = descend(problem, x0, direction, steps=steps, box=box)
    trajectory.extra["weights"] = np.array(weights)
    return trajectory
