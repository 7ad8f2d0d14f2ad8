"""Tables as Markdown and LaTeX."""

from __future__ import annotations

from typing import Any

import pandas as pd


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table."""
    cells = [
        [str(c) for c in frame.columns],
        *[[str(x) for x in row] for row in frame.itertuples(index=False)],
    ]
    cells = [[c.replace("|", "\\|") for c in row] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + " --- |" * len(frame.columns))
    return "\n".join(lines) + "\n"


_TEX = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "^": r"\^{}", "~": r"\~{}", "±": r"$\pm$", "–": "--"}


def latex(frame: pd.DataFrame) -> str:
    """A LaTeX tabular (booktabs)."""

    def escape(x: Any) -> str:
        return "".join(_TEX.get(ch, ch) for ch in str(x))

    lines = [r"\begin{tabular}{" + "l" * len(frame.columns) + "}", r"\toprule"]
    lines.append(" & ".join(escape(c) for c in frame.columns) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(escape(x) for x in row) + r" \\" for row in frame.itertuples(index=False)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
