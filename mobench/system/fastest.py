"""Chooses the fastest of several implementations on a device; measured once per device."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Mapping

import torch

from mobench.errors import StoreError
from mobench.system import gpu
from mobench.system.files import alone, write_json
from mobench.system.forms import read_json
from mobench.system.paths import cache_root

ROUNDS = 3
FILE = "fastest.json"
"""In the cache: {device and version of PyTorch: {question: {"choice": name, "milliseconds": {name: t}}}}"""


def fastest(question: str, ways: Mapping[str, Callable[[], object]], device: torch.device) -> str:
    """Returns the name of the way that takes the least time on a device.

    A choice is stored in the cache and never changes there: a job that is resumed computes as it began. Each
    way is called once without a clock, and then `ROUNDS` times in turn; the least time counts. A way that
    runs out of memory is not chosen.

    Args:
        question: what the ways compute, and its size; another question is measured anew.
    """
    path = cache_root() / FILE
    machine = f"{_name(device)}, torch {torch.__version__}"
    with alone(path):
        choices = read_json(path) if path.exists() else {}
        of_machine = choices.setdefault(machine, {})
        if question not in of_machine:
            seconds_of = _measured(ways, device)
            of_machine[question] = {
                "choice": min(seconds_of, key=lambda name: seconds_of[name]),
                "milliseconds": {name: 1e3 * seconds for name, seconds in seconds_of.items()},
            }
            # a cache that cannot be written costs a measurement each time
            with contextlib.suppress(StoreError):
                write_json(path, choices)
    choice = str(of_machine[question]["choice"])
    if choice not in ways:
        raise StoreError(
            f"{path} names {choice!r} for {question}; expected one of {', '.join(ways)}. Delete the file."
        )
    return choice


def _name(device: torch.device) -> str:
    """Returns the name of the device, for a processor with the number of threads."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread(s)"


def _measured(ways: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Returns the seconds that each way takes."""
    taken: dict[str, float] = {}
    for k in range(ROUNDS + 1):
        for name, work in ways.items():
            if k and name not in taken:
                continue
            try:
                gpu.synchronize(device)
                begun = time.perf_counter()
                work()
                gpu.synchronize(device)
            except torch.OutOfMemoryError:
                taken.pop(name, None)
                continue
            seconds = time.perf_counter() - begun
            taken[name] = min(seconds, taken.get(name, seconds)) if k > 1 else seconds
    if not taken:
        raise torch.OutOfMemoryError("none of the implementations fits into the memory of the device")
    return taken
