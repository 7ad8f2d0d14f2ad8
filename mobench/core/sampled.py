"""Problems that can be sampled, finite sums and expectations, and their minibatches."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Int
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.random import counter_indices


class Batch(NamedTuple):
    """Terms of a finite sum for R runs of which some share theirs.

    Fields: chosen (S, B), the terms of each group of runs; group (R,), each run's row of it; sizes: how many
    runs each group has, as numbers that need not be fetched from a device (None: unknown); number: of the
    sample among all of a job, which keys other draws for it (the masks of dropout).
    """

    chosen: Int[Tensor, "S B"]
    group: Int[Tensor, " R"]
    sizes: tuple[int, ...] | None = None
    number: int = 0


class Sampled(Problem):
    """Base class of problems whose functions are of samples, mostly means; `values` takes them as `batch`."""

    @property
    @abstractmethod
    def n_samples(self) -> float | int:
        """Number of terms of the finite sum; inf: an expectation."""

    @property
    def drop_last(self) -> bool:
        """True if an epoch leaves out its last batch where that is short."""
        return False

    def unfit_batch(self, size: int) -> str:
        """Says why a step cannot have a batch of so many samples; "" if it can."""
        return ""

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Tensor:
        """The sample of step t, (R, size, ...), as `values` takes it: a function of (key, stream, t) alone.

        Default: indices of the terms of a finite sum, with replacement. An expectation overrides it.
        """
        return counter_indices(keys, stream, t, size, int(self.n_samples))

    def take(self, batch: Batch) -> Any:
        """The samples of a batch of an epoch, as `values` takes them.

        Default: indices (R, B). A problem whose runs can share the work on samples that they share takes the
        `Batch`.
        """
        return batch.chosen[batch.group]


class BatchGradients(Sampled):
    """Sampled problems with gradients of batches only: all samples are evaluated in chunks, without a graph.

    The graph of all samples of all runs would not fit into memory.
    """


def samples_of(problem: Problem) -> float | int:
    """Number of samples of a problem: 0 where it is deterministic, inf for an expectation."""
    return problem.n_samples if isinstance(problem, Sampled) else 0
