"""DualProj:  d = -pi(sum_m u_m g_m),  pi(g) the projection of g onto {v: <g_j, v> >= 0 for all j}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import Mixed
from mobench.core.algorithm import Info, State
from mobench.solvers.dual_cone import dual_cone
from mobench.solvers.nearest import nearest


@dataclass(frozen=True, kw_only=True)
class DualProj(Mixed):
    """The mean gradient, projected to where it raises no objective.

    Fields: `mixture`: u = 1/M ("mean") or the preference.
    Source: Lopez-Paz and Ranzato 2017 (gradient episodic memory), equation 11, of all objectives instead of a
    memory. Gradients that depend on others up to rounding are projected without their Gram matrix
    (`mobench.solvers.nearest`).
    """

    cancels: ClassVar[bool] = True
    citation: ClassVar[str] = "Lopez-Paz and Ranzato 2017 (GEM)"
    preferred: ClassVar[bool] = False

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        w, residual, failed, hard = dual_cone(G, state["u"].unsqueeze(1))
        return w, state, Info(residual, failed, hard=hard)

    def from_rows(
        self, J: Float[Tensor, "M P"], state: State, r: int
    ) -> tuple[Float[Tensor, " M"], Float[Tensor, " P"], float, bool]:
        projected = nearest(J, state["u"][r : r + 1])
        return projected.x[0], projected.d[0], projected.residual, projected.failed
