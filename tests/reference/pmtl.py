"""PMTL: constrain F to the sector of one reference ray, then descend inside it."""

import numpy as np

from tests.reference.common import Array, Box, Problem, Trajectory, descend, min_norm, ray_of


def run(
    problem: Problem,
    x0: Array,
    w: Array,
    refs: Array,
    *,
    steps: int,
    step_size: float,
    phase1_share: float = 0.2,
    box: Box | None = None,
) -> Trajectory:
    """Sector rows W = refs - v for v the ray of w; active rows have W_j F > 0.

    The first floor(share * steps) steps go along the min-norm point of the active rows' gradients W_j J (no
    step when none is active); later steps along the min-norm point of the objectives' gradients and the
    active rows' together.
    """
    rows = np.asarray(refs, dtype=np.float64) - ray_of(w)
    rows = rows[np.linalg.norm(rows, axis=1) > 1e-12]
    phase1_steps = int(phase1_share * steps + 1e-9)
    weights: list[Array] = []

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        active = rows[rows @ F > 0.0]
        if t >= phase1_steps:
            active = np.vstack([np.eye(len(F)), active])
        elif len(active) == 0:
            weights.append(np.zeros(len(F)))
            return np.zeros_like(x), step_size
        on_losses = min_norm(active @ J) @ active
        weights.append(on_losses)
        return -J.T @ on_losses, step_size

    trajectory = descend(problem, x0, direction, steps=steps, box=box)
    trajectory.extra.update(weights=np.array(weights), phase1_steps=phase1_steps, rows=rows)
    return trajectory
