"""Helpers of the artifacts of both applications: rows of finished runs, and changes between settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import JobRows
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, Check, Ordered
from mobench.artifacts.panels import curve
from mobench.artifacts.statistics import Mean, standard_error

COLOURS = [st.BLUE, st.SKY, st.GREEN, st.ORANGE, st.RED]
HULL = 1.1  # a hull contains every polygon: how much larger than the largest its area must be


@dataclass(frozen=True)
class Tasks(ABC):
    """One job with S tasks as objectives.

    Runs that did not finish are in no mean, and values of no runs at all are NaN.
    """

    rows: JobRows

    @property
    @abstractmethod
    def S(self) -> int:
        """Number of tasks."""

    @property
    def D(self) -> int:
        oracle = self.rows.config["oracle"]
        return int(oracle.get("inner", oracle)["inner_steps"])

    @cached_property
    def final(self) -> pd.DataFrame:
        """Final rows, at the exact y*(x), with `preferred`, the task with the largest weight."""
        rows = self.rows.final.assign(preferred=self.rows.weights.argmax(axis=1))
        return rows[rows["status"] == "done"]

    @cached_property
    def last(self) -> pd.DataFrame:
        """The last recorded step of every finished run, at (x, y_D), with what only final rows know."""
        return self.recorded[self.recorded["step"] == self.rows.history["step"].max()].reset_index(drop=True)

    @cached_property
    def recorded(self) -> pd.DataFrame:
        """All recorded steps of every finished run, likewise."""
        h = self.rows.history
        extra = [c for c in self.final.columns if c not in h.columns]
        return h.merge(self.final[["run", *extra]], on="run")

    def runs(self, task: int | None = None, **values: float) -> list[int]:
        """Numbers of the finished runs that prefer a task, or have such hyper-parameters."""
        rows = self.final if task is None else self.final[self.final["preferred"] == task]
        for name, value in values.items():
            rows = rows[rows[name] == value]
        return [int(r) for r in rows["run"]]

    def planned(self, task: int) -> int:
        """The number of runs that prefer a task, whether they finished or not."""
        return int((self.rows.weights.argmax(axis=1) == task).sum())

    def curve(self, column: str, runs: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Steps and (steps, runs) of a column of the history."""
        h = self.rows.history
        table = h[h["run"].isin(self.runs() if runs is None else runs)].pivot_table(
            index="step", columns="run", values=column
        )
        if table.empty:
            steps = np.sort(h["step"].unique())
            return steps, np.full((len(steps), 1), np.nan)
        return table.index.to_numpy(), table.to_numpy()

    def ends(self, prefix: str, runs: Sequence[int] | None = None) -> np.ndarray:
        """(runs, S) after the last step, at (x, y_D)."""
        return self._tasks(self.last, prefix, runs)

    def solved(self, prefix: str, runs: Sequence[int] | None = None) -> np.ndarray:
        """(runs, S) at the exact y*(x)."""
        return self._tasks(self.final, prefix, runs)

    def _tasks(self, rows: pd.DataFrame, prefix: str, runs: Sequence[int] | None) -> np.ndarray:
        chosen = rows if runs is None else rows[rows["run"].isin(runs)]
        values = chosen[[f"{prefix}{s + 1}" for s in range(self.S)]].to_numpy(dtype=float)
        return values if len(values) else np.full((1, self.S), np.nan)


def mean_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis; NaN of nothing."""
    error = standard_error(values)
    return (values.mean(axis=0) if len(values) else np.full(values.shape[1:], np.nan)), error


def band(ax: Any, steps: np.ndarray, values: np.ndarray, label: str | None, color: Any, **kw: Any) -> None:
    """Draws the mean over runs of (steps, runs), with a band of one standard error."""
    curve(ax, steps, values.T, label, band="error", alpha=0.2, color=color, **kw)


def over_seeds(values: Sequence[float] | np.ndarray | pd.Series) -> Mean:
    """Returns the mean of one value for each seed; it has an interval from three seeds on."""
    return Mean(np.asarray(values, dtype=float), 3)


def change(first: pd.Series, last: pd.Series) -> Mean:
    """Returns `last` minus `first`, paired by seed; seeds that have only one of them are left out."""
    return Mean.paired(last, first, 3)


def ends(means: Mapping[Any, Mean], digits: str, unit: str = "") -> str:
    return "; ".join(f"{name}: {mean.ends(digits, unit)}" for name, mean in means.items())


def rises(values: Mapping[Any, float], of: str, sure: Check, **kw: Any) -> Check:
    """Returns the check that values rise, or stay, in their order, and that the change over all is sure."""
    return sure if sure.holds is None else AllOf(Ordered(values, strict=False, of=of, **kw), sure)


def mean_of(job: Tasks) -> str:
    """Says over how many seeds means are taken."""
    count = job.final["seed"].nunique()
    return f"mean over {'one seed' if count == 1 else f'{count} seeds'}"
