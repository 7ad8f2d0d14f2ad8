"""The runs of one job at one preference, and what several papers' claims say of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts import Artifact, JobRows, Runs
from mobench.artifacts.artifact import columns


@dataclass(frozen=True)
class AtPreference:
    """All finished runs of one job at one preference: recorded steps (T,), columns (S, T),
    final rows of S seeds.
    """

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
        """Those that finished."""
        return self.planned[self.planned["status"] == "done"]

    @property
    def runs(self) -> Runs:
        """How many of them finished."""
        return Runs.of(self.planned)

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
        """(S, T)."""
        return self.history.pivot(index="seed", columns="step", values=name).to_numpy()

    @property
    def V_end(self) -> np.ndarray:
        """Final Tchebycheff values (S,)."""
        return self.final["tchebycheff"].to_numpy()


def preferences_of(job: JobRows) -> list[tuple[float, ...]]:
    """The distinct preferences, in order."""
    rows = job.final.drop_duplicates(columns(job.final, "preference_"))
    return [tuple(float(v) for v in row) for row in rows[columns(rows, "preference_")].to_numpy()]


def std(values: np.ndarray) -> float:
    """Sample standard deviation; NaN of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def interval(values: np.ndarray, level: float = 0.95) -> str:
    """Mean with the t interval of the mean over seeds."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return f"{values.mean():.4g} (one seed)"
    half = stats.t.ppf(0.5 + level / 2, len(values) - 1) * std(values) / np.sqrt(len(values))
    return f"{values.mean():.4g} (95 % interval ± {half:.2g})"


def trend(steps: np.ndarray, V: np.ndarray) -> tuple[float, float, float]:
    """Least-squares slope of V over t >= 100, its mean over 100..600 and over the last 500 steps; V (T,)."""
    window = steps >= 100
    slope = float(np.polyfit(steps[window], V[window], 1)[0]) if window.sum() > 1 else float("nan")
    early = float(V[(steps >= 100) & (steps <= 600)].mean())
    late = float(V[steps >= steps[-1] - 500].mean())
    return slope, early, late


def decreases(a: Artifact, steps: np.ndarray, V: np.ndarray, source: str) -> None:
    """The claim that the Tchebycheff value decreases and plateaus; V (S, T)."""
    slope, early, late = trend(steps, V.mean(0))
    single = [trend(steps, v) for v in V]
    share = float(np.mean([slope <= 0 and end <= begin for slope, begin, end in single]))
    down = slope <= 0 and late <= early
    a.claim(
        "decreases",
        "The Tchebycheff value decreases and stabilises",
        source,
        published="decreases, then a plateau",
        measured=f"slope of the seed mean {slope:.2e} per step, mean {early:.4g} over steps 100-600 and "
        f"{late:.4g} over the last 500; {100 * share:.0f} % of the runs alone",
        tolerance="slope <= 0 and late <= early on the mean over seeds, and in 70 % of the runs",
        holds="partial" if down and share < 0.7 else down,
    )
