"""Which of several implementations of a computation a device does fastest; measured once per device."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import torch

from mobench.errors import StoreError
from mobench.system import gpu
from mobench.system.files import write_json
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
    stored = json.loads(path.read_text()) if path.exists() else {}
    machine = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    answers = stored.setdefault(machine, {})
    if question not in answers:
        taken = _measured(ways, device)
        answers[question] = {
            "choice": min(taken, key=lambda name: taken[name]),
            "milliseconds": {name: 1e3 * seconds for name, seconds in taken.items()},
        }
        write_json(path, stored)
    choice = str(answers[question]["choice"])
    if choice not in ways:
        raise StoreError(
            f"{path} names {choice!r} for {question}; expected one of {', '.join(ways)}. Delete the file."
        )
    return choice


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
        raise torch.OutOfMemoryError("none of the implementations fits into the memory of the GPU")
    return taken
