"""Are kept rows what today's program gives? Runs them again and compares.

A kept job that took at most --seconds when it was recorded is run again whole, as `mobench verify` does with
a job of a bundle: a row is identical, lies in the interval of one more seed, or lies outside. Pairs of the
boards are run again in a worktree without their rows, with the same seeds and trials, and their scores and
angles are compared with the kept ones; with --perturb, from starts that are so much larger, which says what
rounding alone may do to a row. Table: experiments/kept_rows.csv, a line for each job, and for each method of
a board. Run by hand (an hour of one core, with MOBENCH_DATA for all jobs):

    python -m campaigns.kept_rows --seconds 90
    python -m campaigns.kept_rows --boards preference single many constrained [--perturb 1e-14]
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
from mobench.bundle.verify import IDENTICAL, INSIDE, NOT_RUN, OUTSIDE, rerun
from mobench.comparison import rows
from mobench.errors import BundleError
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
        files = {f"runs/{key}/{path.name}": path.read_bytes() for path in (root / key).iterdir()}
        number = len(pd.read_csv(root / key / "final.csv"))
        try:
            found = rerun(files, {key: range(number)}, data, lambda line: None)
        except BundleError as error:
            yield {"group": "job", "name": key, "rows": number, NOT_RUN: number, "words": str(error)}
            continue
        count = Counter(one.outcome for one in found)
        words = next((one.words for one in found if one.outcome in (OUTSIDE, NOT_RUN)), "")
        words = words or next((one.words for one in found if one.words), "")
        yield {"group": "job", "name": key, "rows": number, **count, "words": words}


def boards(names: list[str], replication: int, perturb: float) -> Iterator[dict[str, object]]:
    """Runs all pairs of boards again, and yields a line for each board and method."""
    kept = rows.kept(replication)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", str(tree), "HEAD")
        for path in (tree / "experiments" / "results" / "cross").glob("*.csv.gz"):
            frame = rows.read(path)
            rows.write(path, frame[~(frame["board"].isin(names) & (frame["replication"] == replication))])
        methods = sorted(kept[kept["board"].isin(names)]["method"].unique())
        outputs = Path(folder) / "outputs"
        environment = os.environ | {
            "PYTHONPATH": str(tree),
            "MOBENCH_OUTPUTS": str(outputs),
            "MPLBACKEND": "Agg",
        }
        chosen = [f"cross.algorithms=[{','.join(methods)}]", f"cross.only=[{','.join(names)}]"]
        program = ["-c", PERTURBED, str(perturb)] if perturb else ["-m", "mobench"]
        command = [sys.executable, *program, "+experiment=cross/zoo", *chosen]
        subprocess.run(
            [*command, f"cross.replication={replication}", "logger=local"],
            cwd=tree,
            env=environment,
            check=True,
        )
        now = rows.read(outputs / "artifacts" / "cross" / "zoo" / "rows.csv.gz")
        git("worktree", "remove", "--force", str(tree))
    group = f"replication {replication}{f', starts times 1 + {perturb:g}' if perturb else ''}"
    both = kept.merge(now, on=list(rows.KEY), suffixes=("", "_now"))
    for (board, method), pair in both[both["board"].isin(names)].groupby(["board", "method"]):
        moved = (pair["score_now"] - pair["score"]).abs().fillna(0)
        turned = (pair["angle_now"] - pair["angle"]).abs().fillna(0)
        different = (moved > ROUNDING * pair["score"].abs()) | (
            turned > ROUNDING * pair["angle"].abs().fillna(0)
        )
        yield {
            "group": f"{board}, {group}",
            "name": method,
            "rows": len(pair),
            IDENTICAL: int((~different).sum()),
            OUTSIDE: int(different.sum()),
            "largest": f"{moved.max():.4f}",
            "mean": f"{(pair['score_now'] - pair['score']).mean():+.5f}",
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--boards", nargs="*", default=[])
    parser.add_argument("--replication", type=int, default=0)
    parser.add_argument("--perturb", type=float, default=0.0)
    options = parser.parse_args()
    lines = csv.DictReader(TABLE.read_text().splitlines()) if TABLE.exists() else ()
    table: dict[tuple[str, str], dict[str, object]] = {
        (line["group"], line["name"]): dict(line) for line in lines
    }
    for source in (
        jobs(options.seconds),
        boards(options.boards, options.replication, options.perturb) if options.boards else (),
    ):
        for line in source:
            print(*(f"{value}" for value in line.values()), flush=True)
            table[str(line["group"]), str(line["name"])] = line
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(table[key] for key in sorted(table))


if __name__ == "__main__":
    main()
