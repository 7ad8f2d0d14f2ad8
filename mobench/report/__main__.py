"""`python -m mobench.report`: build outputs/report/index.html; `--results` also writes the Markdown results page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mobench.errors import MobenchError
from mobench.report.build import build, declared, results_markdown, results_summary_markdown
from mobench.store import write_atomic


def main(argv: list[str] | None = None) -> int:
    """Build what was asked for, say where it is; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mobench.report", description=__doc__)
    parser.add_argument("--outputs", type=Path, help="the outputs folder (default: $MOBENCH_OUTPUTS, else outputs)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also write the results as Markdown")
    parser.add_argument("--summary", action="store_true", help="only print the short Markdown table, build nothing")
    args = parser.parse_args(argv)
    try:
        expected = declared()
        if args.summary:
            print(results_summary_markdown(args.outputs, expected), end="")
            return 0
        print(f"report: {build(args.outputs, expected)}")
        if args.results is not None:
            write_atomic(args.results, results_markdown(args.outputs, expected).encode())
            print(f"results: {args.results}")
    except MobenchError as error:
        print(f"mobench.report: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
