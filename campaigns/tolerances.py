"""Did each tolerance stand in a commit before the commit of its rows? For all rows that the project has.

For each artifact of experiments/results/artifacts.yaml the commit that added its first rows is looked up; the
program of the commit before it, in a worktree of its own, draws the artifact at smoke scale, and so does
today's. A tolerance is the same; reworded, with the same numbers; extended, with further numbers or a form
that gives "partial"; or it has other numbers. A claim is new, or the old program did not draw the artifact. A
comparison that was turned round in the same words would not be seen. Table: experiments/tolerances.csv.
Run by hand (a quarter of an hour of one core):

    mobench keep --draw && python -m campaigns.tolerances [ARTIFACT ...]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import yaml

from mobench.system.paths import outputs_root

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "experiments" / "results"
RUNS = "experiments/results/runs"
TABLE = ROOT / "experiments" / "tolerances.csv"
FIELDS = ("artifact", "claim", "rows", "state", "before", "now")


def git(*arguments: str) -> str:
    """Returns what git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def drawn(tree: Path, outputs: Path, artifact: str, overrides: list[str]) -> dict[str, dict[str, str]]:
    """Returns the claims of an artifact as the program of `tree` draws them at smoke scale, if it can."""
    environment = os.environ | {"PYTHONPATH": str(tree), "MOBENCH_OUTPUTS": str(outputs), "MPLBACKEND": "Agg"}
    environment.pop("MOBENCH_DATA", None)
    command = [sys.executable, "-m", "mobench", f"+experiment={artifact}", "scale=smoke", *overrides]
    subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False, timeout=900)
    path = outputs / "artifacts" / artifact / "claims.json"
    return {c["id"]: c for c in json.loads(path.read_text())} if path.exists() else {}


def first_rows(jobs: list[str]) -> str:
    """Returns the commit that added the first rows of an artifact's jobs, under whatever name."""
    added = [
        git("log", "--follow", "-M50%", "--diff-filter=A", "--format=%ct %H", "--", f"{RUNS}/{job}/final.csv")
        for job in jobs
    ]
    lines = [text.splitlines()[-1] for text in added if text]
    return min(lines, key=lambda line: int(line.split()[0])).split()[1] if lines else ""


def numbers(tolerance: str) -> set[float]:
    """Returns the absolute values of the numbers of a tolerance."""
    return {abs(float(number)) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", tolerance)}


def state(before: str, now: str) -> str:
    """Says how two tolerances differ."""
    if not before:
        return "new"
    if before == now:
        return "same"
    if not numbers(before) <= numbers(now):
        return "other numbers"
    more = numbers(before) != numbers(now) or ("partial" in now and "partial" not in before)
    return "extended" if more else "reworded"


def compared(artifact: str, overrides: list[str], jobs: list[str], scratch: Path) -> list[dict[str, str]]:
    """Returns a line for each claim of an artifact."""
    commit = first_rows(jobs)
    if not commit:
        return []
    tree = scratch / commit[:10]
    if not tree.exists():
        git("worktree", "add", "--detach", str(tree), f"{commit}^")
    before = drawn(tree, scratch / f"then-{commit[:10]}", artifact, overrides)
    now = drawn(ROOT, scratch / "now", artifact, overrides)
    lines = []
    for id, claim in now.items():
        old = before.get(id, {}).get("tolerance", "")
        is_now = claim["tolerance"]
        verdict = state(old, is_now) if before else "not drawn then"
        lines.append(
            {
                "artifact": artifact,
                "claim": id,
                "rows": commit[:10],
                "state": verdict,
                "before": old,
                "now": is_now,
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*")
    only = parser.parse_args().only
    by_artifact = yaml.safe_load((RESULTS / "artifacts.yaml").read_text())
    rows = csv.DictReader(TABLE.read_text().splitlines()) if TABLE.exists() else ()
    table = {(row["artifact"], row["claim"]): dict(row) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for artifact, overrides in by_artifact.items():
            if only and artifact not in only:
                continue
            settings = [o for o in overrides if not o.startswith(("scale=", "data=", "seeds="))]
            provenance = outputs_root() / "kept" / "artifacts" / artifact / "provenance.json"
            jobs = list(json.loads(provenance.read_text())["jobs"].values()) if provenance.exists() else []
            lines = compared(artifact, settings, jobs, scratch)
            print(artifact, dict(Counter(line["state"] for line in lines)), flush=True)
            table.update({(line["artifact"], line["claim"]): line for line in lines})
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(table[key] for key in sorted(table))
    git("worktree", "prune")  # their folders are gone


if __name__ == "__main__":
    main()
