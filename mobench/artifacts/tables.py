"""Tables as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pandas as pd

Cell = tuple[int, str]  # row, column
LONG = 40  # letters: a column with longer cells is a paragraph
PARAGRAPH = r">{\raggedright\arraybackslash}p{4cm}"
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
    """Returns a LaTeX tabular (booktabs, array), in which columns of long texts are paragraphs."""
    names = [str(name) for name in frame.columns]
    rows = [[str(x) for x in row] for row in frame.itertuples(index=False)]
    longest = [max((len(row[j]) for row in rows), default=0) for j in range(len(names))]
    lines = [
        rf"\begin{{tabular}}{{{''.join(PARAGRAPH if n > LONG else 'l' for n in longest)}}}",
        r"\toprule",
        " & ".join(map(escape, names)) + r" \\",
        r"\midrule",
    ]
    for i, row in enumerate(rows):
        cells = [
            rf"\textbf{{{escape(x)}}}" if (i, name) in bold else escape(x)
            for name, x in zip(names, row, strict=True)
        ]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
