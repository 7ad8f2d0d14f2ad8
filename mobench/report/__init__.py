"""The report: a static site of artifacts, claims, boards and data sets, and the same results as Markdown.

mobench report [--results docs/results.md]

Both are templates over one model of the folders (`reading`, `model`), which a command reads once.

May import: artifacts, cli, config, jobs, system, errors.
"""

from mobench.report.markdown import verdicts
from mobench.report.pages import build

__all__ = ["build", "verdicts"]
