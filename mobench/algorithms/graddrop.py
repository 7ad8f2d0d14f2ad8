"""GradDrop:  d_p = -sum_m (l + (1 - l) k_mp) g_mp;  k_mp = 1 where g_mp has the sign drawn for coordinate p,
which is + with probability P_p = 1/2 (1 + sum_m g_mp / sum_m |g_mp|).
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
from mobench.core.random import counter_uniform
from mobench.errors import ConfigError

STREAM = "graddrop"


@dataclass(frozen=True, kw_only=True)
class GradDrop(Algorithm):
    """In each coordinate only gradients of one sign count, drawn by their purity; it ignores the preference.

    Draws are functions of the run's seed and of the step. Where all gradients are 0, so is d.

    Fields: `leak` l in [0, 1]: the share of each gradient that always counts; 1 is their sum.
    Source: Chen et al. 2020 (GradDrop), Algorithm 1, with f the identity. Departure: the gradients of the
    parameters, not those of the last shared activations with the mean of their signs over a batch.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size"})
    citation: ClassVar[str] = "Chen et al. 2020 (GradDrop)"
    preferred: ClassVar[bool] = False
    coordinates: ClassVar[bool] = True

    leak: Real = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.leak <= 1:
            raise ConfigError(f"algorithm.leak={self.leak} must lie in [0, 1]; it is a share.")

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"})

    def init(self, ctx: Context) -> State:
        R = len(ctx.prefs)
        seeds = torch.zeros(R, dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        return {"seed": seeds.to(ctx.prefs.device)}

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        J = points[0].jacobian("f")
        size = J.abs().sum(1)
        purity = 0.5 * (1.0 + torch.where(size > 0, J.sum(1) / size, 0.0))
        up = counter_uniform(state["seed"], STREAM, t, J.shape[2]).to(J) < purity
        same_sign = torch.where(up.unsqueeze(1), J > 0, J < 0)
        return -torch.where(same_sign, J, self.leak * J).sum(1), state, Info()
