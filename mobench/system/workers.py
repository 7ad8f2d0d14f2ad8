"""The environment that all processes that run jobs inherit.

Written by `use_huge_pages`, for torch, and by `environment`, which a sweep holds open while it launches;
read by `at_once` and `since`, in the workers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

PARALLEL = "MOBENCH_PARALLEL"  # how many jobs run at once on a worker's machine
SINCE = "MOBENCH_SINCE"  # when the sweep began, in seconds since the epoch


def use_huge_pages() -> None:
    """Asks torch to put large tensors on huge pages: with networks, page faults are else a third of a step.

    torch reads the variable at its first allocation, so this comes before any tensor is made; importing torch
    makes none. Processes that are started later inherit it. A value that the user has set stays.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


@contextlib.contextmanager
def environment(parallel: int | None = None, since: float | None = None) -> Iterator[None]:
    """Tells workers that are started inside the block how many jobs run at once, and when the sweep began."""
    values = {PARALLEL: parallel, SINCE: since}
    variables = {name: str(value) for name, value in values.items() if value is not None}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def at_once() -> int:
    """Returns how many jobs of the sweep run at once on this machine: 1 without a sweep."""
    return int(os.environ.get(PARALLEL) or 1)


def since() -> float | None:
    """Returns when this process' sweep began, in seconds since the epoch; None without a sweep."""
    seconds = os.environ.get(SINCE)
    return float(seconds) if seconds else None
