"""What a job holds in memory at least, before any of it is allocated: a job that cannot fit is refused, not
killed.

The estimate is a lower bound, of what every method on every problem holds at once; gradients, activations and
a problem's own data come on top. So nothing is refused that would have run. Of the host's memory only: a GPU
that is full says so itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mobench.errors import ConfigError
from mobench.jobs.job import Job

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
NUMBER = 8  # bytes of a float64 or int64
ROW = 64  # of a Python list beside its entries
FLOAT = 32  # of a Python float and the pointer to it


def available() -> int | None:
    """Bytes that this process can have, with swap: the machine's, or what its control group leaves;
    None where nobody says.
    """
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
        free = sum(int(lines[key].split()[0]) * 1024 for key in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError, IndexError):
        return None
    left = _group()
    return free if left is None else min(free, left)


def _group() -> int | None:
    """What a container's limit leaves (control groups, version 2); None without a limit."""
    try:
        limit = int((CGROUP / "memory.max").read_text())  # "max": no limit
        used = int((CGROUP / "memory.current").read_text())
        parts = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        swap = (
            (CGROUP / "memory.swap.max").read_text().strip() if (CGROUP / "memory.swap.max").exists() else "0"
        )
    except (OSError, ValueError):
        return None
    cached = int(parts.get("inactive_file", 0)) + int(parts.get("active_file", 0))
    return limit - used + cached + (int(swap) if swap.isdigit() else limit)


def count(preferences: Any, M: int) -> int | None:
    """How many preferences a configuration asks for;
    None if `resolve` has to find out what is wrong with it.
    """
    if isinstance(preferences, int):
        return preferences
    if not isinstance(preferences, Mapping):
        return None
    steps = preferences.get("simplex_steps")
    number = preferences.get("count")
    if any(preferences.get(key) is not None for key in ("weights", "rays_deg")):
        return None  # a list that was written down is in memory already
    if steps is not None:
        return math.comb(steps + M - 1, M - 1) if isinstance(steps, int) and steps > 0 else None
    return number if isinstance(number, int) else None


def of_preferences(U: int, M: int) -> int:
    """Bytes for U preferences: the tensor twice, and twice as lists of Python numbers,
    from which the job's name is made.
    """
    return U * (2 * M * NUMBER + 2 * (ROW + FLOAT * M) + NUMBER)


def recorded(steps: int, every: int, dense: int) -> int:
    """How many steps a history has: the first and the last, the first `dense`, and every `every`-th."""
    begun = min(max(dense, 1), steps)
    later = (steps - 1) // every - (begun - 1) // every if every > 0 else 0
    return begun + later + 1


def of_runs(job: Job) -> dict[str, int]:
    """Bytes by what holds them, at the moment when the most is held: in a step,
    or when the rows are written.
    """
    R = len(job.runs)
    U = len(job.runs.all)
    P = job.problem.dim
    M = job.problem.n_objectives
    record = job.config["record"]
    T = recorded(job.steps, record["every"], record["dense"])
    theta = R * P * job.dtype.itemsize
    here = job.device.type == "cpu"
    fixed = R * (M + 2) * NUMBER + U * M * NUMBER  # weights, seeds, places
    # theta, direction, proposal and next theta; at the end of a job the last theta, and the history as a
    # list, as a table, as columns and with run, step and seed
    averages = 2 * theta if job.algorithm.optimizer == "adam" else 0
    step = {"variables": (4 * theta if here else theta) + averages, "history": 0, "preferences": fixed}
    outputs = getattr(job.problem, "held_outputs", 0) * job.dtype.itemsize if here else 0
    evaluation = {"variables": theta, "history": 0, "preferences": fixed, "outputs": outputs}
    end = {
        "variables": theta,
        "history": T * R * NUMBER * (3 * M + 3),
        "preferences": fixed,
    }
    named = {
        "variables": theta,
        "history": T * R * NUMBER * M,
        "preferences": fixed + of_preferences(U, M),
    }
    return max(step, evaluation, end, named, key=lambda parts: sum(parts.values()))


def _words(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def check_preferences(preferences: Any, M: int) -> None:
    """Raise ConfigError if the preferences alone cannot be held. Called before the first of them is made."""
    U = count(preferences, M)
    free = available()
    if U is None or free is None or of_preferences(U, M) <= free:
        return
    raise ConfigError(
        f"{U:,} preferences of {M} objectives need at least {_words(of_preferences(U, M))} of memory, but "
        f"{_words(free)} are available. Request fewer preferences; preferences=1000 already gives a dense "
        "front."
    )


def refusal(job: Job) -> str | None:
    """Why a job cannot be held, and what to do; None if it can.

    Called before its first step. ConfigErrors are the job's own: its sizes are known when its data are.
    """
    parts = of_runs(job)
    free = available()
    need = sum(parts.values())
    if free is None or need <= free:
        return None
    U = len(job.runs.all)
    R = len(job.runs)
    most = max(parts, key=lambda name: parts[name])
    seeds = len(set(job.runs.seeds.tolist()))
    advice = (
        f"Use fewer runs per job: put fewer preferences ({U:,}) or seeds ({seeds:,}) in one job, "
        "and the others in further jobs"
    )
    if most == "history":
        advice = (
            f"Record fewer steps (record.every={_rarer(job)}, or 0 for the first and the last step only), "
            "or use fewer runs per job"
        )
    elif most == "outputs":
        advice = (
            "Losses and measures of all data need the outputs of all samples at once: give a forward= that "
            "returns fewer, such as the losses of each sample, of which the losses are then means"
        )
    elif hasattr(job.problem, "max_batch_runs"):
        advice += "; hardware.max_batch_runs limits the activations, which need further memory"
    shown = ", ".join(f"{name} {_words(size)}" for name, size in parts.items() if size)
    return (
        f"{R:,} runs of {job.problem.dim:,} variables over {job.steps:,} steps need at least {_words(need)} "
        f"of memory ({shown}), but {_words(free)} are available. {advice}."
    )


def _rarer(job: Job) -> int:
    """record.every for a history of a thousand steps."""
    return max(10 * max(1, job.config["record"]["every"]), math.ceil(job.steps / 1000))
