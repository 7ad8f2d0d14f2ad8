"""One run for all that are equal: a method that ignores preferences gives those of a seed the same steps.

A method learns of a preference in `Algorithm.init` only, and a problem where a run begins. So runs whose
first states agree to the bit, in the iterate and in what oracle, method and output rules keep, agree in all
later ones: one of them is trained, and its numbers are those of the others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from mobench.core import loop
from mobench.core.output import make_output
from mobench.core.types import State
from mobench.core.watched import Keeping, Watched
from mobench.jobs.job import Job


@dataclass(frozen=True)
class Alike:
    """Runs of a job that stand for all.

    Attributes:
        job: with these runs alone.
        group: which of them each run of the whole job is equal to.
    """

    job: Job
    group: Int[Tensor, " R"]

    def spread(self, tree: Any) -> Any:
        """The same for all runs: each tensor has the runs as its first axis."""
        n = len(self.job.runs)
        return tree_map_only(Tensor, lambda x: x[self.group] if x.ndim and len(x) == n else x, tree)


def alike(job: Job) -> Alike | None:
    """Returns runs that stand for all of a job on its device; None where no two are known to be equal."""
    problem = job.problem
    if job.algorithm.preferred or job.algorithm.together or job.config.layers:
        return None
    if problem.starts_by_preference:
        return None
    # one run may end, or be kept, earlier than its neighbour
    chooses = isinstance(problem, Watched) and problem.stop is not None
    if chooses or (isinstance(problem, Keeping) and problem.keep is not None):
        return None
    variants = job.runs.variant
    seeds = job.runs.seeds.tolist()
    keys = list(zip(seeds, [0] * len(seeds) if variants is None else variants.tolist(), strict=True))
    places: dict[tuple[int, int], int] = {}
    group = [places.setdefault(name, len(places)) for name in keys]
    if len(places) == len(keys):
        return None
    which = [group.index(g) for g in range(len(places))]
    distinct = Alike(_some(job, which), torch.tensor(group, device=job.device))
    return distinct if _equal(_first(job), distinct.spread(_first(distinct.job))) else None


def _some(job: Job, which: list[int]) -> Job:
    rows = torch.tensor(which, device=job.device)
    columns = {name: getattr(job.algorithm, name)[rows] for name in job.varied}
    algorithm = job.algorithm.stacked(columns) if columns else job.algorithm
    varied = {name: values[rows.cpu()] for name, values in job.varied.items()}
    return dataclasses.replace(job, runs=job.runs.take(which), algorithm=algorithm, varied=varied)


def _first(job: Job) -> State:
    outputs = {name: make_output(name) for name in job.algorithm.outputs}
    theta = job.joined.initial(job.runs).to(job.device, job.dtype)
    runs = job.runs.to(job.device)
    return loop.first_state(job.joined, job.algorithm, outputs, theta, runs, job.steps)


def _equal(one: State, other: State) -> bool:
    leaves, form = tree_flatten(one)
    others, other_form = tree_flatten(other)
    return form == other_form and all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else bool(a == b)
        for a, b in zip(leaves, others, strict=True)
    )
