"""Running averages kept by clients and aggregated by their shares of the samples (CSMOO paper, D.2,
(72)-(74)).

fh_k <- rho_t f_k(x_t, xi_kt) + (1 - rho_t) fh_k  at every client k,   fh = sum_k (l_k / L) fh_k;
same for every row
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import State
from mobench.core.point import Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import counter_indices, seed_for
from mobench.core.sampled import Batch, Sampled, samples_of
from mobench.core.types import Real
from mobench.errors import CompatibilityError, ConfigError
from mobench.oracles.ema import averaging_weight
from mobench.oracles.exact import OfProblem, make_point, problem_spec, refuse_batch, refuse_unfit


class FederatedEMA(OfProblem):
    """A finite sum whose terms are split between clients in consecutive ranges; the server sees averages
    only.

    Parameters:
        clients: number of clients (ranges equal up to one term) or their numbers of samples l_k, which sum to
            the problem's. batch_size: samples per client and step, with replacement. decay, scale, offset:
            rho_t.

    With one rho for all clients this is the average of the aggregated samples: the estimator is linear.
    """

    def __init__(
        self,
        problem: Problem,
        runs: Runs,
        clients: int | Sequence[int] = 4,
        batch_size: int = 1,
        decay: Real = 0.8,
        scale: Real = 1.0,
        offset: Real = 1.0,
    ) -> None:
        refuse_unfit(problem, "federated_ema")
        total = samples_of(problem)
        if not 0 < total < float("inf"):
            raise CompatibilityError(
                f"FederatedEMA splits a finite sum among clients, but {type(problem).__name__} is not one. "
                f"Choose a problem with data, such as problem=least_squares."
            )
        if isinstance(clients, int):
            if not 1 <= clients <= total:
                raise ConfigError(f"oracle.clients={clients} must lie in 1..{total}, the number of samples.")
            edges = [k * int(total) // clients for k in range(clients + 1)]
            sizes = [b - a for a, b in itertools.pairwise(edges)]
        else:
            sizes = list(clients)
            if not sizes or min(sizes) < 1 or sum(sizes) != total:
                raise ConfigError(
                    f"oracle.clients={sizes} must be numbers >= 1 that sum to {total}, the number of samples."
                )
        if batch_size < 1:
            raise ConfigError(f"oracle.batch_size={batch_size} must be at least 1.")
        if not (decay >= 0 and scale > 0 and offset > 0):
            raise ConfigError(
                f"oracle.decay={decay} must be >= 0; oracle.scale={scale} and oracle.offset={offset} must be "
                "> 0."
            )
        refuse_batch(problem, batch_size)
        self.problem = problem.bind(runs)
        self.batch_size = batch_size
        self.sizes = sizes
        self.schedule = (float(decay), float(scale), float(offset))
        spec = problem_spec(problem, len(runs), samples=1)
        self.spec = replace(
            spec, provides=frozenset({"jacobian", "jvp"}), stateful=True, averaging=float(decay)
        )
        device = runs.seeds.device
        self.share = torch.tensor(sizes, dtype=torch.float64, device=device) / sum(sizes)
        keys = [seed_for(int(s), problem=problem.name, use="clients") for s in runs.seeds]
        self.keys = torch.tensor(keys, dtype=torch.int64, device=device)

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        R, P = theta.shape
        C = len(self.sizes)
        K = self.spec.M + self.spec.N
        return {"values": theta.new_zeros(R, C, K), "rows": theta.new_zeros(R, C, K, P)}

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        assert isinstance(self.problem, Sampled)  # it has a number of samples
        samples = []
        first = 0
        each = torch.arange(len(theta), device=theta.device)
        for client, size in enumerate(self.sizes):
            stream = f"client{client}"
            chosen = first + counter_indices(self.keys, stream, t, self.batch_size, size)
            batch = Batch(chosen, each, (1,) * len(theta), seed_for(t, stream=stream))
            samples.append(make_point(self.problem, theta, self.spec, self.problem.take(batch)))
            first += size
        rho = averaging_weight(t, *self.schedule)
        values = torch.lerp(state["values"], torch.stack([p.values() for p in samples], dim=1), rho)
        rows = torch.lerp(state["rows"], torch.stack([p.jacobian() for p in samples], dim=1), rho)
        share = self.share.to(theta.dtype)
        together = torch.einsum("c,rck->rk", share, values), torch.einsum("c,rckp->rkp", share, rows)
        return TablePoint(theta, self.spec.X, self.spec.M, {"values": values, "rows": rows}, *together)
