"""Peak memory of jobs with many preferences, and their steps: `python -m benchmarks.memory [METHOD ...]`.

Each job has five steps on VLMOP2 and runs in a fresh process, whose peak resident memory above that of the
import is reported; then steps of the loop alone take turns, in CPU time of one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

import torch

from benchmarks.peers import cpu
from benchmarks.timing import alternate
from mobench.core import Runs, loop
from mobench.core.preferences import spread
from mobench.oracles import Exact
from mobench.problems import VLMOP2
from tests.contract.cases import algorithm_of

SIZES = (100, 1000)
CHILD = """
import json, re, sys
from pathlib import Path
import mobench

mobench.run
def peak():  # ru_maxrss would begin with the peak of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
before = peak()
mobench.run("problem=vlmop2", f"algorithm={sys.argv[1]}", f"preferences={sys.argv[2]}", "steps=5",
            "record.every=0", "record.hypervolume_seconds=0.001", "rerun=true")
print(json.dumps(peak() - before))
"""


def job(method: str, R: int) -> float:
    """MiB above the import."""
    words = [sys.executable, "-c", CHILD, method, str(R)]
    with tempfile.TemporaryDirectory() as folder:
        where = {**os.environ, "MOBENCH_OUTPUTS": folder}
        done = subprocess.run(words, env=where, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def step(method: str, R: int) -> Callable[[], object]:
    """One step of the loop, again and again from the same state."""
    problem = VLMOP2(n=20)
    runs = Runs.product(spread(R, 2), [0])
    oracle = Exact(problem, runs)
    algorithm = algorithm_of(method)
    first = loop.start(oracle, algorithm, {}, oracle.initial(runs), runs, 10**6)
    return lambda: loop.advance(oracle, algorithm, {}, dict(first), 1)


def main(methods: Sequence[str]) -> None:
    torch.set_num_threads(1)
    for R in SIZES:
        for method in methods:
            print(f"{method}, {R} preferences: {job(method, R):.0f} MiB above the import", flush=True)
        samples = alternate({m: cpu(step(m, R), 0.1) for m in methods}, 3)
        for method, sample in samples.items():
            text = f"{1e3 * sample.least:.3g} / {1e3 * sample.median:.3g} ms"
            print(f"{method}, {R} preferences: {text} a step", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["ls", "epo", "ferero", "pmtl"])
