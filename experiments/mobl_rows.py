"""What the artifacts of both bilevel applications share: rows of finished runs, means with standard errors,
effects.

An effect is a difference between two settings, paired by seed. It counts where it is larger than a threshold
fixed before the runs and its 95 % interval over the seeds does not hold 0; all else is flat, and a paper's
"grows" or "is larger" is not reproduced by a flat effect, wherever it is met.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts import JobRows
from mobench.artifacts import style as st

COLOURS = [st.BLUE, st.SKY, st.GREEN, st.ORANGE, st.RED]
HULL = 1.1  # a hull contains every polygon: how much larger than the largest its area must be


@dataclass(frozen=True)
class Tasks(ABC):
    """One job with S tasks as objectives; runs that did not finish are in no mean,
    and values of no runs at all are NaN.
    """

    rows: JobRows

    @property
    @abstractmethod
    def S(self) -> int:
        """Number of tasks."""

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


def cause(holds: Any, text: str) -> str:
    """Why a statement does not hold, or not in all parts; nothing where it does."""
    return "" if isinstance(holds, bool | np.bool_) and holds else text


def by_seed(rows: pd.DataFrame, column: str, of: str = "seed") -> pd.Series:
    """A column's mean for each seed."""
    found: pd.Series = rows.groupby(of)[column].mean()
    return found


@dataclass(frozen=True)
class Effect:
    """A difference, one value for each seed, and the size below which it does not count.

    From three seeds on the interval is Student's. Fewer have none, and then all of them must agree.
    """

    values: np.ndarray
    near: float = 0.0

    @classmethod
    def between(cls, first: pd.Series, last: pd.Series, near: float = 0.0) -> Effect:
        """`last` minus `first`, paired by seed; seeds that have only one of them are left out."""
        return cls((last - first).dropna().to_numpy(dtype=float), near)

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if len(self.values) else float("nan")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Of the 95 % interval of the mean; None from fewer than three seeds."""
        n = len(self.values)
        if n < 3:
            return None
        half = float(stats.t.ppf(0.975, n - 1) * self.values.std(ddof=1) / np.sqrt(n))
        return self.mean - half, self.mean + half

    @property
    def kind(self) -> str:
        """grows | flat | falls | unknown (of no seed)."""
        if not len(self.values) or not np.isfinite(self.values).all():
            return "unknown"
        low, high = self.bounds or (float(self.values.min()), float(self.values.max()))
        if low > 0 and self.mean > self.near:
            return "grows"
        if high < 0 and self.mean < -self.near:
            return "falls"
        return "flat"

    @property
    def grows(self) -> bool | None:
        """Whether it counts and is positive; None if nothing was measured."""
        return None if self.kind == "unknown" else self.kind == "grows"

    def words(self, digits: str = "+.2f", unit: str = "") -> str:
        """The mean and its interval."""
        n = len(self.values)
        said = f"{self.mean:{digits}}{unit}"
        if self.bounds is None:
            return f"{said} ({'one seed' if n == 1 else f'{n} seeds'}, no interval): {self.kind}"
        low, high = self.bounds
        return f"{said} (95 % interval over {n} seeds {low:{digits}} to {high:{digits}}): {self.kind}"


def interval(values: np.ndarray, digits: str = ".3f", unit: str = "") -> str:
    """A 95 % interval of the mean of one value for each seed, in words."""
    bounds = Effect(values).bounds
    if bounds is None:
        return "one seed, no interval" if len(values) == 1 else f"{len(values)} seeds, no interval"
    return f"95 % interval over seeds {bounds[0]:{digits}} to {bounds[1]:{digits}}{unit}"
