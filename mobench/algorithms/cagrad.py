"""CAGrad:  d = -argmax over |v - g_0| <= c |g_0| of min_m <g_m, v>,  g_0 = sum_m g_m / M."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, Real, State, Weighting
from mobench.core.arrays import scalar
from mobench.core.oracle import Spec
from mobench.errors import ConfigError
from mobench.solvers.conflict_averse import conflict_averse
from mobench.solvers.nearest import nearest


@dataclass(frozen=True, kw_only=True)
class CAGrad(Weighting):
    """Near the mean gradient, the direction that serves the worst objective best; it ignores the preference.

    Fields: `c` >= 0: radius of the ball in units of |g_0|; 0 is the mean of the gradients.
    Where some convex combination of the gradients is shorter than 1e-7 of the longest one, it counts as 0:
    the program then has many solutions up to that, and the one nearest to the mean is taken, which is the
    mean's projection (`DualProj`).

    Source: Liu et al. 2021 (CAGrad), Algorithm 1. Departures: the dual is solved exactly, and the direction
    is not divided by 1 + c^2 (which their code does).
    """

    gramian: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "c"})
    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu et al. 2021 (CAGrad)"
    preferred: ClassVar[bool] = False

    c: Real = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.c < float("inf"):
            raise ConfigError(f"algorithm.c={self.c} must be a number >= 0.")

    def advice(self, spec: Spec) -> list[str]:
        largest = float(torch.as_tensor(self.c).max())  # the runs of a batch may differ in it
        if largest >= 1:
            return [f"algorithm.c={largest:g}: convergence to a minimum of the mean needs c < 1"]
        return []

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        c = scalar(self.c, G).expand(len(G), 1)
        w, residual, failed, hard = conflict_averse(G, c)
        return w, state, Info(residual, failed, hard=hard)

    def from_rows(
        self, J: Float[Tensor, "M P"], state: State, r: int
    ) -> tuple[Float[Tensor, " M"], Float[Tensor, " P"], float, bool]:
        mean = torch.full((1, len(J)), 1.0 / len(J), dtype=torch.float64, device=J.device)
        projected = nearest(J, mean)  # only where the mean has to be projected
        return projected.x[0], projected.d[0], projected.residual, projected.failed
