"""An oracle of variables a in a box, made of an oracle of theta = phi(a).

f(a) = f(phi(a)),   J_a = J_theta phi'(a),   Hess_a = phi'^T Hess_theta phi'   (the last for linear phi)
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.cache import Cache
from mobench.core.oracle import Oracle, State
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import generator
from mobench.core.sets import Box, Free
from mobench.core.types import Real
from mobench.errors import CompatibilityError, ConfigError, choose
from mobench.oracles.epochs import Epochs
from mobench.oracles.exact import Exact
from mobench.oracles.minibatch import Minibatch

STARTS = ("spread", "reference")


def refuse_local(oracle: Oracle, space: str) -> None:
    """Raise CompatibilityError for an oracle whose rows are not gradients of its values."""
    if oracle.spec.local_steps:
        raise CompatibilityError(
            f"space={space} cannot be combined with local steps, because the clients move the problem's own "
            f"variables. Choose space=none."
        )


def refuse_set(oracle: Oracle, problem: Problem, space: str) -> None:
    """Raise CompatibilityError for a problem whose variables have a feasible set."""
    if not isinstance(oracle.spec.X, Free):
        raise CompatibilityError(
            f"space={space} is for problems without a feasible set, but the variables of "
            f"{type(problem).__name__} already lie in a {type(oracle.spec.X).__name__}. Choose space=none."
        )


def at_least(value: Real, least: Real, name: str, strict: bool = False) -> None:
    """Raise ConfigError unless value >= least (> least), and finite."""
    if not (least < value if strict else least <= value) or not value < float("inf"):
        raise ConfigError(f"space.{name}={value} must be {'>' if strict else '>='} {least}, and finite.")


def spread_out(
    reference: Float[Tensor, "R k"], box: Box, runs: Runs, problem: Problem, start: str
) -> Float[Tensor, "R k"]:
    """First iterates, float64 on the CPU.

    spread: the first preference of each seed has the reference, the others draw uniform points of the box,
    keyed by (problem, seed, place of the preference); reference: all have it.
    """
    a = reference.clone()
    if start == "spread":
        for r, (seed, member) in enumerate(zip(runs.seeds.tolist(), runs.index.tolist(), strict=True)):
            if member:
                rng = generator(seed, problem=problem.name, use="space", member=member)
                a[r] = torch.from_numpy(rng.uniform(box.lower, box.upper, a.shape[1]))
    return a


class Space(Oracle):
    """Base class: `variables` is phi, `back` and `along` are products with phi'(a).

    Constraints and columns are those of phi(a). `start`: spread (first member of a seed at the reference,
    others uniform in the box: a population) or reference (all there: methods with gradients).
    """

    linear = True

    def __init__(self, oracle: Oracle, problem: Problem, k: int, box: Box, start: str) -> None:
        choose("space.start", start, STARTS)
        self.inner = oracle
        self.problem = problem
        self.start = start
        self.box = box
        provides = oracle.spec.provides if self.linear else oracle.spec.provides - {"hvp"}
        self.spec = replace(oracle.spec, P=k, X=box, provides=provides)
        self.cache = Cache()

    @abstractmethod
    def map(self, a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        """phi(a)."""

    @abstractmethod
    def back(self, a: Float[Tensor, "R k"], J: Float[Tensor, "R j P"]) -> Float[Tensor, "R j k"]:
        """J phi'(a)."""

    @abstractmethod
    def along(self, a: Float[Tensor, "R k"], v: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        """phi'(a) v."""

    def space_state(self) -> State:
        """The entries that the space adds to the oracle's state."""
        return {}

    def adopt(self, state: State) -> None:
        """Take the entries of `space_state` from a state that may come from a file."""

    def variables(self, a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        """phi(a); of the same a the same tensor, so that caches of problems are hit."""
        return self.cache.at(a, "theta", lambda: self.map(a))

    def init(self, theta: Float[Tensor, "R k"]) -> State:
        inner = self.inner.init(self.variables(theta))
        return self.space_state() | ({"inner": inner} if inner else {})

    def at(self, theta: Float[Tensor, "R k"], state: State, t: int, k: int = 0) -> Point:
        self.adopt(state)
        return MappedPoint(self.inner.at(self.variables(theta), state.get("inner", {}), t, k), theta, self)

    def exact(self, theta: Float[Tensor, "R k"]) -> Float[Tensor, "R K"]:
        return self.inner.exact(self.variables(theta))

    def exact_point(self, theta: Float[Tensor, "R k"]) -> Point | None:
        point = self.inner.exact_point(self.variables(theta))
        return None if point is None else MappedPoint(point, theta, self)

    def last_point(self, theta: Float[Tensor, "R k"], state: State, t: int) -> Point | None:
        self.adopt(state)
        point = self.inner.last_point(self.variables(theta), state.get("inner", {}), t)
        return None if point is None else MappedPoint(point, theta, self)

    @property
    def ideal(self) -> Tensor | None:
        return self.inner.ideal

    def columns(
        self, theta: Float[Tensor, "R k"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        return self.inner.columns(self.variables(theta), values, point and point.inner)


class MappedPoint(Point):
    """The point of a space at a, made of the oracle's point at phi(a)."""

    def __init__(self, inner: Point, a: Float[Tensor, "R k"], space: Space) -> None:
        self.inner: Point = inner
        self._space = space
        state = space.space_state() | ({"inner": inner.state} if inner.state else {})
        super().__init__(a, space.spec.X, inner.M, state)
        self.recorded = inner.recorded
        if inner.moving is not None and a is not inner.x:
            raise CompatibilityError(
                "space: the oracle moves only some of the problem's variables in each step, but the "
                f"{a.shape[1]} variables here are mixtures of them. Set oracle.block_move=all or "
                "oracle.blocks=1."
            )
        self.moving = inner.moving

    def values(self) -> Float[Tensor, "R K"]:
        self.inner.graph = self.graph
        return self.inner.values()

    def _jacobian(self) -> Float[Tensor, "R K k"]:
        return self._space.back(self.x, self.inner.jacobian())

    def vjp(self, w: Float[Tensor, "R j"]) -> Float[Tensor, "R k"]:
        return self._space.back(self.x, self.inner.vjp(w).unsqueeze(1)).squeeze(1)

    def jvp(self, v: Float[Tensor, "R k"]) -> Float[Tensor, "R K"]:
        return self.inner.jvp(self._space.along(self.x, v))

    def hvp(self, w: Float[Tensor, "R j"], v: Float[Tensor, "R k"]) -> Float[Tensor, "R k"]:
        if not self._space.linear:
            return super().hvp(w, v)
        h = self.inner.hvp(w, self._space.along(self.x, v))
        return self._space.back(self.x, h.unsqueeze(1)).squeeze(1)

    def moved(self, x: Float[Tensor, "R k"]) -> Point:
        return MappedPoint(self.inner.moved(self._space.variables(x)), x, self._space)


class Referenced(Space):
    """A space around a reference x_ref, one for each seed.

    x_ref is the start theta_0 of a seed's first preference after `warm_steps` steps of x <- x - warm_step
    (1/M) sum_m grad f_m(x) on the wrapped oracle's samples. It is made once, in `init`, and lies in the
    oracle's state: a job that is resumed has the same. If an exact value is requested before there is a
    state, it is made then. The column `warm_seconds` (only if warm_steps > 0) is the time of a seed's
    warm-up; it is no result, and not among the `seconds` of the rows: a comparison of times adds it once for
    each seed.
    """

    def __init__(
        self,
        oracle: Oracle,
        problem: Problem,
        runs: Runs,
        k: int,
        box: Box,
        start: str,
        warm_steps: int,
        warm_step: Real,
        warm_batch: int | None,
    ) -> None:
        at_least(warm_steps, 0, "warm_steps")
        at_least(warm_step, 0, "warm_step", strict=True)
        super().__init__(oracle, problem, k, box, start)
        self.warm_steps = int(warm_steps)
        self.warm_step = float(warm_step)
        seeds, self.group = torch.unique(runs.seeds.cpu(), return_inverse=True)
        # x_ref must not depend on which of the preferences are here: the first of the whole set stands for a
        # seed
        zeros = torch.zeros(len(seeds), dtype=torch.int64)
        self.firsts = Runs(runs.all.cpu()[zeros], seeds, zeros, runs.all.cpu())
        self.parts = [
            torch.nonzero(self.group == g).squeeze(1).to(runs.seeds.device) for g in range(len(seeds))
        ]
        self.sampler = self._sampler(runs, warm_batch) if self.warm_steps else None
        self._reference: Tensor | None = None
        self._seconds: Tensor | None = None

    def _sampler(self, runs: Runs, batch: int | None) -> Oracle:
        """An oracle of one run per seed that draws the same samples as the wrapped one."""
        base = self.inner
        while isinstance(below := getattr(base, "inner", None), Oracle):
            base = below
        few = self.firsts.to(runs.seeds.device)
        if isinstance(base, Epochs | Minibatch):
            return type(base)(self.problem, few, base.batch_size if batch is None else batch)
        if isinstance(base, Exact):
            return Exact(self.problem, few)
        raise CompatibilityError(
            f"space.warm_steps={self.warm_steps}: a warm-up supports oracle=exact, minibatch and "
            f"epochs, not {type(base).__name__}. Set space.warm_steps=0."
        )

    def _warm_up(self, like: Tensor) -> tuple[Float[Tensor, "R P"], Float[Tensor, " R"]]:
        """x_ref, and the seconds of a seed's warm-up, for each run."""
        x = self.inner.initial(self.firsts).to(like)
        began = time.perf_counter()
        if self.sampler is not None:
            w = x.new_full((len(x), self.sampler.spec.M), 1.0 / self.sampler.spec.M)
            with torch.no_grad():
                for t in range(self.warm_steps):
                    x = x - self.warm_step * self.sampler.at(x, {}, t).vjp(w)
            if not bool(torch.isfinite(x).all()):  # waits for a GPU, too: the time is right
                raise ConfigError(
                    f"space.warm_step={self.warm_step}: the warm-up diverged within {self.warm_steps} steps. "
                    "Lower space.warm_step."
                )
        seconds = (time.perf_counter() - began) / len(x) if self.sampler is not None else 0.0
        group = self.group.to(x.device)
        return x[group], torch.full((len(group),), seconds, dtype=torch.float64, device=x.device)

    def reference(self, like: Tensor) -> Float[Tensor, "R P"]:
        """x_ref of every run, as `like`."""
        if (
            self._reference is None
            or self._reference.dtype != like.dtype
            or self._reference.device != like.device
        ):
            self._reference, self._seconds = self._warm_up(like)
        return self._reference

    def space_state(self) -> State:
        assert self._reference is not None
        return {"reference": self._reference, "warm_seconds": self._seconds}

    def adopt(self, state: State) -> None:
        if state["reference"] is not self._reference:
            self._reference = state["reference"]
            self._seconds = state["warm_seconds"]
            self.cache.forget()

    def initial(self, runs: Runs) -> Float[Tensor, "R k"]:
        zero = torch.zeros(len(runs), self.spec.P, dtype=torch.float64)
        return spread_out(zero, self.box, runs, self.problem, self.start)

    def columns(
        self, theta: Float[Tensor, "R k"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        columns = super().columns(theta, values, point)
        if self.sampler is not None:
            assert self._seconds is not None
            columns["warm_seconds"] = self._seconds
        return columns
