"""More steps of a finished job: with `checkpoint.keep=true` a job keeps its last state, and a job that
differs from it in nothing but a larger number of steps continues from there.

Its rows are those of all steps at once, bit for bit on a CPU. That holds only where the first steps do not
depend on how many will follow:

    the state before the first step is the same for both numbers   (all that a method learns of it is there)
    no output rule goes over the trajectory a second time

Where it does not hold, the job begins anew and says why.

A job that is cut into parts (`mobench.jobs.parts`) continues part by part, if it is cut in the same way: each
part has the state of its own runs. States are not joined or cut again: in a batch of another size a run is
the same up to rounding only, so the rows would not be those of all steps at once, bit for bit.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from mobench.core import loop
from mobench.core.output import Output
from mobench.errors import StoreError
from mobench.jobs.job import Job
from mobench.jobs.store import STATE, JobFolder


def earlier(
    job: Job,
    folder: JobFolder,
    outputs: Mapping[str, Output],
    fits: Callable[[str, int], Callable[[Any], None]],
) -> tuple[dict[str, Any] | None, list[str]]:
    """The last state of the longest finished job that this one continues, or None; and what to tell the user.

    The state is a checkpoint of that job, with the name of its folder as `continued`. `fits` returns, for the
    name and the steps of that job, what raises an error for a state that this job cannot continue from.
    """
    jobs = sorted(_shorter(job, folder), key=lambda found: -found[0])
    if not jobs:
        return None, []
    several = [name for name, rule in outputs.items() if rule.passes > 1]
    if several:
        return None, [
            f"starts at step 0, although {jobs[0][1].key} has finished {jobs[0][0]} steps: output rule "
            f"{several[0]} runs all steps a second time, with weights that depend on all of them."
        ]
    messages = []
    for steps, other in jobs:
        if "parts" in other.meta():
            messages.append(
                f"{other.key} has finished {steps} steps in parts, and each part has a state of its own. Cut "
                "this job in the same way (hardware.split) to continue from them."
            )
            continue
        if not (other.path / STATE).exists():
            messages.append(
                f"{other.key} has finished {steps} steps, but without checkpoint.keep=true, so there is no "
                "state to continue from."
            )
            continue
        if (where := _depends(job, outputs, steps)) is not None:
            return None, [
                f"starts at step 0, although {other.key} has finished {steps} steps: "
                f"{type(job.algorithm).__name__} depends on the number of steps (its state {where!r})."
            ]
        payload, damaged = other.load_state(fits(other.key, steps))
        messages += damaged
        if payload is not None:
            words = f"continues from step {steps} of {other.key}."
            return {**payload, "continued": other.key}, [*messages, words]
    return None, messages


def _shorter(job: Job, folder: JobFolder) -> Iterator[tuple[int, JobFolder]]:
    """Finished jobs of the same folder that differ in a smaller number of steps alone, with this number."""
    wanted = _without_steps(job.identity)
    alike = glob.escape(job.key.rpartition("-")[0])
    for path in folder.path.parent.glob(f"{alike}-*/meta.json"):
        other = JobFolder(path.parent)
        try:
            identity = other.meta()["identity"]
            if identity["steps"] < job.steps and other.done and _without_steps(identity) == wanted:
                yield identity["steps"], other
        except (StoreError, KeyError, TypeError):
            continue  # a folder that cannot be read is none to continue from


def _without_steps(identity: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in identity.items() if key != "steps"}, sort_keys=True)


def _depends(job: Job, outputs: Mapping[str, Output], steps: int) -> str | None:
    """The name of a part of the first state that is another one for so many steps; None if there is none."""
    theta = job.joined.initial(job.runs).to(job.device, job.dtype)
    runs = job.runs.to(job.device)
    first, other = (
        loop.first_state(job.joined, job.algorithm, outputs, theta, runs, number)
        for number in (steps, job.steps)
    )
    return _difference(first, other)


def _difference(a: Any, b: Any) -> str | None:
    """Where two states differ; "" at the top."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in [*a, *(key for key in b if key not in a)]:
            if key not in a or key not in b:
                return str(key)
            if (found := _difference(a[key], b[key])) is not None:
                return f"{key}.{found}".rstrip(".")
        return None
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
    else:
        same = bool(a == b)
    return None if same else ""
