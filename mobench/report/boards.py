"""Leaderboards: one for each class of problems.

Those of the comparison under the protocol (`cross/zoo`) show its scores and its order; nothing is computed
here.
Those of tables outside of the protocol show ranks, of which means over problems are taken here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mobench.report.model import Entry, Site
from mobench.report.sheets import parsed

CLASSES = {  # artifact -> class of problems
    "cross/bilevel": "Bilevel problems",
    "cross/federated": "Federated learning",
    "cross/multi_task": "Networks for images",
}
SCORED = "cross/zoo"
SCORES = {  # board of the comparison -> class of problems
    "preference": "Following preferences",
    "single": "One answer, no preference",
    "constrained": "Problems with constraints",
    "many": "Five and ten objectives",
    "networks": "One answer, networks",
}
FEASIBLE = 1e-3  # largest violation that counts as none


@dataclass(frozen=True)
class Line:
    """What one method did on the problems of a class.

    Args:
        name: of the method on the command line.
        ranks: by problem; the interval over seeds as the table prints it is `intervals`.
        shares: of the attainable hypervolume, by problem, where the table has them.
        violation: the largest over the problems; None where there are no constraints.
        refused: why it did not run on other problems, by problem.
    """

    name: str
    ranks: dict[str, float]
    intervals: dict[str, str]
    shares: dict[str, float]
    violation: float | None
    refused: dict[str, str]

    @property
    def rank(self) -> float:
        """Mean of its ranks."""
        return sum(self.ranks.values()) / len(self.ranks)

    @property
    def share(self) -> float | None:
        """Mean of its shares."""
        return sum(self.shares.values()) / len(self.shares) if self.shares else None

    @property
    def feasible(self) -> bool:
        """Whether it ends without a violation wherever it ran."""
        return self.violation is None or self.violation <= FEASIBLE


@dataclass(frozen=True)
class Board:
    """A class of problems: its methods, the best first; those that end infeasible come after all others."""

    title: str
    entry: Entry
    problems: list[str]
    lines: list[Line]
    absent: list[Line]  # methods that fit none of the problems

    @property
    def constrained(self) -> bool:
        """Whether violations were measured."""
        return any(line.violation is not None for line in self.lines)


@dataclass(frozen=True)
class Score:
    """What one method scores on a board of the comparison.

    Args:
        name: of the method. place: in the order of the board. score, low, high: with its 95 % interval.
        p: against the best tuned scalarization; None for that one. reached: how often it reached the target.
        feasible: share of feasible points. scores: by problem.
    """

    name: str
    place: int
    score: float
    low: float
    high: float
    p: float | None
    reached: float
    feasible: float
    scores: dict[str, float]


@dataclass(frozen=True)
class ScoreBoard:
    """A board of the comparison: its methods in order; problems that rank, and others that are shown."""

    name: str
    title: str
    entry: Entry
    problems: list[str]
    beside: list[str]
    lines: list[Score]
    absent: dict[str, str]  # methods that do not rank, and why

    @property
    def close(self) -> int:
        """How many other methods have an interval that overlaps that of the first."""
        return sum(line.high >= self.lines[0].low for line in self.lines[1:])

    @property
    def constrained(self) -> bool:
        """Whether feasible shares differ."""
        return any(line.feasible < 1 for line in self.lines)


def score_boards(site: Site) -> list[ScoreBoard]:
    """Returns the boards of the comparison, if it was drawn."""
    entry = {e.id: e for e in [*site.kept, *site.entries]}.get(SCORED)
    if entry is None or entry.csv is None or entry.problems:
        return []
    head, body = parsed(site.assets[entry.csv].decode())
    rows = [dict(zip(head, row, strict=True)) for row in body]
    by_board = {name: [row for row in rows if row.get("board") == name] for name in SCORES}
    return [_scored(name, entry, own) for name, own in by_board.items() if own]


def _scored(name: str, entry: Entry, rows: Sequence[dict[str, str]]) -> ScoreBoard:
    each = [row for row in rows if row["problem"] != "all"]
    ran = [row for row in each if row["score"]]
    lines = [
        Score(
            row["method"],
            int(float(row["place"])),
            float(row["score"]),
            float(row["low"]),
            float(row["high"]),
            float(row["p (Holm)"]) if row["p (Holm)"] else None,
            float(row["reached"]),
            float(row["feasible"]),
            {found["problem"]: float(found["score"]) for found in ran if found["method"] == row["method"]},
        )
        for row in rows
        if row["problem"] == "all" and row["place"]
    ]
    listed = {line.name for line in lines}
    below = [row for row in rows if row["problem"] == "all" and not row["place"]]
    absent = {row["method"]: row["note"] for row in [*each, *below] if row["method"] not in listed}
    ranked = dict.fromkeys(row["problem"] for row in ran if row["note"] != "not ranked")
    beside = dict.fromkeys(row["problem"] for row in ran if row["problem"] not in ranked)
    return ScoreBoard(name, SCORES[name], entry, list(ranked), list(beside), lines, absent)


def boards(site: Site) -> list[Board]:
    """Returns a board for each class whose table was drawn; those of `make reproduce` before kept ones."""
    drawn = {e.id: e for e in [*site.kept, *site.entries]}
    found = []
    for id, title in CLASSES.items():
        entry = drawn.get(id)
        if entry is not None and entry.csv is not None and not entry.problems:
            head, body = parsed(site.assets[entry.csv].decode())
            found.append(_board(title, entry, head, body))
    return found


def _board(title: str, entry: Entry, head: Sequence[str], body: Sequence[Sequence[str]]) -> Board:
    rows = [dict(zip(head, row, strict=True)) for row in body]
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    by_name: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_name.setdefault(row["algorithm"], []).append(row)
    lines = [_line(name, own) for name, own in by_name.items()]
    ran = [line for line in lines if line.ranks]
    # a mean over few easy problems is no better than one over all: those that ran on more come first
    ran.sort(key=lambda line: (not line.feasible, -len(line.ranks), line.rank))
    return Board(title, entry, problems, ran, [line for line in lines if not line.ranks])


def _line(name: str, rows: Sequence[dict[str, str]]) -> Line:
    ranked = {row["problem"]: row["rank"].partition(" ")[::2] for row in rows if row["rank"]}
    shares = {row["problem"]: row["share of hypervolume"] for row in rows if row.get("share of hypervolume")}
    violations = [float(row["violation (max)"]) for row in rows if row.get("violation (max)")]
    return Line(
        name,
        {problem: float(rank) for problem, (rank, _) in ranked.items()},
        {problem: interval for problem, (_, interval) in ranked.items()},
        {problem: float(share) for problem, share in shares.items()},
        max(violations, default=None),
        {row["problem"]: row["note"] for row in rows if not row["rank"]},
    )
