"""FERERO as its public script runs it on images; Algorithm 3 of the paper is `ferero_stochastic`.

A batch is cut into parts 1 and 2; u_t are the weights of the losses at step t, J their gradients on the whole
batch:
    g = J_2' u_(t-1),   lambda = (1/n, lh_t)                                    lf starts anew at each step
    lambda+ = Proj(lambda - gamma (A_ag J_1 g - (0, c_h H_1))),
        lambda+ = lambda where |A_ag'(lambda+ - lambda)|_1 < tol
    u_t = A_ag' lambda+ / |A_ag' lambda+|_1,   theta <- theta - alpha J' u_t
    lh_0 = `line_start`,  u_(-1) = A_ag' (1/n, lh_0) / |.|_1; twice that with `doubled`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.ferero import _affine, _facets
from mobench.algorithms.ferero_sa import StochasticFEREROSA
from mobench.core.algorithm import Context, Info, Real, State, Step
from mobench.core.point import Point
from mobench.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PublicCodeFERERO(StochasticFEREROSA):
    """M + 2 gradients a step.

    Differences to Algorithm 3: above, and gamma = 1e-5 where the paper prints 1e-4. The script also cuts the
    short last batch of an epoch unevenly (`oracle.cut=full`), averages test losses of batches
    (`problem.test_batch=256`) and starts a run again whose test accuracy is below 0.15
    (`problem.least_accuracy=0.15` ends it; the next try is the next seed).

    Fields:
        tolerance: a change of the weights below it (L1) is dropped. With gradients of the size that images
            give it can freeze lambda at its first value: `frozen_steps` in the rows counts such steps,
            which `line_gram` and `line_pull` sum as well.
        line_start: lh_0. The image script has 0, the public solver of the toy problem 1.
        doubled: in the first step the weights of g and the change that the tolerance sees count twice. The
            image script does so: with its scalar lh_0 the weights are a matrix, over which both are summed.
    Raises ConfigError with inequalities, the adaptive domain, `gamma_decay` or `warm_steps`, which that code
    does not have, with `normalize`, as it always does that, and with `merit`.
    """

    constraints: ClassVar[tuple[int, int | None]] = (0, 0)
    added_fields: ClassVar[Mapping[str, Any]] = {
        **StochasticFEREROSA.added_fields,
        "line_start": 1.0,
        "doubled": False,
    }

    domain: str = "simplex"
    gamma: Real = 1e-5
    tolerance: Real = 1e-5
    line_start: Real = 1.0  # a job that names none is one of before there was a choice
    doubled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain != "simplex" or self.inequality_matrix is not None or self.upper is not None:
            raise ConfigError(
                "ferero_public_code supports only the simplex domain without inequalities; use "
                "ferero_stochastic."
            )
        if self.merit:
            raise ConfigError(
                "algorithm.merit=true is about the theorems on the printed algorithms, which "
                "ferero_public_code is not; use ferero_stochastic."
            )
        if self.gamma_decay or self.warm_steps or self.normalize:
            raise ConfigError(
                f"algorithm.gamma_decay={self.gamma_decay}, algorithm.warm_steps={self.warm_steps} and "
                f"algorithm.normalize={self.normalize} must be 0 with ferero_public_code: the public code "
                "has neither of the first two, and always normalizes. Or use ferero_stochastic."
            )

    def init(self, ctx: Context) -> State:
        state = super().init(ctx)
        n = state["A"].shape[1]
        state["lam"][:, n:] = self.line_start
        w = _weights(state["lam"], state["A_ag"])
        if self.doubled:
            w = 2.0 * w
        return {**state, "u": w, "frozen": torch.zeros(len(w), dtype=torch.int64, device=w.device)}

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        first = points[0]
        second = points[-1]
        A_ag = state["A_ag"]
        n = state["A"].shape[1]
        M = first.M
        F = first.F.double()
        facets = _facets(state["A"])
        lam = torch.cat([facets / facets.sum(-1, keepdim=True), state["lam"][:, n:]], dim=1)
        g = second.vjp(state["u"].to(first.x.dtype))
        change = (A_ag @ first.jvp(g)[:, :M].double().unsqueeze(-1)).squeeze(-1)
        change[:, n:] -= self.c_h * _affine(state["Bh"], F, state["bh"])
        moved = self._project(lam - self.gamma * change, *self._domain(F, state), 0)
        effect = ((moved - lam).unsqueeze(1) @ A_ag).squeeze(1).abs().sum(-1)
        if self.doubled:
            effect = effect * state["u"].abs().sum(-1)  # 2 in the first step, then 1
        frozen = effect < self.tolerance
        lam = torch.where(frozen.unsqueeze(-1), lam, moved)
        u = _weights(lam, A_ag)
        w = u.to(first.x.dtype)
        share = first.share  # of the batch
        d = -(share * first.vjp(w) + (1.0 - share) * second.vjp(w))
        seen = self._seen(state, change, F)
        return d, {**seen, "lam": lam, "u": u, "frozen": state["frozen"] + frozen}, Info()

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        return {**super().report(F, state), "frozen_steps": state["frozen"].double()}

    def _weights(self, state: State) -> Float[Tensor, "R M"]:
        """The normalised weights u."""
        return state["u"]


def _weights(lam: Float[Tensor, "R n"], A_ag: Float[Tensor, "R n M"]) -> Float[Tensor, "R M"]:
    w = (lam.unsqueeze(1) @ A_ag).squeeze(1)
    return w / w.abs().sum(-1, keepdim=True).clamp_min(1e-300)
