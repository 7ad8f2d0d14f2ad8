"""Means over seeds with their intervals, shares and slopes, for claims and tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

LEVEL = 0.95  # of every interval


def std(values: np.ndarray) -> float:
    """Returns the sample standard deviation; NaN of fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def standard_error(values: np.ndarray) -> np.ndarray:
    """Returns the standard error of the mean over the first axis; NaN of fewer than two values."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], np.nan)
    error: np.ndarray = values.std(axis=0, ddof=1) / np.sqrt(n)
    return error


def finite_mean(values: np.ndarray, axis: int | tuple[int, ...] | None = None) -> Any:
    """Returns the mean of the finite values; NaN without any, and no warning."""
    good = np.isfinite(values)
    count = good.sum(axis)
    return np.where(count > 0, np.where(good, values, 0.0).sum(axis) / np.maximum(count, 1), np.nan)[()]


def percent(share: float, digits: int = 0) -> str:
    """Writes a share as "97 %"; only all is written as 100 %, and only none as 0 %."""
    if not np.isfinite(share):
        return "no share"
    number = f"{100 * share:.{digits}f}"
    while (float(number) == 100 and share < 1) or (float(number) == 0 and share > 0):
        digits += 1
        number = f"{100 * share:.{digits}f}"
    return f"{number} %"


def wilson(holding: int, of: int) -> tuple[float, float]:
    """Returns the ends of Wilson's 95 % interval of a share; from 0 to 1 of nothing."""
    from scipy.stats import binomtest

    if not of:
        return 0.0, 1.0
    interval = binomtest(holding, of).proportion_ci(LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def log_slope(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the least-squares slope of log y against log x; NaN of fewer than two points."""
    if len(x) < 2:
        return float("nan")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def by_seed(rows: pd.DataFrame, column: str) -> pd.Series:
    """Returns the mean of a column for each seed."""
    means: pd.Series = rows.groupby("seed")[column].mean()
    return means


@dataclass(frozen=True)
class Mean:
    """The mean of one value per seed, with Student's 95 % interval.

    It stands for its mean wherever a number is asked for (`float`, a check), and is written with its
    interval.

    Args:
        values: one number per seed, (S,).
        least: from how many seeds on there is an interval.
    """

    values: np.ndarray
    least: int = 2

    @classmethod
    def finite(cls, values: np.ndarray, least: int = 2) -> Mean:
        """Returns the mean of the values that are finite."""
        values = np.asarray(values, dtype=float)
        return cls(values[np.isfinite(values)], least)

    @classmethod
    def paired(cls, one: pd.Series, other: pd.Series, least: int = 2) -> Mean:
        """Returns the mean of `one` minus `other`, paired by index; a seed with only one is left out."""
        return cls((one - other).dropna().to_numpy(dtype=float), least)

    def __float__(self) -> float:
        return self.mean

    @cached_property
    def mean(self) -> float:
        """The mean; NaN of no value."""
        return float(np.mean(self.values)) if len(self.values) else float("nan")

    @cached_property
    def half(self) -> float:
        """Half of the interval's width; NaN if there are too few values."""
        return self.half_of(1)

    def half_of(self, several: int) -> float:
        """Returns half of the interval's width where so many intervals shall hold together (Bonferroni)."""
        from scipy import stats

        n = len(self.values)
        if n < max(self.least, 2):
            return float("nan")
        return float(stats.t.ppf(1 - (1 - LEVEL) / (2 * several), n - 1) * std(self.values) / np.sqrt(n))

    @property
    def low(self) -> float:
        """Lower end of the interval; NaN without one."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval; NaN without one."""
        return self.mean + self.half

    @property
    def seeds(self) -> str:
        """Returns the number of values, in words."""
        return "one seed" if len(self.values) == 1 else f"{len(self.values)} seeds"

    def ends(self, digits: str = ".3g", unit: str = "") -> str:
        """Writes the interval alone: "95 % interval over 5 seeds 0.1 to 0.3", or that there is none."""
        if not np.isfinite(self.half):
            return f"{self.seeds}, no interval"
        return f"95 % interval over {self.seeds} {self.low:{digits}} to {self.high:{digits}}{unit}"

    def words(self, digits: str = ".4g", unit: str = "") -> str:
        """Writes the mean with its interval: "0.5 (95 % interval ± 0.01)"."""
        mean = f"{self.mean:{digits}}{unit}"
        if not np.isfinite(self.half):
            return f"{mean} ({self.seeds})"
        return f"{mean} (95 % interval ± {self.half:.2g}{unit})"

    def __str__(self) -> str:
        return self.words()

    def __format__(self, digits: str) -> str:
        return self.words(digits or ".4g")


@dataclass(frozen=True)
class Proportion:
    """The share of runs of which a condition holds, with Wilson's 95 % interval.

    It stands for the share wherever a number is asked for.

    Args:
        holding: one truth value per run, (R,).
        digits: with which it is written in percent.
    """

    holding: np.ndarray
    digits: int = 0

    def __float__(self) -> float:
        return float(np.mean(self.holding)) if len(self.holding) else float("nan")

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval."""
        return wilson(int(self.holding.sum()), len(self.holding))

    def words(self, *_: str) -> str:
        """Writes the share: "75 % of 4"."""
        return f"{percent(float(self), self.digits)} of {len(self.holding)}"
