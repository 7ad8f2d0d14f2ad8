"""Measures of a set of points beside a problem's reference front; no other method's points enter.

u = (f - ideal) / (nadir - ideal),   ideal and nadir: smallest and largest values of the front (of networks
                                      the nadir is a uniform guess)
share = H(points) / max over as many front points of H,   H: hypervolume below 1.1 in every unit
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import moocore
import numpy as np
from jaxtyping import Float

from mobench.errors import ConfigError, MobenchError
from mobench.metrics import hypervolume

REFERENCE = 1.1  # of every objective, in units of the front
FLAT = 1e-12  # extent below which an objective does not differ on the front
Points = Float[np.ndarray, "k M"]


@dataclass(frozen=True)
class Reference:
    """A reference front with its units, and the best that a few of its points attain.

    Args:
        points: of the front, (n, M), in the problem's units; dominated ones are left out.
        nadir: the upper end of the unit (M,); None: the largest values of the front.
    """

    points: Points
    nadir: Float[np.ndarray, " M"] | None = None

    def __post_init__(self) -> None:
        bad = ~np.isfinite(self.points).all(1)
        if bad.any():  # moocore would let a point with one NaN dominate all others
            raise ConfigError(
                f"{int(bad.sum())} of {len(bad)} points of the reference front are not finite (first: row "
                f"{int(bad.argmax())}). Leave out the runs that diverged."
            )
        front = self.points[moocore.is_nondominated(self.points)]
        if self.nadir is None and (len(front) < 2 or (np.ptp(front, axis=0) < FLAT).any()):
            raise ConfigError(
                "A reference front needs points that differ in every objective, for its extent is the unit; "
                f"found {len(front)} nondominated points."
            )
        if self.nadir is not None and (self.nadir - front.min(0) < FLAT).any():
            raise ConfigError(
                f"The nadir {np.round(self.nadir, 6).tolist()} must lie above the smallest values of the "
                f"front, {np.round(front.min(0), 6).tolist()}; their difference is the unit."
            )
        object.__setattr__(self, "points", front)

    @cached_property
    def ideal(self) -> Float[np.ndarray, " M"]:
        """Smallest values of the front."""
        low: np.ndarray = self.points.min(0)
        return low

    @cached_property
    def extent(self) -> Float[np.ndarray, " M"]:
        """Nadir less ideal."""
        high = self.points.max(0) if self.nadir is None else self.nadir
        width: np.ndarray = high - self.ideal
        return width

    @cached_property
    def front(self) -> Points:
        """The front in its own units."""
        return self.units(self.points)

    def units(self, F: Points) -> Points:
        """Objective values in units of the front.

        Raises:
            MobenchError: F holds a NaN, which indicators pass over or return, each in a way of its own.
        """
        bad = np.isnan(np.asarray(F, dtype=float)).any(1)
        if bad.any():
            raise MobenchError(
                f"{int(bad.sum())} of {len(bad)} points contain NaN (first: row {int(bad.argmax())}). Leave "
                "out the runs that diverged, and report their number."
            )
        out: np.ndarray = (np.asarray(F, dtype=float) - self.ideal) / self.extent
        return out

    def volume(self, F: Points) -> float:
        """Hypervolume in units of the front; 0 of no point."""
        return hypervolume(self.units(F), [REFERENCE] * self.points.shape[1]) if len(F) else 0.0

    def best(self, count: int) -> float:
        """Largest hypervolume of `count` points of the front: exact for M = 2, a lower bound for more."""
        return best_pair(self.front, count) if self.front.shape[1] == 2 else best_greedy(self.front, count)

    def gap(self, F: Points) -> float:
        """Mean over the points of max(0, min over the front of max_m (u_m - p_m)); NaN of no point.

        How much a point must be moved, in all objectives alike, until some point of the front is nowhere
        better.
        """
        if not len(F):
            return float("nan")
        u = self.units(F)
        move = (u[:, None, :] - self.front[None]).max(2).min(1)
        return float(np.maximum(move, 0.0).mean())

    def igd_plus(self, F: Points) -> float:
        """IGD+ (Ishibuchi et al. 2015) in units of the front; NaN of no point."""
        return float(moocore.igd_plus(self.units(F), ref=self.front)) if len(F) else float("nan")

    def epsilon(self, F: Points) -> float:
        """Additive epsilon in units of the front; NaN of no point."""
        return float(moocore.epsilon_additive(self.units(F), ref=self.front)) if len(F) else float("nan")


def best_pair(front: Points, count: int) -> float:
    """Largest hypervolume of `count` points of a front of two objectives, by dynamic programming.

    Sorted by f_1, a set's volume is a sum over neighbours: point j adds (1.1 - f_1(j)) (f_2(i) - f_2(j))
    after i, with f_2 = 1.1 before the first. O(count n^2). Points outside the reference add nothing.
    """
    front = front[(front < REFERENCE).all(1)]
    if not len(front):
        return 0.0
    order = np.argsort(front[:, 0], kind="stable")
    x = front[order, 0]
    y = front[order, 1]
    width = REFERENCE - x
    value = width * (REFERENCE - y)
    after = np.where(np.arange(len(x))[:, None] < np.arange(len(x))[None], 0.0, -np.inf)
    step = width[None, :] * (y[:, None] - y[None, :]) + after
    for _ in range(min(count, len(x)) - 1):
        value = (value[:, None] + step).max(0)
    return float(value.max())


def best_greedy(front: Points, count: int) -> float:
    """A large hypervolume of `count` points of a front: greedy choice, then exchanges while they help."""
    ref = [REFERENCE] * front.shape[1]

    def volume(chosen: list[int]) -> float:
        return hypervolume(front[chosen], ref)

    chosen: list[int] = []
    for _ in range(min(count, len(front))):
        chosen.append(max(range(len(front)), key=lambda i: volume([*chosen, i])))
    best = volume(chosen)
    improved = True
    while improved:
        improved = False
        for place in range(len(chosen)):
            rest = chosen[:place] + chosen[place + 1 :]
            index = max(range(len(front)), key=lambda i: volume([*rest, i]))
            value = volume([*rest, index])
            if value > best * (1 + 1e-9):
                best = value
                chosen[place] = index
                improved = True
    return best
