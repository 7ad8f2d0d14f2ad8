"""Tables as Markdown and LaTeX, both as narrow as their page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd

Cell = tuple[int, str]  # row, column
TEXT = 345.0  # pt: \textwidth of LaTeX's article at 10 pt, on A4 and letter paper
LETTER = 4.5  # pt: a letter of \footnotesize, as wide as any digit and most letters
GAP = 7.0  # pt between columns
LONG = 26  # letters: longer cells are broken
NAME = 20  # those of the first column, which names the rows and is repeated, sooner
STD = re.compile(r"(?P<name>.*) std$|^std (?P<task>\d+)$")


def spread(mean: float, std: float | None, seeds: int | None = None) -> str:
    """Writes a mean with two significant digits of its spread; without one of fewer than five seeds.

    1.2345, 0.0567 gives "1.234 ± 0.057".
    """
    if pd.isna(mean):
        return "–"
    if std is None or pd.isna(std) or std <= 0.0 or (seeds is not None and seeds < 5):
        return f"{mean:.0f}" if 99.95 <= abs(mean) < 1e5 else f"{mean:#.3g}"
    digits = 1 - int(f"{std:.1e}".split("e")[1])
    if not 0 <= digits <= 7:
        return f"{mean:.4g} ± {std:.2g}"
    return f"{mean:.{digits}f} ± {std:.{digits}f}"


def with_spreads(formatted: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the table with each column "<name> std" in the cells of its mean, as "mean ± std"."""
    for column in list(frame):
        match = STD.match(str(column))
        if match is None:
            continue
        base = match["name"] or f"task {match['task']}"
        if base not in frame or not pd.api.types.is_numeric_dtype(frame[base]):
            continue
        counts = [getattr(r, "finished", None) for r in frame["runs"]] if "runs" in frame else None
        counts = counts or [None] * len(frame)
        rows = zip(frame[base], frame[column], counts, strict=True)
        formatted[base] = [spread(mean, std, n) for mean, std, n in rows]
        formatted = formatted.drop(columns=column)
    return formatted


def markdown(frame: pd.DataFrame, bold: Collection[Cell] = ()) -> str:
    """Returns a Markdown table; `bold`: cells in bold type, by row and column."""
    rows = [
        [f"**{x}**" if (i, str(name)) in bold else str(x) for name, x in zip(frame.columns, row, strict=True)]
        for i, row in enumerate(frame.itertuples(index=False))
    ]
    cells = [[str(c) for c in frame.columns], *rows]
    cells = [[c.replace("|", "\\|") for c in row] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + " --- |" * len(frame.columns))
    return "\n".join(lines) + "\n"


_TEX = {
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "^": r"\^{}",
    "~": r"\~{}",
    "{": r"\{",
    "}": r"\}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "°": r"$^\circ$",
    "²": "$^2$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "λ": r"$\lambda$",
    "[": "{[}",  # after a line's end LaTeX would read an optional argument
}


def escape(text: Any) -> str:
    """Returns a text for LaTeX; formulas between two dollars stay as they are."""
    parts = re.split(r"(\$[^$]*\$)", str(text))
    return "".join(
        part if k % 2 else "".join(_TEX.get(ch, r"\$" if ch == "$" else ch) for ch in part)
        for k, part in enumerate(parts)
    )


def latex(frame: pd.DataFrame, bold: Collection[Cell] = ()) -> str:
    r"""Returns LaTeX tabulars (booktabs, array) that fit \textwidth.

    Long cells and headers are broken. A table that is still too wide is split into several tabulars one below
    the other, which repeat the columns that name the rows.
    """
    names = [str(c) for c in frame.columns]
    rows = [[str(x) for x in row] for row in frame.itertuples(index=False)]
    widths = [
        column_width(name, [row[j] for row in rows], LONG if j else NAME) for j, name in enumerate(names)
    ]
    return "\n\\medskip\n\n".join(
        _tabular(names, rows, widths, block, bold) for block in blocks(names, rows, widths)
    )


def column_width(name: str, cells: Sequence[str], long: int = LONG) -> int:
    """Returns how many letters a column is wide: those of its longest cell, `long` of text that is broken."""
    words = [word for word in re.split(r"\s+", name) if word]
    longest = max((len(c) for c in cells), default=0)
    word = max((len(w) for c in cells for w in c.split()), default=0)
    return max(min(longest, max(long, word)), *(len(w) for w in words), 1) if words else max(longest, 1)


def blocks(names: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[list[int]]:
    """Returns the columns of each tabular, those that name the rows first."""
    keys = 1
    while keys < min(3, len(names)) and len({tuple(row[:keys]) for row in rows}) < len(rows):
        keys += 1
    while keys > 1 and _points(widths[:keys]) > 0.6 * TEXT:
        keys -= 1
    complete: list[list[int]] = []
    block = list(range(keys))
    for j in range(keys, len(names)):
        if len(block) > keys and _points([widths[k] for k in (*block, j)]) > TEXT:
            complete.append(block)
            block = list(range(keys))
        block.append(j)
    return [*complete, block]


def _points(widths: Sequence[int]) -> float:
    return LETTER * sum(widths) + GAP * (len(widths) - 1)


def _tabular(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    block: Sequence[int],
    bold: Collection[Cell],
) -> str:
    small = r">{\footnotesize}"
    limits = list(widths)
    if (over := _points([widths[j] for j in block]) - TEXT) > 0:  # one wide column beside those of the keys
        limits[block[-1]] = max(8, limits[block[-1]] - int(over / LETTER) - 1)
    broken = {j for j in block if any(len(row[j]) > limits[j] for row in rows)}
    ragged = r">{\footnotesize\raggedright\arraybackslash}"
    spec = [f"{ragged}p{{{LETTER * limits[j]:.0f}pt}}" if j in broken else f"{small}l" for j in block]
    between = rf"@{{\hspace{{{GAP:g}pt}}}}"
    lines = [r"\begin{tabular}{@{}" + between.join(spec) + "@{}}", r"\toprule"]
    lines.append(" & ".join(_header(names[j], limits[j], j in broken) for j in block) + r" \\")
    lines.append(r"\midrule")
    for i, row in enumerate(rows):
        cells = [rf"\textbf{{{escape(row[j])}}}" if (i, names[j]) in bold else escape(row[j]) for j in block]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _header(name: str, letters: int, broken: bool) -> str:
    """Returns the name of a column, in several lines if it is longer than its cells."""
    if broken or len(name) <= letters:
        return escape(name)
    lines = textwrap.wrap(name, letters, break_long_words=False, break_on_hyphens=False)
    return (
        r"\begin{tabular}[b]{@{}l@{}}\footnotesize "
        + r"\\ \footnotesize ".join(map(escape, lines))
        + r"\end{tabular}"
    )
