"""OMD-TCH:  minimise max over lambda in the simplex of sum_m lambda_m w_m f_m  by online mirror descent.

c = lambda^(t) * w,   theta^(t+1) = Proj(theta^(t) - eta_theta J^T c)                      (eq. 9)
PGD:  lambda^(t+1) = Proj_simplex(lambda^(t) + eta_lambda w * F(theta^(t)))                (eq. 10)
EG:   lambda^(t+1) proportional to lambda^(t) * exp(eta_lambda w * F(theta^(t)))           (eq. 11)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import ConfigError, choose
from mobench.solvers import project_simplex


@dataclass(frozen=True, kw_only=True)
class OMDTCH(Weighting):
    """OMD-TCH (output rule "mean") and AdaOMD-TCH (output rule "adaptive"): one trajectory serves both.

    The theta step reads the old lambda although Algorithm 1 lists the lambda step first; both read
    F(theta^(t)). EG runs in log space. lambda starts at 1/M.

    Fields: `mirror`: "pgd" or "eg". `lambda_step`: eta_lambda >= 0; 0 keeps lambda = 1/M, i.e. linear
    scalarization with step eta_theta / M.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "lambda_step"})
    citation: ClassVar[str] = "Liu et al. 2024 (OMD-TCH)"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"eg": {"mirror": "eg"}}

    mirror: str = "pgd"
    lambda_step: Real = 1.0
    outputs: Sequence[str] = field(default=("mean",))

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.mirror", self.mirror, ("pgd", "eg"))
        if not self.lambda_step >= 0:
            raise ConfigError(f"algorithm.lambda_step={self.lambda_step} must be >= 0.")

    def init(self, ctx: Context) -> State:
        uniform = torch.full_like(ctx.prefs, 1.0 / ctx.spec.M)
        return {"w": ctx.prefs, "lam": uniform, "log": uniform.log(), "gain": self.lambda_step * ctx.prefs}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        lam = state["lam"]
        c = lam * state["w"]
        if self.mirror == "pgd":
            state = {**state, "lam": project_simplex(torch.addcmul(lam, state["gain"], F))}
        else:
            log = torch.log_softmax(torch.addcmul(state["log"], state["gain"], F), dim=-1)
            state = {**state, "lam": log.exp(), "log": log}
        return c, state, Info()
