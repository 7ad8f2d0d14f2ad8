"""Tchebycheff scalarization:  minimise max_m w_m (f_m - z_m),
d = -w_k grad f_k  with k the first maximiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import ConfigError, choose


def ideal_point(z: str | Real | Sequence[Real], ctx: Context) -> Float[Tensor, "*R M"]:
    """z as M entries or (R, M); "problem": the problem's ideal point; a number is repeated M times."""
    M = ctx.spec.M
    if isinstance(z, str):
        choose("algorithm.ideal", z, ("problem",))
        if ctx.ideal is None:
            raise ConfigError(
                "algorithm.ideal=problem, but the problem declares no ideal point. Give one number for each "
                "objective, e.g. algorithm.ideal=[0,0], or declare it by mobench.objectives(..., ideal=[0, "
                "0]) or by `ideal_point` in the problem's class."
            )
        return ctx.ideal.to(ctx.prefs)
    out = torch.as_tensor(z, dtype=ctx.prefs.dtype, device=ctx.prefs.device)
    if out.ndim == 0:
        out = out.expand(M)
    if out.shape != (M,):
        raise ConfigError(f"algorithm.ideal has {out.numel()} entries, but the problem has M={M} objectives.")
    return out


@dataclass(frozen=True, kw_only=True)
class TCH(Weighting):
    """Subgradient descent on the weighted maximum.

    Fields: `ideal`: z, a number or M numbers (the papers use 0, a lower bound of non-negative losses), or
    "problem". `gradient`: "weighted" keeps the factor w_k (eq. 2 of the OMD-TCH paper), "unweighted" drops it
    (their public code).
    """

    citation: ClassVar[str] = "Bowman 1976"

    ideal: str | Real | Sequence[Real] = 0.0
    gradient: str = "weighted"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.gradient", self.gradient, ("weighted", "unweighted"))

    def init(self, ctx: Context) -> State:
        z = ideal_point(self.ideal, ctx)
        factor = ctx.prefs if self.gradient == "weighted" else torch.ones_like(ctx.prefs)
        return {"w": ctx.prefs, "factor": factor, "wz": ctx.prefs * z}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        k = torch.addcmul(-state["wz"], state["w"], F).argmax(-1, keepdim=True)
        c = torch.zeros_like(state["factor"]).scatter(-1, k, state["factor"].gather(-1, k))
        return c, state, Info()
