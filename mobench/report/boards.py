"""Leaderboards: scores and order of each class of problems of the comparison (`cross/zoo`), as drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mobench.report.model import Entry, Site
from mobench.report.sheets import parsed

SCORED = "cross/zoo"
SCORES = {  # board of the comparison -> class of problems
    "preference": "Following preferences",
    "single": "One answer, no preference",
    "constrained": "Problems with constraints",
    "many": "Five and ten objectives",
    "networks": "One answer, networks",
}


@dataclass(frozen=True)
class Score:
    """The score of one method on a board of the comparison.

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
    """A board of the comparison: its methods in order, problems that rank them, and others beside those."""

    name: str
    title: str
    entry: Entry
    problems: list[str]
    beside: list[str]
    lines: list[Score]
    absent: dict[str, str]  # methods that do not rank, and why

    @property
    def close(self) -> int:
        """The number of other methods whose interval overlaps that of the first."""
        return sum(line.high >= self.lines[0].low for line in self.lines[1:])

    @property
    def constrained(self) -> bool:
        """True if feasible shares differ."""
        return any(line.feasible < 1 for line in self.lines)


def score_boards(site: Site) -> list[ScoreBoard]:
    """Returns the boards of the comparison, if it was drawn."""
    entry = {e.id: e for e in [*site.kept, *site.entries]}.get(SCORED)
    if entry is None or entry.csv is None or entry.problems:
        return []
    head, body = parsed(site.assets[entry.csv].decode())
    rows = [dict(zip(head, row, strict=True)) for row in body]
    by_board = {name: [row for row in rows if row.get("board") == name] for name in SCORES}
    return [_scored(name, entry, lines) for name, lines in by_board.items() if lines]


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
            {line["problem"]: float(line["score"]) for line in ran if line["method"] == row["method"]},
        )
        for row in rows
        if row["problem"] == "all" and row["place"]
    ]
    ranked_names = {line.name for line in lines}
    below = [row for row in rows if row["problem"] == "all" and not row["place"]]
    absent = {row["method"]: row["note"] for row in [*each, *below] if row["method"] not in ranked_names}
    ranked = dict.fromkeys(row["problem"] for row in ran if row["note"] != "not ranked")
    beside = dict.fromkeys(row["problem"] for row in ran if row["problem"] not in ranked)
    return ScoreBoard(name, SCORES[name], entry, list(ranked), list(beside), lines, absent)
