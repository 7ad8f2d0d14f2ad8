"""When a run of Table 1 reached a loss, and what is known of it where runs were cut off before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from mobench.artifacts.rows import JobRows, RunCount
from mobench.errors import StoreError

TASKS = ("L", "R")


@dataclass(frozen=True)
class Timed:
    """One run of Table 1 (a population counts as one), and when it reached a loss.

    window: batches of the running mean.
    """

    rows: JobRows
    window: int

    @property
    def seconds_per_step(self) -> float:
        """Training time alone; NaN if all runs were lost."""
        return self.rows.seconds_per_step

    @property
    def warm(self) -> float:
        """Seconds of a warm start, charged to whoever had one."""
        final = self.rows.final
        return float(final["warm_seconds"].max()) if "warm_seconds" in final else 0.0

    @property
    def total(self) -> float:
        return self.warm + float(self.rows.meta["seconds_train"])

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Losses of both tasks by step.

        Of one trajectory the running mean over batches; of a population the best that its feasible members
        have had so far, each task alone.
        """
        h = self.rows.history
        h = h[h["step"] < int(self.rows.config["steps"])]  # the last row is of all pictures, not of a batch
        population = "warm_seconds" in self.rows.final or self.rows.config.get("space")
        if h["run"].nunique() == 1 and not population:
            if (np.diff(h["step"]) != 1).any():
                raise StoreError(
                    f"{self.rows.folder.path}: a running mean over batches needs all steps in "
                    "history.parquet."
                )
            table = h.set_index("step")[["f_1", "f_2"]].rolling(self.window).mean()
        else:
            good = h[h["violation"] <= 0]
            table = good.groupby("step")[["f_1", "f_2"]].min().reindex(sorted(h["step"].unique())).cummin()
        table.columns = pd.Index(TASKS)
        return table

    def seconds(self, task: str, level: float) -> float | None:
        """Returns when the loss was reached; None: not within the run."""
        reached = self.losses.index[self.losses[task] <= level]
        if not len(reached):
            return None
        return min(self.total, self.warm + (float(reached[0]) + 1.0) * self.seconds_per_step)


@dataclass(frozen=True)
class Cell:
    """A baseline's time as a multiple of MLM-CMOO's of the same seed, mean over seeds.

    value: None where a run was cut off or left out.
    least: what the mean is at least; None where nothing is known.
    faster: multiples of single seeds up to 1, or what they are at most, where the baseline arrived within
        the time in which MLM-CMOO did not.
    """

    text: str
    value: float | None = None
    least: float | None = None
    faster: tuple[float, ...] = ()


def multiple(runs: list[Timed], mlm_cmoo: list[Timed], task: str, level: float) -> Cell:
    """Returns x1.8, or "> x5.0" where runs were cut off, which count with all of their time.

    Seeds where MLM-CMOO itself did not arrive are left out and counted.
    """
    pairs = [
        (run, run.seconds(task, level), mine, mine.seconds(task, level))
        for run, mine in zip(runs, mlm_cmoo, strict=False)
    ]
    bounds = [(t, mine.total if unit is None else unit) for _, t, mine, unit in pairs]
    faster = tuple(t / bound for t, bound in bounds if t is not None and t <= bound)
    compared = [(run, t, unit) for run, t, _, unit in pairs if unit is not None]
    if not compared:
        missing = "MLM-CMOO did not arrive" + ("" if len(runs) == len(mlm_cmoo) else " with this seed")
        done = [t for run in runs if (t := run.seconds(task, level)) is not None]
        if not done:
            return Cell(f"{missing}, nor did this in {np.mean([run.total for run in runs]):.0f} s")
        return Cell(f"{np.mean(done):.1f} s{RunCount(len(done), len(runs)).short}; {missing}", faster=faster)
    whole = RunCount(len(compared), len(runs)).short
    least = float(np.mean([(run.total if t is None else t) / unit for run, t, unit in compared]))
    cut = sum(t is None for _, t, _ in compared)
    if cut:
        part = "" if cut == len(compared) else f", {cut} of {len(compared)} cut off"
        return Cell(f"> x{least:.2f}{part}{whole}", None, least, faster)
    return Cell(f"x{least:.2f}{whole}", None if whole else least, least, faster)


@dataclass(frozen=True)
class Times:
    """All runs of Table 1, by method and seed; levels: the paper's two losses, the larger one first."""

    levels: tuple[float, float]
    own: list[Timed]
    others: Mapping[str, list[Timed]]

    @cached_property
    def unit(self) -> dict[tuple[str, float], float | None]:
        """MLM-CMOO's seconds to each loss, mean over seeds; None where one of them did not arrive."""
        times = {(task, v): [run.seconds(task, v) for run in self.own] for task in TASKS for v in self.levels}
        return {
            key: None if None in of_seeds else float(np.mean([t for t in of_seeds if t is not None]))
            for key, of_seeds in times.items()
        }

    def multiple(self, name: str, task: str, level: float) -> Cell:
        return multiple(self.others[name], self.own, task, level)

    def text(self, task: str, level: float) -> str:
        reached = [run.seconds(task, level) for run in self.own]
        done = [t for t in reached if t is not None]
        return f"{np.mean(done):.1f} s{RunCount(len(done), len(reached)).short}" if done else "not reached"
