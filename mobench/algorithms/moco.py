"""MoCo:  lambda <- Proj_simplex(lambda - gamma_k (Y'Y + rho I) lambda),   d = -Y lambda,
gamma_k = gamma / k^decay

Y: running averages of stochastic gradients, which oracle=moco (an EMA) keeps: Y <- Y - b_k (Y - h),
b_k = b / k^(1/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.core.oracle import Spec
from mobench.errors import ConfigError
from mobench.solvers import project_simplex


@dataclass(frozen=True, kw_only=True)
class MoCo(Weighting):
    """Min-norm weights by single gradient steps, on tracked gradients; it ignores the preference.

    lambda starts at 1/M. The order of a step is: gradients, lambda, x; each uses the newest of the others.

    Fields: `weight_step`: gamma > 0. `weight_decay`: exponent of its decay. `regularization`: rho >= 0.
    Columns `lambda_1`..: the weights of the step before the recorded one.
    Source: Fernando et al. 2022. Departure: the projection of their paper, not the softmax of common code.
    """

    gramian: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "weight_step", "regularization"})
    citation: ClassVar[str] = "Fernando et al. 2022 (MoCo)"
    preferred: ClassVar[bool] = False

    weight_step: Real = 0.1
    weight_decay: Real = 0.5
    regularization: Real = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_step > 0:
            raise ConfigError(f"algorithm.weight_step={self.weight_step} must be > 0.")
        for key in ("weight_decay", "regularization"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"algorithm.{key}={getattr(self, key)} must be >= 0.")

    def advice(self, spec: Spec) -> list[str]:
        if spec.averaging is None:
            return [
                "it needs running averages of the gradients, which oracle=moco, or an ema over another "
                "oracle, provides"
            ]
        return []

    def init(self, ctx: Context) -> State:
        return {"lam": torch.full_like(ctx.prefs, 1.0 / ctx.spec.M)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        lam = state["lam"]
        step = self.weight_step / (t + 1.0) ** self.weight_decay
        slope = (G @ lam.unsqueeze(-1)).squeeze(-1) + self.regularization * lam
        lam = project_simplex(lam - step * slope)
        return lam, {"lam": lam}, Info()

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        return {f"lambda_{s + 1}": state["lam"][:, s] for s in range(F.shape[1])}
