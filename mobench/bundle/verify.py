"""Runs a random sample of a bundle's rows again.

A job is run whole, because the last bits of a run depend on the batch that it is in; so a sample of rows
costs the time of their jobs. Of each row every measured column is compared:

    identical   every value is the same number, bit by bit
    inside      every value lies in its interval
    outside     some value does not, or the run ended differently

The interval of a value is that in which the run of a further seed would lie with 95 % probability (Student's
t of the values of all seeds at the same preference and output rule), extended by rounding: the square root of
the machine epsilon of the job's type, times the largest magnitude of the column in the job. It is made of the
rerun's values: with the recorded ones a value that was changed would widen its own interval, to any size. It
is never narrower than rounding on either side of the rerun's value, so with one seed it is that alone, and so
it is where all other rows of the job are identical: what moved this row alone was not the machine.
Certificates (residuals, which are rounding errors themselves) and times are left out.

Only classes of mobench are built from a configuration; a job with classes of the authors' own is not run.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import yaml

from mobench.artifacts.rows import JobRows
from mobench.artifacts.statistics import LEVEL
from mobench.config.schema import completed
from mobench.errors import BundleError, MobenchError, StoreError
from mobench.jobs.build import make_job
from mobench.jobs.job import Job
from mobench.jobs.run import run
from mobench.jobs.store import JobFolder, portable_config, varied
from mobench.jobs.targets import check_parts
from mobench.system import provenance

IDENTICAL = "identical"
INSIDE = "inside the interval"
OUTSIDE = "outside"
NOT_RUN = "not run"
KEYS = ("run", "seed", "output")
TYPES = ("float32", "float64")
# times, and residuals, which are rounding errors
ASIDE = frozenset(("seconds", "kkt_residual_max", "stationarity", "kkt", "solver_failures"))
BUILDABLE = tuple(
    f"mobench.{part}" for part in ("problems", "oracles", "algorithms", "constraints", "spaces")
)


@dataclass(frozen=True)
class Found:
    """The outcome of one row: its name, the outcome in a word, and where it differs in words."""

    key: str
    run: int
    output: str
    outcome: str
    words: str = ""

    def __str__(self) -> str:
        row = f"{self.key}, run {self.run}" + ("" if self.output == "last" else f", {self.output}")
        return f"{self.outcome:20s}{row}{f': {self.words}' if self.words else ''}"


def jobs_of(files: Mapping[str, bytes], folder: Path) -> dict[str, JobRows]:
    """Writes the jobs of a bundle into a folder, reads them and returns them by their names.

    Raises:
        BundleError: a file is no file of a job, or a job cannot be read.
    """
    jobs: dict[str, JobRows] = {}
    for name in sorted(name for name in files if name.startswith("runs/")):
        path = folder / name
        if len(path.relative_to(folder).parts) != 3:
            raise BundleError(f"{name} is no file of a job; those are named runs/JOB/FILE.")
        if path.name == "config.yaml":
            _refuse_aliases(name, files[name])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        except OSError as error:
            raise BundleError(f"{name} cannot be unpacked: {error.strerror or error}.") from error
        jobs.setdefault(path.parent.name, JobRows(JobFolder(path.parent)))
    for key, job in jobs.items():
        try:
            type_of = job.meta["dtype"]
            lacking = {
                "final.csv": [column for column in KEYS if column not in job.final],
                "config.yaml": [name for name in ("problem", "algorithm") if name not in job.config],
            }
        except StoreError as error:
            what = str(error).partition(". ")[0].rstrip(".").replace(f"{folder}{os.sep}", "")
            raise BundleError(f"{what}; the bundle is damaged or was changed.") from error
        for name, parts in lacking.items():
            if parts:
                raise BundleError(f"runs/{key}/{name} lacks {', '.join(parts)}.")
        if type_of not in TYPES:
            raise BundleError(f"runs/{key}/meta.json has dtype={type_of!r}.")
    return jobs


def _refuse_aliases(name: str, data: bytes) -> None:
    """Raises BundleError for a file of YAML that repeats parts of itself by reference."""
    try:
        events = list(yaml.parse(data, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise BundleError(f"{name} is not valid YAML.") from error
    if any(isinstance(event, yaml.AliasEvent) for event in events):
        raise BundleError(f"{name} has YAML aliases, which mobench never writes.")


def sample(
    jobs: Mapping[str, JobRows], rows: int, seed: int, minutes: float | None = None, job: str | None = None
) -> tuple[dict[str, list[int]], int]:
    """Draws rows of a bundle, each with the same probability.

    Args:
        jobs: of the bundle, by their names.
        rows: how many.
        seed: of the choice.
        minutes: leave out jobs that took longer than this when they were recorded.
        job: draw rows of this job only.

    Returns:
        Numbers of rows by job, and how many rows were left out as too long.

    Raises:
        BundleError: there is no such job, or no row is left.
    """
    if job is not None and job not in jobs:
        raise BundleError(f"The bundle has no job {job}; its jobs are {', '.join(jobs)}.")
    every: list[tuple[str, int]] = []
    long = 0
    for key in jobs if job is None else [job]:
        rows_of_job = len(jobs[key].final)
        if minutes is not None and float(jobs[key].meta["seconds_wall"]) > 60 * minutes:
            long += rows_of_job
        else:
            every += [(key, i) for i in range(rows_of_job)]
    if not every:
        why = f": its jobs took more than {minutes:g} minutes" if long else ""
        raise BundleError(f"The bundle has no rows to run again{why}.")
    chosen: dict[str, list[int]] = {}
    for key, i in sorted(random.Random(seed).sample(every, min(rows, len(every)))):
        chosen.setdefault(key, []).append(i)
    return chosen, long


def rerun(job: JobRows, numbers: Sequence[int], data_root: str, say: Callable[[str], None]) -> list[Found]:
    """Runs a job again, in a temporary folder, and compares the rows of these numbers."""
    key = job.folder.key
    say(f"{key}: {_difference(job.meta)}")
    try:
        with TemporaryDirectory(prefix="mobench-verify-") as folder:
            again = _again(job, data_root, Path(folder))
    except MobenchError as error:
        words = " ".join(str(error).split())
        outcomes = [_row_outcome(key, job.final.iloc[i], NOT_RUN, words) for i in numbers]
    else:
        outcomes = compared(key, job.final, again, numbers, float(np.finfo(job.meta["dtype"]).eps))
    for one in outcomes:
        say(f"  {one}")
    return outcomes


def _row_outcome(key: str, row: pd.Series, outcome: str, words: str = "") -> Found:
    return Found(key, int(row["run"]), str(row["output"]), outcome, words)


def _difference(meta: Mapping[str, Any]) -> str:
    """Returns how machine and versions of this rerun differ from those of the recorded run."""
    here = provenance.versions()
    then = meta["versions"]
    names = [name for name in sorted(here | then) if here.get(name) != then.get(name)]
    changes = [f"{name} {here.get(name, 'absent')} (recorded {then.get(name, 'absent')})" for name in names]
    if meta["device"] != provenance.device_name():
        changes.append(f"{provenance.device_name()} (recorded {meta['device']})")
    took = f"{float(meta['seconds_wall']):.0f} s when recorded"
    return f"{took}; {'other: ' + ', '.join(changes) if changes else 'same processor model and versions'}"


def runnable(config: Mapping[str, Any]) -> None:
    """Raises BundleError unless every class that a configuration names is one of mobench's."""
    check_parts(config, BUILDABLE, BundleError)


def _again(job: JobRows, data_root: str, folder: Path) -> pd.DataFrame:
    """Runs a job and returns its rows.

    Raises:
        MobenchError: it cannot be run here, or this version of mobench makes another job of it.
    """
    outcome = run(made(job, data_root), folder, job.folder.key)
    if outcome.status == "failed":
        raise BundleError(str(outcome.error))
    return JobFolder(outcome.folder).final()


def made(job: JobRows, data_root: str) -> Job:
    """Returns the job that a configuration of a bundle describes; nothing is run.

    Raises:
        BundleError: it names a class that is not mobench's, or this version makes another job of it.
    """
    try:
        runnable(job.config)
        config = portable_config(completed(job.config), data_root)
        config |= {"rerun": True, "progress": False}
        config["logger"] = {**config["logger"], "name": "local"}
        again = make_job(config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # no program has written it
        raise BundleError(f"config.yaml is no configuration of a job ({type(error).__name__}).") from error
    if again.key != job.folder.key:
        raise BundleError(
            f"config.yaml is the configuration of {again.key} in this version of mobench: it was changed, or "
            "the code has changed since. Use the version in code/version.json."
        )
    return again


def compared(
    key: str, recorded: pd.DataFrame, again: pd.DataFrame, numbers: Sequence[int], epsilon: float
) -> list[Found]:
    """Compares rows of a job with those of its rerun.

    Args:
        key: of the job.
        recorded: rows of the bundle.
        again: rows of the rerun.
        numbers: which of them to compare.
        epsilon: machine epsilon of the job's type.
    """
    # columns that came after the rows were recorded say nothing against them
    if not set(recorded) <= set(again) or not recorded[list(KEYS)].equals(again[list(KEYS)]):
        words = "columns or runs are not those of the recorded rows"
        return [_row_outcome(key, recorded.iloc[i], OUTSIDE, words) for i in numbers]
    names = [str(n) for n in recorded if n not in ASIDE]
    differs = (recorded[names] != again[names]) & ~(recorded[names].isna() & again[names].isna())
    alone = len(recorded) > 1 and int(differs.any(axis=1).sum()) == 1  # all other rows are identical
    return [
        _row_outcome(key, recorded.iloc[i], *_compared(recorded, again, i, differs.iloc[i], alone, epsilon))
        for i in numbers
    ]


def _compared(
    recorded: pd.DataFrame, again: pd.DataFrame, i: int, differs: pd.Series, alone: bool, epsilon: float
) -> tuple[str, str]:
    """Returns the outcome of row i, and where it differs in words.

    Args:
        differs: by column, whether the two rows differ.
        alone: whether one row of the job differs.
    """
    names = [str(n) for n in differs.index]
    keys = [*KEYS, *varied(recorded), *(n for n in names if n.startswith(("preference_", "ray_")))]
    row = recorded.iloc[i]
    now = again.iloc[i]
    different = [n for n in names if differs[n]]
    if not different:
        return IDENTICAL, ""
    # of all seeds with the preference, varied settings and output rule of the row
    alike = (again["status"] == "done") & (not alone)
    for name in keys:
        if name not in ("run", "seed"):
            alike &= again[name] == now[name]
    largest = 0.0
    for name in different:
        if not isinstance(row[name], (int, float, np.number)) or isinstance(row[name], bool):
            return OUTSIDE, f"{name} was {row[name]} and is {now[name]}"
        was, value = float(row[name]), float(now[name])
        column = again[name].to_numpy(float)
        rounding = math.sqrt(epsilon) * float(np.abs(column[np.isfinite(column)]).max(initial=0.0))
        low, high = interval(column[alike.to_numpy()], value, rounding)
        if not low <= was <= high:
            words = f"{name} was {was:.6g} and is {value:.6g}; {was:.6g} is not in {low:.6g} to {high:.6g}"
            return OUTSIDE, words + ("; all other rows of the job are identical" if alone else "")
        largest = max(largest, abs(value - was) / max(abs(was), 1e-300))
    return INSIDE, f"{len(different)} values differ, by {largest:.1e} of their size at most"


def interval(seeds: np.ndarray, value: float, rounding: float) -> tuple[float, float]:
    """Returns the ends of the interval in which the recorded value may lie; see the module.

    Args:
        seeds: values of all seeds (S,), of which those that are finite count.
        value: that of the row.
        rounding: how far rounding alone may move it.
    """
    from scipy import stats

    finite = seeds[np.isfinite(seeds)]
    n = len(finite)
    low = value - rounding
    high = value + rounding
    if n < 2:
        return low, high
    half = float(stats.t.ppf(0.5 + LEVEL / 2, n - 1) * finite.std(ddof=1) * math.sqrt(1 + 1 / n)) + rounding
    mean = float(finite.mean())
    return min(low, mean - half), max(high, mean + half)
