"""The report: every artifact with its claims on one static page, and the same results as Markdown.

python -m mobench.report [--results docs/results.md]
"""

from mobench.report.build import build, declared, results_markdown, results_summary_markdown

__all__ = ["build", "declared", "results_markdown", "results_summary_markdown"]
