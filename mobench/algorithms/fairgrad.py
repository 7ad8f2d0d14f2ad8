"""FairGrad:  d = -J^T w,  G w = w^(-1/alpha),  w > 0: alpha-fair descents <g_m, d>."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, Real, State, Weighting
from mobench.core.arrays import scalar
from mobench.errors import ConfigError
from mobench.solvers.equilibrium import equilibrium


@dataclass(frozen=True, kw_only=True)
class FairGrad(Weighting):
    """The direction of largest alpha-fair utility of the descents; it ignores the preference.

    At a Pareto stationary point the program has no solution and d = 0.

    Fields: `alpha` in [0.5, 10]: 1 is proportional fairness (Nash-MTL of length sqrt(M)), 2 minimises
    potential delay, and large values serve the worst objective. Smaller ones approach the mean
    (algorithm=ls). Source: Ban and Ji 2024 (FairGrad), equation 4. Departure: the equation is solved
    exactly, as the minimum of 1/2 w'Gw - sum_m w_m^(1-p) / (1-p), p = 1 / alpha, where their code calls a
    least-squares solver.
    """

    gramian: ClassVar[bool] = True
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "alpha"})
    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Ban and Ji 2024 (FairGrad)"
    preferred: ClassVar[bool] = False

    alpha: Real = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.alpha <= 10:
            raise ConfigError(
                f"algorithm.alpha={self.alpha} must lie in [0.5, 10]; for alpha = 0 use algorithm=ls, for "
                "alpha = infinity algorithm=mgda."
            )

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        alpha = scalar(self.alpha, G).expand(len(G), 1)
        w, residual, failed = equilibrium(G, 1.0 / alpha)
        return w, state, Info(residual, failed)
