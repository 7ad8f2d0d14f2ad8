"""One trade-off of many, chosen after the runs: pseudo-weights, compromise programming, the knee, bounds.

The objectives of the candidates, the finished runs that no other one dominates, are scaled to n_m = (f_m -
ideal_m) / (nadir_m - ideal_m), with the ideal and the nadir point of the candidates.

Sources: pseudo-weights, Deb (2001); compromise programming with the weighted Chebyshev distance, Zeleny
(1973); the knee as the point farthest below the hyperplane sum_m n_m = 1, Das (1999), which passes through
both ends of the front of two objectives. pymoo has the first two by these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import moocore
import numpy as np

from mobench.errors import ConfigError, PreferenceError, suggest
from mobench.jobs.store import columns

if TYPE_CHECKING:
    import pandas as pd

Rule = Literal["pseudo-weights", "compromise", "knee"]
RULES = ("pseudo-weights", "compromise", "knee")


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
        choose(rows, "compromise", weights=[0.7, 0.3])
            the run nearest to the ideal point in the weighted Chebyshev distance max_m w_m n_m
        choose(rows, bounds={"f_2": 0.2})            the smallest f_1 with f_2 <= 0.2 (of two objectives)

    Args:
        rows: all or some rows of `mobench.run` or `mobench.rows`. Lost runs are no candidates.
        rule: pseudo-weights (the default with weights), compromise, or knee; with bounds alone the one
            objective that has no bound is minimised.
        weights: one for each objective, positive; they are divided by their sum.
        bounds: {column: largest value}, of any columns; candidates are the runs that keep all of them.
        objectives: columns that are minimised; default: f_1, f_2, ... For networks give those of the
            validation data.

    Returns:
        The row, as a frame of one row, which `Objectives.solutions` and `modules` take as well.

    Raises:
        ConfigError: unknown rule or column, no candidate, or a rule without its weights or bounds.
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
    if chosen in ("pseudo-weights", "compromise") and weights is None:
        raise ConfigError(f"rule={chosen!r} needs weights=, one for each of {', '.join(names)}.")
    free = [name for name in names if name not in limits]
    if chosen is None and (not limits or len(free) != 1):
        raise ConfigError(
            'Give a rule: "knee", weights=[...], or bounds= of all objectives but the one that is minimised '
            f"(objectives without a bound: {', '.join(free) or 'none'})."
        )
    F = rows[names].to_numpy(dtype=float)
    good = np.isfinite(F).all(1)
    if "status" in rows:
        good &= (rows["status"] == "done").to_numpy()
    if not good.any():
        raise ConfigError(f"None of these {len(rows)} rows is a finished run with finite {', '.join(names)}.")
    for name, largest in limits.items():
        feasible = good & (rows[name].to_numpy(dtype=float) <= largest)
        if not feasible.any():
            least = rows.loc[good, name].min()
            raise ConfigError(f"No run has {name} <= {largest:g}; the smallest is {least:.4g}.")
        good = feasible
    if chosen is None:
        return rows.iloc[[_first(np.flatnonzero(good), rows[free[0]].to_numpy(dtype=float)[good])]]
    candidates = np.flatnonzero(good)[moocore.is_nondominated(F[good], keep_weakly=True)]
    scaled = _scaled(F[candidates])
    if chosen == "knee":
        distance = scaled.sum(1)
    else:
        w = _weights(weights, len(names))
        distance = (
            np.abs(pseudo_weights(scaled) - w).sum(1) if chosen == "pseudo-weights" else (w * scaled).max(1)
        )
    return rows.iloc[[_first(candidates, distance)]]


def _first(candidates: np.ndarray, distance: np.ndarray) -> int:
    return int(candidates[int(np.argmin(distance))])


def _scaled(F: np.ndarray) -> np.ndarray:
    """Returns the candidates scaled from their ideal point, 0, to their nadir, 1; 0 where all are equal."""
    ideal = F.min(0)
    extent = F.max(0) - ideal
    scaled: np.ndarray = (F - ideal) / np.where(extent > 0, extent, 1.0)
    return scaled


def pseudo_weights(scaled: np.ndarray) -> np.ndarray:
    """Returns the pseudo-weights (K, M) of the candidates: (1 - n_m) / sum_k (1 - n_k)."""
    share = 1.0 - scaled
    total: np.ndarray = share.sum(1, keepdims=True)
    # the nadir point itself favours none
    weights: np.ndarray = np.where(total > 0, share / np.where(total > 0, total, 1.0), 1.0 / scaled.shape[1])
    return weights


def _weights(weights: Sequence[float] | None, n: int) -> np.ndarray:
    w = np.asarray(weights, dtype=float)
    if w.shape != (n,) or not (np.isfinite(w).all() and (w > 0).all()):
        raise PreferenceError(f"weights={weights!r} must be {n} positive numbers, one for each objective.")
    out: np.ndarray = w / w.sum()
    return out
