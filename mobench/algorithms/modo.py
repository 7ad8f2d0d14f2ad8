"""MoDo:  lambda <- Proj_simplex(lambda - gamma (J_1 J_2' lambda + rho lambda)),  d = -J_1^T lambda, from two
independent samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.errors import ConfigError
from mobench.solvers import project_simplex


@dataclass(frozen=True, kw_only=True)
class MoDo(Algorithm):
    """Min-norm weights by single unbiased gradient steps; it ignores the preference.

    They are unbiased because two samples give the two factors of the Gram matrix. lambda starts at 1/M.

    Fields: `weight_step`: gamma > 0. `regularization`: rho >= 0.
    Columns `lambda_1`..: the weights of the step before the recorded one.
    Source: Chen et al. 2023 (three-way trade-off), MoDo. Departure: x moves along the gradients of the
    first of the two samples, not of a third one.
    """

    samples: ClassVar[int] = 2
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "weight_step", "regularization"})
    citation: ClassVar[str] = "Chen et al. 2023 (MoDo)"
    preferred: ClassVar[bool] = False

    weight_step: Real = 0.1
    regularization: Real = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_step > 0:
            raise ConfigError(f"algorithm.weight_step={self.weight_step} must be > 0.")
        if not self.regularization >= 0:
            raise ConfigError(f"algorithm.regularization={self.regularization} must be >= 0.")

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"})

    def init(self, ctx: Context) -> State:
        return {"lam": torch.full_like(ctx.prefs, 1.0 / ctx.spec.M)}

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        first = points[0]
        lam = state["lam"]
        one = first.jacobian("f").double()
        two = points[1].jacobian("f").double()
        slope = (one @ (two.mT @ lam.unsqueeze(-1))).squeeze(-1) + self.regularization * lam
        lam = project_simplex(lam - self.weight_step * slope)
        return -first.vjp(lam.to(first.x.dtype)), {"lam": lam}, Info()

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        return {f"lambda_{s + 1}": state["lam"][:, s] for s in range(F.shape[1])}
