"""What the artifacts of both bilevel applications share: rows of finished runs, means with standard errors, verdicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, JobRows
from mobench.artifacts import style as st

COLOURS = [st.BLUE, st.SKY, st.GREEN, st.ORANGE, st.RED]
HULL = 1.1  # a hull contains every polygon: how much larger than the largest its area must be

Verdict = bool | Literal["partial"]


@dataclass(frozen=True)
class Tasks(ABC):
    """One job with S tasks as objectives; runs that did not finish are in no mean, and values of no runs at all are NaN."""

    rows: JobRows

    @property
    @abstractmethod
    def S(self) -> int:
        """Number of tasks."""

    @property
    @abstractmethod
    def complete_data(self) -> bool:
        """Whether the images are the paper's."""

    @property
    def data(self) -> str:
        """What the images are."""
        return str(self.rows.meta["data"])

    @property
    def D(self) -> int:
        """Inner steps."""
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
        h = self.rows.history
        h = h[h["step"] == h["step"].max()]
        extra = [c for c in self.final.columns if c not in h.columns]
        return h.merge(self.final[["run", *extra]], on="run")

    def runs(self, task: int | None = None, **values: float) -> list[int]:
        """Numbers of the finished runs that prefer a task, or have such hyper-parameters."""
        rows = self.final if task is None else self.final[self.final["preferred"] == task]
        for name, value in values.items():
            rows = rows[rows[name] == value]
        return [int(r) for r in rows["run"]]

    def planned(self, task: int) -> int:
        """How many runs prefer a task, whether they finished or not."""
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
        found = chosen[[f"{prefix}{s + 1}" for s in range(self.S)]].to_numpy(dtype=float)
        return found if len(found) else np.full((1, self.S), np.nan)

    def judged(self, a: Artifact, holds: Verdict | None) -> Verdict | None:
        """On the paper's data and scale what was found; elsewhere at best "partial"."""
        return holds if self.paper(a) or not holds else "partial"

    def paper(self, a: Artifact) -> bool:
        """Whether this is the paper's data at the paper's scale."""
        return a.scale == "paper" and self.complete_data

    def elsewhere(self, a: Artifact) -> str:
        """For claims that were not judged on the paper's data and scale."""
        return "" if self.paper(a) else f"Run on {self.data}, at {a.scale} scale."


def mean_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis; NaN of nothing."""
    n = len(values)
    if n == 0:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    error = values.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), error


def band(ax: Any, steps: np.ndarray, values: np.ndarray, label: str | None, color: Any, **kw: Any) -> None:
    """Mean over runs of (steps, runs), with a band of one standard error."""
    mean, error = mean_error(values.T)
    ax.plot(steps, mean, color=color, label=label, **kw)
    if np.isfinite(error).all():
        ax.fill_between(steps, mean - error, mean + error, color=color, alpha=0.2, lw=0)


def paired(table: pd.DataFrame, first: float, last: float) -> tuple[float, float]:
    """Mean over seeds (rows) and standard error of the last trade-off (column) minus the first."""
    table = table.reindex(columns=[first, last])  # a trade-off without any finished run has no column
    mean, error = mean_error((table[last] - table[first]).dropna().to_numpy())
    return float(mean), float(error)


def grows(slope: float, error: float, near: float = 0.0) -> Verdict | None:
    """More than one standard error, and than `near`: holds; within: flat, "partial"; else it fails. None with one seed."""
    if not np.isfinite(error):
        return None
    return "partial" if abs(slope) <= max(error, near) else slope > 0
