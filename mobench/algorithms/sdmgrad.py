"""SDMGrad:  d = -J^T (w* + rho u) / (1 + rho),  w* = argmin over the simplex of |J'(w + rho u)|^2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import Mixed
from mobench.core.algorithm import Context, Info, Real, State
from mobench.core.arrays import scalar
from mobench.errors import ConfigError, choose
from mobench.solvers import project_simplex, qp


@dataclass(frozen=True, kw_only=True)
class SDMGrad(Mixed):
    """MGDA drawn towards a combination of the gradients.

    Fields: `rho` >= 0: their lambda; 0 is MGDA, large values are the combination alone. `mixture`: u = 1/M
    ("mean") or the preference. `subproblem`: "exact", or "published": from the last w, `inner_steps`
    projected steps of size `inner_step` with `momentum` on the Gram matrix divided by its mean length
    squared. Source: Xiao et al. 2023 (SDMGrad), the regularised subproblem. Departure: one sample gives both
    factors of the Gram matrix; they draw two (of an exact oracle there is one).
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "rho"})
    citation: ClassVar[str] = "Xiao et al. 2023 (SDMGrad)"
    preferred: ClassVar[bool] = False

    rho: Real = 0.3
    subproblem: str = "exact"
    inner_steps: int = 20
    inner_step: Real = 10.0
    momentum: Real = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "published"))
        if not 0 <= self.rho < float("inf"):
            raise ConfigError(f"algorithm.rho={self.rho} must be a number >= 0.")
        if not (self.inner_steps > 0 and self.inner_step > 0 and 0 <= self.momentum < 1):
            raise ConfigError(
                f"algorithm.inner_steps={self.inner_steps} and algorithm.inner_step={self.inner_step} must "
                f"be > 0, and algorithm.momentum={self.momentum} must lie in [0, 1)."
            )

    def init(self, ctx: Context) -> State:
        return {**super().init(ctx), "w": torch.full_like(ctx.prefs, 1.0 / ctx.spec.M)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        pull = scalar(self.rho, G) * state["u"]
        info = Info()
        if self.subproblem == "exact":
            slope = (G @ pull.unsqueeze(-1)).squeeze(-1)
            w, residual, failed = qp(G, -slope, torch.ones_like(F))
            info = Info(residual, failed)
        else:
            w = self._published(G, pull, state["w"])
        return (w + pull) / (1.0 + self.rho), {**state, "w": w}, info

    def _published(
        self, G: Float[Tensor, "R M M"], pull: Float[Tensor, "R M"], w: Float[Tensor, "R M"]
    ) -> Float[Tensor, "R M"]:
        length = G.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt().mean(1)
        A = G / (length.square() + 1e-8)[:, None, None]
        velocity = torch.zeros_like(w)
        for _ in range(self.inner_steps):
            velocity = self.momentum * velocity + (A @ (w + pull).unsqueeze(-1)).squeeze(-1)
            w = project_simplex(w - self.inner_step * velocity)
        return w
