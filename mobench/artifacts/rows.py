"""Rows of finished jobs, as drawing functions read them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mobench.errors import ConfigError, StoreError
from mobench.jobs.store import JobFolder, columns


@dataclass(frozen=True)
class RunCount:
    """The number of planned runs that a number rests on; in a column `runs` of a table, all of its row."""

    finished: int
    planned: int

    def __str__(self) -> str:
        return f"{self.finished} of {self.planned}"

    def __add__(self, other: RunCount) -> RunCount:
        return RunCount(self.finished + other.finished, self.planned + other.planned)

    @property
    def short(self) -> str:
        """Returns " (19 of 20)" for a cell where not all of them finished, else nothing."""
        return "" if self.finished == self.planned else f" ({self})"

    @classmethod
    def of(cls, rows: pd.DataFrame) -> RunCount:
        """Numbers of final rows, one per run."""
        return cls(int((rows["status"] == "done").sum()), len(rows))


class JobRows:
    """Rows of one finished job; each file is read on first use."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder

    @functools.cached_property
    def final(self) -> pd.DataFrame:
        """final.csv: one row per run and output rule."""
        return self.folder.final()

    @functools.cached_property
    def history(self) -> pd.DataFrame:
        """history.parquet: run, step, seed, output, f_1..f_M, extra columns."""
        return self.folder.history()

    @functools.cached_property
    def solutions(self) -> dict[str, np.ndarray]:
        """Decision variables (R, P) per output rule."""
        return self.folder.solutions()

    @functools.cached_property
    def meta(self) -> dict[str, Any]:
        """meta.json."""
        return self.folder.meta()

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration that produced the rows."""
        return self.folder.config()

    @property
    def seconds(self) -> float:
        """Wall time of the job, all of its sessions together.

        Rows of a job that was resumed before checkpoints carried the wall time name that of the last session
        alone: then training and evaluation, which were always carried, say more.
        """
        parts = float(self.meta["seconds_train"]) + float(self.meta["seconds_evaluate"])
        return max(float(self.meta["seconds_wall"]), parts)

    @property
    def seconds_per_step(self) -> float:
        """Training time of a step of the job, every step taken to cost the same.

        NaN of a job whose runs were all lost: it took no more steps from then on.
        """
        if not self.runs.finished:
            return float("nan")
        return float(self.meta["seconds_train"]) / int(self.config["steps"])

    @property
    def data(self) -> str | None:
        """The name that the problem gives its data; None if it has none."""
        label = self.meta.get("data")
        return None if label is None else str(label)

    @property
    def precision(self) -> str:
        """The precision of its network's products."""
        return "tf32" if self.meta.get("tf32") else "fp32"

    @property
    def weights(self) -> np.ndarray:
        """Preferences (R, M), by run, of the first output rule."""
        rows = self.final[self.final["output"] == self.final["output"].iloc[0]]
        return rows[columns(rows, "preference_")].to_numpy(copy=True)

    @property
    def complete(self) -> bool:
        """True if every run finished."""
        return bool((self.final["status"] == "done").all())

    @property
    def runs(self) -> RunCount:
        """The number of runs that finished."""
        return RunCount.of(self.final[self.final["output"] == self.final["output"].iloc[0]])

    def paths(self, output: str = "last") -> np.ndarray:
        """Objective values along the trajectories, (R, recorded steps, M).

        Raises:
            StoreError: a run ended early, and has fewer recorded steps than others.
        """
        h = self.history
        h = h[h["output"] == output].sort_values(["run", "step"], kind="stable")
        counts = h.groupby("run").size()
        if counts.nunique() > 1:
            raise StoreError(
                f"{self.folder.path}: runs have {counts.min()} to {counts.max()} recorded steps, because "
                "some ended early; take them from `history`, run by run."
            )
        F = h[columns(h, "f_")].to_numpy(copy=True)
        return F.reshape(h["run"].nunique(), -1, F.shape[1])


def need_points(count: int, least: int, what: str) -> None:
    """Refuses a curve of too few points to be drawn, as when `steps` was set to a small number.

    Raises:
        ConfigError: there are fewer than `least`.
    """
    if count < least:
        raise ConfigError(
            f"{what} needs at least {least} recorded points, and the runs have {count}. Let them take more "
            "steps (without an override of steps they take as many as it needs)."
        )


class SomeJobs(dict[str, JobRows]):
    """Jobs by name; the error on a job that `artifact.only` left out names the cause.

    Raises:
        ConfigError: the job is not among them.
    """

    def __init__(self, jobs: Mapping[str, JobRows], prefix: str = "") -> None:
        """Takes the jobs; `prefix`: what their names begin with in the artifact, if it is cut off here."""
        super().__init__(jobs)
        self.prefix = prefix

    def __missing__(self, name: str) -> JobRows:
        raise ConfigError(
            f"the drawing needs the job {self.prefix}{name}, which artifact.only left out. The rows of the "
            "jobs that ran are kept; repeat the command with this job, or without artifact.only, to draw it."
        )
