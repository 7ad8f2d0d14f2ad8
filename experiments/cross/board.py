"""One board of the comparison: scores of its methods with intervals, who leads, and what a replication keeps.

A board by angle is the same board with the angle to the preference in the place of the score.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import yaml

from mobench.comparison import statistics
from mobench.comparison.rows import MEASURES
from mobench.comparison.trials import STUDIES, reported
from mobench.config.schema import conf_dir
from mobench.jobs.targets import load_class

from .table import boards_of, problems_of, ranking

TITLES = {
    "preference": "Following preferences",
    "single": "One answer, no preference",
    "constrained": "With constraints",
    "many": "Five and ten objectives",
    "networks": "One answer, networks",
}
# boards that ask the same with other budgets: gradients for each function, and the board
BUDGETS = {
    "preference": {50: "preference_50", 200: "preference", 800: "preference_800"},
    "single": {50: "single_50", 200: "single"},
}
BY_ANGLE = ("preference", "many")
RIGHT = 90.0  # degrees: of a row without any finished run
BASELINES = {"constrained": ("penalty_sgd",)}
SCALARIZATIONS = ("ls", "tch")
FACTORS = np.logspace(0, 2, 41)


@dataclass(frozen=True)
class Board:
    """Rows of one board and one replication.

    Args:
        name: of the board.
        rows: of the comparison, of this board alone; `score` is what ranks, the larger the better.
        angular: whether the score is the angle to the preference, with a minus.
    """

    name: str
    rows: pd.DataFrame
    angular: bool = False

    @property
    def key(self) -> str:
        return f"{self.name} by angle" if self.angular else self.name

    @property
    def title(self) -> str:
        return f"{TITLES[self.name]}: angle" if self.angular else TITLES[self.name]

    @cached_property
    def problems(self) -> list[str]:
        """Problems that rank and that have rows of the mandatory baselines, in the order of the protocol.

        A board whose run is not finished has fewer: problems from the end of its list are left out.
        """
        baselines = set(BASELINES.get(self.name, SCALARIZATIONS))
        have = {p: set(of_problem["method"]) for p, of_problem in self.rows.groupby("problem")}
        return [problem for problem in ranking(self.name) if baselines <= have.get(problem, set())]

    @cached_property
    def methods(self) -> list[str]:
        """Methods with rows on all ranking problems, the best first; a stranger's too."""
        counts = self._ranked.groupby("method")["problem"].nunique()
        full = [str(name) for name in counts.index[counts == len(self.problems)]]
        means = {
            name: float(self._ranked.loc[self._ranked["method"] == name, "score"].mean()) for name in full
        }
        share = {
            name: float(self._ranked.loc[self._ranked["method"] == name, "feasible"].mean()) for name in full
        }
        return statistics.order(means, share)

    @cached_property
    def _ranked(self) -> pd.DataFrame:
        return self.rows[self.rows["problem"].isin(self.problems)]

    def array(self, measure: str = "score", methods: Sequence[str] | None = None) -> statistics.Board:
        """A measure as (methods, problems, studies, seeds)."""
        chosen = self.methods if methods is None else methods
        index = pd.MultiIndex.from_product(
            [chosen, self.problems, STUDIES, sorted(set(self._ranked["seed"]))],
            names=["method", "problem", "study", "seed"],
        )
        values = self._ranked.set_index(["method", "problem", "study", "seed"])[measure].reindex(index)
        return values.to_numpy(dtype=float).reshape(
            len(chosen), len(self.problems), len(STUDIES), reported(self.name)
        )

    @cached_property
    def scores(self) -> dict[str, float]:
        return dict(zip(self.methods, statistics.scores(self.array()).tolist(), strict=True))

    @cached_property
    def draws(self) -> np.ndarray:
        return statistics.bootstrap(self.array())

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        low, high = statistics.interval(self.draws)
        return {m: (float(a), float(b)) for m, a, b in zip(self.methods, low, high, strict=True)}

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Score of one method less that of another, with its interval."""
        i, j = self.methods.index(one), self.methods.index(other)
        low, high = statistics.interval(self.draws[:, i] - self.draws[:, j])
        return self.scores[one] - self.scores[other], float(low), float(high)

    @cached_property
    def separated(self) -> dict[tuple[str, str], tuple[float, float, float]]:
        """Differences whose interval is without 0, by pairs of methods, the better one first."""
        differences = {}
        for one, other in itertools.combinations(self.methods, 2):
            value, low, high = self.difference(one, other)
            if low > 0:
                differences[one, other] = (value, low, high)
            elif high < 0:  # methods are ordered by their feasible share first
                differences[other, one] = (-value, -high, -low)
        return differences

    @property
    def leader(self) -> str | None:
        return self.methods[0] if tuple(self.methods[:2]) in self.separated else None

    @property
    def close(self) -> list[str]:
        first = self.methods[0]
        apart = {name for pair in self.separated if first in pair for name in pair}
        return [name for name in self.methods[1:] if name not in apart]

    @property
    def better(self) -> list[str]:
        """Methods that are better than the tuned baseline by an interval without 0."""
        return [name for name in self.methods if (name, self.baseline) in self.separated]

    @property
    def worse(self) -> list[str]:
        """Methods that are worse than it, likewise."""
        return [name for name in self.methods if (self.baseline, name) in self.separated]

    @cached_property
    def blocks(self) -> np.ndarray:
        """Means over studies and seeds (methods, problems)."""
        return statistics.block_means(self.array())

    @cached_property
    def ranks(self) -> dict[str, float]:
        return dict(zip(self.methods, statistics.ranks(self.blocks).tolist(), strict=True))

    @property
    def baseline(self) -> str:
        """The tuned baseline: the better scalarization, or the best of the board's `BASELINES`."""
        names = [name for name in BASELINES.get(self.name, SCALARIZATIONS) if name in self.methods]
        return max(names, key=lambda name: self.scores[name])

    @cached_property
    def tests(self) -> dict[str, float]:
        base = self.blocks[self.methods.index(self.baseline)]
        others = [name for name in self.methods if name != self.baseline]
        p = [statistics.wilcoxon(self.blocks[self.methods.index(name)], base) for name in others]
        return dict(zip(others, statistics.holm(p).tolist(), strict=True)) if others else {}

    def profile(self, measure: str = "gradients") -> np.ndarray:
        """Performance profile (methods, factors) over pairs of problem and seed, means over studies."""
        needed = np.concatenate(
            [self.array(measure)[:, :, s].reshape(len(self.methods), -1) for s in range(3)], 1
        )
        return statistics.profile(needed, FACTORS)

    def reached(self, method: str) -> float:
        of_method = self._ranked[self._ranked["method"] == method]
        return float(of_method["gradients"].notna().mean())

    def lines(self) -> list[dict[str, object]]:
        out = [self._total(place, name) for place, name in enumerate(self.methods, start=1)]
        # refused by some of the ranking problems, or not computed there
        out += [self._below(name) for name in sorted(set(self._ranked["method"]) - set(self.methods))]
        if self.angular:  # the columns are those of the board by score, which has the lines of the problems
            return [_in_degrees(line) for line in out]
        for problem in problems_of(self.name):
            of_problem = self.rows[self.rows["problem"] == problem]
            order = of_problem.groupby("method")["score"].mean().sort_values(ascending=False)
            out += [
                self._line(problem, str(name), of_problem[of_problem["method"] == name])
                for name in order.index
            ]
        return out

    def _total(self, place: int, name: str) -> dict[str, object]:
        low, high = self.intervals[name]
        note = f"baseline; {len(self.problems)} problems" if name == self.baseline else ""
        measured = {"place": place, "score": self.scores[name], "low": low, "high": high}
        measured |= {"mean rank": self.ranks[name], "p (Holm)": self.tests.get(name, float("nan"))}
        return self._row("all", name, self._ranked[self._ranked["method"] == name], measured, note)

    def _below(self, name: str) -> dict[str, object]:
        """A method that does not run on all ranking problems: no place, and means over fewer problems."""
        of_method = self._ranked[self._ranked["method"] == name]
        note = f"on {of_method['problem'].nunique()} of {len(self.problems)} problems, so without a place"
        return self._row("all", name, of_method, {"score": float(of_method["score"].mean())}, note)

    def _line(self, problem: str, name: str, of_method: pd.DataFrame) -> dict[str, object]:
        values = of_method.sort_values(["study", "seed"])["score"].to_numpy().reshape(1, 1, len(STUDIES), -1)
        low, high = statistics.interval(statistics.bootstrap(values, 500))
        measured = {"score": float(values.mean()), "low": float(low[0]), "high": float(high[0])}
        return self._row(problem, name, of_method, measured, "" if problem in self.problems else "not ranked")

    def _row(
        self, problem: str, name: str, of_method: pd.DataFrame, measured: dict[str, Any], note: str
    ) -> dict[str, object]:
        means = {m: float(of_method[m].mean()) for m in MEASURES if m not in ("score", "seconds")}
        reached = float(of_method["gradients"].notna().mean())
        who = {"board": self.key, "problem": problem, "method": name}
        return {**who, **measured, **means, "reached": reached, "note": note}


def _in_degrees(line: dict[str, object]) -> dict[str, object]:
    """A line of a board by angle: the angle with its interval in the place of the score."""
    ends = {"low": "high", "high": "low"}
    turned = {name: -float(line[of]) for name, of in ends.items() if of in line}  # type: ignore[arg-type]
    return {name: value for name, value in line.items() if name not in ("score", "p (Holm)")} | turned


def boards_with_rows(rows: pd.DataFrame, names: Iterable[str] = tuple(TITLES)) -> list[Board]:
    """The boards of these names that have rows, in the order of the protocol."""
    requested = set(names)
    boards = [Board(name, rows[rows["board"] == name]) for name in boards_of() if name in requested]
    return [board for board in boards if len(board.rows) and board.problems]


@cache
def follows(method: str) -> bool:
    """Says whether a method's direction depends on the preference; a method that conf lacks is assumed to."""
    path = conf_dir() / "algorithm" / f"{method}.yaml"
    if not path.exists():
        return True
    target = str(yaml.safe_load(path.read_text(encoding="utf-8"))["_target_"])
    return bool(load_class(target, "algorithm").preferred)  # type: ignore[attr-defined]


def by_angle(boards: Sequence[Board]) -> list[Board]:
    """The boards by angle, of the methods that follow preferences."""
    out = []
    for board in boards:
        if board.name in BY_ANGLE:
            following = board.rows[board.rows["method"].map(follows)]
            out.append(
                replace(board, rows=following.assign(score=-following["angle"].fillna(RIGHT)), angular=True)
            )
    return out


def ignoring(board: Board) -> list[str]:
    return sorted(name for name in set(board.rows["method"]) if not follows(name))


def replicated(boards: Sequence[Board], again: Sequence[Board]) -> dict[str, list[bool]]:
    """For each board with a replication, whether each pair that an interval separates keeps its order."""
    other = {board.key: board.scores for board in again}
    return {
        board.key: [scores[one] > scores[two] for one, two in board.separated if {one, two} <= set(scores)]
        for board in boards
        if (scores := other.get(board.key)) is not None
    }
