"""A Point is one sample at one theta: it computes what an algorithm requests, and nothing else.

K = M objectives, then N constraints, stacked. A weight vector may have M or K entries. Requests:
values, vjp (J^T w), jacobian, gramian, jvp (J v), hvp, moved. Only the last two may be missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.gram import gram
from mobench.core.sets import Set

RowsOf = Literal["f", "g", "all"]


class Point(ABC):
    """Short-lived, lazy view of the stacked functions at `x`, made by `Oracle.at`.

    Attributes:
        x: the iterate (R, P). X: the feasible set. M: number of objectives.
        moving: coordinates (R, P) that this step may change (block methods), None for all.
        state: the oracle's next state; the loop reads it after the algorithm has stepped.
        inner: the point that this one is made of, None if it is made of none.
        recorded: values for the history where they differ from the algorithm's; None: they are the same.
        same_sample: makes the point of the same sample at other iterates, None where that cannot be had.
        share: how much of its step's batch it has, where that is cut into parts of different sizes.
        factored: whether its rows are only a factor of the Gram matrix, whose gradients are not at hand.
        graph: whether gradients may be requested; the loop clears it for derivative-free methods, which save
            the memory.
    """

    inner: Point | None = None
    recorded: Tensor | None = None
    factored: bool = False
    graph: bool = True
    share: float = 0.5
    same_sample: Callable[[Tensor], Point] | None = None

    def __init__(self, x: Float[Tensor, "R P"], X: Set, M: int, state: dict[str, Any]) -> None:
        self.x = x
        self.X = X
        self.M = M
        self.state = state
        self.moving: Tensor | None = None
        self._cached_jacobian: Tensor | None = None

    @abstractmethod
    def values(self) -> Float[Tensor, "R K"]:
        """Losses, then constraint values; detached."""

    @abstractmethod
    def _jacobian(self) -> Float[Tensor, "R K P"]:
        """All K gradients; called at most once per point."""

    @property
    def F(self) -> Float[Tensor, "R M"]:
        """Objectives only."""
        v = self.values()
        return v if v.shape[-1] == self.M else v[..., : self.M]

    @property
    def G(self) -> Float[Tensor, "R N"]:
        """Constraints only."""
        return self.values()[..., self.M :]

    def jacobian(self, part: RowsOf = "all") -> Float[Tensor, "R k P"]:
        """Gradients one by one, of the objectives ("f"), the constraints ("g") or both."""
        J = self._cached_jacobian
        if J is None:
            J = self._cached_jacobian = self._jacobian()
        if part == "all" or (part == "f" and J.shape[-2] == self.M):
            return J
        return J[..., : self.M, :] if part == "f" else J[..., self.M :, :]

    def gramian(self, part: RowsOf = "all") -> Float[Tensor, "R k k"]:
        """J J^T of the chosen rows in float64: rounded to float32 it would not be positive semidefinite."""
        return gram(self.jacobian(part))

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        """J^T w for k = M or K weights. Default: a product with the rows."""
        J = self.jacobian("f" if w.shape[-1] == self.M else "all")
        return torch.bmm(w.unsqueeze(-2), J).squeeze(-2)

    def jvp(self, v: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        """J v. Default: the rows times v."""
        return torch.bmm(self.jacobian(), v.unsqueeze(-1)).squeeze(-1)

    def hvp(self, w: Float[Tensor, "R k"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        """(sum_k w_k Hess_k) v on the same sample."""
        raise NotImplementedError(f"{type(self).__name__} does not provide Hessian-vector products")

    def moved(self, x: Float[Tensor, "R P"]) -> Point:
        """Returns a point of this sample at other iterates."""
        if self.same_sample is None:
            raise NotImplementedError(f"{type(self).__name__} can evaluate its sample at one iterate only")
        return self.same_sample(x)


def pad_weights(w: Float[Tensor, "R k"], K: int) -> Float[Tensor, "R K2"]:
    """Weights for the first k of K functions, zeros behind."""
    return w if w.shape[-1] == K else torch.nn.functional.pad(w, (0, K - w.shape[-1]))


class GraphPoint(Point):
    """Everything by automatic differentiation of one batched function (R, P) -> (R, K).

    Runs must not interact inside `fn`: then one backward of a sum over runs serves them all.
    """

    def __init__(
        self,
        fn: Callable[[Tensor], Tensor],
        x: Float[Tensor, "R P"],
        X: Set,
        M: int,
        state: dict[str, Any],
    ) -> None:
        super().__init__(x, X, M, state)
        self._fn = fn
        self._leaf: Tensor | None = None
        self._plain: Tensor | None = None

    def _graph(self) -> tuple[Tensor, Tensor]:
        if self._leaf is None:
            self._leaf = self.x.detach().requires_grad_(True)
            with torch.enable_grad():
                self._out = self._fn(self._leaf)
        return self._leaf, self._out

    def values(self) -> Float[Tensor, "R K"]:
        if self.graph or self._leaf is not None:
            return self._graph()[1].detach()
        if self._plain is None:
            with torch.no_grad():
                self._plain = self._fn(self.x)
        return self._plain

    def _jacobian(self) -> Float[Tensor, "R K P"]:
        leaf, out = self._graph()
        units = torch.eye(out.shape[-1], dtype=out.dtype, device=out.device).unbind()
        rows = [
            torch.autograd.grad(out, leaf, grad_outputs=unit.expand(out.shape), retain_graph=True)[0]
            for unit in units
        ]
        return torch.stack(rows, dim=-2)

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        if self._cached_jacobian is not None:
            return super().vjp(w)
        leaf, out = self._graph()
        padded = pad_weights(w, out.shape[-1])
        return torch.autograd.grad(out, leaf, grad_outputs=padded, retain_graph=True)[0]

    def hvp(self, w: Float[Tensor, "R k"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        leaf, out = self._graph()
        with torch.enable_grad():
            g = torch.autograd.grad(
                out, leaf, grad_outputs=pad_weights(w, out.shape[-1]), retain_graph=True, create_graph=True
            )[0]
            if not g.requires_grad:  # linear functions: the Hessian is zero
                return torch.zeros_like(v)
            h = torch.autograd.grad((g * v).sum(), leaf, retain_graph=True, allow_unused=True)[0]
        return torch.zeros_like(v) if h is None else h


class Linear(ABC):
    """Values and derivatives of the `count` stacked functions at one x in closed form, on request."""

    count: int

    @abstractmethod
    def values(self, keep: bool) -> Float[Tensor, "R K"]:
        """Losses, then constraints; `keep`: derivatives may be requested later."""

    @abstractmethod
    def jacobian(self) -> Float[Tensor, "R K P"]:
        """All gradients."""

    @abstractmethod
    def vjp(self, w: Float[Tensor, "R K"]) -> Float[Tensor, "R P"]:
        """J^T w."""

    @abstractmethod
    def hvp(self, w: Float[Tensor, "R K"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        """(sum_k w_k Hess_k) v."""


class LinearPoint(Point):
    """The interface of `Linear`."""

    def __init__(
        self, linear: Linear, x: Float[Tensor, "R P"], X: Set, M: int, state: dict[str, Any]
    ) -> None:
        super().__init__(x, X, M, state)
        self._linear = linear

    def values(self) -> Float[Tensor, "R K"]:
        return self._linear.values(self.graph)

    def _jacobian(self) -> Float[Tensor, "R K P"]:
        return self._linear.jacobian()

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        if self._cached_jacobian is not None:
            return super().vjp(w)
        return self._linear.vjp(pad_weights(w, self._linear.count))

    def hvp(self, w: Float[Tensor, "R k"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return self._linear.hvp(pad_weights(w, self._linear.count), v)


class TablePoint(Point):
    """A point whose values and rows are at hand (closed form, running averages, clients).

    `rows` may be a function that is called on demand, and `vjp` one that computes J^T w of the M objectives
    without them. `fn` is the same stacked function for automatic differentiation; it serves hvp where there
    is no closed form `hessian` (w, v).
    """

    def __init__(
        self,
        x: Float[Tensor, "R P"],
        X: Set,
        M: int,
        state: dict[str, Any],
        values: Float[Tensor, "R K"],
        rows: Tensor | Callable[[], Tensor],
        fn: Callable[[Tensor], Tensor] | None = None,
        hessian: Callable[[Tensor, Tensor], Tensor] | None = None,
        vjp: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(x, X, M, state)
        self._values = values
        self._jacobian_source = rows
        self._fn = fn
        self._hessian = hessian
        self._vjp = vjp
        self._lifted: Point | None = None

    def values(self) -> Float[Tensor, "R K"]:
        return self._values

    def _jacobian(self) -> Float[Tensor, "R K P"]:
        source = self._jacobian_source
        return source if isinstance(source, Tensor) else source()

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        if self._vjp is None or self._cached_jacobian is not None or w.shape[-1] != self.M:
            return super().vjp(w)
        return self._vjp(w)

    def hvp(self, w: Float[Tensor, "R k"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        if self._hessian is not None:
            return self._hessian(pad_weights(w, self._values.shape[-1]), v)
        if self._fn is None:
            return super().hvp(w, v)
        if self._lifted is None:
            self._lifted = GraphPoint(self._fn, self.x, self.X, self.M, {})
        return self._lifted.hvp(w, v)
