"""CSV files rounded for reading: the tables of artifacts."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

from mobench.report.words import number

TABLE_ROWS = 400  # longer tables are cut on the page; table.csv beside it has all rows
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Sheet:
    """A CSV file, rounded for reading; `total` rows, of which the first ones are here."""

    head: list[str]
    rows: list[list[str]]
    total: int


def sheet(raw: str) -> Sheet:
    """Returns table.csv with its numbers rounded.

    Raises:
        ValueError: It is no table.
    """
    lines = [row for row in csv.reader(io.StringIO(raw), strict=True) if row]
    if not lines:
        raise ValueError("the file is empty")
    head, *body = lines
    for i, row in enumerate(body):
        if len(row) != len(head):
            raise ValueError(f"row {i + 1} has {len(row)} cells, but the header has {len(head)}")
    return Sheet(head, [[_shown(cell.strip()) for cell in row] for row in body[:TABLE_ROWS]], len(body))


def _shown(cell: str) -> str:
    if _NUMBER.fullmatch(cell):
        return number(cell)
    return "–" if cell.lower() in ("", "nan") else cell
