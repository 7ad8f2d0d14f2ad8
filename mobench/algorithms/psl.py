"""Pareto set learning: a network maps preferences to the best points by Gaussian processes of objectives.

h* = argmin_h E_w [ max_m w_m (l_m(h(w)) - z_m) + rho sum_m l_m(h(w)) ],   l = mean - lcb std,
w ~ Dirichlet(1) batch = B points of { h*(w) } by greedy hypervolume improvement of l over the archive
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.population import Next, Now, Population, cycled, uniform
from mobench.algorithms.population_hypervolume import greedy
from mobench.algorithms.population_surrogate import Surrogate, fit, load
from mobench.core.algorithm import Context, Real, State
from mobench.core.oracle import Spec
from mobench.core.random import generator, seed_for
from mobench.errors import ConfigError

HIDDEN = 256
MARGIN = 0.1  # z below the best value known, and the reference point above the worst, in standard deviations


@dataclass(frozen=True, kw_only=True)
class PSL(Population):
    """Pareto set learning for expensive objectives.

    The B members are the batch of a step; T steps are T B evaluations.

    The first ceil(n_init / B) steps evaluate the start and then points of a Latin hypercube. Each later one
    fits one Gaussian process per objective to all that has been evaluated, trains a new Pareto set model
    (M-256-256-P, ReLU, sigmoid onto the box) by Adam, and takes B of its points. The last step moves to the B
    members of the archive with the largest hypervolume, greedily chosen; feasible ones are not preferred.

    Fields: n_init: evaluations before the first model. lr: of Adam; 1e-5 is the MLM-CMOO paper's, with which
    a new network hardly moves from its initialisation in 1000 updates; 1e-3 is that of the method's authors.
    updates: steps of Adam. batch: preferences of an update. candidates: points of the model to choose from.
    lcb, rho: see above. max_variables: more are refused: a Gaussian process of some hundred evaluations knows
    nothing of them.

    Source: Lin, Yang, Zhang, Zhang 2022, as used by the MLM-CMOO paper. Departures: z is the best known value
    less 0.1 standard deviations; outputs are standardised; the start of the job is among the first points;
    for more than 3 objectives hypervolumes are estimated (see `greedy`). A fit that fails counts as a failed
    solve.
    """

    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    citation: ClassVar[str] = "Lin et al. 2022"
    small: ClassVar[Mapping[str, Any]] = {"n_init": 6, "updates": 15, "candidates": 40, "lr": 1e-3}
    preferred: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False  # as of the methods that learn a Pareto set by gradients
    packages: ClassVar[tuple[str, ...]] = ("botorch", "gpytorch")

    n_init: int = 20
    lr: Real = 1e-5
    updates: int = 1000
    batch: int = 10
    candidates: int = 1000
    lcb: Real = 0.1
    rho: Real = 0.01
    max_variables: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_init", "batch", "candidates", "max_variables"):
            if getattr(self, name) < 1:
                raise ConfigError(f"algorithm.{name}={getattr(self, name)} must be at least 1.")
        for name in ("updates", "lcb", "rho"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"algorithm.{name}={getattr(self, name)} must be >= 0, and finite.")
        if not 0 < self.lr < math.inf:
            raise ConfigError(f"algorithm.lr={self.lr} must be > 0, and finite.")

    def misfits(self, spec: Spec) -> list[str]:
        reasons = super().misfits(spec)
        if self.max_variables < spec.P:
            reasons.append(
                f"it models at most algorithm.max_variables={self.max_variables} variables by Gaussian "
                f"processes, but there are {spec.P}; choose space=subspace"
            )
        return reasons

    def load(self) -> None:
        load()
        torch.optim.Adam([torch.zeros(1)])  # the first one imports torch's compiler

    def memory(self, ctx: Context) -> State:
        R, P = ctx.theta.shape
        x = ctx.theta.new_full((R, ctx.steps, P), torch.nan)
        values = torch.full(
            (R, ctx.steps, ctx.spec.M + ctx.spec.N), torch.nan, dtype=torch.float64, device=x.device
        )
        return {"x": x, "values": values}

    def generation(self, now: Now) -> Next:
        B, P = now.x.shape
        box = now.box
        x = now.memory["x"].copy()
        values = now.memory["values"].copy()
        x[:, now.t] = now.x
        values[:, now.t] = now.values
        memory = {"x": x, "values": values}
        # in the order of evaluation: the result does not depend on the memory's layout
        X, F = (
            part[:, : now.t + 1].swapaxes(0, 1).reshape(-1, part.shape[2])
            for part in (x, values[..., : now.M])
        )
        able = np.isfinite(F).all(1)
        X = X[able]
        F = F[able]
        rng = generator(now.seed, use="psl", step=now.t)
        first = math.ceil(self.n_init / B)
        if now.last:
            if len(X) == 0:
                return Next(now.x, memory)
            Y = standardised(F)
            return Next(cycled(X[greedy(Y[:0], Y, B, reference_point(Y), rng)], B), memory)
        if now.t + 1 < first:
            points = latin_hypercube((first - 1) * B, P, generator(now.seed, use="psl-hypercube"))
            return Next(box.lower + (box.upper - box.lower) * points[now.t * B : (now.t + 1) * B], memory)
        if len(X) < 2:  # everything has diverged
            return Next(uniform(rng, B, P, box), memory)
        U = (X - box.lower) / (box.upper - box.lower)
        Y = standardised(F)
        surrogate = fit(
            torch.from_numpy(U), torch.from_numpy(Y), seed_for(now.seed, use="psl-fit", step=now.t)
        )
        u = self.batch_of(surrogate, Y, B, rng)
        return Next(
            np.clip(box.lower + (box.upper - box.lower) * u, box.lower, box.upper), memory, surrogate.failed
        )

    def batch_of(
        self, surrogate: Surrogate, Y: Float[np.ndarray, "n M"], B: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "B d"]:
        """The next points, in [0, 1]^d."""
        M = Y.shape[1]
        z = torch.from_numpy(Y.min(0) - MARGIN)
        model = ParetoSet(M, surrogate.U.shape[1], rng)
        with torch.enable_grad():
            adam = torch.optim.Adam(model.parameters, lr=float(self.lr), fused=True)
            for w in torch.from_numpy(rng.dirichlet(np.ones(M), (self.updates, self.batch))):
                low = self.bound(surrogate, model(w))
                loss = (w * (low - z)).amax(1) + self.rho * low.sum(1)
                adam.zero_grad()
                loss.mean().backward()
                adam.step()
        with torch.no_grad():
            u = model(torch.from_numpy(rng.dirichlet(np.ones(M), self.candidates)))
            expected = self.bound(surrogate, u).numpy()
        chosen: np.ndarray = u.numpy()[greedy(Y, expected, B, reference_point(Y), rng)]
        return cycled(chosen, B)

    def bound(self, surrogate: Surrogate, u: Float[Tensor, "b d"]) -> Float[Tensor, "b M"]:
        """l, the lower confidence bound."""
        mean, std = surrogate(u)
        return mean - self.lcb * std


class ParetoSet:
    """The model w -> u in [0, 1]^d, initialised as PyTorch's linear layers; float32 between float64."""

    def __init__(self, M: int, d: int, rng: np.random.Generator) -> None:
        self.parameters: list[Tensor] = []
        for n, k in ((M, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, d)):
            for shape in ((n, k), (k,)):
                drawn = rng.uniform(-(n**-0.5), n**-0.5, shape)
                self.parameters.append(torch.from_numpy(drawn).float().requires_grad_(True))

    def __call__(self, w: Float[Tensor, "b M"]) -> Float[Tensor, "b d"]:
        W1, b1, W2, b2, W3, b3 = self.parameters
        h = torch.relu(torch.addmm(b1, w.float(), W1))
        h = torch.relu(torch.addmm(b2, h, W2))
        return torch.sigmoid(torch.addmm(b3, h, W3)).double()


def standardised(F: Float[np.ndarray, "n M"]) -> Float[np.ndarray, "n M"]:
    """Mean 0 and variance 1 in each objective (one that is constant: 0)."""
    spread = F.std(0)
    return (F - F.mean(0)) / np.where(spread > 0, spread, 1.0)


def reference_point(Y: Float[np.ndarray, "n M"]) -> Float[np.ndarray, " M"]:
    """A little worse than the worst that is not dominated."""
    better = (Y[:, None] <= Y[None]).all(-1) & (Y[:, None] < Y[None]).any(-1)
    front = Y[~better.any(0)]
    worst: np.ndarray = front.max(0)
    return worst + MARGIN


def latin_hypercube(n: int, d: int, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    """n points of [0, 1]^d, in every coordinate one in each of n equal cells."""
    cells = np.stack([rng.permutation(n) for _ in range(d)], axis=1)
    return (cells + rng.uniform(size=(n, d))) / n
