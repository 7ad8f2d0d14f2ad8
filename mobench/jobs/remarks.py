"""Remarks on the rows of a job: lost runs, and runs that are all equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mobench.errors import ConfigError, StoreError
from mobench.jobs.store import JobFolder, columns
from mobench.jobs.targets import TARGET, load_class

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10  # runs that are named, at most


def _config(folder: JobFolder) -> Mapping[str, Any]:
    """Returns the configuration, or nothing where the file is damaged, which others say."""
    try:
        config: Any = folder.config()
    except StoreError:
        return {}
    return config if isinstance(config, dict) and isinstance(config.get("algorithm"), dict) else {}


def lost_runs(folder: JobFolder, rows: pd.DataFrame) -> list[str]:
    """Returns a sentence for each kind of lost runs, with what to try. rows: of final.csv."""
    if (rows["status"].to_numpy() == "done").all():
        return []
    first = rows[rows["output"] == rows["output"].iloc[0]]
    config = _config(folder)
    step = config.get("algorithm", {}).get("step_size")
    now = "" if step is None else f" (it is {step})"
    lines = []
    for status, meaning in (
        ("diverged", f"a value was not finite; try a smaller algorithm.step_size{now}"),
        ("solver_failed", "a subproblem solve failed, and the runs stay at that point"),
    ):
        bad = first.loc[first["status"] == status, "run"].tolist()
        if bad:
            which = ", ".join(map(str, bad[:SHOWN])) + (", ..." if len(bad) > SHOWN else "")
            lines.append(f"{status}: {len(bad)} of {len(first)} runs (run {which}): {meaning}")
    return lines


def equal_runs(folder: JobFolder, rows: pd.DataFrame, config: Mapping[str, Any] | None = None) -> list[str]:
    """Returns a sentence if the runs of a seed are one run several times.

    They are if the method ignores preferences, or if there is one objective.

    Args:
        folder, rows: of the job, and its final.csv.
        config: its configuration; None: it is read, which takes longer than all else here.
    """
    if config is None:
        config = _config(folder)
    if not config or config.get("vary") or not (rows["status"] == "done").all():
        return []
    try:
        method = load_class(str(config["algorithm"].get(TARGET)), "algorithm")
    except ConfigError:  # of a plug-in that is not here
        return []
    losses = columns(rows, "f_")
    if getattr(method, "preferred", True) and len(losses) > 1:
        return []
    of_a_seed = rows.groupby(["seed", "output"])
    preferences = int(of_a_seed.size().max())
    spread = (of_a_seed[losses].nunique(dropna=False) > 1).any(axis=None)
    if preferences < 2 or spread:
        return []
    if getattr(method, "together", False) and not getattr(method, "replaces", False):
        return [
            f"{method.__name__} moves {preferences} points of each seed, which have started at one point and "
            "are equal for ever: set problem.start.per_preference=true"
        ]
    why = f"{method.__name__} ignores preferences" if len(losses) > 1 else "one objective has one preference"
    return [f"{why}: the {preferences} runs of each seed are equal; preferences=1 trains one of them"]
