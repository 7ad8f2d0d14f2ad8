"""PMGDA:  h(f) = distance of f to the ray v;  d = -J^T w,  w_m = mu_m / |g_m| + mu_h (dh/df_m) / |grad h|.

h <= tolerance: w = the min-norm weights (MGDA)
h >  tolerance: mu maximises min_m <g_m, p> over the simplex,  s.t.  <grad h, p> >= sigma |grad h|,
                p = sum_m mu_m g_m / |g_m| + mu_h grad h / |grad h|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import cosines
from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.core.preferences import ray
from mobench.errors import ConfigError
from mobench.solvers import Solution, lp, min_norm


@dataclass(frozen=True, kw_only=True)
class PMGDA(Weighting):
    """Preference-based MGDA: down along the ray, back to it where the point has left it.

    Fields: `tolerance`: of h relative to |f|. `sigma` in (0, 1]: how much of the fastest return is kept.
    Source: Zhang et al. 2024 (PMGDA), correction step in its dual form, exact constraint. Departures: v is
    the ray along 1/w, as everywhere here; h is divided by |f| in the comparison with the tolerance.
    """

    gramian: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    citation: ClassVar[str] = "Zhang et al. 2024 (PMGDA)"

    tolerance: Real = 0.01
    sigma: Real = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tolerance >= 0:
            raise ConfigError(f"algorithm.tolerance={self.tolerance} must be >= 0.")
        if not 0 < self.sigma <= 1:
            raise ConfigError(f"algorithm.sigma={self.sigma} must lie in (0, 1].")

    def init(self, ctx: Context) -> State:
        return {"v": ray(ctx.prefs)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        v = state["v"]
        across = F - (F * v).sum(1, keepdim=True) * v
        h = torch.linalg.vector_norm(across, dim=1, keepdim=True)
        away = h > max(self.tolerance, 1e-14) * torch.linalg.vector_norm(F, dim=1, keepdim=True)
        slope = torch.where(away, across / h, torch.zeros_like(F))
        down = min_norm(G)
        back, scale = returning(G, slope, float(self.sigma))
        mu = back.x * scale
        w = torch.where(away, mu[:, :-1] + mu[:, -1:] * slope, down.x)
        kkt = torch.where(away[:, 0], back.residual, down.residual)
        return w, state, Info(kkt, torch.where(away[:, 0], back.failed, down.failed))


def returning(
    G: Float[Tensor, "R M M"], slope: Float[Tensor, "R M"], sigma: float
) -> tuple[Solution, Float[Tensor, "R K"]]:
    """mu of the correction step, and 1 / |g_m|, 1 / |grad h|; G: Gram matrix of the objectives.

    Over the simplex of x = (mu, s, 1 - s) / 2: the value of the worst objective is T (2 s - 1), T its largest
    size, and two rows keep the halves apart.
    """
    R, M = slope.shape
    units = torch.eye(M, dtype=G.dtype, device=G.device).expand(R, M, M)
    rows = torch.cat([units, slope.unsqueeze(1)], dim=1)
    C, scale = cosines(rows @ G @ rows.mT)
    gains = torch.where(scale[:, :M] > 0, 1.0 / scale[:, :M], 0.0).unsqueeze(2) * C[:, :M]
    top = gains.abs().amax((1, 2)).clamp_min(1e-300)
    A = torch.zeros(R, M + 3, M + 3, dtype=G.dtype, device=G.device)
    A[:, :M, : M + 1] = gains / top[:, None, None]
    A[:, :M, M + 1] = -1.0
    A[:, :M, M + 2] = 1.0
    A[:, M, : M + 1] = C[:, M]
    A[:, M + 1, : M + 1] = 1.0
    A[:, M + 2, M + 1 :] = 1.0
    b = torch.zeros(R, M + 3, dtype=G.dtype, device=G.device)
    b[:, M] = 0.5 * sigma * (scale[:, M] > 0)
    b[:, M + 1 :] = 0.5
    c = torch.zeros(R, M + 3, dtype=G.dtype, device=G.device)
    c[:, M + 1] = 1.0
    c[:, M + 2] = -1.0
    solution = lp(c, A, b)
    return solution._replace(x=2.0 * solution.x[:, : M + 1]), scale
