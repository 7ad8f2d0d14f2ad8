"""Problems with an instance for every seed: random constants, partitions of data, episodes."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from mobench.core.cache import Cache, Cached
from mobench.core.preferences import Runs
from mobench.core.problem import Problem

This = TypeVar("This", bound="PerSeed")  # beartype knows no typing.Self in methods


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PerSeed(Cached, Problem, Generic[T]):
    """Base class of problems with an instance for each seed, which all runs of the seed share.

    Of a bound problem `seeds` are the different seeds of its runs in rising order, and `group` (R,) is the
    place of each run's seed among them, on the CPU. `cache` stores values derived from the instances.
    """

    seeds: tuple[int, ...] = field(default=(), init=False, repr=False, compare=False)
    group: Int[Tensor, " R"] = field(
        default_factory=lambda: torch.zeros(0, dtype=torch.int64), init=False, repr=False, compare=False
    )

    @abstractmethod
    def instance(self, seed: int) -> T:
        """The instance of a seed; drawn once in a process."""

    def bind(self: This, runs: Runs) -> This:
        """The problem with the instances of the runs' seeds, all of which are drawn here."""
        seeds, group = torch.unique(runs.seeds.cpu(), return_inverse=True)
        for seed in seeds.tolist():
            self.instance(seed)
        bound = copy.copy(self)
        object.__setattr__(bound, "seeds", tuple(seeds.tolist()))
        object.__setattr__(bound, "group", group)
        object.__setattr__(bound, "cache", Cache())
        return bound

    def instances(self, runs: Runs | None) -> dict[str, T]:
        """The instances of the runs' seeds, by the seed as text, for `facts`."""
        seeds = set() if runs is None else {int(seed) for seed in runs.seeds}
        return {str(seed): self.instance(seed) for seed in sorted(seeds)}
