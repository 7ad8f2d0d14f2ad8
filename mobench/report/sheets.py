"""CSV files rounded for reading: the tables of artifacts."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

from mobench.report.words import number

TABLE_ROWS = 400  # longer tables are cut on the page; table.csv beside it has all rows


@dataclass(frozen=True)
class Cell:
    """A table cell: text, and the decimals that it lacks to align with its column."""

    text: str
    pad: str = ""


@dataclass(frozen=True)
class Column:
    """A table column's head."""

    name: str
    numeric: bool
    published: bool


@dataclass(frozen=True)
class Sheet:
    """A CSV file, rounded for reading; `total` rows, of which the first ones are here."""

    columns: list[Column]
    rows: list[list[Cell]]
    total: int


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def parsed(raw: str) -> tuple[list[str], list[list[str]]]:
    """Returns head and body; raises ValueError if it is no table."""
    lines = [row for row in csv.reader(io.StringIO(raw), strict=True) if row]
    if not lines:
        raise ValueError("the file is empty")
    head = lines[0]
    body = lines[1:]
    for i, row in enumerate(body):
        if len(row) != len(head):
            raise ValueError(f"row {i + 1} has {len(row)} cells, but the header has {len(head)}")
    return head, body


def sheet(raw: str) -> Sheet:
    """Returns table.csv with its numbers rounded and aligned at the decimal point.

    Raises:
        ValueError: It is no table.
    """
    head, body = parsed(raw)
    columns: list[Column] = []
    cells: list[list[Cell]] = []
    for j, name in enumerate(head):
        values = [row[j].strip() for row in body[:TABLE_ROWS]]
        plain = [bool(_NUMBER.fullmatch(v)) for v in values]
        texts = [
            number(v) if is_number else "–" if v.lower() in ("", "nan") else v
            for v, is_number in zip(values, plain, strict=True)
        ]
        numeric = all(p or s == "–" or "±" in s for p, s in zip(plain, texts, strict=True)) and any(
            plain + ["±" in s for s in texts]
        )
        places = [
            len(s.partition(".")[2]) if p and "·" not in s else 0 for p, s in zip(plain, texts, strict=True)
        ]
        most = max(places, default=0) if not any("·" in s or "±" in s for s in texts) else 0
        pads = [
            ("." if most and not n else "") + "0" * max(0, most - n) if p and numeric else ""
            for p, n in zip(plain, places, strict=True)
        ]
        published = bool(re.search(r"published|printed|\bpaper\b", name, re.IGNORECASE))
        columns.append(Column(name, numeric, published))
        cells.append([Cell(s, pad) for s, pad in zip(texts, pads, strict=True)])
    return Sheet(columns, [list(row) for row in zip(*cells, strict=True)], len(body))
