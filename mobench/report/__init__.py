"""The report: a static site of artifacts, claims, jobs and data sets, and the same results as Markdown.

mobench report [--results docs/results.md]

May import: cli, config, jobs, system, errors.
"""

from mobench.report.build import build
from mobench.report.markdown import (
    paper_markdown,
    papers_markdown,
    pictures_markdown,
    results_markdown,
    results_summary_markdown,
    verdicts,
)
from mobench.report.reading import declared

__all__ = [
    "build",
    "declared",
    "paper_markdown",
    "papers_markdown",
    "pictures_markdown",
    "results_markdown",
    "results_summary_markdown",
    "verdicts",
]
