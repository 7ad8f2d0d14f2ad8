"""STCH-Set:  minimise mu log sum_m exp((s_m - z_m) / (M mu)),  s_m = -nu log sum_k exp(-f_m(x_k) / nu);
weights of point k:  1/M softmax_m((s - z) / (M mu)) softmax_k(-f_m / nu).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.tch import ideal_point
from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import ConfigError
from mobench.solvers.host import on_host


@dataclass(frozen=True, kw_only=True)
class STCHSet(Weighting):
    """The points of a seed share the objectives: each is to be small at one of them.

    `preferences=K` makes K points; preferences are not used.

    Fields: `mu`, `nu` > 0: smoothing of the largest objective and of the best point; -> 0 gives the
    Tchebycheff set scalarization. `ideal`: z as in TCH.
    Source: Lin et al. 2025 (few for many), the smooth set scalarization with equal weights 1/M.
    """

    together: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset()
    citation: ClassVar[str] = "Lin et al. 2025 (STCH-Set)"
    preferred: ClassVar[bool] = False

    mu: Real = 0.1
    nu: Real = 0.1
    ideal: str | Real | Sequence[Real] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.mu > 0 and self.nu > 0):
            raise ConfigError(f"algorithm.mu={self.mu} and algorithm.nu={self.nu} must be > 0.")

    def init(self, ctx: Context) -> State:
        R = len(ctx.prefs)
        seeds = torch.zeros(R, dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        z = ideal_point(self.ideal, ctx).expand_as(ctx.prefs).clone()
        device = ctx.prefs.device
        return {"seed": seeds.to(device), "z": z, "alive": torch.ones(R, dtype=torch.bool, device=device)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        w = _weights(F, state["seed"], state["z"], state["alive"], float(self.mu), float(self.nu))
        return w, state, Info()


@on_host()
def _weights(
    F: Tensor, seeds: Tensor, z: Tensor, alive: Tensor, mu: float, nu: float
) -> Float[Tensor, "R M"]:
    """Weights of all sets, one after the other."""
    M = F.shape[1]
    w = torch.full_like(F, 1.0 / M)
    well = alive & F.isfinite().all(dim=1)  # a run that has diverged has left its set
    for seed in seeds[well].unique().tolist():
        mine = (seeds == seed) & well
        f = F[mine] / nu
        best = -nu * torch.logsumexp(-f, dim=0, keepdim=True)
        share = torch.softmax((best - z[mine][:1]) / (M * mu), dim=1)
        w[mine] = share * torch.softmax(-f, dim=0) / M
    return w
