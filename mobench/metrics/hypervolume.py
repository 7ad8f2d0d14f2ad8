"""Hypervolume: volume of the points that some f dominates inside the box below a reference point
(minimisation).
"""

from __future__ import annotations

from collections.abc import Sequence

import moocore
import numpy as np
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError, MobenchError


def hypervolume(F: Float[Tensor, "K M"] | Float[np.ndarray, "K M"], ref: Sequence[float]) -> float:
    """Volume of {y : f_k <= y <= ref for some k}, exact, by `moocore` (Guerreiro, Fonseca & Paquete 2021
    review it).

    F (K, M); dominated points and duplicates change nothing. A point that is not strictly below `ref` in
    every objective contributes nothing, +infinity included; without any point inside the volume is 0. The
    reference point is always explicit: a problem states its own (`ref_point`), so that two tables never
    differ in it silently.

    Raises:
        MobenchError: F holds a NaN (moocore would pass over it in silence) or -infinity.
        ConfigError: `ref` has another length than M, or is not finite.
    """
    points = np.asarray(F.detach().cpu().numpy() if isinstance(F, Tensor) else F, dtype=np.float64)
    corner = np.asarray([float(r) for r in ref])
    if corner.shape != points.shape[1:] or not np.isfinite(corner).all():
        raise ConfigError(
            f"The reference point {corner.tolist()} must contain {points.shape[1]} finite numbers, "
            "one per objective."
        )
    bad = np.isnan(points).any(1) | np.isneginf(points).any(1)
    if bad.any():
        raise MobenchError(
            f"hypervolume: {int(bad.sum())} of {len(points)} points contain NaN or -inf (first: row "
            f"{int(bad.argmax())}). Exclude diverged runs first, and report their number."
        )
    points = points[(points < corner).all(1)]
    return float(moocore.hypervolume(np.ascontiguousarray(points), ref=corner)) if len(points) else 0.0
