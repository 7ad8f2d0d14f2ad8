"""The numbers that a job returns to a sweeper of somebody else's, e.g. `hydra/sweeper=optuna`.

    objective=null (hypervolume)   mean over seeds of the hypervolume of what all preferences reached
    objective=f_1                  mean over runs of a column of final.csv
    objective=[f_1,f_2]            several, for sweepers that take several

All are of the first output rule's rows. A run that diverged, or whose subproblems failed, is never left out
in silence: the hypervolume loses its point, and a column has its worst value, inf where the sweeper minimizes
and -inf where it maximizes (NaN where it does not say). A job that fails has the worst values, too, since an
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
WAIT = 0.2  # seconds between looks at a job that another worker runs
WORST = {"minimize": math.inf, "maximize": -math.inf}


def of_job(
    config: dict[str, Any], sweeper: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[float | list[float], str]:
    """Runs one job of another sweeper.

    Returns:
        The number that the sweeper asks for, or a list if `objective` is one; and a line for a person.

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
    wanted = config["objective"] or HYPERVOLUME
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"objective={wanted} must be hypervolume, a column of final.csv, or a list of such names."
        )
    direction = sweeper.get("direction")
    directions = (
        direction if isinstance(direction, Sequence) and not isinstance(direction, str) else [direction]
    )
    towards = [str(getattr(d, "name", d)) for d in (directions if direction is not None else names)]
    if len(towards) != len(names):
        raise ConfigError(
            f"hydra.sweeper.direction has {len(towards)} entries, but objective has {len(names)}; "
            "give one direction for each."
        )
    job = make_job(config)
    job.check()
    if HYPERVOLUME in names:
        if towards[names.index(HYPERVOLUME)] == "minimize":
            raise ConfigError(
                "objective=hypervolume must be maximized, but hydra.sweeper.direction is minimize. Set "
                "hydra.sweeper.direction=maximize, or choose objective=COLUMN, e.g. objective=f_1."
            )
        if (reason := hypervolume_fault(job)) is not None:
            raise ConfigError(
                f"objective=hypervolume is not available: {reason}. Choose a column of final.csv, e.g. "
                f"objective=f_1, or a list, objective=[f_1,f_2]."
            )
    outcome = run(job)
    # a trial beside this one is the same job
    while outcome.status == "failed" and JobFolder(outcome.folder).held:
        time.sleep(WAIT)
        outcome = run(job)
    title = as_typed([o for o in overrides if not o.startswith("hydra")])
    pairs = list(zip(names, towards, strict=True))
    if outcome.status == "failed":
        numbers = [0.0 if name == HYPERVOLUME else WORST.get(toward, math.nan) for name, toward in pairs]
        words = f"{title} failed: {outcome.error}\n  rows and status: {outcome.folder}"
    else:
        folder = JobFolder(outcome.folder)
        numbers = [value(folder, name, toward) for name, toward in pairs]
        values = ", ".join(f"{name} {number:.6g}" for name, number in zip(names, numbers, strict=True))
        rows = folder.final()
        status = rows.loc[rows["output"] == rows["output"].iloc[0], "status"]
        lost = status[status != "done"].value_counts().items()
        ended = ", ".join(f"{count} of {len(status)} runs {how}" for how, count in lost)
        words = f"{title}: {values}{f' ({ended})' if ended else ''}; {outcome.folder}"
    return (numbers if isinstance(wanted, list) else numbers[0]), words


def value(folder: JobFolder, name: str, direction: str | None = None) -> float:
    """Returns one number of a finished job.

    Raises:
        ConfigError: final.csv has no such column of numbers; with those that it has.
    """
    rows = folder.final()
    output = rows["output"].iloc[0]
    rows = rows[rows["output"] == output]
    if name == HYPERVOLUME:  # a seed from which no run came back has none, and counts 0
        return sum(folder.meta()["hypervolume"][output].values()) / rows["seed"].nunique()
    numbers = [column for column in rows.columns if pd.api.types.is_numeric_dtype(rows[column])]
    if name not in numbers:
        known = [HYPERVOLUME, *(column for column in numbers if column not in ("run", "seed"))]
        raise ConfigError(
            f"objective={name!r} is not a column; choose one of {', '.join(known)}.{suggest(name, known)}"
        )
    mean = float(rows[name].mean(skipna=False))
    done = (rows["status"] == "done").all()
    return mean if done and math.isfinite(mean) else WORST.get(str(direction), math.nan)
