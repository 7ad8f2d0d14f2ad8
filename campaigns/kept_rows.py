"""Are kept rows what today's program gives? Runs them again and compares.

A kept job that took at most --seconds when it was recorded is run again whole, as `mobench verify` does with
a job of a bundle: a row is identical, lies in the interval of one more seed, or lies outside. Pairs of the
boards are run again in a worktree without their rows, with the same seeds and trials, and their scores and
angles are compared with the kept ones; with --perturb, from starts that are so much larger, which says what
rounding alone may do to a row. Table: experiments/kept_rows.csv, a line for each job, and for each method of
a board. Run by hand (an hour of one core, with MOBENCH_DATA for jobs):

    python -m campaigns.kept_rows --seconds 90
    python -m campaigns.kept_rows --boards preference single many constrained --without phn cosmos

and the latter with --perturb 1e-14 once more.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from campaigns.tolerances import ROOT, git
from mobench.artifacts.rows import JobRows
from mobench.bundle.verify import IDENTICAL, INSIDE, NOT_RUN, OUTSIDE, rerun
from mobench.comparison import rows
from mobench.jobs.store import JobFolder
from mobench.system.paths import results_root

TABLE = ROOT / "experiments" / "kept_rows.csv"
FIELDS = ("group", "name", "rows", IDENTICAL, INSIDE, OUTSIDE, NOT_RUN, "largest", "mean", "words")
ROUNDING = 1e-4  # of a score or an angle, which are kept with five digits
# mobench with other starts: theta (1 + factor)
PERTURBED = """
import sys
from mobench.core import loop
factor, first = 1 + float(sys.argv.pop(1)), loop.first_state
loop.first_state = lambda oracle, algorithm, rules, theta, *rest: first(
    oracle, algorithm, rules, theta * factor, *rest
)
from mobench.cli.entry import main
sys.exit(main())
"""


def jobs(seconds: float) -> Iterator[dict[str, object]]:
    """Runs kept jobs again that took at most so long, and yields a line for each."""
    root = results_root() / "runs"
    took = {
        path.parent.name: float(json.loads(path.read_text())["seconds_wall"])
        for path in root.glob("*/meta.json")
    }
    data = os.environ.get("MOBENCH_DATA", str(ROOT / "data"))
    for key in sorted((key for key in took if took[key] <= seconds), key=took.__getitem__):
        job = JobRows(JobFolder(root / key))
        number = len(job.final)
        results = rerun(job, range(number), data, lambda line: None)
        count = Counter(one.outcome for one in results)
        words = next((one.words for one in results if one.outcome in (OUTSIDE, NOT_RUN)), "")
        words = words or next((one.words for one in results if one.words), "")
        yield {"group": "job", "name": key, "rows": number, **count, "words": words}


def boards(
    names: list[str], without: list[str], replication: int, perturb: float
) -> Iterator[dict[str, object]]:
    """Runs the pairs of boards again, and yields a line for each board and method."""
    stored = rows.kept(replication)
    stored = stored[stored["board"].isin(names) & ~stored["method"].isin(without)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", str(tree), "HEAD")
        try:
            now = _again(tree, Path(folder) / "outputs", stored, perturb)
        finally:
            git("worktree", "remove", "--force", str(tree))
    both = stored.merge(now, "left", list(rows.KEY), suffixes=("", "_now"), validate="one_to_one")
    group = f"replication {replication}{f', starts times 1 + {perturb:g}' if perturb else ''}"
    for (board, method), pair in both.groupby(["board", "method"]):
        different = _differ(pair, "score") | _differ(pair, "angle")
        change = pair["score_now"] - pair["score"]
        yield {
            "group": f"{board}, {group}",
            "name": method,
            "rows": len(pair),
            IDENTICAL: int((~different).sum()),
            OUTSIDE: int(different.sum()),
            "largest": f"{change.abs().max():.4f}",
            "mean": f"{change.mean():+.5f}",
        }


def _differ(pair: pd.DataFrame, name: str) -> pd.Series:
    """Says of each row that a number differs by more than its digits, or is missing on one side only."""
    then, now = pair[name], pair[f"{name}_now"]
    return ((now - then).abs() > ROUNDING * then.abs()) | (then.isna() != now.isna())


def _again(tree: Path, outputs: Path, stored: pd.DataFrame, perturb: float) -> pd.DataFrame:
    """Returns the rows that the program in `tree` computes where it has none of the kept ones."""
    names, (replication,) = stored["board"].unique(), stored["replication"].unique()
    methods = sorted(stored["method"].unique())
    for path in (tree / "experiments" / "results" / "cross").glob("*.csv.gz"):
        frame = rows.read(path)
        again = frame["board"].isin(names) & frame["method"].isin(methods)
        rows.write(path, frame[~(again & (frame["replication"] == replication))])
    environment = os.environ | {"PYTHONPATH": str(tree), "MOBENCH_OUTPUTS": str(outputs), "MPLBACKEND": "Agg"}
    program = ["-c", PERTURBED, str(perturb)] if perturb else ["-m", "mobench"]
    chosen = [f"cross.algorithms=[{','.join(methods)}]", f"cross.only=[{','.join(names)}]"]
    chosen += [f"cross.replication={replication}", "logger=local"]
    command = [sys.executable, *program, "+experiment=cross/zoo", *chosen]
    subprocess.run(command, cwd=tree, env=environment, check=True)
    return rows.read(outputs / "artifacts" / "cross" / "zoo" / "rows.csv.gz")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--boards", nargs="*", default=[])
    parser.add_argument("--without", nargs="*", default=[], help="methods whose trials are jobs of their own")
    parser.add_argument("--replication", type=int, default=0)
    parser.add_argument("--perturb", type=float, default=0.0)
    options = parser.parse_args()
    lines = csv.DictReader(TABLE.read_text().splitlines()) if TABLE.exists() else ()
    table: dict[tuple[str, str], dict[str, object]] = {
        (line["group"], line["name"]): dict(line) for line in lines
    }
    again = boards(options.boards, options.without, options.replication, options.perturb)
    for source in (jobs(options.seconds), again if options.boards else ()):
        for line in source:
            print(*(f"{value}" for value in line.values()), flush=True)
            table[str(line["group"]), str(line["name"])] = line
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(table[key] for key in sorted(table))


if __name__ == "__main__":
    main()
