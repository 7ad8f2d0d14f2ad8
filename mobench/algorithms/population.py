"""Populations: the runs of a seed are the members of one population, and a step is a generation.

theta_(t+1) = next(theta_t, f(theta_t), memory_t; seed, t),   as a direction:  d = theta_(t+1) - theta_t,
alpha = 1
"""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.core.sets import Box, Set
from mobench.errors import ConfigError

Memory = dict[str, np.ndarray]


class Now(NamedTuple):
    """One population in a step, float64 on the CPU.

    Members x (n, P), their values (n, K), of which the first M are objectives, and its memory, arrays with n
    first.
    """

    x: Float[np.ndarray, "n P"]
    values: Float[np.ndarray, "n K"]
    memory: Memory
    M: int
    box: Box
    seed: int
    t: int
    last: bool

    @property
    def F(self) -> Float[np.ndarray, "n M"]:
        """Objectives."""
        return self.values[:, : self.M]


class Next(NamedTuple):
    """Members of the next generation (after the last step: the answer), memory, whether a solve failed."""

    x: Float[np.ndarray, "n P"]
    memory: Memory
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Population(Algorithm):
    """Base class of methods without gradients.

    `preferences=K` makes K members for each seed; preferences themselves are not used.

    Every random number is a function of (seed, step): nothing of a generator lies in the state, and seeds do
    not notice each other. Members do, so a job may be cut by seeds, never by preferences. Histories show the
    candidates of each generation; the last step moves to the answer, up to one rounding of theta, so that
    final rows are it. Constraints of the problem are not passed on to the search; rows show g and the
    violation, by which feasible members can be chosen afterwards.

    Fields: step_size: 1, because a generation replaces another one. outputs: ["last"].
    """

    constraints: ClassVar[tuple[int, int | None]] = (0, None)
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    sets: ClassVar[type[Set]] = Box
    derivative_free: ClassVar[bool] = True
    together: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ()  # of the extra `baselines`

    step_size: Real = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.outputs) != ["last"]:
            raise ConfigError(
                f"algorithm.outputs={list(self.outputs)}: averages of a population's candidates are not "
                f"candidates. Set algorithm.outputs=[last]."
            )

    def misfits(self, spec: Spec) -> list[str]:
        reasons = []
        if not isinstance(spec.X, Box):
            reasons.append(
                "it searches a box; choose space=full (all variables) or space=subspace (a few directions)"
            )
        if self.step_size != 1 or self.step_decay != 0:
            reasons.append(
                f"it replaces generations instead of taking steps, so algorithm.step_size={self.step_size} "
                f"must be 1 and algorithm.step_decay={self.step_decay} must be 0"
            )
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            reasons.append(
                f"it needs {' and '.join(missing)}, not installed here; use pip install '.[baselines]'"
            )
        return reasons

    def init(self, ctx: Context) -> State:
        seeds = torch.zeros(len(ctx.prefs), dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        least = int(torch.unique(seeds, return_counts=True)[1].min())
        if least < 2:
            raise ConfigError(
                f"preferences={least} is too small: {type(self).__name__} uses as many members in each "
                "seed's population as there are preferences and needs at least 2. For example, set "
                "preferences=100."
            )
        self.load()
        steps = torch.full((len(seeds),), ctx.steps, dtype=torch.int64)
        return {"seed": seeds, "steps": steps, "memory": self.memory(ctx)}

    def load(self) -> None:
        """Import slow libraries before the clock of the steps runs."""

    @abstractmethod
    def memory(self, ctx: Context) -> State:
        """The memory of a population, tensors with R first."""

    @abstractmethod
    def generation(self, now: Now) -> Next:
        """The next members."""

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        x = point.x
        box = point.X
        assert isinstance(box, Box)
        members, values = (part.detach().cpu().double().numpy() for part in (x, point.values()))
        before = {key: _array(value) for key, value in state["memory"].items()}
        after = {key: value.copy() for key, value in before.items()}
        next_members = np.empty_like(members)
        failed = np.zeros(len(members), dtype=bool)
        seeds = state["seed"].cpu().numpy()
        last = t + 1 >= int(state["steps"][0])
        for seed in np.unique(seeds).tolist():
            mine = seeds == seed
            memory = {key: value[mine] for key, value in before.items()}
            result = self.generation(
                Now(members[mine], values[mine], memory, point.M, box, int(seed), t, last)
            )
            next_members[mine] = result.x
            failed[mine] = result.failed
            for key, value in result.memory.items():
                after[key][mine] = value
        tensors = {key: torch.from_numpy(after[key]).to(value) for key, value in state["memory"].items()}
        target = torch.from_numpy(next_members).to(x)
        d = target - x
        d = d + (target - (x + d))  # the difference, rounded, does not lead there
        return d, {**state, "memory": tensors}, Info(fail=torch.from_numpy(failed).to(x.device))


def _array(value: Tensor) -> np.ndarray:
    value = value.cpu()
    return (value.double() if value.dtype.is_floating_point else value).numpy()


def uniform(rng: np.random.Generator, n: int, P: int, box: Box) -> Float[np.ndarray, "n P"]:
    """Uniform points of the box."""
    return rng.uniform(box.lower, box.upper, (n, P))


def cycled(x: Float[np.ndarray, "k P"], n: int) -> Float[np.ndarray, "n P"]:
    """n rows, from the first again where there are fewer."""
    return x[np.arange(n) % len(x)]
