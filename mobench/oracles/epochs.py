"""Epochs over a finite data set: each step takes the next batch of a shuffled order, without replacement."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.arrays import to_device
from mobench.core.oracle import Spec, State
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import generator
from mobench.core.sampled import Batch, Sampled, samples_of
from mobench.errors import CompatibilityError, choose
from mobench.oracles.exact import OfProblem, make_point, problem_spec, refuse_unfit


class Epochs(OfProblem):
    """Batches of `batch_size` terms in an order shuffled anew for each epoch; the last one may be short.

    `samples` is the number of disjoint parts into which a batch is cut: sample k of a step is part k, so that
    two samples of a batch of 256 are independent halves of 128 and an epoch costs every algorithm the same
    data. `cut` is how a short last batch is cut: "even", 192 into 96 and 96, or "full", into parts that are
    as large as those of a whole batch as long as it lasts, 128 and 64 (FERERO's public script). The order is
    a function of (problem, seed, epoch): all preferences of a seed see the same batches. A rest smaller than
    `samples` is left out of its epoch, and every short one where the problem's data come from a loader with
    drop_last=True.

    Raises:
        CompatibilityError: settings that do not fit the problem, or a batch of an epoch, such as a last one
            of one sample before batch normalisation, that it cannot be trained on.
    """

    added_fields: ClassVar[Mapping[str, Any]] = {"cut": "even"}  # as of a problem

    def __init__(
        self, problem: Problem, runs: Runs, batch_size: int = 256, samples: int = 1, cut: str = "even"
    ) -> None:
        refuse_unfit(problem, "epochs")
        N = samples_of(problem)
        if not 0 < N < float("inf"):
            raise CompatibilityError(
                f"oracle=epochs needs a finite data set, which {type(problem).__name__} does not have. "
                f"Choose oracle=minibatch for an expectation or oracle=exact for a deterministic problem."
            )
        if samples not in (1, 2):
            raise CompatibilityError(
                f"oracle.samples={samples} must be 1 or 2, the number of independent parts of a step's batch."
            )
        if not samples <= batch_size <= N:
            raise CompatibilityError(
                f"oracle.batch_size={batch_size} must lie in {samples}..{N:g}, the number of samples."
            )
        choose("oracle.cut", cut, ("even", "full"))
        part = batch_size // samples
        if cut == "full" and samples > 1 and 0 < N % batch_size <= part * (samples - 1):
            raise CompatibilityError(
                f"oracle.cut=full leaves nothing of the last batch of {N % batch_size:g} for its second part,"
                f" as the first has {part}. Choose oracle.cut=even or another oracle.batch_size."
            )
        self.part = part if cut == "full" else None
        bound = problem.bind(runs)
        assert isinstance(bound, Sampled)
        self.problem: Sampled = bound
        self.batch_size = batch_size
        self.N = int(N)
        self.spec: Spec = problem_spec(problem, len(runs), samples=samples)
        self.per_epoch = self.N // batch_size + (not bound.drop_last and self.N % batch_size >= samples)
        self._check_shortest()
        seeds, group = torch.unique(runs.seeds, return_inverse=True)
        self.seeds: list[int] = seeds.tolist()
        self.group = group.to(runs.seeds.device)
        self.sizes = tuple(torch.bincount(group).tolist())
        self._epoch: tuple[int, Tensor] | None = None

    def _shortest(self, batch_size: int) -> int:
        """Size of the smallest part of a step's batch in epochs of this batch size."""
        samples = self.spec.samples
        rest = self.N % batch_size
        short = not self.problem.drop_last and rest >= samples
        size = rest if short else batch_size
        if self.part is None:
            return size // samples
        return size - batch_size // samples * (samples - 1)

    def _check_shortest(self) -> None:
        size = self._shortest(self.batch_size)
        if not (why := self.problem.unfit_batch(size)):
            return
        others = range(self.spec.samples, self.N + 1)
        near = sorted(others, key=lambda b: (abs(b - self.batch_size), -b))
        longer = (b for b in near if self._shortest(b) > size)
        fit = [b for b in islice(longer, 4) if not self.problem.unfit_batch(self._shortest(b))]
        avoid = [f"oracle.batch_size={b}" for b in sorted(fit[:2])]
        if size < self.batch_size // self.spec.samples:
            avoid.append("a DataLoader with drop_last=True")
        cut = f", each cut into {self.spec.samples}," if self.spec.samples > 1 else ""
        raise CompatibilityError(
            f"{self.N} samples in batches of {self.batch_size}{cut} make a batch of {size}, but {why}; "
            f"avoid it by {' or '.join(avoid) or 'losses that such a batch has'}."
        )

    def _order(self, epoch: int) -> Int[Tensor, "S N"]:
        if self._epoch is None or self._epoch[0] != epoch:
            rngs = [generator(s, problem=self.problem.name, use="epoch", epoch=epoch) for s in self.seeds]
            order = torch.from_numpy(np.stack([rng.permutation(self.N) for rng in rngs]))
            self._epoch = (epoch, to_device(order, self.group.device))
        return self._epoch[1]

    def batch(self, t: int, k: int = 0) -> Batch:
        """Part k of the batch of step t."""
        epoch, i = divmod(t, self.per_epoch)
        whole = self._order(epoch)[:, i * self.batch_size : (i + 1) * self.batch_size]
        samples = self.spec.samples
        if self.part is None:
            part = whole.tensor_split(samples, dim=1)[k]
        else:
            part = whole.tensor_split([self.part * i for i in range(1, samples)], dim=1)[k]
        return Batch(part, self.group, self.sizes, t * self.spec.samples + k)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        point = make_point(self.problem, theta, self.spec, self.problem.take(self.batch(t, k)))
        if self.part is not None:
            last = self.N - (self.per_epoch - 1) * self.batch_size
            short = t % self.per_epoch == self.per_epoch - 1 and last < self.batch_size
            size = last if short else self.batch_size
            part = size - self.part * (self.spec.samples - 1) if k == self.spec.samples - 1 else self.part
            point.share = part / size
        return point
