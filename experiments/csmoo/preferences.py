"""Runs of a job at one preference, and means over their seeds as cells of a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from mobench.artifacts.rows import JobRows, RunCount
from mobench.artifacts.statistics import std
from mobench.jobs.store import columns


@dataclass(frozen=True)
class AtPreference:
    """All runs of one job at one preference: recorded steps (T,), columns (S, T), final rows of S runs."""

    job: JobRows
    lam: tuple[float, ...]

    @cached_property
    def planned(self) -> pd.DataFrame:
        """Rows of the runs with this preference, one per seed, finished or not."""
        rows = self.job.final
        near = np.abs(rows[columns(rows, "preference_")].to_numpy() - np.array(self.lam)).max(1) < 1e-9
        return rows[near].sort_values("seed")

    @cached_property
    def final(self) -> pd.DataFrame:
        """Returns the runs that finished."""
        return self.planned[self.planned["status"] == "done"]

    @property
    def runs(self) -> RunCount:
        """The number of these runs that finished."""
        return RunCount.of(self.planned)

    @cached_property
    def history(self) -> pd.DataFrame:
        """Recorded rows of these runs."""
        h = self.job.history
        return h[h["run"].isin(self.final["run"])]

    @cached_property
    def steps(self) -> np.ndarray:
        """Recorded steps."""
        return np.sort(self.history["step"].unique())

    def column(self, name: str) -> np.ndarray:
        """A recorded column, (S, T)."""
        return self.history.pivot(index="seed", columns="step", values=name).to_numpy()

    def end(self, name: str) -> np.ndarray:
        """A final column, (S,)."""
        return self.final[name].to_numpy()


def preferences_of(job: JobRows) -> list[tuple[float, ...]]:
    """Returns the distinct preferences, in order."""
    rows = job.final.drop_duplicates(columns(job.final, "preference_"))
    return [tuple(float(v) for v in row) for row in rows[columns(rows, "preference_")].to_numpy()]


def seed_columns(**values: np.ndarray) -> dict[str, float]:
    """Returns table cells: for each name the mean over seeds, and "<name> std" their standard deviation.

    Underscores in a name become spaces: `seed_columns(rate_1=c.rate(1))` gives "rate 1" and "rate 1 std".
    """
    cells: dict[str, float] = {}
    for key, of_seeds in values.items():
        name = key.replace("_", " ")
        cells[name] = float(np.mean(of_seeds)) if len(of_seeds) else float("nan")
        cells[f"{name} std"] = std(of_seeds)
    return cells
