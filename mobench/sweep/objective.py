"""The number that a job returns to a sweeper of somebody else's, e.g. `hydra/sweeper=optuna`: what it makes
larger or smaller.

    objective=null (hypervolume)   mean over seeds of the hypervolume of what all preferences reached
    objective=f_1                  mean over runs of a column of final.csv
    objective=[f_1,f_2]            several, for sweepers that take several

All of the first output rule's rows. A run that diverged, or whose subproblems failed, is never left out in
silence: the hypervolume loses its point, and of a column the mean is worth nothing then: the worst value, inf
where the sweeper minimizes and -inf where it maximizes, or NaN where it does not say. A job that fails raises
its error, which the sweeper counts as a failed trial.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mobench import metrics
from mobench.config.overrides import shown
from mobench.errors import ConfigError, MobenchError, suggest
from mobench.jobs.build import make_job
from mobench.jobs.job import Job
from mobench.jobs.rows import hypervolume_fault
from mobench.jobs.run import run
from mobench.jobs.store import JobFolder, columns

HYPERVOLUME = "hypervolume"
WAIT = 0.2  # seconds between looks at a job that another worker runs
WORST = {"minimize": math.inf, "maximize": -math.inf}


def names(config: Mapping[str, Any]) -> list[str]:
    """What `objective` asks for.

    Raises:
        ConfigError: it is neither a name nor a list of names.
    """
    given = config["objective"]
    found = [HYPERVOLUME] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise ConfigError(
            f"objective={given} must be hypervolume, a column of final.csv, or a list of such names."
        )
    return found


def directions(sweeper: Mapping[str, Any], count: int) -> list[str | None]:
    """minimize or maximize for each number, as the sweeper's node has it under `direction`; None where it
    does not say.

    Raises:
        ConfigError: it has another number of directions than the job has objectives.
    """
    given = sweeper.get("direction")
    if given is None:
        return [None] * count
    listed = [given] if isinstance(given, str) or not isinstance(given, Sequence) else list(given)
    if len(listed) != count:
        raise ConfigError(
            f"hydra.sweeper.direction has {len(listed)} entries, but objective has {count}; "
            "give one direction for each."
        )
    return [str(getattr(direction, "name", direction)) for direction in listed]


@dataclass(frozen=True)
class Answer:
    """What a job tells another sweeper: a number, or several if `objective` is a list;
    and a line for a person.
    """

    numbers: float | list[float]
    words: str


def of_job(config: dict[str, Any], sweeper: Mapping[str, Any], overrides: Sequence[str]) -> Answer:
    """Runs one job of another sweeper and returns what the sweeper asks for.

    Raises:
        ConfigError: what can be known before the job runs: a list of jobs, an artifact, no hypervolume, a
            wrong direction.
        MobenchError: the job failed.
    """
    wanted = names(config)
    towards = directions(sweeper, len(wanted))
    _check(config, wanted, towards)
    job = make_job(config)
    if HYPERVOLUME in wanted:
        _check_hypervolume(job)
    outcome = run(job)
    # a trial beside this one is the same job
    while outcome.status == "failed" and JobFolder(outcome.folder).held:
        time.sleep(WAIT)
        outcome = run(job)
    title = shown([o for o in overrides if not o.startswith("hydra")])
    if outcome.status == "failed":
        raise MobenchError(f"{title} failed: {outcome.error}\n  rows and status: {outcome.folder}")
    folder = JobFolder(outcome.folder)
    found = [value(folder, name, direction) for name, direction in zip(wanted, towards, strict=True)]
    lost = _lost(folder)
    said = ", ".join(f"{name} {number:.6g}" for name, number in zip(wanted, found, strict=True))
    numbers = found if isinstance(config["objective"], list) else found[0]
    return Answer(numbers, f"{title}: {said}{f' ({lost})' if lost else ''}; {outcome.folder}")


def _check(config: dict[str, Any], wanted: Sequence[str], towards: Sequence[str | None]) -> None:
    if any(config[key] for key in ("jobs", "grid", "like", "cross")) or config["artifact"]["id"]:
        raise ConfigError(
            "This experiment lists its own jobs, which only hydra/sweeper=jobs (the default) can run. Other "
            "sweepers vary the keys of a single job; give these on the command line "
            "or in an experiment file without jobs."
        )
    if HYPERVOLUME in wanted and towards[wanted.index(HYPERVOLUME)] == "minimize":
        raise ConfigError(
            "objective=hypervolume must be maximized, but hydra.sweeper.direction is minimize. Set "
            "hydra.sweeper.direction=maximize, or choose objective=COLUMN, e.g. objective=f_1."
        )


def _check_hypervolume(job: Job) -> None:
    """Raise ConfigError if the job will have no hypervolume, CompatibilityError if it cannot run at all."""
    job.check()
    if (reason := hypervolume_fault(job)) is not None:
        raise ConfigError(
            f"objective=hypervolume is not available: {reason}. Choose a column of final.csv, e.g. "
            f"objective=f_1, or a list, objective=[f_1,f_2]."
        )


def value(folder: JobFolder, name: str, direction: str | None = None) -> float:
    """One number of a finished job.

    Raises:
        ConfigError: final.csv has no such column of numbers; with those that it has.
    """
    rows = folder.final()
    rows = rows[rows["output"] == rows["output"].iloc[0]]
    if name == HYPERVOLUME:
        return _hypervolume(folder, rows)
    numbers = [column for column in rows.columns if pd.api.types.is_numeric_dtype(rows[column])]
    if name not in numbers:
        known = [HYPERVOLUME, *(column for column in numbers if column not in ("run", "seed"))]
        raise ConfigError(
            f"objective={name!r} is not a column; choose one of {', '.join(known)}.{suggest(name, known)}"
        )
    mean = float(rows[name].mean(skipna=False))
    lost = (rows["status"] != "done").any() or not math.isfinite(mean)
    return WORST.get(str(direction), math.nan) if lost else mean


def _hypervolume(folder: JobFolder, rows: pd.DataFrame) -> float:
    """Mean over all seeds, of those also from which no run came back: they count 0."""
    stored = folder.meta()["hypervolume"]
    ref = stored["reference_point"]
    seconds = folder.config()["record"].get("hypervolume_seconds", metrics.SECONDS)
    found = []
    for _, group in rows.groupby("seed"):
        good = group[group["status"] == "done"]
        points = good[columns(rows, "f_")].to_numpy()
        found.append(metrics.bounded_hypervolume(points, ref, seconds).value)
    return float(sum(found) / len(found))


def _lost(folder: JobFolder) -> str:
    """How many runs did not finish; nothing if all did."""
    rows = folder.final()
    rows = rows[rows["output"] == rows["output"].iloc[0]]
    bad = rows.loc[rows["status"] != "done", "status"].value_counts()
    return ", ".join(f"{count} of {len(rows)} runs {status}" for status, count in bad.items())
