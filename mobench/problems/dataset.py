"""The base of problems with a data set: its place and hash, starts of networks, means over chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mobench.core.cache import Cached
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sampled import Batch, Sampled
from mobench.core.start import start_generator


@runtime_checkable
class DataSet(Protocol):
    """The facts about a data set that rows record."""

    @property
    def label(self) -> str:
        """Its name, as figures and tables show it."""

    @property
    def digest(self) -> str:
        """SHA-256 of its numbers."""

    @property
    def embedded(self) -> bool:
        """True if it comes with mobench or a package, so that no file has to be provided."""


@dataclass(frozen=True, kw_only=True)
class DataProblem(Cached, Problem):
    """Base class of problems with a data set and losses >= 0.

    A subclass gives `data_set`, and with it `facts` records where the numbers of a job come from. `small` are
    settings with which a step takes milliseconds; tests of every combination of parts use them.

    Fields:
        data: name of the data set.
        data_root: folder of its files; no part of a job's identity.
        start: {kind: default}: the default initialisation of the network.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {"default": ()}
    execution_fields: ClassVar[tuple[str, ...]] = ("data_root",)
    small: ClassVar[Mapping[str, Any]] = {}

    data: str
    data_root: str = "data"
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "default"})

    @property
    @abstractmethod
    def data_set(self) -> DataSet:
        """The data; read once in a process."""

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """0, which a loss does not fall below."""
        return torch.zeros(self.n_objectives, dtype=torch.float64)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        data = self.data_set
        return {"data": data.label, "data_sha256": data.digest, "embedded": data.embedded}


class TrainTest(DataProblem, Sampled):
    """Base class of problems with a training and a test part, of which runs can share batches."""

    @abstractmethod
    def part(self, split: str, like: Tensor) -> tuple[Shaped[Tensor, "N ..."], Shaped[Tensor, "N ..."]]:
        """Inputs and targets of "train" or "test", on the device and in the types in which they are used."""

    def of_split(self, split: str, like: Tensor) -> tuple[Shaped[Tensor, "N ..."], Shaped[Tensor, "N ..."]]:
        """The result of `part`, moved to the device once."""

        def moved() -> tuple[Tensor, Tensor]:
            with torch.inference_mode(False):  # automatic differentiation will need them
                return self.part(split, like)

        return self.cache.made((split, like.dtype, like.device), moved)

    def samples(self, batch: Any, x: Float[Tensor, "R P"]) -> tuple[Tensor, Tensor]:
        """Training inputs and targets of each run, (R, B, ...).

        Args:
            batch: a `Batch` of groups of runs that share samples, indices (R, B), or None: all samples.
            x: parameters of the runs.
        """
        inputs, targets = self.of_split("train", x)
        if isinstance(batch, Batch) and len(batch.chosen) > 1:
            batch = batch.chosen[batch.group]
        if isinstance(batch, Tensor):
            return inputs[batch], targets[batch]
        if batch is not None:
            inputs = inputs[batch.chosen[0]]
            targets = targets[batch.chosen[0]]
        return inputs.expand(len(x), *inputs.shape), targets.expand(len(x), *targets.shape)

    def take(self, batch: Batch) -> Batch:
        """The batch as it is: runs of a group share its samples."""
        return batch

    def evaluate(self, split: str, x: Float[Tensor, "R P"]) -> tuple[Float[Tensor, "R M"], ...]:
        """Means over a whole split, without gradients; the losses come first."""
        raise NotImplementedError(f"{type(self).__name__} does not evaluate a split")

    def evaluated(self, split: str, x: Float[Tensor, "R P"]) -> tuple[Float[Tensor, "R M"], ...]:
        """Returns the result of `evaluate`; that of the last x is remembered."""
        return self.cache.at(x, split, lambda: self.evaluate(split, x))


def network_starts(
    problem: Problem,
    runs: Runs,
    draw: Callable[[np.random.Generator], Float[np.ndarray, " P"]],
    **axes: object,
) -> Float[Tensor, "R P"]:
    """Parameter vectors that `draw` makes, keyed by (problem, seed, axes), float64 on the CPU.

    All preferences of a seed start from the same network, unless `start` says per_preference.
    """
    rows = [torch.from_numpy(draw(start_generator(problem, runs, r, **axes))) for r in range(len(runs))]
    return torch.stack(rows)


def chunk_means(
    x: Float[Tensor, "R P"],
    chunks: Iterable[tuple[Tensor, Tensor]],
    sums: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]],
    runs_at_once: int | None = None,
) -> tuple[Tensor, ...]:
    """Means over a data set, without gradients, summed in float64 and rounded to the type of x.

    Args:
        x: parameters of the runs.
        chunks: inputs and targets of the data set, part after part.
        sums: (parameters of some runs, inputs, targets) -> sums over the samples of a chunk, (r, ...) each.
        runs_at_once: the number of runs in a call of `sums`; None: all.
    """
    totals: list[Tensor] = []
    count = 0
    with torch.no_grad():
        for inputs, targets in chunks:
            parts = [sums(some, inputs, targets) for some in x.split(runs_at_once or len(x))]
            chunk = [torch.cat(part).double() for part in zip(*parts, strict=True)]
            totals = [a + b for a, b in zip(totals, chunk, strict=True)] if totals else chunk
            count += len(inputs)
    return tuple((total / count).to(x.dtype) for total in totals)
