"""MGDA:  d = -J^T lambda*,  lambda* = argmin over the simplex of 1/2 lambda' K lambda,  K = J J^T."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, State, Weighting
from mobench.errors import choose
from mobench.solvers import min_norm, reference


@dataclass(frozen=True, kw_only=True)
class MGDA(Weighting):
    """Multiple gradient descent: the common descent direction of smallest norm; it ignores the preference.

    Column `direction_square`: |d|^2 of the step before the recorded one (0 in the first row).
    Fields: `subproblem`: "exact" (batched, certified) or "cvxpy" (one run at a time, for reference).
    Departure from public two-objective code: weights are not clamped to [0.001, 0.999].
    """

    gramian: ClassVar[bool] = True
    citation: ClassVar[str] = "Desideri 2012; Fliege and Svaiter 2000"
    preferred: ClassVar[bool] = False

    subproblem: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "cvxpy"))

    def init(self, ctx: Context) -> State:
        R, M = ctx.prefs.shape
        gram = ctx.prefs.new_zeros(R, M, M)  # of the last step, for `report`
        return {"lam": torch.full_like(ctx.prefs, 1.0 / M), "gram": gram}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        lam, residual, failed = (min_norm if self.subproblem == "exact" else reference.min_norm)(G)
        return lam, {"lam": lam, "gram": G}, Info(residual, failed)

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        return {"direction_square": squared_length(state["lam"], state["gram"])}


def squared_length(w: Float[Tensor, "R M"], G: Float[Tensor, "R M M"]) -> Float[Tensor, " R"]:
    """|J'w|^2 from G = JJ'."""
    return (w * (G @ w.unsqueeze(-1)).squeeze(-1)).sum(-1)
