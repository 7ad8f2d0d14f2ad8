"""Alternating measurements A, B, ..., A, B, ...: on a shared machine the least of several rounds repeats."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Work = Callable[[int], float]
"""Round number -> seconds per unit (an iteration, a solve)."""


@dataclass(frozen=True)
class Sample:
    """Seconds per unit, one entry per round."""

    rounds: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return float(np.median(self.rounds))

    def over(self, other: Sample) -> float:
        """Ratio of the least times."""
        return self.least / other.least


def alternate(cases: Mapping[str, Work], rounds: int) -> dict[str, Sample]:
    """Every case once per round, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for k in range(-1, rounds):
            for name, work in cases.items():
                seconds = work(max(k, 0))
                if k >= 0:
                    times[name].append(seconds)
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return {name: Sample(tuple(values)) for name, values in times.items()}


def timed(work: Callable[[], object], units: int) -> float:
    """Seconds per unit of one call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / units


def repeated(work: Callable[[], object], at_least: float) -> Work:
    """Seconds per call, from as many calls as take about `at_least` seconds."""
    work()
    calls = max(1, round(at_least / max(timed(work, 1), 1e-7)))

    def many(_: int) -> float:
        def loop() -> None:
            for _ in range(calls):
                work()

        return timed(loop, calls)

    return many
