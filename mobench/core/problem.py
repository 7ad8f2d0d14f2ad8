"""What a problem is: stacked functions of (R, P) decision variables, its start, its set and its own truth."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.point import Linear
from mobench.core.preferences import Runs
from mobench.core.random import counter_indices, generator
from mobench.core.sets import Free, Set
from mobench.errors import CompatibilityError, ConfigError, choose

P = TypeVar("P", bound="Problem")

START_KINDS = {
    "uniform": ("low", "high"),
    "constant": ("value",),
    "alternating": ("scale", "noise"),
    "alternating_uniform": ("low", "high"),
    "halves": ("value",),
    "normal": ("scale",),
}


@dataclass(frozen=True, eq=False)
class LocalBatch:
    """Samples of one local step: index (R, M, B) into each client's own data, of which the first `sizes` (R,
    M, on the CPU) count; 0: this client does not move any more.
    """

    index: Int[Tensor, "R M B"]
    sizes: Int[Tensor, "R M"]

    def take(self, runs: slice) -> LocalBatch:
        """Those of some runs."""
        return LocalBatch(self.index[runs], self.sizes[runs])


class Descent(NamedTuple):
    """What clients come back with: pseudo-gradients (start - end) / eta (R, M, P), or what makes them; the
    mean of the losses that each has met, and the first of them; `vjp`: w (R, M) -> the rows' sum with these
    weights, where it needs no rows.
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
    """y <- Proj_X(y - eta g) for each of the batches;
    `change` makes what these runs descend on of their losses.
    """
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
        active = torch.ones_like(F) if batch is None else (batch.sizes > 0).to(F)
        total = total + F * active
        count = count + active
        first = F if first is None else first
    assert first is not None
    return Descent((start - y) / eta, total / count, first)


def by_seed(problem: P, runs: Runs, drawn: Callable[[int], object]) -> P:
    """A copy of the problem that knows the seeds of its runs: `_seeds`, `_group` (R,) the place of each run's
    among them, and an empty `_kept` for what is made of them. `drawn` is asked for each seed: what cannot be
    had is an error now.
    """
    seeds, group = torch.unique(runs.seeds.cpu(), return_inverse=True)
    for seed in seeds.tolist():
        drawn(seed)
    other = copy.copy(problem)
    for name, value in (("_seeds", seeds.tolist()), ("_group", group), ("_kept", {})):
        object.__setattr__(other, name, value)  # no fields: they are no keys of the configuration
    return other


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """Base class of all problems with a flat vector of decision variables.

    Subclasses are frozen dataclasses: their fields are the keys of the YAML file. `version` is part of the
    job's hash; raise it when results change.

    Fields:
        start: how theta_0 is drawn, `{kind: ..., per_preference: false, ...}`:
            uniform(low, high)            each coordinate uniform
            constant(value)               every coordinate the same
            alternating(scale, noise)     scale * (+1, -1, +1, ...) + noise * N(0, I)
            alternating_uniform(low, high)  coordinates uniform, all times (-1)^k for the k-th preference of
            the set
            halves(value)                 +value for the first half of the coordinates, -value for the second
            normal(scale)                 scale * N(0, I)
          Draws are keyed by (problem, seed), and by the preference only if `per_preference` is true.
        steps: default number of iterations.
    """

    version: ClassVar[int] = 1
    n_constraints: ClassVar[int] = 0
    constraint_kind: ClassVar[str] = "inequality"
    positive: ClassVar[bool] = True  # every objective >= 0
    twice: ClassVar[bool] = True  # `values` can be differentiated twice: Hessian products exist
    citation: ClassVar[str] = ""
    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = START_KINDS
    whole: ClassVar[bool] = True  # `values` without a batch can be differentiated
    by_clients: ClassVar[bool] = False  # data lie with clients, whom only oracle=local_steps knows
    grouped: ClassVar[bool] = False  # `values` takes a Batch of samples that some runs share
    # fields that change no result: where data lie, how runs are batched
    elsewhere: ClassVar[tuple[str, ...]] = ()

    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": -1.0, "high": 1.0})
    steps: int = 1000

    def __post_init__(self) -> None:
        # null removes a key: configuration files merge, so a start of another kind inherits the old keys
        options = {k: v for k, v in dict(self.start).items() if v is not None}
        kind = choose("problem.start.kind", str(options.pop("kind", "")), self.start_kinds)
        options.pop("per_preference", None)
        wanted = self.start_kinds[kind]
        if set(options) != set(wanted):
            raise ConfigError(
                f"problem.start of kind {kind!r} needs the keys {', '.join(wanted) or 'none'} (optional: "
                f"per_preference); found {', '.join(sorted(options)) or 'none'}. "
                "Set an inherited key to null to remove it."
            )

    @property
    @abstractmethod
    def n_objectives(self) -> int:
        """M."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """P, the number of decision variables."""

    @property
    def name(self) -> str:
        """Key of random streams: the class name, so that variants with other constants share their starts."""
        return type(self).__name__.lower()

    @property
    def n_samples(self) -> float | int:
        """Number of terms of the finite sum that a minibatch is drawn from; 0: deterministic, inf:
        an expectation.
        """
        return 0

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Tensor:
        """The sample of step t, (R, size, ...), as `values` takes it: a function of (key, stream, t) alone.

        Default: indices of the terms of a finite sum, with replacement. An expectation overrides it.
        """
        return counter_indices(keys, stream, t, size, int(self.n_samples))

    def bind(self, runs: Runs) -> Problem:
        """The problem with what differs between the runs made (random instances). Default: nothing does."""
        return self

    @property
    def ideal_point(self) -> Tensor | None:
        """z of the Tchebycheff value max_m w_m (f_m - z_m), float64 on the CPU;
        asked of the bound problem.
        """
        return None

    @property
    def constant_losses(self) -> Float[Tensor, " M"] | None:
        """What the best constant predictor loses in each objective, float64;
        None where that means nothing.
        """
        return None

    @property
    def head_variables(self) -> int:
        """k, the variables that `with_heads` takes: a shift and a scale for the head of each task; 0:
        it has no such heads.
        """
        return 0

    def with_heads(self, theta: Float[Tensor, "R P"], a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        """theta with its heads changed by a = (b_1 .. b_m, s_1 .. s_m), k = 2m: b_i is added to the bias of
        head i, whose weights are multiplied by exp(s_i). a = 0 changes nothing; differentiable in a.

        Raises: CompatibilityError: the problem has no such heads.
        """
        raise CompatibilityError(
            f"{type(self).__name__} has no task heads with one output each, whose biases and scales could be "
            f"variables. Choose space=subspace or space=full."
        )

    @property
    def ref_point(self) -> tuple[float, ...] | None:
        """Reference point of every hypervolume of this problem, or None: then none is computed."""
        return None

    @property
    def X(self) -> Set:
        """Feasible set of the decision variables."""
        return Free()

    @abstractmethod
    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R K"]:
        """Objectives, then constraints; differentiable.

        `batch`: mean over what `draw` gave; None: the expectation.
        """

    def linearize(self, x: Float[Tensor, "R P"], batch: Any = None) -> tuple[Any, ...] | Linear | None:
        """(values, function that returns the rows (R, K, P)) in closed form, or None: then autodiff is used.

        A third entry, where it is simple: the function (w, v) -> (sum_k w_k Hess_k) v of w (R, K), v (R, P).
        A `Linear` where J^T w costs less than the rows.
        """
        return None

    def local_gradients(
        self, y: Float[Tensor, "R M P"], batch: LocalBatch | None = None
    ) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M P"]]:
        """f_m(y_m) and grad f_m(y_m): each objective at a point of its own, as clients need it that step by
        themselves.

        Default: objective by objective, each with a gradient through `values`. `batch`: of the clients' own
        samples (see `client_sizes`); the values and gradients of clients that do not move are 0.
        """
        if batch is not None:
            raise NotImplementedError(f"{type(self).__name__} has no samples of clients")
        F = []
        rows = []
        for m in range(y.shape[1]):
            with torch.enable_grad():
                leaf = y[:, m].detach().requires_grad_(True)
                f = self.values(leaf)[:, m]
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
        """All local steps of a round, every client from theta: `descend` by `local_gradients`."""
        start = theta.unsqueeze(1).expand(-1, self.n_objectives, -1)
        return descend(self.local_gradients, start, batches, eta, change, self.X)

    def client_sizes(self, runs: Runs) -> list[list[int]] | None:
        """Samples of each client, for each run; None where objectives hold none of their own."""
        return None

    def front(self, k: int) -> Float[Tensor, "k2 M"] | None:
        """k points (or as many as are not dominated) of the exact Pareto front,
        or None where it is not known.
        """
        return None

    def distance_to_front(self, F: Float[Tensor, "R M"]) -> Float[Tensor, " R"] | None:
        """Exact distance of objective values to the front where it has a formula; None:
        measured against `front`.
        """
        return None

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        """Extra columns (R,) of history and final rows,
        from iterates and their values (objectives, constraints).
        """
        return {}

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        """What a reader of the rows must know and the configuration does not say: data sets with their
        hashes, and, for these runs, what their seeds have made of them.
        """
        return {}

    def start_generator(self, runs: Runs, run: int, **axes: object) -> np.random.Generator:
        """What the start of a run is drawn from: keyed by (problem, seed), `axes`,
        and the preference if `start` says so.
        """
        if self.start.get("per_preference", False):
            axes["preference"] = runs.name(run)
        return generator(int(runs.seeds[run]), problem=self.name, use="start", **axes)

    def strategy(self, device: torch.device) -> str:
        """How the axis of runs is executed on the device, for the record; results do not depend on it."""
        return "stacked"

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        """theta_0, float64 on the CPU, each row a function of (problem, seed[, preference]) only."""
        P = self.dim
        o = dict(self.start)
        kind = o["kind"]
        sign = np.where(np.arange(P) % 2 == 0, 1.0, -1.0)
        rows = []
        for r in range(len(runs)):
            rng = self.start_generator(runs, r)
            if kind == "uniform":
                row = rng.uniform(o["low"], o["high"], P)
            elif kind == "constant":
                row = np.full(P, float(o["value"]))
            elif kind == "alternating":
                row = o["scale"] * sign + o["noise"] * rng.standard_normal(P)
            elif kind == "alternating_uniform":
                row = rng.uniform(o["low"], o["high"], P) * (-1.0) ** int(runs.index[r])
            elif kind == "normal":
                row = o["scale"] * rng.standard_normal(P)
            else:
                row = np.where(np.arange(P) < math.ceil(P / 2), 1.0, -1.0) * float(o["value"])
            rows.append(row)
        return torch.from_numpy(np.stack(rows))
