"""Whole jobs of two checkouts beside each other: `python -m benchmarks.whole_jobs BEFORE AFTER [--rounds 3]`.

10 preferences x 1000 steps on VLMOP2, and one step, in processes that run already: CPU time of `mobench.run`
from its call to its rows. The two processes take turns, job by job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

METHODS = ("ls", "tch", "stch", "mgda", "pmtl", "epo")
WEIGHTS = [[0.05 + 0.1 * k, 0.95 - 0.1 * k] for k in range(10)]
START = {"kind": "uniform", "low": -0.5, "high": 0.5, "per_preference": True, "scale": None, "noise": None}
CASES: dict[str, dict[str, Any]] = {
    "n = 20": {"problem.n": 20, "preferences": 10, "problem.start.per_preference": True},
    "n = 10, weights and start given": {
        "problem.n": 10,
        "preferences.weights": WEIGHTS,
        "problem.start": START,
    },
}
SHORT = 6  # jobs of one step for each round


def work() -> None:
    """Reads jobs from stdin, runs them and prints their milliseconds of CPU time."""
    import mobench

    for line in sys.stdin:
        began = time.process_time()
        mobench.run(problem="vlmop2", progress=False, logger="local", **json.loads(line))
        print(1e3 * (time.process_time() - began), flush=True)


@contextmanager
def worker(tree: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs jobs of a checkout."""
    with tempfile.TemporaryDirectory(prefix="mobench-whole-jobs-") as folder:
        places = {"PYTHONPATH": str(tree.absolute()), "MOBENCH_OUTPUTS": folder, "OMP_NUM_THREADS": "1"}
        line = [sys.executable, str(Path(__file__).absolute()), "--work"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            line, env=os.environ | places, cwd=folder, stdin=pipe, stdout=pipe, text=True
        ) as process:
            yield process
            assert process.stdin is not None
            process.stdin.close()


def milliseconds(process: subprocess.Popen[str], **job: Any) -> float:
    """Returns the milliseconds of a job."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(job), file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    """Prints a table of the least and median times of both, and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_jobs", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(METHODS), help="comma-separated methods")
    chosen = parser.parse_args()
    print("| job | before, ms: least (median) | after | ratio |\n| --- | ---: | ---: | ---: |")
    with ExitStack() as stack:
        both = [stack.enter_context(worker(tree)) for tree in (chosen.before, chosen.after)]

        def alternate(name: str, seeds: list[int], **job: Any) -> None:
            times = [[milliseconds(process, seeds=[seed], **job) for process in both] for seed in seeds]
            before, after = zip(*times[1:], strict=True)  # the first does not count
            cells = [f"{min(t):.1f} ({median(t):.1f})" for t in (before, after)]
            ratios = f"{min(before) / min(after):.2f}x ({median(before) / median(after):.2f}x)"
            print(f"| {name} | {' | '.join(cells)} | {ratios} |", flush=True)

        for case, keys in CASES.items():
            for method in chosen.only.split(","):
                seeds = list(range(chosen.rounds + 1))
                alternate(f"{case}: {method}", seeds, algorithm=method, steps=1000, **keys)
            seeds = list(range(100, 101 + SHORT * chosen.rounds))
            for name in ("one step", "the same, finished before"):
                alternate(f"{case}: ls, {name}", seeds, algorithm="ls", steps=1, **keys)


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        main()
