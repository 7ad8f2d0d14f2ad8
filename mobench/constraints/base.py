"""An oracle with more constraints than the one that it wears.

g = A F + b + h(theta),  h(theta) = (|theta|^2 - R^2) / R^2 or 0:
no gradient is computed that the objectives' do not give.
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
    """Base class of constraint families: `matrix` (n, M), `offset` (n,), and, where they depend on the
    variables as well, `radius` (R, 1).

    Constraints of the wrapped oracle come first. Values, rows, products and Hessians of the new ones follow
    from those of the objectives: g mixes them, so J_g'w = J_f'(A'w), whatever the sample.

    Raises:
        CompatibilityError: the oracle takes local steps; its rows are no gradients that could be mixed.
    """

    def __init__(
        self,
        oracle: Oracle,
        matrix: Float[Tensor, "n M"],
        offset: Float[Tensor, " n"],
        radius: Float[Tensor, "R 1"] | None = None,
    ) -> None:
        if oracle.spec.local_steps:
            raise CompatibilityError(
                "constraint: an oracle with local steps does not provide gradients of the objectives, from "
                "which constraints could be built. Choose oracle.local_steps=1 with another problem, "
                "or constraint=none."
            )
        self.inner = oracle
        device = radius.device if radius is not None else None
        self.matrix = matrix.double().to(device)
        self.offset = offset.double().to(device)
        self.square = None if radius is None else radius.double().square()
        spec = oracle.spec
        self.spec = replace(spec, N=spec.N + len(matrix))

    def _mixing(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if self.matrix.device != like.device:
            self.matrix = self.matrix.to(like.device)
            self.offset = self.offset.to(like.device)
        return self.matrix.to(like.dtype), self.offset.to(like.dtype)

    def added(self, F: Float[Tensor, "R M"], theta: Float[Tensor, "R P"]) -> Float[Tensor, "R n"]:
        """The new constraints where the objectives are F."""
        A, b = self._mixing(F)
        g = F @ A.T + b
        if self.square is None:
            return g
        return g + (theta.double().square().sum(1, keepdim=True) / self.square - 1.0).to(F)

    def appended(self, values: Float[Tensor, "R k"], theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        """All values from those of the wrapped oracle."""
        return torch.cat([values, self.added(values[:, : self.spec.M], theta)], dim=1)

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        return self.inner.init(theta)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        return ConstrainedPoint(self.inner.at(theta, state, t, k), self)

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.appended(self.inner.exact(theta), theta)

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
    """The point of an oracle with the constraints of `Constrained` behind its own."""

    def __init__(self, inner: Point, family: Constrained) -> None:
        self.inner: Point = inner
        self._family = family
        super().__init__(inner.x, inner.X, inner.M, inner.state)
        self.moving = inner.moving
        if inner.recorded is not None:
            self.recorded = family.appended(inner.recorded, inner.x)
        self._both: Tensor | None = None

    def values(self) -> Float[Tensor, "R K"]:
        if self._both is None:
            self.inner.graph = self.graph
            self._both = self._family.appended(self.inner.values(), self.x)
        return self._both

    def _fold(self, w: Float[Tensor, "R k"]) -> tuple[Tensor, Tensor | None]:
        """Weights of the inner functions, and 2 sum_j w_j / R^2,
        the weight of theta in the gradient (None: 0).
        """
        k = self._family.inner.spec.M + self._family.inner.spec.N
        if w.shape[1] <= k:
            return w, None
        own = w[:, :k]
        new = w[:, k:]
        A, _ = self._family._mixing(w)
        own = own + pad_weights(new @ A, k)
        if self._family.square is None:
            return own, None
        return own, 2.0 * new.sum(1, keepdim=True) / self._family.square.to(w)

    def jacobian(self, part: str = "all") -> Float[Tensor, "R k P"]:
        J = self.inner.jacobian("f" if part == "f" else "all")
        if part == "f":
            return J
        A, _ = self._family._mixing(J)
        new = torch.einsum("nm,rmp->rnp", A, J[:, : self.M])
        if self._family.square is not None:
            new = new + (2.0 / self._family.square.to(J) * self.x).unsqueeze(1)
        every = torch.cat([J, new], dim=1)
        return every if part == "all" else every[:, self.M :]

    def _jacobian(self) -> Float[Tensor, "R K P"]:
        return self.jacobian("all")

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        own, along = self._fold(w)
        d = self.inner.vjp(own)
        return d if along is None else d + along * self.x

    def jvp(self, v: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        inner = self.inner.jvp(v)
        A, _ = self._family._mixing(inner)
        new = inner[:, : self.M] @ A.T
        if self._family.square is not None:
            new = new + 2.0 * (self.x * v).sum(1, keepdim=True) / self._family.square.to(v)
        return torch.cat([inner, new], dim=1)

    def hvp(self, w: Float[Tensor, "R k"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        own, along = self._fold(w)
        h = self.inner.hvp(own, v)
        return h if along is None else h + along * v

    def moved(self, x: Float[Tensor, "R P"]) -> Point:
        return ConstrainedPoint(self.inner.moved(x), self._family)
