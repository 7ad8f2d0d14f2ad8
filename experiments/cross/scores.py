"""Which runs count, which step size is chosen, what a method scores on a problem, and how methods rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import moocore
import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts.rows import JobRows, RunCount
from mobench.core.truth import KnownFront
from mobench.jobs.store import columns
from mobench.jobs.targets import instantiate, load_class
from mobench.metrics import hypervolume

FEASIBLE = 1e-3  # of max_j g_j: points beyond it do not count
BOOTSTRAP = 2000
FRONT = 2000  # points of a front, whose hypervolume is the unit
GRID = "step_size"
INTERVAL = 5  # fewest reported seeds of which an interval is given


def choosing(seeds: int) -> int:
    """Returns how many of the seeds choose the step size; none of a single one."""
    return 0 if seeds == 1 else max(1, 2 * seeds // 5)


@dataclass(frozen=True)
class Pair:
    """The runs of one algorithm on one problem."""

    problem: str
    algorithm: str
    job: JobRows

    def __str__(self) -> str:
        return f"{self.algorithm} on {self.problem}"

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Final rows of the method's own output, with `counts`: finished and feasible."""
        rows = self.job.final
        rows = rows[rows["output"] == rows["output"].iloc[0]].copy()
        rows["counts"] = rows["status"] == "done"
        if self.constrained:
            rows["counts"] &= rows["violation"].fillna(0.0) <= FEASIBLE
        return rows

    @property
    def first_order_gap(self) -> bool:
        """Says whether the constraint is the gap of a lower level.

        Then rows are phi(x) at y*(x), on which a gap at (x, y) is no constraint.
        """
        return str(self.job.config["oracle"]["_target_"]).endswith(".ValueGap")

    @property
    def constrained(self) -> bool:
        """Says whether points of this pair can be infeasible."""
        return "violation" in self.job.final and not self.first_order_gap

    @cached_property
    def enforces(self) -> bool:
        """Says whether the search uses the problem's constraints instead of only accepting them."""
        method = load_class(str(self.job.config["algorithm"]["_target_"]), "algorithm")
        return bool(method.enforces)  # type: ignore[attr-defined]

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, in the order of the command."""
        return [int(s) for s in dict.fromkeys(self.rows["seed"])]

    @cached_property
    def sizes(self) -> list[float | None]:
        """Step sizes that were run; [None] where the method has its own."""
        return sorted(self.rows[GRID].unique()) if GRID in self.rows else [None]

    def at(self, size: float | None) -> pd.DataFrame:
        """Returns the rows of one step size; none of NaN, which stands for "no step size qualified"."""
        return self.rows if size is None else self.rows[self.rows[GRID] == size]

    def points(self, rows: pd.DataFrame, seed: int) -> np.ndarray:
        """Returns the objective values of what counts (k, M)."""
        chosen = rows[(rows["seed"] == seed) & rows["counts"]]
        return chosen[columns(rows, "f_")].to_numpy(dtype=float)


class Table:
    """All pairs on one problem, scored on the same scale."""

    def __init__(self, name: str, pairs: list[Pair]) -> None:
        self.name = name
        self.pairs = {p.algorithm: p for p in pairs}
        self.seeds = pairs[0].seeds
        first = pairs[0].rows
        self.M = len(columns(first, "f_"))
        self.fronts = len(first.drop_duplicates(columns(first, "preference_"))) > 1
        self.few = self.seeds[: choosing(len(self.seeds))]
        self.report = self.seeds[choosing(len(self.seeds)) :]
        self.wide = len(self.report) >= INTERVAL
        self.chosen = {a: self._choose(p) for a, p in self.pairs.items()}
        self.scores = np.array(
            [[self.score(p, p.at(self.chosen[a]), s) for s in self.report] for a, p in self.pairs.items()]
        )

    @cached_property
    def problem(self) -> Any:
        """The problem, without the layers that an oracle wears."""
        return instantiate(next(iter(self.pairs.values())).job.config["problem"], "problem")

    @property
    def measure(self) -> str:
        """What ranks: a share of hypervolume, or the worst objective where one preference makes no front."""
        return "share" if self.fronts else "worst objective"

    @cached_property
    def front(self) -> float | None:
        """Hypervolume of the exact front; None where none is known, or constraints leave a part of it."""
        ref = self.problem.ref_point
        if not self.fronts or ref is None or self.problem.n_constraints:
            return None
        front = self.problem.front(FRONT) if isinstance(self.problem, KnownFront) else None
        return None if front is None else hypervolume(front.numpy(), ref)

    @cached_property
    def _unit(self) -> dict[int, tuple[tuple[float, ...], float]]:
        """By seed: reference point, and the hypervolume that counts as 1.

        Of the front, or where none is known (or constraints leave a part of it) of all methods' points
        together, with a tenth of their extent beyond the worst nondominated ones.
        """
        ref = self.problem.ref_point
        out = {}
        for seed in self.seeds:
            every = np.concatenate([p.points(p.rows, seed) for p in self.pairs.values()])
            corner = tuple(ref) if ref is not None else _corner(every)
            volume = self.front
            if volume is None:
                volume = float(hypervolume(every, corner)) if len(every) else np.nan
            out[seed] = corner, float(volume)
        return out

    def score(self, pair: Pair, rows: pd.DataFrame, seed: int) -> float:
        """Returns the score of one seed.

        Runs that do not count are points that are not there; all of them lost is the worst there is.
        """
        F = pair.points(rows, seed)
        if self.fronts:
            corner, unit = self._unit[seed]
            # nobody below the reference point
            return hypervolume(F, corner) / unit if len(F) and unit > 0 else 0.0
        return float(F.max(1).mean()) if len(F) else np.inf

    def _choose(self, pair: Pair) -> float | None:
        """The step size with the most runs that count on the choosing seeds, among equals the best score.

        NaN if none counts.
        """
        if len(pair.sizes) == 1 or not self.few:
            return pair.sizes[0]
        sign = 1.0 if self.fronts else -1.0
        best: tuple[float, float] = (0.0, -np.inf)
        chosen: float | None = np.nan
        for size in pair.sizes:
            rows = pair.at(size)
            counted = float(rows.loc[rows["seed"].isin(self.few), "counts"].sum())
            score = sign * float(np.mean([self.score(pair, rows, seed) for seed in self.few]))
            if counted > 0 and (counted, score) > best:
                best = (counted, score)
                chosen = size
        return chosen

    def reported(self, pair: Pair, size: float | None) -> pd.DataFrame:
        """Returns the rows of one step size and the reported seeds."""
        rows = pair.at(size)
        return rows[rows["seed"].isin(self.report)]

    def shown(self, pair: Pair) -> pd.DataFrame:
        """Returns the rows of the reported seeds at the chosen step size."""
        return self.reported(pair, self.chosen[pair.algorithm])

    @cached_property
    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Ranks of the means over seeds (A,) and of resampled seeds (BOOTSTRAP, A), 1 the best.

        Methods that agree to six digits share a rank.
        """
        rng = np.random.default_rng(0)
        draws = rng.integers(0, len(self.report), (BOOTSTRAP, len(self.report)))
        return self._rank(self.scores.mean(1)[None])[0], self._rank(self.scores.T[draws].mean(1))

    def _rank(self, means: np.ndarray) -> np.ndarray:
        """Ranks (draws, A) of means (draws, A), rounded to six digits."""
        size = 10.0 ** np.floor(
            np.log10(np.maximum(np.abs(means), 1e-300), where=np.isfinite(means), out=np.zeros_like(means))
        )
        rounded = np.where(np.isfinite(means), np.round(means / size, 5) * size, means)
        out: np.ndarray = stats.rankdata(-rounded if self.fronts else rounded, axis=1)
        return out

    def lines(self) -> list[dict[str, Any]]:
        """Returns a row of the table for each method."""
        ranks, draws = self.ranks
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        intervals = [f" [{a:g}, {b:g}]" if self.wide else "" for a, b in zip(low, high, strict=True)]
        return [
            self._line(pair, self.scores[i], f"{ranks[i]:g}{intervals[i]}")
            for i, pair in enumerate(self.pairs.values())
        ]

    def _line(self, pair: Pair, scores: np.ndarray, rank: str) -> dict[str, Any]:
        rows = self.shown(pair)
        done = rows[rows["status"] == "done"]
        size = self.chosen[pair.algorithm]
        config = pair.job.config
        planned = len(pair.at(pair.sizes[0])) * len(self.report) // len(self.seeds)
        nan = pd.Series(np.nan, index=done.index)
        return {
            "problem": self.name,
            "algorithm": pair.algorithm,
            "share of hypervolume": scores.mean() if self.fronts else np.nan,
            "std": np.std(scores, ddof=1) if self.wide and np.isfinite(scores).all() else np.nan,
            "rank": rank,
            "angle to preference (deg)": done.get("angle_deg", nan).mean() if self.fronts else np.nan,
            "worst objective": done[columns(done, "f_")].max(axis=1).mean(),
            "stationarity (median)": done.get("stationarity", done.get("kkt", nan)).median(),
            "violation (max)": done.get("violation", nan).max() if pair.constrained else np.nan,
            "us per step and run": 1e6 * pair.job.seconds_per_step / len(pair.rows),
            "step size": config["algorithm"].get(GRID, np.nan) if size is None else size,
            "steps": config["steps"],
            "runs": RunCount.of(rows) if len(rows) else RunCount(0, planned),
            "note": "" if len(rows) else "no step size qualified on the choosing seeds",
        }


def _corner(F: np.ndarray) -> tuple[float, ...]:
    """Reference point: worst of the nondominated points and a tenth of their extent."""
    if not len(F):
        return (1.0,) * F.shape[1]
    best = F[moocore.is_nondominated(F)]
    corner = best.max(0) + 0.1 * np.maximum(np.ptp(best, axis=0), 1e-12)
    return tuple(float(v) for v in corner)


def mean_ranks(shown: list[Table]) -> dict[str, tuple[float, float, float, int]]:
    """Returns the mean over problems of rank / number of methods there, best first.

    With a bootstrap interval (NaN of fewer than `INTERVAL` seeds), and on how many problems.
    """
    out: dict[str, tuple[float, float, float, int]] = {}
    for name in sorted({m for t in shown for m in t.pairs}):
        parts = [(t, list(t.pairs).index(name)) for t in shown if name in t.pairs]
        whole = np.mean([t.ranks[0][i] / len(t.pairs) for t, i in parts])
        draws = np.mean([t.ranks[1][:, i] / len(t.pairs) for t, i in parts], axis=0)
        low, high = np.quantile(draws, [0.025, 0.975])
        if not all(t.wide for t, _ in parts):
            low = high = np.nan
        out[name] = float(whole), float(low), float(high), len(parts)
    return dict(sorted(out.items(), key=lambda item: item[1][0]))
