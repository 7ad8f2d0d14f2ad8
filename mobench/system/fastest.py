"""Chooses the fastest of several implementations on a device; measured once per device."""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from mobench.errors import StoreError
from mobench.system import gpu
from mobench.system.files import alone, write_json
from mobench.system.paths import cache_root

ROUNDS = 3
FILE = "fastest.json"
"""In the cache: {device and version of PyTorch: {question: {"choice": name, "milliseconds": {name: t}}}}"""


def fastest(question: str, ways: Mapping[str, Callable[[], object]], device: torch.device) -> str:
    """The name of the way that takes the least time on a device.

    An answer is stored in the cache and never changes there: a job that is resumed computes as it began. Each
    way is called once without a clock, and then `ROUNDS` times in turn; the least time counts. A way that
    runs out of memory is not chosen.

    Args:
        question: what the ways compute, and its size; another name asks again.
    """
    path = cache_root() / FILE
    machine = f"{_name(device)}, torch {torch.__version__}"
    with alone(path):
        answers = _stored(path)
        own = answers.setdefault(machine, {})
        if question not in own:
            taken = _measured(ways, device)
            own[question] = {
                "choice": min(taken, key=lambda name: taken[name]),
                "milliseconds": {name: 1e3 * seconds for name, seconds in taken.items()},
            }
            with contextlib.suppress(
                StoreError
            ):  # a cache that cannot be written costs a measurement each time
                write_json(path, answers)
    choice = str(own[question]["choice"])
    if choice not in ways:
        raise StoreError(
            f"{path} names {choice!r} for {question}; expected one of {', '.join(ways)}. Delete the file."
        )
    return choice


def _name(device: torch.device) -> str:
    """The device, with what else decides how fast it is."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread(s)"


def _stored(path: Path) -> dict[str, Any]:
    """All answers.

    Raises:
        StoreError: the file holds something else.
    """
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}); delete it.") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path} is damaged (expected a mapping); delete it.")
    return found


def _measured(ways: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Seconds of each way."""
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
