"""EPO search: weights from a linear program that balances r * F or descends along the ray 1/r.

rl = r * F,  h = rl / sum(rl),  mu = sum_m h_m log(M h_m)   (non-uniformity)
a = r * (log(M h) - mu),  C = K a
balance (mu > eps):  max beta' C  s.t. (K beta)_j >= C_j for j with C_j <= 0, (K beta)_{argmax rl} >= 0
descent (mu <= eps): max 1' K beta  s.t. K beta >= 0, beta' C >= -max(0, -max_j C_j)
beta in the simplex;  d = -gain * max(mu, mu_floor) * J^T beta
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import choose
from mobench.solvers import epo_lp, lp, reference


@dataclass(frozen=True, kw_only=True)
class EPO(Weighting):
    """Exact Pareto optimal search with r along w, so that its ray is the preference ray.

    Fields: `normalize`: r = w/|w| ("norm", as the toy code's (cos, sin)) or r = w ("sum"): the bounds
    (K beta)_j >= C_j scale with r, so the two differ. `balance_threshold` eps; `gain`, `mu_floor`: the toy
    code's step factor (10 and 0.1; gain = M, mu_floor null gives M beta, the weights of its image code).
    `restricted`: the extra constraint of the descent mode.
    `subproblem`: "exact" (closed form for M = 2, batched simplex method above) or "cvxpy".
    For M > 2 the restricted program can be infeasible (1 to 3 % of random gradients); where that is
    certified, the step is EPO's unrestricted descent (`restricted: false` uses it throughout), and the
    history counts such steps in `relaxed_descents`.
    Departure: a failed LP is counted and fails the run; the public code goes on with the preference as
    weights.
    """

    gramian: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    citation: ClassVar[str] = "Mahapatra and Rajan 2020"
    small: ClassVar[Mapping[str, Any]] = {"step_size": 0.005}  # its gain of 10 moves far
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sum": {"normalize": "sum", "restricted": False}}

    normalize: str = "norm"
    balance_threshold: Real = 1e-4
    gain: Real = 10.0
    mu_floor: Real | None = 0.1
    restricted: bool = True
    subproblem: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "cvxpy"))
        choose("algorithm.normalize", self.normalize, ("sum", "norm"))

    def init(self, ctx: Context) -> State:
        r = ctx.prefs
        if self.normalize == "norm":
            r = r / torch.linalg.vector_norm(r, dim=-1, keepdim=True)
        return {"r": r, "relaxed": torch.zeros(len(r), dtype=torch.int64, device=r.device)}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        r = state["r"]
        rl = r * F
        total = rl.sum(-1, keepdim=True)
        # where all losses are zero, no ratio is off the preference
        Mh = torch.where(total == 0.0, 1.0, rl * (F.shape[-1] / total))
        log = Mh.log()
        # h log(M h) -> 0 as h -> 0; xlogy keeps that limit
        mu = torch.special.xlogy(Mh, Mh).mean(-1, keepdim=True)
        # a_m multiplies a gradient that may be zero at f_m = 0; clamp keeps the product finite
        a = r * (log.clamp_min(-700.0) - mu)
        # on the ray only rounding is left of a, and its signs must not make the restricted program infeasible
        a = torch.where(log.abs().amax(-1, keepdim=True) > 1e-14, a, 0.0)
        C = (G @ a.unsqueeze(-1)).squeeze(-1)
        balance = mu.squeeze(-1) > self.balance_threshold
        jstar = rl.argmax(-1)
        solve = epo_lp if self.subproblem == "exact" else reference.epo_lp
        beta, residual, failed = solve(G, C, balance, jstar, self.restricted)
        # for two objectives the restricted program has never been found infeasible, and the check would cost
        # a sync
        if self.restricted and F.shape[-1] > 2 and bool(failed.any()):
            empty = failed & ~balance & infeasible(G, C)
            relaxed = solve(G, C, balance, jstar, False)
            beta = torch.where(empty.unsqueeze(-1), relaxed.x, beta)
            residual = torch.where(empty, relaxed.residual, residual)
            failed = torch.where(empty, relaxed.failed, failed)
            state = {**state, "relaxed": state["relaxed"] + empty}
        factor = self.gain if self.mu_floor is None else self.gain * mu.clamp_min(self.mu_floor)
        return factor * beta, state, Info(residual, failed)

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Float[Tensor, " R"]]:
        return (
            {"relaxed_descents": state["relaxed"].to(F.dtype)} if F.shape[-1] > 2 and self.restricted else {}
        )


def infeasible(G: Float[Tensor, "R M M"], C: Float[Tensor, "R M"]) -> Bool[Tensor, " R"]:
    """Returns whether the restricted descent program has no point.

    It has none if the largest beta' C subject to G beta >= 0 (always feasible, and certified) stays below the
    bound min(0, max_j C_j).
    """
    best = lp(C, G, torch.zeros_like(C))
    reach = (best.x * C).sum(-1)
    return ~best.failed & (reach < C.amax(-1).clamp_max(0.0) - 1e-9 * C.abs().amax(-1))
