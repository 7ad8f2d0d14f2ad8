"""Bilevel problems:  phi_s(x) = f_s(x, y*(x)),   y*(x) = argmin_y g(x, y),   g strongly convex in y.

    grad phi_s = grad_x f_s - J_xy H^-1 grad_y f_s        at (x, y*),   H = d2g/dy2 (q x q),
        J_xy = d2g/dxdy (P x q)

y has B blocks of q numbers. B = 1: all objectives share y. B = S: objective s sees block s alone, and
g = sum_s g_s(x, y_s). Vectors in the space of y come as columns v (R, k, q): any k where B = 1, k = S (column
s belongs to block s) where B = S.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.cg import conjugate_gradients
from mobench.core.preferences import Runs
from mobench.core.problem import Problem

This = TypeVar("This", bound="Bilevel")  # beartype knows no typing.Self in methods
Step = tuple[Tensor, Tensor]  # y (R, B, q) and columns v (R, S, q)
# of the exact solution of a lower level
NEWTON_STEPS = 60
HALVINGS = 30
CG_STEPS = 200
ARMIJO = 1e-4


class View(ABC):
    """Both levels at one x, on one sample of each, without a graph: the parts of hypergradients."""

    @abstractmethod
    def lower(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        """g, block by block."""

    @abstractmethod
    def lower_gradient(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B q"]:
        """grad_y g."""

    @abstractmethod
    def lower_hvp(self, y: Float[Tensor, "R B q"], v: Float[Tensor, "R k q"]) -> Float[Tensor, "R k q"]:
        """H v, column by column."""

    @abstractmethod
    def upper(self, y: Float[Tensor, "R B q"]) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S q"]]:
        """f_s(x, y) and the part of grad_y f_s that is not 0."""

    @abstractmethod
    def jacobian(self, y: Float[Tensor, "R B q"], steps: Sequence[Step]) -> Float[Tensor, "R S P"]:
        """grad_x f_s(x, y) - sum over (y_t, v_t) of J_xy(x, y_t) v_t,s."""

    @abstractmethod
    def lower_x(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R P"]:
        """grad_x g, all blocks together."""


class GraphView(View):
    """Automatic differentiation of f(x, y) (R, S) and g(x, y) (R, B), batched and independent by run."""

    def __init__(
        self, x: Tensor, f: Callable[[Tensor, Tensor], Tensor], g: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self.x = x.detach()
        self.f = f
        self.g = g

    def lower(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        return self.g(self.x, y)

    def _slope(self, x: Tensor, y: Tensor) -> Tensor:
        gradient: Tensor = torch.func.grad(lambda y_: self.g(x, y_).sum())(y)
        return gradient

    def lower_gradient(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B q"]:
        return self._slope(self.x, y)

    def lower_hvp(self, y: Float[Tensor, "R B q"], v: Float[Tensor, "R k q"]) -> Float[Tensor, "R k q"]:
        pull = torch.func.vjp(lambda y_: self._slope(self.x, y_), y)[1]  # H is symmetric

        def one(column: Tensor) -> Tensor:
            product: Tensor = pull(column)[0]
            return product

        if y.shape[1] > 1 or v.shape[1] == 1:
            return one(v)
        columns: Tensor = torch.func.vmap(one)(v.transpose(0, 1).unsqueeze(2))
        return columns.squeeze(2).transpose(0, 1)

    def upper(self, y: Float[Tensor, "R B q"]) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S q"]]:
        F = self.f(self.x, y)
        if y.shape[1] > 1:
            slopes: Tensor = torch.func.grad(lambda y_: self.f(self.x, y_).sum())(y)
            return F, slopes
        rows = [
            torch.func.grad(lambda y_, s=s: self.f(self.x, y_)[:, s].sum())(y)[:, 0]
            for s in range(F.shape[1])
        ]
        return F, torch.stack(rows, dim=1)

    def jacobian(self, y: Float[Tensor, "R B q"], steps: Sequence[Step]) -> Float[Tensor, "R S P"]:
        S = self.f(self.x, y).shape[1]

        def total(x: Tensor, s: int) -> Tensor:
            out = self.f(x, y)[:, s].sum()
            for y_t, v in steps:
                block = s if y.shape[1] > 1 else 0
                out = out - (self._slope(x, y_t)[:, block] * v[:, s]).sum()
            return out

        return torch.stack([torch.func.grad(lambda x, s=s: total(x, s))(self.x) for s in range(S)], dim=1)

    def lower_x(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R P"]:
        gradient: Tensor = torch.func.grad(lambda x: self.g(x, y).sum())(self.x)
        return gradient


@dataclass(frozen=True, kw_only=True)
class Bilevel(Problem):
    """Base class of bilevel problems; the decision variables are x.

    Needs oracle=hypergradient or oracle=value_gap.

    A subclass defines `blocks`, `lower_dim` and either `f` and `g` (differentiable; both batched over runs)
    or `view`. `view` gets the indices of the terms of the lower level that a step uses, None stands for all
    of them. A problem whose samples differ between steps overrides `at_step`.

    Fields: `start_lower`: every entry of y_0.

    `values` is phi at the exact y*(x) (`solve`), without a gradient: `oracle=exact` joins only problems with
    a closed form.
    """

    closed_form: ClassVar[bool] = False  # True: `values` is differentiable, y*(x) being a formula

    start_lower: float = 0.0

    @property
    @abstractmethod
    def blocks(self) -> int:
        """B: 1 or S."""

    @property
    @abstractmethod
    def lower_dim(self) -> int:
        """q, the length of a block of y."""

    @property
    def lower_samples(self) -> int:
        """Terms of the lower level's finite sum, for each run; 0: it has none."""
        return 0

    @property
    def convexity(self) -> float:
        """mu_g, the strong convexity of g in y; 0: not known."""
        return 0.0

    def f(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> Float[Tensor, "R S"]:
        """Upper level."""
        raise NotImplementedError(f"{type(self).__name__} defines neither f nor its own view")

    def g(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        """Lower level, block by block."""
        raise NotImplementedError(f"{type(self).__name__} defines neither g nor its own view")

    def view(self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R b"] | None = None) -> View:
        """Both levels at x. `batch`: terms of the lower level's sum for each run; None: all."""
        return GraphView(x, self.f, self.g)

    def at_step(self: This, t: int) -> This:
        """The problem whose views step t takes. Default: this one, on the same samples in all steps."""
        return self

    def initial_lower(self, runs: Runs) -> Float[Tensor, "R B q"]:
        """y_0, float64 on the CPU."""
        return torch.full(
            (len(runs), self.blocks, self.lower_dim), float(self.start_lower), dtype=torch.float64
        )

    def solve(self, x: Float[Tensor, "R P"]) -> Float[Tensor, "R B q"]:
        """y*(x) by Newton's method, see `newton`; NaN for runs where it does not get there."""
        y = x.new_full((len(x), self.blocks, self.lower_dim), float(self.start_lower))
        return newton(self.view(x), y)

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R S"]:
        return self.view(x).upper(self.solve(x))[0]

    def columns_at(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> dict[str, Tensor]:
        """The problem's measures (R,) of a pair (x, y)."""
        return {}


def newton(view: View, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B q"]:
    """argmin_y g(x, y) for every block of every run, by Newton-CG with Armijo's step halving.

    Stops at |grad_y g| <= 1e-10 (float32: 1e-5) times (1 + its length at the start). A block that is not
    there after 60 steps, or whose numbers are not finite, is NaN: it is no answer, and no reason to lose
    those of other runs.
    """
    single = y.dtype == torch.float32
    close, rounding = (1e-5, 1e-6) if single else (1e-10, 1e-14)
    slope = view.lower_gradient(y)
    length = torch.linalg.vector_norm(slope, dim=-1)
    goal = close * (1.0 + length)
    for _ in range(NEWTON_STEPS):
        open_ = (length > goal) & torch.isfinite(length)
        if not bool(open_.any()):
            break
        forcing = (0.5 * length.sqrt()).clamp(1e-3 if single else 1e-8, 0.1)
        newton_step = conjugate_gradients(
            partial(view.lower_hvp, y), slope, steps=CG_STEPS, relative=forcing, strict=False
        )
        direction = torch.where(open_.unsqueeze(-1), newton_step, 0.0)
        fall = (slope * direction).sum(-1)
        value = view.lower(y)
        size = torch.ones_like(length)
        for _ in range(HALVINGS):
            trial = y - size.unsqueeze(-1) * direction
            bad = open_ & ~(
                view.lower(trial) <= value - ARMIJO * size * fall + rounding * (1.0 + value.abs())
            )
            if not bool(bad.any()):
                break
            size = torch.where(bad, 0.5 * size, size)
        y = trial
        slope = view.lower_gradient(y)
        length = torch.linalg.vector_norm(slope, dim=-1)
    return torch.where((length <= goal).unsqueeze(-1), y, torch.nan)
