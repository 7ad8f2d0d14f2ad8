"""Composite objectives:  f_k(x) + w_k |x|_1  in epigraph form,  f_k(x) + w_k s  with  |x|_1 <= s."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.point import Linear
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sampled import Sampled, samples_of
from mobench.core.sets import Free, L1Epigraph, Set
from mobench.core.truth import IdealByRuns
from mobench.core.types import Real
from mobench.errors import ConfigError
from mobench.problems.least_squares import LeastSquares

This = TypeVar("This", bound="L1Regularized")  # beartype knows no typing.Self in methods


@dataclass(frozen=True, kw_only=True)
class L1Regularized(Sampled):
    """Another problem's objectives and constraints with multiples of one norm added (CSMOO, Appendix D.1,
    eqs. (68), (69)).

        values: f_k(x) + w_k s,   k = 1..K (objectives, then constraints);   rows: (grad f_k, w_k)
        variables (x, s) in R^(n+1);   X = {|x|_1 <= s}

    The problem is smooth on a set with a cheap projection. With weights >= 0 lowering s to |x|_1 worsens
    nothing, so that the Pareto points of f_k + w_k |x|_1 are those of this problem. Samples, instances and
    the start are the inner problem's; s starts at |x|_1. The inner ideal point stays one, as the regularisers
    are >= 0. No front is known.

    Fields:
        problem: the inner problem, with X = R^n.
        weights: w_k >= 0, K numbers.

    Departure: the paper gives every function its own variable and its own inequality in X; for multiples of
    one norm a single s does the same, and X keeps an exact projection.
    """

    citation: ClassVar[str] = "Constrained stochastic multi-objective optimization (CSMOO), (68) and (69)"

    problem: Problem = field(default_factory=LeastSquares)
    weights: Sequence[Real] = (0.1, 0.1)
    start: Mapping[str, Any] = field(init=False, default_factory=lambda: {"kind": "constant", "value": 0.0})
    steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "start", self.problem.start)
        object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
        if not isinstance(self.problem.X, Free):
            raise ConfigError(
                f"problem.problem={type(self.problem).__name__} has the feasible set {self.problem.X}, which "
                "the epigraph of the norm would replace. Choose a problem without a feasible set, "
                "such as least squares."
            )
        K = self.problem.n_objectives + self.problem.n_constraints
        if len(self.weights) != K or not all(0.0 <= w < math.inf for w in self.weights):
            raise ConfigError(
                f"problem.weights={list(self.weights)} must contain {K} numbers >= 0, one for each of the "
                f"{self.problem.n_objectives} objectives and {self.problem.n_constraints} constraints; with "
                f"a negative weight the epigraph form would not be equivalent."
            )

    @property
    def n_objectives(self) -> int:
        return self.problem.n_objectives

    @property
    def n_constraints(self) -> int:  # type: ignore[override]  # a constant of the class in most problems
        return self.problem.n_constraints

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return self.problem.positive

    @property
    def dim(self) -> int:
        return self.problem.dim + 1

    @property
    def name(self) -> str:
        return f"l1_{self.problem.name}"

    @property
    def n_samples(self) -> float | int:
        return samples_of(self.problem)

    @property
    def drop_last(self) -> bool:
        return isinstance(self.problem, Sampled) and self.problem.drop_last

    def unfit_batch(self, size: int) -> str:
        return self.problem.unfit_batch(size) if isinstance(self.problem, Sampled) else ""

    @property
    def X(self) -> Set:
        return L1Epigraph(self.problem.dim)

    @property
    def ideal_point(self) -> Tensor | None:
        return self.problem.ideal_point

    def with_ideal_by(self: This, solve: Callable[[Problem, int], Tensor]) -> This:
        """The inner problem's ideal point from `solve`, where it asks for that."""
        if not isinstance(self.problem, IdealByRuns):
            return self
        return replace(self, problem=self.problem.with_ideal_by(solve))

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Tensor:
        assert isinstance(self.problem, Sampled)  # else there are 0 samples, and nobody draws
        return self.problem.draw(keys, stream, t, size)

    def bind(self: This, runs: Runs) -> This:
        return replace(self, problem=self.problem.bind(runs))

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        x = self.problem.initial(runs)
        return self.X.project(torch.cat([x, x.abs().sum(-1, keepdim=True)], -1))

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R K"]:
        return self.problem.values(x[:, :-1], batch) + self._added(x)

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Tensor | None = None
    ) -> tuple[Float[Tensor, "R K"], Callable[[], Tensor]] | None:
        inner = self.problem.linearize(x[:, :-1], batch)
        if inner is None:
            return None
        values, rows = (inner.values(keep=True), inner.jacobian) if isinstance(inner, Linear) else inner[:2]

        def padded() -> Float[Tensor, "R K P"]:
            J = rows()
            last = J.new_tensor(self.weights).expand(J.shape[:2]).unsqueeze(-1)
            return torch.cat([J, last], -1)

        return values + self._added(x), padded

    def _added(self, x: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        """w_k s."""
        return x[:, -1:] * x.new_tensor(self.weights)

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        """The inner problem's, and norm: |x|_1."""
        inner = self.problem.columns(x[:, :-1], values - self._added(x))
        return {**inner, "norm": x[:, :-1].abs().sum(-1)}
