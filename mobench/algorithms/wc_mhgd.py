"""WC-MHGD:  d = -sum_s r_s lambda_s grad phi_s

lambda = argmin over the simplex of  |sum_s lambda_s r_s grad phi_s|^2 - u sum_s lambda_s r_s phi_s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mgda import squared_length
from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import ConfigError, choose
from mobench.solvers import qp, reference


@dataclass(frozen=True, kw_only=True)
class WCMHGD(Weighting):
    """Weighted-Chebyshev multi-hypergradient descent; the preference is r, and r * phi is what it equalises.

    With u = 0 it is the min-norm method on r_s grad phi_s, where phi_s falls at a rate proportional to
    1 / r_s: the most preferred objective falls most slowly. Fixed points for any u > 0 are those of min_x
    max_s r_s phi_s, whatever u is. Without preference (all r_s alike, u = 0) it is MGDA with a step S times
    smaller: use algorithm=mgda.

    Fields: `trade_off`: u >= 0. `trade_off_decay`: a >= 0, u_k = u / (k + 1)^a: the rate of convergence is
    proved for a u that vanishes with the gradients. `subproblem`: "exact" (batched, certified) or "cvxpy"
    (one run at a time, for reference). Columns `lambda_1`..: the weights of the step before the recorded one;
    `direction_square`: |d|^2 of that step. Source: multi-objective bilevel learning paper, Algorithm 1,
    equation (5). Departure: the square root K of the Gram matrix is not formed; only K'K enters.
    """

    gramian: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "trade_off"})
    citation: ClassVar[str] = "multi-objective bilevel learning paper (WC-MHGD)"

    trade_off: Real = 10.0
    trade_off_decay: Real = 0.0
    subproblem: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.trade_off >= 0:
            raise ConfigError(f"algorithm.trade_off={self.trade_off} must be >= 0.")
        if not self.trade_off_decay >= 0:
            raise ConfigError(f"algorithm.trade_off_decay={self.trade_off_decay} must be >= 0.")
        choose("algorithm.subproblem", self.subproblem, ("exact", "cvxpy"))

    def init(self, ctx: Context) -> State:
        R, M = ctx.prefs.shape
        gram = ctx.prefs.new_zeros(R, M, M)  # of the last step, for `report`
        return {"r": ctx.prefs, "lam": torch.full_like(ctx.prefs, 1.0 / M), "gram": gram}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        r = state["r"]
        u = self.trade_off / (t + 1.0) ** self.trade_off_decay
        solve = qp if self.subproblem == "exact" else reference.qp
        lam, residual, failed = solve(
            2.0 * r.unsqueeze(1) * G * r.unsqueeze(2), u * r * F, torch.ones_like(F)
        )
        return r * lam, {**state, "lam": lam, "gram": G}, Info(residual, failed)

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        weights = {f"lambda_{s + 1}": state["lam"][:, s] for s in range(F.shape[1])}
        return weights | {"direction_square": squared_length(state["r"] * state["lam"], state["gram"])}
