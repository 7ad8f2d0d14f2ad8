"""Hypervolume: volume of the points that some f dominates below a reference point (minimisation)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import moocore
import numpy as np
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError, MobenchError
from mobench.kernels.compiled import module

MOST_OBJECTIVES = 31
"""Objectives of a hypervolume, at most; moocore has no more."""
SECONDS = 10.0
"""Of exact volumes; beyond, `bounded_hypervolume` draws samples."""
FEASIBLE = 1e-3
"""Violation max_j g_j of a point, at most, that counts where there are constraints."""
WORK = 2e8  # per second: of one core, at seven to thirty objectives
SWEPT = 5  # objectives, at most, of which moocore's sweeps are the faster ones
FEW = 10  # points, at most, that moocore computes before Numba is imported
BATCHES = 16
SAMPLES = 10_000  # of each batch
T_99 = 2.9467  # quantile .995 of Student's t with BATCHES - 1 degrees of freedom


class Volume(NamedTuple):
    """A hypervolume, and half the width of its 99 % interval; None: it is exact."""

    value: float
    half_width: float | None = None


def exact_seconds(K: int, M: int) -> float:
    """Returns about how many seconds the exact volume of K nondominated points of M objectives takes.

        1e-4 (K / 10)^p,  p = min(M - 4, M / 2 - 1), at least 0

    For random points of a sphere and M = 6 to 12 this is within a factor of three.
    """
    return 1e-4 * (K / 10) ** max(min(M - 4, M / 2 - 1), 0)


def bounded_hypervolume(
    F: Float[Tensor, "K M"] | Float[np.ndarray, "K M"], ref: Sequence[float], seconds: float = SECONDS
) -> Volume:
    """Returns the exact hypervolume where it takes at most `seconds`, else an estimate.

    Up to 5 objectives, or 10 points, the seconds are those of `exact_seconds`. Beyond, the work is counted
    while it is done and is given up at `seconds` times 2e8. No clock decides, so the same points are treated
    alike on every machine.

    The estimate is the mean of 16 independent ones of 10,000 directions each, by moocore's Monte Carlo method
    (Deng and Zhang 2019) with fixed seeds; its interval is that of Student's t. Each objective is divided by
    its extent first: directions are uniform in the units of the points, and where the extents differ by
    factors of ten, a few directions that are hardly ever drawn carry the volume.

    Raises:
        MobenchError, ConfigError: as `hypervolume`.
    """
    points, corner = _inside(F, ref)
    if len(points):
        points = points[moocore.is_nondominated(points)]
    exact = _exact(points, corner, seconds)
    if exact is not None:
        return Volume(exact)
    extent = corner - points
    largest = extent.max(0)
    with np.errstate(over="ignore"):
        unit = largest.prod()
    inside = np.ascontiguousarray(-extent / largest)
    draws = [
        moocore.hv_approx(inside, ref=np.zeros(len(corner)), nsamples=SAMPLES, method="DZ2019-MC", seed=seed)
        for seed in range(BATCHES)
    ]
    half_width = T_99 * np.std(draws, ddof=1) / math.sqrt(BATCHES)
    return Volume(float(unit * np.mean(draws)), float(unit * half_width))


def hypervolume(F: Float[Tensor, "K M"] | Float[np.ndarray, "K M"], ref: Sequence[float]) -> float:
    """Volume of {y : f_k <= y <= ref for some k}, exact, however long it takes.

    By `moocore` up to 5 objectives (Guerreiro, Fonseca & Paquete 2021 review the algorithms), by WFG beyond
    (`mobench.kernels.dominated`). F (K, M); dominated points and duplicates change nothing. A point that is
    not strictly below `ref` in every objective contributes nothing, +infinity included; without any point
    inside the volume is 0. The reference point is always explicit: each problem states one (`ref_point`), so
    that two tables never differ in it silently.

    Raises:
        MobenchError: F holds a NaN (moocore would pass over it in silence) or -infinity.
        ConfigError: `ref` has another length than M, or is not finite; M is more than 31.
    """
    return cast(float, _exact(*_inside(F, ref), math.inf))


def _exact(points: Float[np.ndarray, "k M"], corner: Float[np.ndarray, " M"], seconds: float) -> float | None:
    """Exact volume of points strictly below the corner; None if it takes longer than `seconds`."""
    K, M = points.shape
    if K == 0:
        return 0.0
    if M <= SWEPT or K <= FEW:
        return float(moocore.hypervolume(points, ref=corner)) if exact_seconds(K, M) <= seconds else None
    extent = corner - points
    scale = np.frexp(extent.max(0))[1]  # powers of two, which change no digit, so that no product overflows
    volume, work = module("kernels.dominated").volume(np.ldexp(extent, -scale), WORK * seconds)
    if work > WORK * seconds:
        return None
    with np.errstate(over="ignore"):  # a volume of more than 1e308 is inf, as moocore's
        return float(np.ldexp(volume, scale.sum()))


def _inside(
    F: Float[Tensor, "K M"] | Float[np.ndarray, "K M"], ref: Sequence[float]
) -> tuple[Float[np.ndarray, "k M"], Float[np.ndarray, " M"]]:
    """Returns the points strictly below the reference point, and that point."""
    points = np.asarray(F.detach().cpu().numpy() if isinstance(F, Tensor) else F, dtype=np.float64)
    corner = np.asarray([float(r) for r in ref])
    if corner.shape != points.shape[1:] or not np.isfinite(corner).all():
        raise ConfigError(
            f"The reference point {corner.tolist()} must contain {points.shape[1]} finite numbers, "
            "one per objective."
        )
    if len(corner) > MOST_OBJECTIVES:
        raise ConfigError(
            f"The hypervolume of {len(corner)} objectives cannot be computed; moocore has at most "
            f"{MOST_OBJECTIVES}. Compare such points by another measure, or by some of the objectives."
        )
    bad = np.isnan(points).any(1) | np.isneginf(points).any(1)
    if bad.any():
        raise MobenchError(
            f"hypervolume: {int(bad.sum())} of {len(points)} points contain NaN or -inf (first: row "
            f"{int(bad.argmax())}). Exclude diverged runs first, and report their number."
        )
    return np.ascontiguousarray(points[(points < corner).all(1)]), corner
