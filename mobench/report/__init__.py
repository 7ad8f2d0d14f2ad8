"""The report: a static site of artifacts, claims, boards and data sets, and the same results as Markdown.

mobench report [--results docs/results.md]

Both are written from one model of the folders (`reading`, `model`), which a command reads once.

May import: artifacts, cli, config, jobs, system, errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mobench.report.build import build
from mobench.report.markdown import records
from mobench.report.reading import artifacts, declared

__all__ = ["build", "declared", "verdicts"]


def verdicts(root: Path) -> list[dict[str, Any]]:
    """Returns every claim that was judged below an outputs folder, with its verdict."""
    return records(artifacts(root))
