"""Epochs over a finite data set: each step takes the next batch of a shuffled order, without replacement."""

from __future__ import annotations

from itertools import islice

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
from mobench.errors import CompatibilityError
from mobench.oracles.exact import OfProblem, make_point, problem_spec, refuse_unfit


class Epochs(OfProblem):
    """Batches of `batch_size` terms in an order shuffled anew for each epoch; the last batch of an epoch may
    be short.

    `samples` is the number of disjoint parts into which a batch is cut: sample k of a step is part k, so that
    two samples of a batch of 256 are independent halves of 128 and an epoch costs every algorithm the same
    data. (The short last batch of 192 is cut into 96 and 96; FERERO's public code cuts 128 and 64.)
    The order is a function of (problem, seed, epoch): all preferences of a seed see the same batches. A rest
    smaller than `samples` is left out of its epoch, and every short one where the problem's data come from a
    loader with drop_last=True.

    Raises:
        CompatibilityError: settings that do not fit the problem, or a batch of an epoch, such as a last one
            of one sample before batch normalisation, that it cannot be trained on.
    """

    def __init__(self, problem: Problem, runs: Runs, batch_size: int = 256, samples: int = 1) -> None:
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
        return (rest if short else batch_size) // samples

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
        part = whole.tensor_split(self.spec.samples, dim=1)[k]
        return Batch(part, self.group, self.sizes, t * self.spec.samples + k)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        return make_point(self.problem, theta, self.spec, self.problem.take(self.batch(t, k)))
