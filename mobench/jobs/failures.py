"""Messages about a job that failed, and runs whose solve did: the reason, and what can be tried."""

from __future__ import annotations

import dataclasses
import math
import traceback
from typing import Any

import torch

from mobench.core.algorithm import Algorithm
from mobench.errors import ConfigError, MobenchError
from mobench.jobs.job import Job

# what torch says where tensors of two devices meet
APART = (
    "Expected all tensors to be on the same device",
    "indices should be either on cpu or on the same device",
)


def in_words(error: Exception, job: Job) -> str:
    """A failure, with advice where some is known."""
    if isinstance(error, torch.OutOfMemoryError):
        now = min(len(job.runs), job.config.hardware.max_batch_runs or len(job.runs))
        if now == 1:
            return (
                f"{job.device} ran out of memory with one run at a time. A smaller problem.model or "
                f"oracle.batch_size needs less memory, but changes the job. {error}"
            )
        fits = now // 2
        return (
            f"{job.device} ran out of memory with {now} of {len(job.runs)} runs at a time. "
            f"hardware.max_batch_runs={fits} needs about half the memory and gives the same rows (a smaller "
            f"oracle.batch_size does not). {error}"
        )
    if isinstance(error, MobenchError):
        return str(error)
    if job.device.type == "cuda" and any(words in str(error) for words in APART):
        return (
            f"Tensors of the CPU and of {job.device} meet in one operation{_place(error, job)}. With "
            "hardware=gpu, x is on the GPU: make tensors there (device=x.device, or torch.zeros_like(x)), "
            "move those that a function captures with .to(x.device), or run with hardware=cpu. torch says: "
            f"{error}"
        )
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{_place(error, job)}{notes}"


def _place(error: Exception, job: Job) -> str:
    """File and line of the user's own code where it was raised, "" if it has no part in it."""
    tops = {cls.__module__.partition(".")[0] for cls in job.config.own_classes.values()}
    frames = traceback.walk_tb(error.__traceback__)
    users = [(f, line) for f, line in frames if str(f.f_globals.get("__name__")).partition(".")[0] in tops]
    if not users:
        return ""
    frame, line = users[-1]
    return f" ({frame.f_code.co_filename}:{line}, in {frame.f_code.co_qualname})"


def advice_for(algorithm: Algorithm) -> str:
    """Returns advice for solves that fail: the reference solver,
    if the method has one that it does not use yet; else nothing.
    """
    # a field that varies is a column of values: any of them will do here, and constructors check numbers
    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm) if f.init}
    changes: dict[str, Any] = {k: float(v.flatten()[0]) for k, v in fields.items() if torch.is_tensor(v)}
    changes["subproblem"] = "cvxpy"
    try:
        other: Any = dataclasses.replace(algorithm, **changes)
    except (TypeError, ConfigError):  # no such field, or no such choice
        return ""
    if getattr(algorithm, "subproblem", None) == other.subproblem:
        return ""
    return "To compare with another solver, set algorithm.subproblem=cvxpy. "


def unsolved(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that ended with a failed solve: run, the step whose solve it was, its residual
    (None if there is none), and whether the program is proved to have no solution.
    """
    listed = []
    for run in state["fail"].nonzero().squeeze(1).tolist():
        kkt = float(state["kkt"][run])
        residual = kkt if 0 <= kkt < math.inf else None
        step = int(state["stopped"][run])
        proved = bool(state["unsolvable"][run])
        listed.append({"run": run, "step": step, "residual": residual, "no_solution": proved})
    return listed


def too_many_failed(job: Job, unsolved: list[dict[str, Any]]) -> str | None:
    """Returns a warning if more runs than `max_failure_share` ended with a failed solve;
    else None.
    """
    share = job.config.max_failure_share
    runs = len(job.runs)
    if len(unsolved) <= share * runs:
        return None
    first = ", ".join(f"run {u['run']} at step {u['step']}" for u in unsolved[:5])
    first += ", ..." if len(unsolved) > 5 else ""
    proved = sum(u["no_solution"] for u in unsolved)
    why = f" {proved} of these subproblems were proved to have no solution." if proved else ""
    worst = max((u["residual"] for u in unsolved if u["residual"] is not None), default=None)
    size = "" if worst is None else f", worst residual {worst:.2e}"
    return (
        f"{len(unsolved)} of {runs} runs ended with a failed subproblem solve ({first}{size}).{why} They "
        "stay at the point where the solve failed; no step or substitute is taken. Their rows are "
        "marked solver_failed and are excluded from every mean; the other runs are complete. "
        f"{advice_for(job.algorithm)}Up to a share of max_failure_share={share} of the runs may end this way "
        "without an error."
    )
