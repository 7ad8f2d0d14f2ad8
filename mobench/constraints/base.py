"""An oracle that adds constraints g = A F + b to another one.

Their gradients are combinations of the objectives' gradients.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Oracle, State
from mobench.core.point import Point, pad_weights
from mobench.core.preferences import Runs
from mobench.errors import CompatibilityError


class Constrained(Oracle):
    """Base class of constraint families: `matrix` (n, M), `offset` (n,).

    Constraints of the wrapped oracle come first. Values, rows, products and Hessians of the new ones follow
    from those of the objectives: g mixes them, so J_g'w = J_f'(A'w), whatever the sample.

    Raises:
        CompatibilityError: the oracle takes local steps; its rows are no gradients that could be mixed.
    """

    def __init__(self, oracle: Oracle, matrix: Float[Tensor, "n M"], offset: Float[Tensor, " n"]) -> None:
        if oracle.spec.local_steps:
            raise CompatibilityError(
                "constraint: an oracle with local steps does not provide gradients of the objectives, from "
                "which constraints could be built. Choose oracle.local_steps=1 with another problem, "
                "or constraint=none."
            )
        self.inner = oracle
        self.matrix = matrix.double()
        self.offset = offset.double()
        spec = oracle.spec
        self.spec = replace(spec, N=spec.N + len(matrix))

    def _mixing(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if self.matrix.device != like.device:
            self.matrix = self.matrix.to(like.device)
            self.offset = self.offset.to(like.device)
        return self.matrix.to(like.dtype), self.offset.to(like.dtype)

    def appended(self, values: Float[Tensor, "R k"]) -> Float[Tensor, "R K"]:
        """All values from those of the wrapped oracle."""
        A, b = self._mixing(values)
        return torch.cat([values, values[:, : self.spec.M] @ A.T + b], dim=1)

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        return self.inner.init(theta)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        return ConstrainedPoint(self.inner.at(theta, state, t, k), self)

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.appended(self.inner.exact(theta))

    def exact_point(self, theta: Float[Tensor, "R P"]) -> Point | None:
        point = self.inner.exact_point(theta)
        return None if point is None else ConstrainedPoint(point, self)

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return self.inner.initial(runs)

    def last_point(self, theta: Float[Tensor, "R P"], state: State, t: int) -> Point | None:
        point = self.inner.last_point(theta, state, t)
        return None if point is None else ConstrainedPoint(point, self)

    @property
    def ideal(self) -> Tensor | None:
        return self.inner.ideal

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        return self.inner.columns(
            theta, values[:, : self.inner.spec.M + self.inner.spec.N], point and point.inner
        )


class ConstrainedPoint(Point):
    """The point of an oracle with the constraints of `Constrained` behind those of the wrapped one."""

    def __init__(self, inner: Point, family: Constrained) -> None:
        self.inner: Point = inner
        self._family = family
        super().__init__(inner.x, inner.X, inner.M, inner.state)
        self.moving = inner.moving
        if inner.recorded is not None:
            self.recorded = family.appended(inner.recorded)
        self._both: Tensor | None = None

    def values(self) -> Float[Tensor, "R K"]:
        if self._both is None:
            self.inner.graph = self.graph
            self._both = self._family.appended(self.inner.values())
        return self._both

    def _fold(self, w: Float[Tensor, "R k"]) -> Tensor:
        """Returns the weights of the inner functions."""
        k = self._family.inner.spec.M + self._family.inner.spec.N
        if w.shape[1] <= k:
            return w
        A, _ = self._family._mixing(w)
        return w[:, :k] + pad_weights(w[:, k:] @ A, k)

    def jacobian(self, part: str = "all") -> Float[Tensor, "R k P"]:
        J = self.inner.jacobian("f" if part == "f" else "all")
        if part == "f":
            return J
        A, _ = self._family._mixing(J)
        new = torch.einsum("nm,rmp->rnp", A, J[:, : self.M])
        every = torch.cat([J, new], dim=1)
        return every if part == "all" else every[:, self.M :]

    def _jacobian(self) -> Float[Tensor, "R K P"]:
        return self.jacobian("all")

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        return self.inner.vjp(self._fold(w))

    def jvp(self, v: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        inner = self.inner.jvp(v)
        A, _ = self._family._mixing(inner)
        return torch.cat([inner, inner[:, : self.M] @ A.T], dim=1)

    def hvp(self, w: Float[Tensor, "R k"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return self.inner.hvp(self._fold(w), v)

    def moved(self, x: Float[Tensor, "R P"]) -> Point:
        return ConstrainedPoint(self.inner.moved(x), self._family)
