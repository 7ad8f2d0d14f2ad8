"""Random numbers of any module's forward pass: each run draws under its seed.

PyTorch's generators are seeded for one forward pass of one run and put back afterwards, so a run draws the
same alone and in a batch, and again when a job is resumed, whatever the module calls (dropout, `torch.rand`,
the dropout of an RNN). Numbers of Python's `random` and of NumPy have no such seed; `moved` notices them.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def seeded(key: int | None, device: torch.device) -> Iterator[None]:
    """Seeds PyTorch's generators of the CPU and of this device by `key` inside of the block.

    Args:
        key: None: they are left as they are.
    """
    if key is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(key)
        yield


def generators() -> tuple[Any, ...]:
    """Returns the states of the generators of this process."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    # NumPy's numbers are made 624 at a time; the place in them is a part of the state
    return torch.get_rng_state(), random.getstate(), np.append(numpy[1], numpy[2])


def moved(before: tuple[Any, ...]) -> bool:
    """Returns whether a number was drawn since, outside of blocks of `seeded` or not by PyTorch."""
    state, python, numpy = generators()
    same = torch.equal(state, before[0]) and python == before[1] and bool((numpy == before[2]).all())
    return not same
