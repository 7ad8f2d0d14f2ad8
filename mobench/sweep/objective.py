"""The number that a job returns to a sweeper of somebody else's, e.g. `hydra/sweeper=optuna`.

    objective=null (hypervolume)   mean over seeds of the hypervolume of what all preferences reached
    objective=f_1                  mean over runs of a column of final.csv

It is of the first output rule's rows. A run that diverged, or whose subproblems failed, is never left out in
silence: the hypervolume loses its point, and a column has its worst value, inf where the sweeper minimizes
and -inf where it maximizes (NaN where it does not say). A job that fails has the worst value, too, since an
error would end the sweeper.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mobench.config.overrides import as_typed
from mobench.errors import ConfigError, suggest
from mobench.jobs.build import make_job
from mobench.jobs.rows import hypervolume_fault
from mobench.jobs.run import run
from mobench.jobs.store import JobFolder

HYPERVOLUME = "hypervolume"
WAIT = 0.2  # seconds between two looks at a job that another worker runs
MINIMIZE, MAXIMIZE = "minimize", "maximize"
WORST = {MINIMIZE: math.inf, MAXIMIZE: -math.inf}
# where sweepers say what they do, and what they then do by what stands there: those of Nevergrad and Ax
ELSEWHERE = {
    "optim.maximize": {True: MAXIMIZE, False: MINIMIZE},
    "ax_config.experiment.minimize": {True: MINIMIZE, False: MAXIMIZE},
}


def of_job(config: dict[str, Any], sweeper: Mapping[str, Any], overrides: Sequence[str]) -> tuple[float, str]:
    """Runs one job of another sweeper; returns the number that it asks for, and a line for a person.

    Raises:
        ConfigError, CompatibilityError: what can be known before the job runs, such as a list of jobs, no
            hypervolume or a wrong direction; and a column that no job has.
    """
    if any(config[key] for key in ("jobs", "grid", "like", "cross")) or config["artifact"]["id"]:
        raise ConfigError(
            "This experiment lists its own jobs, which only hydra/sweeper=jobs (the default) can run. Other "
            "sweepers vary the keys of a single job; give these on the command line "
            "or in an experiment file without jobs."
        )
    name = config["objective"] or HYPERVOLUME
    if not isinstance(name, str):
        raise ConfigError(f"objective={name} must be hypervolume or a column of final.csv.")
    job = make_job(config)
    job.check()
    direction, setting = direction_of(sweeper)
    if name == HYPERVOLUME:
        if direction == MINIMIZE:
            raise ConfigError(
                f"objective=hypervolume must be maximized, but the sweeper minimizes. Set {setting}, or "
                "choose objective=COLUMN, e.g. objective=f_1."
            )
        if (reason := hypervolume_fault(job)) is not None:
            raise ConfigError(
                f"objective=hypervolume is not available: {reason}. Choose a column of final.csv, e.g. "
                "objective=f_1."
            )
    outcome = run(job)
    while outcome.status == "failed" and JobFolder(outcome.folder).held:  # another trial is the same job
        time.sleep(WAIT)
        outcome = run(job)
    title = as_typed([o for o in overrides if not o.startswith("hydra")])
    worst = 0.0 if name == HYPERVOLUME else WORST.get(direction or "", math.nan)
    if outcome.status == "failed":
        return worst, f"{title} failed: {outcome.error}\n  rows and status: {outcome.folder}"
    number, lost = value(JobFolder(outcome.folder), name)
    if name != HYPERVOLUME and (lost or not math.isfinite(number)):
        number = worst
    ended = f" ({lost} runs are lost)" if lost else ""
    if name == HYPERVOLUME and direction is None:
        ended += " (larger is better, and this sweeper does not say whether it maximizes)"
    return number, f"{title}: {name} {number:.6g}{ended}; {outcome.folder}"


def direction_of(sweeper: Mapping[str, Any]) -> tuple[str | None, str]:
    """Returns whether a sweeper minimizes or maximizes (None: it does not say), and how it is set right."""
    direction = sweeper.get("direction")
    word = str(getattr(direction, "name", direction))  # optuna's is an enumeration
    if word in WORST:
        return word, f"hydra.sweeper.direction={MAXIMIZE}"
    for key, directions in ELSEWHERE.items():
        value: Any = sweeper
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value in (True, False):
            setting = next(at for at, then in directions.items() if then == MAXIMIZE)
            return directions[value], f"hydra.sweeper.{key}={str(setting).lower()}"
    return None, ""


def value(folder: JobFolder, name: str) -> tuple[float, int]:
    """Returns one number of a finished job, and how many of its runs came to no end.

    Raises:
        ConfigError: final.csv has no such column of numbers; with those that it has.
    """
    rows = folder.final()
    output = rows["output"].iloc[0]
    rows = rows[rows["output"] == output]
    lost = int((rows["status"] != "done").sum())
    if name == HYPERVOLUME:  # a seed from which no run came back has none, and counts 0
        return sum(folder.meta()["hypervolume"][output].values()) / rows["seed"].nunique(), lost
    numbers = [column for column in rows.columns if pd.api.types.is_numeric_dtype(rows[column])]
    if name not in numbers:
        known = [HYPERVOLUME, *(column for column in numbers if column not in ("run", "seed"))]
        raise ConfigError(
            f"objective={name!r} is not a column; choose one of {', '.join(known)}.{suggest(name, known)}"
        )
    return float(rows[name].mean(skipna=False)), lost
