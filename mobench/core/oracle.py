"""An Oracle makes one Point per sample and step; its Spec is all that `join` needs to know about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from mobench.core.point import Point
from mobench.core.sets import Set

State = dict[str, Tensor]


@dataclass(frozen=True)
class Spec:
    """What an oracle is, before any number is computed.

    Fields: R runs, M objectives, N constraints, P variables; X feasible set; provides: optional requests that it
    serves (rows, push, hvp); stateful: keeps a state between steps; samples: how many independent samples a step may
    ask for; local_steps: its rows are not gradients of its values (several local steps per round); positive: all
    objectives are >= 0; constraint_kind: "inequality" (g <= 0) or "gap" (a value function gap, bilevel);
    averaging: exponent a of running averages with weights ~ t^-a, None if it does not average.
    """

    R: int
    M: int
    N: int
    P: int
    X: Set
    provides: frozenset[str] = frozenset({"rows", "push", "hvp"})
    stateful: bool = False
    samples: int = 1
    local_steps: bool = False
    positive: bool = True
    constraint_kind: str = "inequality"
    averaging: float | None = None


class Oracle(ABC):
    """Base class. `version` is part of the job's hash; raise it when results change."""

    version: ClassVar[int] = 1
    spec: Spec

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        """First state; its shapes never depend on what will be asked."""
        return {}

    @abstractmethod
    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        """Sample k of step t; called once per sample and step."""

    @abstractmethod
    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        """Full-sample values for initialisation and evaluation. Touches no state."""

    def exact_point(self, theta: Float[Tensor, "R P"]) -> Point | None:
        """A full-sample point for certificates at the end, or None where it cannot be had."""
        return None

    @property
    def ideal(self) -> Tensor | None:
        """z, (M,) or (R, M): the ideal point that the problem declares, float64; None if it has none."""
        return None

    def columns(self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        """The problem's own measures (R,) of iterates and their values, for history and final rows."""
        return {}

    def transformed(self, fn: Callable[[Tensor], Tensor]) -> Oracle:
        """The oracle of fn(f), elementwise. An oracle with local steps must apply fn inside them."""
        raise NotImplementedError(f"{type(self).__name__} cannot transform its objectives")
