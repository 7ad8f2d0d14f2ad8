"""FedMGDA+:  MGDA on normalised gradients with weights that stay near the uniform ones.

lambda* = argmin |sum_m lambda_m g_m / |g_m||^2   s.t.  1'lambda = 1,  lambda >= 0,
|lambda_m - 1/M| <= epsilon
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, Real, State, Weighting
from mobench.core.arrays import scalar
from mobench.errors import ConfigError, choose
from mobench.solvers import qp


@dataclass(frozen=True, kw_only=True)
class FedMGDAPlus(Weighting):
    """The common descent direction of the normalised gradients; it ignores the preference.

    Fields: `epsilon` >= 0: 0 gives uniform weights, >= 1 MGDA. `step_rule`: "models" averages the clients'
    models, d = -sum lambda*_m g_m (public code of the OMD-TCH paper); "normalized" steps along the
    combination itself, d = -sum lambda*_m g_m / |g_m| (the method's paper). A gradient of length 0 counts as
    it is.
    """

    gramian: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "epsilon"})
    citation: ClassVar[str] = "Hu et al. 2022 (FedMGDA+)"
    preferred: ClassVar[bool] = False

    epsilon: Real = 0.1
    step_rule: str = "models"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilon >= 0:
            raise ConfigError(f"algorithm.epsilon={self.epsilon} must be >= 0.")
        choose("algorithm.step_rule", self.step_rule, ("models", "normalized"))

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        length = G.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
        scale = torch.where(length > 0, 1.0 / length, 0.0)
        cosines = G * scale.unsqueeze(1) * scale.unsqueeze(2)
        mean = 1.0 / G.shape[-1]
        epsilon = scalar(self.epsilon, G)
        low = (mean - epsilon).clamp_min(0.0)
        high = (mean + epsilon).clamp_max(1.0)
        lam, residual, failed = qp(cosines, None, torch.ones_like(F), lower=low, upper=high)
        return lam if self.step_rule == "models" else lam * scale, state, Info(residual, failed)
