"""Greedy choice by hypervolume improvement:  next = argmax_c HV(S u {c}) - HV(S),  S <- S u {next}."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from mobench.metrics.hypervolume import hypervolume

SAMPLES = 2**13  # points of the box that estimate a volume of more than three dimensions


def improvements_plane(
    S: Float[np.ndarray, "n 2"], C: Float[np.ndarray, "c 2"], ref: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, " c"]:
    """Exact for M = 2: integral of (h(f_1) - c_2)_+ from c_1 to ref_1, h the staircase of S below ref_2."""
    inside = S[(ref > S).all(1)]
    order = np.lexsort((inside[:, 1], inside[:, 0]))
    first = inside[order, 0]
    second = np.minimum.accumulate(inside[order, 1])
    edges = np.concatenate([[-np.inf], first, [ref[0]]])
    height = np.concatenate([[ref[1]], second])
    width = np.maximum(np.minimum(edges[1:], ref[0]) - np.maximum(edges[:-1], C[:, :1]), 0.0)
    gain: np.ndarray = (width * np.maximum(height - C[:, 1:], 0.0)).sum(1)
    return gain


def greedy(
    S: Float[np.ndarray, "n M"],
    C: Float[np.ndarray, "c M"],
    count: int,
    ref: Float[np.ndarray, " M"],
    rng: np.random.Generator,
) -> list[int]:
    """Indices of min(count, c) candidates in the order of their choice.

    Each is the one that adds most to the volume that S and those before it dominate below `ref`; where none
    adds anything, the first that is left. M = 2: in closed form. M = 3: by `hypervolume`. M > 3: the share of
    8,192 uniform points between the smallest values and `ref`, the same for all candidates; exact volumes of
    a thousand sets would take minutes.
    """
    M = C.shape[1]
    chosen: list[int] = []
    low = np.concatenate([S, C]).min(0)
    points = rng.uniform(low, np.maximum(ref, low), (SAMPLES if M > 3 else 0, M))
    covered = dominated(S, points).any(0)
    covers = dominated(C, points)
    for _ in range(min(count, len(C))):
        if M == 2:
            gain = improvements_plane(S, C, ref)
        elif M < 4:
            base = hypervolume(S, ref.tolist())
            gain = np.array([hypervolume(np.concatenate([S, c[None]]), ref.tolist()) - base for c in C])
        else:
            gain = (covers & ~covered).sum(1).astype(np.float64)
        gain[chosen] = -1.0
        best = int(gain.argmax())
        chosen.append(best)
        S = np.concatenate([S, C[best : best + 1]])
        covered = covered | covers[best]
    return chosen


def dominated(F: Float[np.ndarray, "n M"], points: Float[np.ndarray, "s M"]) -> np.ndarray:
    """Returns the points that each f weakly dominates, (n, s) bool."""
    out = np.ones((len(F), len(points)), dtype=bool)
    for m in range(points.shape[1]):
        out &= F[:, m : m + 1] <= points[:, m]
    return out
