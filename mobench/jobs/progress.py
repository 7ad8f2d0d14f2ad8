"""A running job's progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tqdm import tqdm

from mobench.jobs.job import Job
from mobench.system.console import duration

LINE = 5.0  # seconds between plain lines, at least


def progress(job: Job, title: str, start: int, total: int) -> Callable[[int], None]:
    """Returns what is to be called with each step that has been reached.

    Args:
        title: what lines call the job; empty: its problem and method.
        start: the step that training continues from.
        total: the last step.
    """
    label = title or f"{job.problem.name}/{type(job.algorithm).__name__}"
    if not job.config.progress:
        return lambda t: None
    return _bar(label, start, total) if sys.stderr.isatty() else _lines(label, start, total)


def _bar(label: str, start: int, total: int) -> Callable[[int], None]:
    bar = tqdm(total=total, initial=start, desc=label, unit="step", leave=False)

    def update(t: int) -> None:
        bar.update(t - bar.n)
        if t >= total:
            bar.close()

    return update


def _lines(label: str, start: int, total: int) -> Callable[[int], None]:
    began = time.monotonic()
    last = began

    def line(t: int) -> None:
        nonlocal last
        if time.monotonic() - last > LINE and t < total:
            last = time.monotonic()
            left = (last - began) * (total - t) / max(t - start, 1)
            print(f"{label}: step {t} of {total}, about {duration(left)} left", file=sys.stderr, flush=True)

    return line
