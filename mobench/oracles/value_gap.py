"""The value-function form of a bilevel problem:  min over w = (x, y) of F_s(w)   s.t.   q(w) <= 0.

q(w) = g(x, y) - g(x, y~),     y~ = y after D steps of size alpha on g(x, .)
grad q ~ (grad_x g(x, y) - grad_x g(x, y~), grad_y g(x, y))
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import State
from mobench.core.point import Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sets import Box, Free, Intervals, Set
from mobench.core.types import Real
from mobench.errors import CompatibilityError
from mobench.oracles.exact import problem_spec
from mobench.oracles.hypergradient import OfBilevel


class ValueGap(OfBilevel):
    """First-order oracle of both levels, whose one constraint (kind "gap") is the gap of the lower level.

    The decision variables are (x, y), all blocks of y behind x; y~ is held fixed in the gap's gradient.
    Exact values, and final rows, are phi(x) at the exact y*(x), like those of oracle=hypergradient, and the
    gap of (x, y).

    Parameters: inner_steps: D. inner_step: alpha.
    Source: FORUM (Ye et al. 2024), as compared in the multi-objective bilevel learning paper.
    """

    def __init__(self, problem: Problem, runs: Runs, inner_steps: int = 32, inner_step: Real = 0.1) -> None:
        self._bind(problem, runs, inner_steps, inner_step, None, "value_gap")
        spec = problem_spec(self.problem, len(runs), samples=1)
        P = spec.P + self.problem.blocks * self.problem.lower_dim
        X = _beside(self.problem.X, spec.P, P)
        self.spec = replace(
            spec, N=1, P=P, X=X, provides=frozenset({"jacobian", "jvp"}), constraint_kind="gap"
        )

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return torch.cat([self.problem.initial(runs), self.start.cpu().flatten(1)], dim=1)

    def split(self, theta: Float[Tensor, "R P2"]) -> tuple[Float[Tensor, "R P"], Float[Tensor, "R B q"]]:
        """x and y."""
        x, y = theta.split([self.problem.dim, theta.shape[1] - self.problem.dim], dim=1)
        return x, y.view(len(theta), self.problem.blocks, self.problem.lower_dim)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        x, y = self.split(theta)
        view = self.problem.at_step(t).view(x)
        F, slopes = view.upper(y)
        near = self._end(x, y, t)
        gap = view.lower(y).sum(1) - view.lower(near).sum(1)

        def rows() -> Tensor:
            R, M = F.shape
            parts = theta.new_zeros(R, M, *y.shape[1:])
            if y.shape[1] == 1:
                parts[:, :, 0] = slopes
            else:
                blocks = torch.arange(M, device=theta.device)
                parts[:, blocks, blocks] = slopes
            upper = torch.cat([view.jacobian(y, []), parts.flatten(2)], dim=2)
            lower = torch.cat(
                [view.lower_x(y) - view.lower_x(near), view.lower_gradient(y).flatten(1)], dim=1
            )
            return torch.cat([upper, lower.unsqueeze(1)], dim=1)

        return TablePoint(theta, self.spec.X, self.spec.M, {}, torch.cat([F, gap.unsqueeze(1)], dim=1), rows)

    def last_point(self, theta: Float[Tensor, "R P"], state: State, t: int) -> Point:
        return self.at(theta, state, t)

    def exact_point(self, theta: Float[Tensor, "R P"]) -> Point | None:
        return None  # the problem knows x alone

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        x, y = self.split(theta)
        view = self.problem.view(x)
        best = self.solve(x)
        gap = view.lower(y).sum(1) - view.lower(best).sum(1)
        return torch.cat([view.upper(best)[0], gap.unsqueeze(1)], dim=1)

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        """Returns the values of (x, y) where there is a point, else of (x, y*(x))."""
        x, y = self.split(theta)
        return self.problem.columns_at(x, y if point is not None else self.solve(x))


def _beside(X: Set, dim: int, P: int) -> Set:
    """The set of (x, y), P variables, with x in X and y anywhere.

    Raises:
        CompatibilityError: X is neither the whole space nor a box.
    """
    if isinstance(X, Free):
        return X
    if not isinstance(X, Box | Intervals):
        raise CompatibilityError(
            f"oracle=value_gap moves x and y together, with x in a box or anywhere, not in {X}."
        )
    ends = [end if isinstance(end, tuple) else (float(end),) * dim for end in (X.lower, X.upper)]
    rest = (math.inf,) * (P - dim)
    return Intervals((*ends[0], *(-end for end in rest)), (*ends[1], *rest))
