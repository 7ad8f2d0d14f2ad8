"""One trade-off of many, chosen after the runs: pseudo-weights, the knee, bounds.

The objectives of the candidates, the finished runs that no other one dominates, are scaled to n_m = (f_m -
ideal_m) / (nadir_m - ideal_m), with the ideal and the nadir point of the candidates.

Sources: pseudo-weights, Deb (2001); the knee as the point farthest below the hyperplane sum_m n_m = 1, Das
(1999), which passes through both ends of the front of two objectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import moocore
import numpy as np

from mobench.errors import ConfigError, PreferenceError, suggest
from mobench.jobs.store import columns, infeasible

if TYPE_CHECKING:
    import pandas as pd

RULES = ("pseudo-weights", "knee")


def choose(
    rows: pd.DataFrame,
    rule: str | None = None,
    *,
    weights: Sequence[float] | None = None,
    bounds: Mapping[str, float] | None = None,
    objectives: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Chooses one of the trade-offs of some rows.

        choose(rows, "knee")                         beyond which a gain in one objective costs more in others
        choose(rows, weights=[0.7, 0.3])             the run whose pseudo-weights are nearest
        choose(rows, bounds={"f_2": 0.2})            the smallest f_1 with f_2 <= 0.2 (of two objectives)

    Args:
        rows: all or some rows of `mobench.run` or `mobench.rows`. Lost runs are no candidates, nor those that
            violate constraints by more than 0.001, unless `bounds` has another limit of `violation`.
        rule: pseudo-weights (the default with weights) or knee; with bounds alone the one objective that has
            no bound is minimised.
        weights: one for each objective, positive; they are divided by their sum.
        bounds: {column: largest value}, of any columns; candidates are the runs that keep all of them.
        objectives: columns that are minimised; default: f_1, f_2, ... For networks give those of the
            validation data.

    Returns:
        The row, as a frame of one row, which `Objectives.solutions` and `modules` take as well.

    Raises:
        ConfigError: unknown rule or column, rows of several problems, no candidate, or a rule without its
            weights or bounds.
        PreferenceError: weights that are not positive or not one for each objective.
    """
    names = list(objectives) if objectives is not None else columns(rows, "f_")
    if bounds is not None and not isinstance(bounds, Mapping):
        example = "{" + f"{names[-1]!r}: 0.2" + "}"
        raise ConfigError(f"bounds={bounds!r} must be a mapping of columns to largest values: {example}.")
    limits = dict(bounds or {})
    for name in (*names, *limits):
        if name not in rows:
            raise ConfigError(f"rows have no column {name!r}.{suggest(name, list(map(str, rows)))}")
    chosen = rule or ("pseudo-weights" if weights is not None else None)
    if chosen is not None and chosen not in RULES:
        raise ConfigError(f"rule={rule!r} is none of {', '.join(RULES)}.{suggest(str(rule), RULES)}")
    if chosen == "pseudo-weights" and weights is None:
        raise ConfigError(f"rule={chosen!r} needs weights=, one for each of {', '.join(names)}.")
    free = [name for name in names if name not in limits]
    if chosen is None and (not limits or len(free) != 1):
        raise ConfigError(
            'Give a rule: "knee", weights=[...], or bounds= of all objectives but the one that is minimised '
            f"(objectives without a bound: {', '.join(free) or 'none'})."
        )
    if "problem" in rows and rows["problem"].nunique() > 1:
        problems = ", ".join(map(str, rows["problem"].unique()))
        raise ConfigError(
            f"These are rows of several problems ({problems}), whose objectives cannot be compared; choose "
            'among those of one: rows[rows["problem"] == NAME].'
        )
    F = rows[names].to_numpy(dtype=float)
    good = np.isfinite(F).all(1)
    if "status" in rows:
        good &= (rows["status"] == "done").to_numpy()
    if not good.any():
        raise ConfigError(f"None of these {len(rows)} rows is a finished run with finite {', '.join(names)}.")
    if "violation" not in limits:
        if not (good & ~infeasible(rows)).any():
            least = rows.loc[good, "violation"].min()
            raise ConfigError(
                f"No run keeps its constraints; the smallest violation is {least:.4g}. To choose among such "
                'runs, give bounds={"violation": LARGEST}.'
            )
        good &= ~infeasible(rows)
    for name, largest in limits.items():
        feasible = good & (rows[name].to_numpy(dtype=float) <= largest)
        if not feasible.any():
            least = rows.loc[good, name].min()
            raise ConfigError(f"No run has {name} <= {largest:g}; the smallest is {least:.4g}.")
        good = feasible
    if chosen is None:
        candidates = np.flatnonzero(good)
        distance = F[good][:, names.index(free[0])]
    else:
        candidates = np.flatnonzero(good)[moocore.is_nondominated(F[good], keep_weakly=True)]
        scaled = _scaled(F[candidates])
        distance = scaled.sum(1) if chosen == "knee" else _distance(scaled, weights)
    return rows.iloc[[int(candidates[int(np.argmin(distance))])]]


def _scaled(F: np.ndarray) -> np.ndarray:
    """Returns the candidates scaled from their ideal point, 0, to their nadir, 1; 0 where all are equal."""
    ideal = F.min(0)
    extent = F.max(0) - ideal
    scaled: np.ndarray = (F - ideal) / np.where(extent > 0, extent, 1.0)
    return scaled


def _distance(scaled: np.ndarray, weights: Sequence[float] | None) -> np.ndarray:
    """Returns how far the pseudo-weights (1 - n_m) / sum_k (1 - n_k) of each candidate are from these."""
    K, M = scaled.shape
    w = np.asarray(weights, dtype=float)
    if w.shape != (M,) or not (np.isfinite(w).all() and (w > 0).all()):
        raise PreferenceError(f"weights={weights!r} must be {M} positive numbers, one for each objective.")
    share = 1.0 - scaled
    total = share.sum(1, keepdims=True)
    # the nadir point itself favours none
    pseudo = np.divide(share, total, out=np.full((K, M), 1.0 / M), where=total > 0)
    distance: np.ndarray = np.abs(pseudo - w / w.sum()).sum(1)
    return distance
