"""Steps with two objectives beside those with three: `python -m benchmarks.objectives [--rounds 5]`.

CPU microseconds of a step of the batch on DTLZ2 (M + 9 variables) without recording, all cases in turn: by
formulas in arrays (as before a process has loaded the compiled functions), by the compiled functions, and
with three objectives.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator

import torch

from benchmarks.loops import algorithms
from benchmarks.timing import Work, alternate
from mobench.core import Runs, loop
from mobench.core.output import make_output
from mobench.core.preferences import spread
from mobench.kernels import native
from mobench.oracles import Exact
from mobench.problems import DTLZ2
from mobench.solvers import plane

METHODS = ("mgda", "pmtl", "epo", "ferero")


@contextlib.contextmanager
def formulas() -> Iterator[None]:
    """Nothing compiled for two objectives."""
    compiled: Callable[[str], native.Calls | None] = plane.native
    plane.native = lambda name: None
    try:
        yield
    finally:
        plane.native = compiled


def steps(name: str, M: int, R: int, many: int, compiled: bool) -> Work:
    """CPU seconds of a step of R runs."""
    problem = DTLZ2(M=M)
    algorithm = algorithms()[name]
    preferences = spread(min(R, 10), M) if R > 1 else torch.full((1, M), 1.0 / M, dtype=torch.float64)
    runs = Runs.product(preferences, list(range(max(1, R // len(preferences))))).take(range(R))
    theta = problem.initial(runs)

    def work(_: int) -> float:
        oracle = Exact(problem, runs)
        rules = {rule: make_output(rule) for rule in algorithm.outputs}
        state = loop.start(oracle, algorithm, rules, theta, runs, many)
        with contextlib.nullcontext() if compiled else formulas():
            began = time.process_time()
            loop.advance(oracle, algorithm, rules, state, many)
            return (time.process_time() - began) / many

    return work


def main() -> None:
    """Prints a table: least and median of the rounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objectives", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    native.PATIENCE = 0
    print("| method | R | M = 2, formulas | M = 2 | M = 3 | formulas / M = 2 | M = 2 / M = 3 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in METHODS:
        for R in (1, 10, 100, 1000):
            samples = alternate(
                {
                    "formulas": steps(name, 2, R, chosen.steps, False),
                    "two": steps(name, 2, R, chosen.steps, True),
                    "three": steps(name, 3, R, chosen.steps, True),
                },
                chosen.rounds,
            )
            cells = [f"{1e6 * s.least:.0f} ({1e6 * s.median:.0f})" for s in samples.values()]
            before = samples["formulas"].over(samples["two"])
            beside = samples["two"].over(samples["three"])
            print(f"| {name} | {R} | {' | '.join(cells)} | {before:.2f}x | {beside:.2f} |", flush=True)


if __name__ == "__main__":
    main()
