"""The table.csv of an artifact, rounded for reading, and the boards of the comparison of methods."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mobench.report.words import number

if TYPE_CHECKING:
    from mobench.report.model import Entry, Site

LENGTH = 400  # longer tables are cut on the page; table.csv beside it has all rows
SCORED = "cross/zoo"
SCORES = {  # board of the comparison -> class of problems
    "preference": "Following preferences",
    "single": "One answer, no preference",
    "constrained": "Problems with constraints",
    "many": "Five and ten objectives",
    "networks": "One answer, networks",
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def parsed(raw: bytes) -> list[list[str]]:
    """Returns the rows of a CSV file, its head first.

    Raises:
        ValueError: It is no table.
    """
    rows = [row for row in csv.reader(io.StringIO(raw.decode()), strict=True) if row]
    if not rows:
        raise ValueError("the file is empty")
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(f"row {i} has {len(row)} cells, but the header has {len(rows[0])}")
    return rows


@dataclass(frozen=True)
class Sheet:
    """A table, rounded for reading; `total` rows, of which the first ones are here."""

    head: list[str]
    rows: list[list[str]]
    numeric: list[bool]  # of each column
    total: int


def sheet(raw: bytes) -> Sheet:
    """Returns table.csv with its numbers rounded."""
    head, *body = parsed(raw)
    rows = [[_rounded(cell.strip()) for cell in row] for row in body[:LENGTH]]
    numeric = [
        all(_NUMBER.fullmatch(row[j].strip()) or "±" in row[j] or row[j] in ("", "nan") for row in body)
        for j in range(len(head))
    ]
    return Sheet(head, rows, numeric, len(body))


def _rounded(cell: str) -> str:
    return number(cell) if _NUMBER.fullmatch(cell) else "–" if cell.lower() in ("", "nan") else cell


@dataclass(frozen=True)
class Board:
    """A board of the comparison: its methods in order, as rows of table.csv.

    Args:
        name, title: of the board. entry: the artifact.
        lines: a row for each method that ranks.
        problems: those that rank the methods. beside: further ones.
        scores: by method and problem.
        absent: methods that do not rank, and why.
    """

    name: str
    title: str
    entry: Entry
    lines: list[dict[str, str]]
    problems: list[str]
    beside: list[str]
    scores: dict[tuple[str, str], float]
    absent: dict[str, str]

    @property
    def close(self) -> int:
        """The number of other methods whose interval overlaps that of the first."""
        return sum(float(line["high"]) >= float(self.lines[0]["low"]) for line in self.lines[1:])


def boards(site: Site) -> list[Board]:
    """Returns the boards of the comparison, if it was drawn."""
    entry = {e.id: e for e in [*site.all.kept, *site.all.entries]}.get(SCORED)
    if entry is None or "table.csv" not in entry.files:
        return []
    head, *body = parsed(entry.files["table.csv"])
    rows = [dict(zip(head, row, strict=True)) for row in body]
    by_name = {name: [row for row in rows if row.get("board") == name] for name in SCORES}
    return [_board(name, entry, lines) for name, lines in by_name.items() if lines]


def _board(name: str, entry: Entry, rows: Sequence[dict[str, str]]) -> Board:
    each = [row for row in rows if row["problem"] != "all"]
    ran = [row for row in each if row["score"]]
    lines = [row for row in rows if row["problem"] == "all" and row["place"]]
    ranked = {row["method"] for row in lines}
    below = [row for row in rows if row["problem"] == "all" and not row["place"]]
    absent = {row["method"]: row["note"] for row in [*each, *below] if row["method"] not in ranked}
    problems = dict.fromkeys(row["problem"] for row in ran if row["note"] != "not ranked")
    beside = dict.fromkeys(row["problem"] for row in ran if row["problem"] not in problems)
    scores = {(row["method"], row["problem"]): float(row["score"]) for row in ran}
    return Board(name, SCORES[name], entry, lines, list(problems), list(beside), scores, absent)
