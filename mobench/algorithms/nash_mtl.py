"""Nash-MTL:  d = -J^T w,  G w = 1 / w,  w > 0: the Nash bargaining solution of the objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, Real, State, Weighting
from mobench.errors import ConfigError
from mobench.solvers.equilibrium import equilibrium


@dataclass(frozen=True, kw_only=True)
class NashMTL(Weighting):
    """The direction of largest product of descents <g_m, d> in a ball; it ignores the preference.

    The solution has |J'w|^2 = w'Gw = M. At a Pareto stationary point the game has no solution and d = 0.

    Fields: `max_norm`: the direction is shortened to this length, as in their code; null: it stays sqrt(M).
    Source: Navon et al. 2022 (Nash-MTL), Algorithm 1. Departures: the equation is solved exactly, as the
    minimum of 1/2 w'Gw - sum_m log w_m, where their code makes 20 convex-concave steps and keeps the last w
    if a solver fails; and at every step.
    """

    gramian: ClassVar[bool] = True
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Navon et al. 2022 (Nash-MTL)"
    preferred: ClassVar[bool] = False

    max_norm: Real | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_norm is not None and not self.max_norm > 0:
            raise ConfigError(f"algorithm.max_norm={self.max_norm} must be > 0, or null for no bound.")

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        w, residual, failed = equilibrium(G, torch.ones_like(G[:, 0, :1]))
        if self.max_norm is not None:
            w = w * min(1.0, self.max_norm / F.shape[1] ** 0.5)
        return w, state, Info(residual, failed)
