"""Starts trained by linear scalarization (AdamW on the mean of the objectives), kept on disk."""

from __future__ import annotations

import contextlib
import fcntl
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.preferences import Runs
from mobench.core.random import seed_for
from mobench.core.sampled import Sampled
from mobench.data.files import digest_of
from mobench.errors import ConfigError, DataError
from mobench.system.files import write_atomic
from mobench.system.paths import cache_root

SAVED = 60.0  # seconds between two states of a long training


def descended(
    problem: Sampled,
    key: str,
    runs: Runs,
    theta: Float[Tensor, "R P"],
    steps: int,
    step_size: float,
    batch_size: int,
    device: torch.device,
) -> Float[Tensor, "R P"]:
    """theta after `steps` steps of AdamW on the mean of the objectives over minibatches, float32; the step
    size rises linearly to step_size over the first 30 % and falls linearly to 0 (as the public code of
    FERERO's speech experiment does).

    Each seed's is trained by itself and kept in the cache folder under what it depends on
    (`key`: all of the problem): methods that start there start from the same numbers, and a long training
    goes on where it was stopped. The folder may be deleted at any time.
    Raises ConfigError for settings that cannot train, or do not.
    """
    if steps < 1 or batch_size < 1 or not step_size > 0:
        raise ConfigError(
            f"problem.start: steps={steps} and batch_size={batch_size} must be at least 1 and "
            f"step_size={step_size} must be > 0."
        )
    rows: dict[tuple[int, bytes], Tensor] = {}
    out = []
    for r, seed in enumerate(runs.seeds.tolist()):
        first = theta[r : r + 1]
        same = (seed, first.numpy().tobytes())  # preferences of a seed share it, unless their starts differ
        if same not in rows:
            rows[same] = _row(problem, key, seed, first, steps, step_size, batch_size, device)
        out.append(rows[same])
    return torch.cat(out)


def _row(
    problem: Sampled,
    key: str,
    seed: int,
    theta: Float[Tensor, "1 P"],
    steps: int,
    step_size: float,
    batch_size: int,
    device: torch.device,
) -> Float[Tensor, "1 P"]:
    axes = {"problem": key, "steps": steps, "step_size": step_size, "batch_size": batch_size}
    key_of_start = seed_for(seed, use="start", first=digest_of(theta.numpy()), **axes)
    path = cache_root() / f"start-{problem.name}-{key_of_start:016x}.npy"
    with _alone(path):  # jobs of a sweep that start there wait for the one that trains it
        if not path.is_file():
            _train(problem, seed, theta, steps, step_size, batch_size, device, path)
        return torch.from_numpy(np.load(path, allow_pickle=False)).double()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a file for writing, while others wait; the lock ends with its process, however that ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.with_suffix(".lock").open("a")
    except OSError as error:
        raise DataError(
            f"The start could not be stored in {path.parent}: {error}. "
            "Choose another folder with MOBENCH_CACHE=DIR."
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _train(
    problem: Sampled,
    seed: int,
    theta: Float[Tensor, "1 P"],
    steps: int,
    step_size: float,
    batch_size: int,
    device: torch.device,
    path: Path,
) -> None:
    x = theta.to(device, torch.float32, copy=True).requires_grad_(True)
    optimizer = torch.optim.AdamW([x], lr=step_size, foreach=False)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, step_size, total_steps=steps + 1, anneal_strategy="linear", cycle_momentum=False
    )
    partial = path.with_suffix(".pt")
    t = 0
    if partial.is_file():
        state = torch.load(partial, weights_only=True, map_location=device)
        x.data.copy_(state["x"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        t = state["t"]
    keys = torch.tensor(
        [seed_for(seed, problem=problem.name, use="start batches")], dtype=torch.int64, device=device
    )
    saved = time.monotonic()
    with torch.enable_grad():
        while t < steps:
            loss = problem.values(x, problem.draw(keys, "batch", t, batch_size)).mean()
            (x.grad,) = torch.autograd.grad(loss, x)
            optimizer.step()
            schedule.step()
            t += 1
            if time.monotonic() - saved > SAVED:
                now = {
                    "x": x.data,
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "t": t,
                }
                _write(partial, lambda buffer, now=now: torch.save(now, buffer))
                saved = time.monotonic()
    trained = x.detach().cpu()
    if not bool(trained.isfinite().all()):
        raise ConfigError(
            f"The start of {problem.name} diverged (seed {seed}); "
            f"choose problem.start.step_size below {step_size}."
        )
    _write(path, lambda buffer: np.save(buffer, trained.numpy(), allow_pickle=False))
    partial.unlink(missing_ok=True)


def _write(path: Path, save: Any) -> None:
    buffer = io.BytesIO()
    save(buffer)
    write_atomic(path, buffer.getvalue())
