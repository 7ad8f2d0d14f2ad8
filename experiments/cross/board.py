"""One board of the comparison: scores of its methods with intervals, tests, and what reached the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from mobench.comparison import statistics
from mobench.comparison.rows import MEASURES
from mobench.comparison.trials import STUDIES, reported

from .table import boards_of, problems_of, ranking

TITLES = {
    "preference": "Following preferences",
    "single": "One answer, no preference",
    "constrained": "With constraints",
    "many": "Five and ten objectives",
    "networks": "One answer, networks",
    "preference_50": "Following preferences, 50 gradients",
    "preference_800": "Following preferences, 800 gradients",
    "single_50": "One answer, 50 gradients",
    "single_800": "One answer, 800 gradients",
}
BASELINES = {"constrained": ("penalty_sgd",)}
SCALARIZATIONS = ("ls", "tch")
FACTORS = np.logspace(0, 2, 41)


@dataclass(frozen=True)
class Board:
    """Rows of one board and one replication.

    Args:
        name: of the board.
        rows: of the comparison, of this board alone.
    """

    name: str
    rows: pd.DataFrame

    @cached_property
    def problems(self) -> list[str]:
        """Problems that rank and that have rows of the mandatory baselines, in the order of the protocol.

        A board whose run is not finished has fewer: those from the end of its list are left out.
        """
        baselines = set(BASELINES.get(self.name, SCALARIZATIONS))
        have = {p: set(own["method"]) for p, own in self.rows.groupby("problem")}
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
    def partly(self) -> list[str]:
        """Methods with rows of some of the ranking problems only: refused by others, or not computed."""
        return sorted(set(self._ranked["method"]) - set(self.methods))

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
        """The mean score of each method that ranks."""
        return dict(zip(self.methods, statistics.scores(self.array()).tolist(), strict=True))

    @cached_property
    def draws(self) -> np.ndarray:
        """Bootstrapped scores (draws, methods)."""
        return statistics.bootstrap(self.array())

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals of the scores."""
        low, high = statistics.interval(self.draws)
        return {m: (float(a), float(b)) for m, a, b in zip(self.methods, low, high, strict=True)}

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Score of one method less that of another, with its interval."""
        i, j = self.methods.index(one), self.methods.index(other)
        low, high = statistics.interval(self.draws[:, i] - self.draws[:, j])
        return self.scores[one] - self.scores[other], float(low), float(high)

    @cached_property
    def blocks(self) -> np.ndarray:
        """Means over studies and seeds (methods, problems)."""
        return statistics.block_means(self.array())

    @cached_property
    def ranks(self) -> dict[str, float]:
        """Mean ranks, for the Friedman test and its diagram only."""
        return dict(zip(self.methods, statistics.ranks(self.blocks).tolist(), strict=True))

    @property
    def baseline(self) -> str:
        """The tuned baseline: the better one of linear and Tchebycheff scalarization, or the board's own."""
        names = [name for name in BASELINES.get(self.name, SCALARIZATIONS) if name in self.methods]
        return max(names, key=lambda name: self.scores[name])

    @cached_property
    def tests(self) -> dict[str, float]:
        """Holm's p-values of Wilcoxon's test of every other method against the baseline."""
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
        """Share of problems, studies and seeds on which a method reached the target."""
        own = self._ranked[self._ranked["method"] == method]
        return float(own["gradients"].notna().mean())

    def lines(self) -> list[dict[str, object]]:
        """Rows of the table: each method over all problems, then on each problem."""
        out = [self._total(place, name) for place, name in enumerate(self.methods, start=1)]
        out += [self._below(name) for name in self.partly]
        for problem in problems_of(self.name):
            found = self.rows[self.rows["problem"] == problem]
            order = found.groupby("method")["score"].mean().sort_values(ascending=False)
            out += [self._line(problem, str(name), found[found["method"] == name]) for name in order.index]
        return out

    def _total(self, place: int, name: str) -> dict[str, object]:
        low, high = self.intervals[name]
        own = self._ranked[self._ranked["method"] == name]
        return {
            "board": self.name,
            "problem": "all",
            "method": name,
            "place": place,
            "score": self.scores[name],
            "low": low,
            "high": high,
            "mean rank": self.ranks[name],
            "p (Holm)": self.tests.get(name, float("nan")),
            **_means(own),
            "reached": self.reached(name),
            "note": f"baseline; {len(self.problems)} problems" if name == self.baseline else "",
        }

    def _below(self, name: str) -> dict[str, object]:
        """A method that does not run on all ranking problems: no place, means over those it runs on."""
        own = self._ranked[self._ranked["method"] == name]
        ran = own["problem"].nunique()
        return {
            "board": self.name,
            "problem": "all",
            "method": name,
            "score": float(own["score"].mean()),
            **_means(own),
            "reached": self.reached(name),
            "note": f"on {ran} of {len(self.problems)} problems, so without a place",
        }

    def _line(self, problem: str, name: str, own: pd.DataFrame) -> dict[str, object]:
        values = own.sort_values(["study", "seed"])["score"].to_numpy().reshape(1, 1, len(STUDIES), -1)
        low, high = statistics.interval(statistics.bootstrap(values, 500))
        return {
            "board": self.name,
            "problem": problem,
            "method": name,
            "score": float(values.mean()),
            "low": float(low[0]),
            "high": float(high[0]),
            **_means(own),
            "reached": float(own["gradients"].notna().mean()),
            "note": "" if problem in self.problems else "not ranked",
        }


def _means(own: pd.DataFrame) -> dict[str, float]:
    return {name: float(own[name].mean()) for name in MEASURES if name not in ("score", "seconds")}


def boards(rows: pd.DataFrame) -> list[Board]:
    """The boards that have rows, in the order of the protocol."""
    found = [Board(name, rows[rows["board"] == name]) for name in boards_of()]
    return [board for board in found if len(board.rows) and board.problems]


def replicated(shown: Sequence[Board], again: Sequence[Board]) -> dict[str, float]:
    """Kendall's tau between the orders of each board and of its replication, of methods that are on both."""
    other = {board.name: board.methods for board in again}
    out = {}
    for board in shown:
        first = [name for name in board.methods if name in other.get(board.name, [])]
        if len(first) > 1:
            second = [name for name in other[board.name] if name in first]
            out[board.name] = statistics.kendall(range(len(first)), [second.index(name) for name in first])
    return out


REPETITIONS = 200
SPAN = (0.05, 0.95)  # of the repetitions


def expected_agreement(board: Board, repetitions: int = REPETITIONS) -> tuple[float, float, float]:
    """Kendall's tau between two reruns of a board on the same problems, by resampling: mean, and quantiles
    `SPAN`.

    Both reruns draw studies and seeds of each problem with replacement, the same for all methods. The spread
    of the scores contains that of this run, so that the mean is somewhat too large.
    """
    scores = board.array()
    _, problems, studies, seeds = scores.shape
    rng = np.random.default_rng(0)

    def order() -> np.ndarray:
        s = rng.multinomial(studies, np.full(studies, 1.0 / studies), problems) / studies
        e = rng.multinomial(seeds, np.full(seeds, 1.0 / seeds), (problems, studies)) / seeds
        out: np.ndarray = np.einsum("mpse,ps,pse->m", scores, s, e)
        return out

    found = [statistics.kendall(order().tolist(), order().tolist()) for _ in range(repetitions)]
    low, high = np.quantile(found, SPAN)
    return float(np.mean(found)), float(low), float(high)
