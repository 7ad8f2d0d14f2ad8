"""A job's settings of CUDA: current device, arithmetic of products, synchronization and peak memory.

For a job on a CPU all of it does nothing, but that no autocast reaches it.

PyTorch lets cuDNN's convolutions round their factors to TF32 (10 bits of mantissa, Ampere and later) and pick
kernels whose sums change from call to call. By default, results depend on neither;
`hardware.tf32=true` allows TF32 in convolutions and matrix products, and is part of the job's name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def current(device: torch.device, tf32: bool = False) -> Iterator[None]:
    """Makes a device the current one, and its arithmetic that of the job, until the end of the block.

    A user's torch.autocast, which would round products to half precision, has no effect inside.

    Args:
        tf32: whether float32 products may round their factors to TF32.
    """
    with torch.autocast(device.type, enabled=False):
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device), _arithmetic("tf32" if tf32 else "ieee"):
            torch.cuda.reset_peak_memory_stats(device)
            yield


@contextmanager
def _arithmetic(products: str) -> Iterator[None]:
    """Sets the precision of float32 products, "ieee" or "tf32"; convolutions agree in each call."""
    cudnn: Any = torch.backends.cudnn  # its stubs name no parts
    kinds: tuple[Any, ...] = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [kind.fp32_precision for kind in kinds]
    flags = (cudnn.deterministic, cudnn.benchmark)
    try:
        for kind in kinds:
            kind.fp32_precision = products
        cudnn.deterministic, cudnn.benchmark = (True, False)
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = flags
        for kind, old in zip(kinds, before, strict=True):
            kind.fp32_precision = old


def synchronize(device: torch.device) -> None:
    """Waits until a GPU has done all work in its queue: a clock that is read earlier does not measure it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_mib(device: torch.device) -> float | None:
    """The most memory that tensors took on a GPU since `current` began, in MiB; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


class Laps:
    """Seconds of some parts of a device's work.

    On a GPU a lap is the time between two events in the queue, so that taking it makes nobody wait; on a CPU
    it is the time between two looks at the clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._events: list[tuple[Any, Any]] = []
        self._seconds = 0.0

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Counts what the block does."""
        if not self._on_gpu:
            tick = time.monotonic()
            yield
            self._seconds += time.monotonic() - tick
            return
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        yield
        last.record()
        self._events.append((first, last))

    def taken(self) -> float:
        """Returns the seconds of all laps since the last call; after `synchronize`."""
        milliseconds = sum(first.elapsed_time(last) for first, last in self._events)
        seconds = self._seconds + milliseconds / 1e3
        self._events.clear()
        self._seconds = 0.0
        return seconds
