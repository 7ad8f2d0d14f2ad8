"""Local steps in federated learning: objective m belongs to client m, which takes some steps by itself.

theta_m,0 = theta,   theta_m,s+1 = theta_m,s - eta grad f_m(theta_m,s; batch),
g_m = (theta - theta_m,tau) / eta
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import to_device
from mobench.core.bilevel import Bilevel
from mobench.core.federated import Federated, LocalBatch, ObjectivesAsClients, changed
from mobench.core.oracle import State, slope
from mobench.core.point import Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import generator
from mobench.core.types import Real
from mobench.errors import CompatibilityError, ConfigError, choose
from mobench.oracles.exact import OfProblem, problem_spec, refuse_large, refuse_unfit

LOSSES = ("running", "at_start", "at_end")


class LocalSteps(OfProblem):
    """A round of federated learning with all clients: rows are pseudo-gradients, values the clients' losses.

    A server step theta - eta sum_m c_m g_m with sum_m c_m = 1 is the average sum_m c_m theta_m of the
    clients' models; an algorithm takes it where its step size times the sum of its weights is eta. With one
    local step on all data g_m is the gradient. Local steps stay in the feasible set: they are projected.

    Parameters:
        local_step: eta > 0. local_steps: tau, so many steps a round; or local_epochs: so many passes over the
            client's data (then tau differs between clients of different sizes).
        batch_size: samples of a step, without replacement within a pass, the last batch of a pass may be
            short; null: all data of the client.
        client_loss: the values. running: mean of the losses met in the round's local steps (no pass
            over the data beyond those); at_start: the loss of the first of them (with all data: f_m(theta));
            at_end: the loss at theta_m,tau on all data (one more pass).

    The batches are a function of (problem, seed, client, round): all preferences of a seed see the same.
    Source: OMD-TCH paper, Section 4.2; the running loss as in the authors' public code.
    """

    def __init__(
        self,
        problem: Problem,
        runs: Runs,
        local_step: Real = 0.1,
        local_steps: int | None = 1,
        local_epochs: int | None = None,
        batch_size: int | None = None,
        client_loss: str = "running",
    ) -> None:
        if isinstance(problem, Bilevel):
            refuse_unfit(problem, "local_steps")
        refuse_large(problem, "local_steps")
        if problem.n_constraints:
            raise CompatibilityError(
                f"oracle=local_steps assigns each objective to a client, but {type(problem).__name__} has "
                f"{problem.n_constraints} constraints, which belong to no client. "
                "Choose a problem without constraints."
            )
        if not 0 < local_step < float("inf"):
            raise ConfigError(f"oracle.local_step={local_step} must be > 0 and finite.")
        if (local_steps is None) == (local_epochs is None):
            raise ConfigError(
                f"oracle.local_steps={local_steps} and oracle.local_epochs={local_epochs}: give only one of "
                f"them, and set the other to null."
            )
        for key, value in (
            ("local_steps", local_steps),
            ("local_epochs", local_epochs),
            ("batch_size", batch_size),
        ):
            if value is not None and (value < 1 or value != int(value)):
                raise ConfigError(f"oracle.{key}={value} must be at least 1 and a whole number.")
        choose("oracle.client_loss", client_loss, LOSSES)
        self.problem = problem.bind(runs)
        self.clients: Federated | ObjectivesAsClients = ObjectivesAsClients(self.problem)
        self.sizes: list[list[int]] | None = None
        if isinstance(self.problem, Federated):
            self.clients = self.problem
            self.sizes = self.problem.client_sizes(runs)
        if batch_size is not None and self.sizes is None:
            raise ConfigError(
                f"oracle.batch_size={batch_size} has no effect, because the clients of "
                f"{type(problem).__name__} hold no samples. "
                "Set it to null."
            )
        if local_epochs is not None and batch_size is None:  # a pass over all data at once is one step
            local_steps = local_epochs
            local_epochs = None
        self.eta = float(local_step)
        self.tau = local_steps
        self.epochs = local_epochs
        self.batch_size = batch_size
        self.client_loss = client_loss
        self.seeds = [int(s) for s in runs.seeds]
        self.transform: Callable[[Tensor], Tensor] | None = None
        spec = problem_spec(problem, len(runs), samples=1)
        self.spec = replace(spec, provides=frozenset({"jacobian", "jvp"}), local_steps=True)

    def transformed(self, fn: Callable[[Tensor], Tensor]) -> LocalSteps:
        """Clients descend on fn(f_m): its slope enters each of their steps."""
        other = object.__new__(LocalSteps)
        other.__dict__.update(self.__dict__)
        other.transform = fn
        return other

    def _batches(self, t: int, device: torch.device) -> list[LocalBatch | None]:
        """The samples of all local steps of round t."""
        if self.batch_size is None:
            assert self.tau is not None
            return [None] * self.tau
        assert self.sizes is not None
        B = self.batch_size
        orders = {}
        for r, seed in enumerate(self.seeds):
            for m, size in enumerate(self.sizes[r]):
                if (seed, m) in orders:
                    continue
                passes = self.epochs
                if passes is None:
                    passes = -(-self.tau * B // size)  # type: ignore[operator]
                rng = generator(seed, problem=self.problem.name, use="local", client=m, round=t)
                parts = [
                    p for _ in range(passes) for p in np.array_split(rng.permutation(size), range(B, size, B))
                ]
                orders[seed, m] = parts if self.tau is None else parts[: self.tau]
        steps = max(len(parts) for parts in orders.values())
        R = len(self.seeds)
        M = self.spec.M
        index = np.zeros((steps, R, M, B), dtype=np.int64)
        sizes = np.zeros((steps, R, M), dtype=np.int64)
        for r, seed in enumerate(self.seeds):
            for m in range(M):
                for s, part in enumerate(orders[seed, m]):
                    index[s, r, m, : len(part)] = part
                    sizes[s, r, m] = len(part)
        there = to_device(torch.from_numpy(index), device)
        return [LocalBatch(*some) for some in zip(there, torch.from_numpy(sizes), strict=True)]

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        change = None if self.transform is None else self._change
        descent = self.clients.local_descent(theta, self._batches(t, theta.device), self.eta, change)
        rows = descent.rows
        values = descent.running
        if self.client_loss == "at_start":
            values = descent.first
        elif self.client_loss == "at_end":
            rows = rows if isinstance(rows, Tensor) else rows()
            values = self.clients.local_gradients(theta.unsqueeze(1) - self.eta * rows)[0]
            values = changed(change, slice(None), values)[0]
        return TablePoint(theta, self.spec.X, self.spec.M, {}, values, rows, vjp=descent.vjp)

    def _change(self, F: Float[Tensor, "r M"], runs: slice) -> tuple[Tensor, Tensor]:
        """fn(f_m) and its slope, of some runs.

        fn may have a setting for each run, so it is always evaluated for all.
        """
        assert self.transform is not None
        whole = F.new_zeros(len(self.seeds), F.shape[1])
        whole[runs] = F
        values, factor = slope(self.transform, whole)
        return values[runs], factor[runs]
