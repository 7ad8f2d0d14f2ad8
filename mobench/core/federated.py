"""Federated problems: objective m belongs to client m, which takes steps on data that it alone holds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.arrays import to_device
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sets import Free, Set


@dataclass(frozen=True, eq=False)
class LocalBatch:
    """Samples of one local step.

    Fields: index (R, M, B) into each client's own data, of which the first `sizes` (R, M, on the CPU) count;
    0: this client does not move any more.
    """

    index: Int[Tensor, "R M B"]
    sizes: Int[Tensor, "R M"]

    def take(self, runs: slice) -> LocalBatch:
        """The samples of some runs."""
        return LocalBatch(self.index[runs], self.sizes[runs])


class Descent(NamedTuple):
    """The answers of clients after their local steps.

    Fields: rows (R, M, P), the pseudo-gradients (start - end) / eta, or a function that makes them; running,
    the mean of the losses that each client has met; first, the first of them; vjp: w (R, M) -> the rows' sum
    with these weights, where it needs no rows.
    """

    rows: Tensor | Callable[[], Tensor]
    running: Float[Tensor, "R M"]
    first: Float[Tensor, "R M"]
    vjp: Callable[[Tensor], Tensor] | None = None


Change = Callable[[Tensor, slice], tuple[Tensor, Tensor]]
"""Losses F (r, M) of some runs, and which -> fn(F) and fn'(F), where clients descend on fn(f_m)."""


def changed(change: Change | None, runs: slice, F: Float[Tensor, "r M"]) -> tuple[Tensor, Tensor | None]:
    """fn(F) and fn'(F); F and None where clients descend on their losses."""
    return (F, None) if change is None else change(F, runs)


def descend(
    gradients: Callable[[Tensor, LocalBatch | None], tuple[Tensor, Tensor]],
    start: Float[Tensor, "R M P"],
    batches: Sequence[LocalBatch | None],
    eta: float,
    change: Change | None,
    X: Set,
    runs: slice = slice(None),
) -> Descent:
    """y <- Proj_X(y - eta g) for each of the batches; g is the gradient of fn(f), with fn from `change`."""
    y = start
    first = None
    total = count = start.new_zeros(())
    for batch in batches:
        F, g = gradients(y, batch)
        F, factor = changed(change, runs, F)
        if factor is not None:
            g = g * factor.unsqueeze(-1)
        y = torch.add(y, g, alpha=-eta) if first is None else y.add_(g, alpha=-eta)
        if not isinstance(X, Free):
            y = X.project(y.flatten(0, 1)).view_as(y)
        active = torch.ones_like(F) if batch is None else to_device(batch.sizes > 0, F.device).to(F.dtype)
        total = total + F * active
        count = count + active
        first = F if first is None else first
    assert first is not None
    return Descent((start - y) / eta, total / count, first)


class Federated(Problem):
    """Base class of problems whose data lie with clients; of the oracles local_steps alone supports them."""

    @abstractmethod
    def client_sizes(self, runs: Runs) -> list[list[int]]:
        """Number of samples of each client, for each run."""

    @abstractmethod
    def local_gradients(
        self, y: Float[Tensor, "R M P"], batch: LocalBatch | None = None
    ) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M P"]]:
        """f_m(y_m) and grad f_m(y_m), each objective at another point.

        `batch`: samples of the clients (None: all); values and gradients of clients that do not move are 0.
        """

    def local_descent(
        self,
        theta: Float[Tensor, "R P"],
        batches: Sequence[LocalBatch | None],
        eta: float,
        change: Change | None = None,
    ) -> Descent:
        """All local steps of a round, every client from theta."""
        return descend_from(self, self.local_gradients, theta, batches, eta, change)


def descend_from(
    problem: Problem,
    gradients: Callable[[Tensor, LocalBatch | None], tuple[Tensor, Tensor]],
    theta: Float[Tensor, "R P"],
    batches: Sequence[LocalBatch | None],
    eta: float,
    change: Change | None,
) -> Descent:
    """`descend` of all clients of a problem, each from theta."""
    start = theta.unsqueeze(1).expand(-1, problem.n_objectives, -1)
    return descend(gradients, start, batches, eta, change, problem.X)


@dataclass(frozen=True)
class ObjectivesAsClients:
    """The clients of a problem that is not federated: each objective is one, and holds no samples."""

    problem: Problem

    def local_gradients(
        self, y: Float[Tensor, "R M P"], batch: LocalBatch | None = None
    ) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M P"]]:
        """f_m(y_m) and grad f_m(y_m), objective by objective, each with a gradient through `values`."""
        if batch is not None:
            raise NotImplementedError(f"{type(self.problem).__name__} does not divide samples among clients")
        F = []
        rows = []
        for m in range(y.shape[1]):
            with torch.enable_grad():
                leaf = y[:, m].detach().requires_grad_(True)
                f = self.problem.values(leaf)[:, m]
                rows.append(torch.autograd.grad(f.sum(), leaf)[0])
            F.append(f.detach())
        return torch.stack(F, dim=1), torch.stack(rows, dim=1)

    def local_descent(
        self,
        theta: Float[Tensor, "R P"],
        batches: Sequence[LocalBatch | None],
        eta: float,
        change: Change | None = None,
    ) -> Descent:
        """All local steps of a round, every client from theta."""
        return descend_from(self.problem, self.local_gradients, theta, batches, eta, change)
