"""Linear scalarization:  minimise sum_m w_m f_m,  d = -J^T w."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, State, Weighting
from mobench.errors import choose


@dataclass(frozen=True, kw_only=True)
class LS(Weighting):
    """d = -J^T w with the preference as constant weights; FedAvg in federated learning.

    Fields: `normalize`: "sum" uses w (sum 1); "norm" uses w/|w|, as the toy code behind FERERO's Figure 3
    does.
    """

    citation: ClassVar[str] = "Gass and Saaty 1955"

    normalize: str = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.normalize", self.normalize, ("sum", "norm"))

    def init(self, ctx: Context) -> State:
        w = ctx.prefs
        if self.normalize == "norm":
            w = w / torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        return {"w": w}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        return state["w"], state, Info()
