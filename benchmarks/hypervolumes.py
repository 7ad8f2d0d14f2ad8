"""Exact hypervolumes of many objectives beside moocore's, of the same points in the same minutes:

    python -m benchmarks.hypervolumes [--rounds 5]

Seconds of CPU, the least of alternating rounds. Large sets, which moocore does not finish in minutes, have
no ratio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import moocore
import numpy as np

from benchmarks.timing import alternate
from mobench.metrics import hypervolume

SETS = {"sphere": ((100, 6), (200, 7), (60, 8), (30, 10)), "plane": ((100, 6), (200, 7), (60, 8), (30, 10))}
LARGE = {"sphere": ((100, 10), (40, 12), (20, 20)), "plane": ((100, 10), (40, 12))}
REFERENCE = 1.1


def points(kind: str, K: int, M: int) -> np.ndarray:
    """Nondominated points: directions of normal vectors, or shares of a uniform simplex."""
    rng = np.random.default_rng(K + M)
    if kind == "plane":
        return rng.dirichlet(np.ones(M), K)
    F = np.abs(rng.standard_normal((K, M)))
    return F / np.linalg.norm(F, axis=1, keepdims=True)


def measure(kind: str, K: int, M: int, rounds: int, peer: bool = True) -> dict[str, float | str | int | None]:
    """Returns the seconds of both, their ratio, and the relative difference of the volumes."""
    F = points(kind, K, M)
    cases: dict[str, Callable[[], float]] = {"mobench": partial(hypervolume, F, [REFERENCE] * M)}
    if peer:
        cases["moocore"] = lambda: float(moocore.hypervolume(F, ref=[REFERENCE] * M))
    values: dict[str, float] = {}

    def work(name: str, _: int) -> float:
        tick = time.process_time()
        values[name] = cases[name]()
        return time.process_time() - tick

    samples = alternate({name: partial(work, name) for name in cases}, rounds)
    return {
        "points": kind,
        "K": K,
        "M": M,
        "mobench, s": samples["mobench"].least,
        "moocore, s": samples["moocore"].least if peer else None,
        "ratio": samples["moocore"].over(samples["mobench"]) if peer else None,
        "difference": abs(values["moocore"] / values["mobench"] - 1) if peer else None,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hypervolumes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    for peer, sets in ((True, SETS), (False, LARGE)):
        for kind, sizes in sets.items():
            for K, M in sizes:
                line = measure(kind, K, M, rounds, peer)
                print(
                    ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items())
                )


if __name__ == "__main__":
    main()
