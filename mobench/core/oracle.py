"""An Oracle makes one Point per sample and step; its Spec is all that `join` needs to know about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.sets import Set
from mobench.core.types import State


@dataclass(frozen=True)
class Spec:
    """The properties of an oracle before any number is computed.

    Fields: R runs, M objectives, N constraints, P variables; X feasible set; provides: optional requests that
    it serves (jacobian, jvp, hvp, and with hvp `moved`); stateful: keeps a state between steps; samples: how
    many independent samples a step may request; local_steps: its rows are not gradients of its values
    (several local steps per round); positive: all objectives are >= 0; constraint_kind: "inequality" (g <= 0)
    or "gap" (a value function gap, bilevel); averaging: exponent a of running averages with weights ~ t^-a,
    None if it does not average; blocks: of coordinates, one of which moves in a step.
    """

    R: int
    M: int
    N: int
    P: int
    X: Set
    provides: frozenset[str] = frozenset({"jacobian", "jvp", "hvp"})
    stateful: bool = False
    samples: int = 1
    local_steps: bool = False
    positive: bool = True
    constraint_kind: str = "inequality"
    averaging: float | None = None
    blocks: int = 1


class Oracle(ABC):
    """Base class. `version` is part of the job's hash; raise it when results change."""

    version: ClassVar[int] = 1
    spec: Spec

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        """First state; its shapes do not depend on later requests."""
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

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        """theta_0, float64 on the CPU: the start of the problem and of variables that the oracle adds."""
        raise NotImplementedError(f"{type(self).__name__} does not provide a starting point")

    def last_point(self, theta: Float[Tensor, "R P"], state: State, t: int) -> Point | None:
        """Returns the point after the last step where values belong to a state; None: the exact values.

        The last row of the history shows it.
        """
        return None

    @property
    def ideal(self) -> Tensor | None:
        """z, (M,) or (R, M): the ideal point that the problem declares, float64; None if it has none."""
        return None

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        """The problem's measures (R,) of iterates and their values, for history and final rows.

        `point`: the point that the algorithm used there, None in final rows.
        """
        return {}

    def transformed(self, fn: Callable[[Tensor], Tensor]) -> Oracle:
        """The oracle whose points have values and rows of fn(f), elementwise, by the chain rule.

        An oracle with local steps overrides it, because there fn belongs into each of them. `exact` and the
        recorded rows stay those of f.
        """
        return Transformed(self, fn)


def slope(fn: Callable[[Tensor], Tensor], F: Tensor) -> tuple[Tensor, Tensor]:
    """fn(F) and fn'(F) of an elementwise function."""
    with torch.enable_grad():
        leaf = F.detach().requires_grad_(True)
        out = fn(leaf)
        return out.detach(), torch.autograd.grad(out.sum(), leaf)[0]


class Transformed(Oracle):
    """fn(f_m) for every objective, constraints as they are. Its Hessian is not that of f: it has no hvp."""

    def __init__(self, inner: Oracle, fn: Callable[[Tensor], Tensor]) -> None:
        self.inner = inner
        self.fn = fn
        self.spec = replace(inner.spec, provides=inner.spec.provides - {"hvp"})

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        return self.inner.init(theta)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        return TransformedPoint(self.inner.at(theta, state, t, k), self.fn)

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.inner.exact(theta)

    @property
    def ideal(self) -> Tensor | None:
        return self.inner.ideal

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return self.inner.initial(runs)

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        return self.inner.columns(theta, values, point and (point.inner or point))


class TransformedPoint(Point):
    """The point of fn(f): values and rows by the chain rule."""

    def __init__(self, inner: Point, fn: Callable[[Tensor], Tensor]) -> None:
        super().__init__(inner.x, inner.X, inner.M, inner.state)
        self.inner: Point = inner
        self.moving = inner.moving
        self._fn = fn
        F, self._factor = slope(fn, inner.F)
        self._values = torch.cat([F, inner.G], dim=-1)

    def moved(self, x: Float[Tensor, "R P"]) -> Point:
        return TransformedPoint(self.inner.moved(x), self._fn)

    def values(self) -> Float[Tensor, "R K"]:
        return self._values

    def _scaled(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R k"]:
        return torch.cat([w[:, : self.M] * self._factor.to(w), w[:, self.M :]], dim=-1)

    def _jacobian(self) -> Float[Tensor, "R K P"]:
        J = self.inner.jacobian()
        return J * self._scaled(J.new_ones(J.shape[:2])).unsqueeze(-1)

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        return self.inner.vjp(self._scaled(w))
