"""FORUM:  direction = -(sum_s lambda_s grad F_s + nu(lambda) grad q) in (x, y), first order in both levels.

pi_s = rho - <grad q, grad F_s> / |grad q|^2,   nu(lambda) = max(sum_s lambda_s pi_s, 0),
lambda_k = (1 - beta_k) lambda_{k-1} + beta_k lambda~,   beta_k = 1 / (2k)
exact     lambda~ of  min over the simplex and nu >= 0 of
          |sum lambda_s grad F_s + nu grad q|^2 - 2 nu rho |grad q|^2
official  min over the simplex and nu >= nu(lambda) of  |sum lambda_s grad F_s + nu grad q|^2 - nu rho |grad
          q|^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.arrays import scalar
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.errors import ConfigError, choose
from mobench.solvers import Solution, qp

SMALL = 1e-8  # added to |grad q|^2
BISECTIONS = 60


@dataclass(frozen=True, kw_only=True)
class FORUM(Algorithm):
    """The step that lowers all F_s as well as a decrease of the gap q by at least rho |grad q|^2 allows.

    That decrease is per unit of step size. Needs oracle=value_gap: the variables are (x, y), and the one
    constraint is the gap of the lower level. It ignores the preference.

    Fields: `rho` > 0. `variant`: "official", the public code's program (half the linear term, nu bounded from
    below by the value that it takes later, gradients grad F_s of unit length in it and in the step,
    lambda_0 = 0: the first weights sum to 1/2); "exact", the dual of the method's primal problem
    (lambda_0 = 1/S, gradients as they are). Source: Ye et al. 2024 (FORUM), as compared in the
    multi-objective bilevel learning paper.
    """

    constraints: ClassVar[tuple[int, int | None]] = (1, 1)
    constraint_kind: ClassVar[str | None] = "gap"
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "rho"})
    own_step: ClassVar[str] = "the rate at which its step lowers the gap is that of its direction"
    citation: ClassVar[str] = "Ye et al. 2024 (FORUM)"
    preferred: ClassVar[bool] = False

    rho: Real = 2.0
    variant: str = "official"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rho > 0:
            raise ConfigError(f"algorithm.rho={self.rho} must be > 0.")
        choose("algorithm.variant", self.variant, ("official", "exact"))

    def init(self, ctx: Context) -> State:
        first = 0.0 if self.variant == "official" else 1.0 / ctx.spec.M
        return {"lam": torch.full_like(ctx.prefs, first), "nu": ctx.prefs.new_zeros(len(ctx.prefs))}

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"})

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        K = point.gramian("all")
        M = point.M
        lam = state["lam"]
        scale = torch.ones_like(K[:, 0])
        if self.variant == "official":
            length = K.diagonal(dim1=1, dim2=2)[:, :M].clamp_min(0).sqrt()
            scale[:, :M] = torch.where(length > 0, 1.0 / length, 1.0)
        K = scale.unsqueeze(1) * K * scale.unsqueeze(2)
        K[:, M, M] += SMALL
        rho = scalar(self.rho, K).expand(len(K), 1)
        pi = rho - K[:, :M, M] / K[:, M, M, None]
        solution = (official_weights if self.variant == "official" else exact_weights)(K, pi, rho.squeeze(1))
        share = 1.0 / (2.0 * (t + 1))
        lam = (1.0 - share) * lam + share * solution.x
        nu = (lam * pi).sum(1).clamp_min(0.0)
        w = torch.cat([lam, nu.unsqueeze(1)], dim=1) * scale
        return (
            -point.vjp(w.to(point.x.dtype)),
            {"lam": lam, "nu": nu},
            Info(solution.residual, solution.failed),
        )

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        return {"nu": state["nu"]}


def exact_weights(K: Float[Tensor, "R K K"], pi: Float[Tensor, "R M"], rho: Float[Tensor, " R"]) -> Solution:
    """lambda~ of the variant "exact". K: Gram matrix of all grad F_s, then grad q."""
    M = pi.shape[1]
    a = torch.ones_like(K[:, 0])
    b = torch.zeros_like(K[:, 0])
    a[:, M] = 0.0
    b[:, M] = rho * K[:, M, M]
    solution = qp(K, b, a)
    return solution._replace(x=solution.x[:, :M])


def official_weights(
    K: Float[Tensor, "R K K"], pi: Float[Tensor, "R M"], rho: Float[Tensor, " R"]
) -> Solution:
    """lambda~ of the variant "official".

    For fixed lambda the best nu is its lower bound max(pi'lambda, 0): the linear term is half of what would
    lift it. So the program is convex in lambda with one kink: solved with nu = pi'lambda, else with nu = 0,
    else on pi'lambda = 0 by bisection on that equation's multiplier, each step an exact program.
    """
    M = pi.shape[1]
    G = K[:, :M, :M]
    c = K[:, :M, M]
    qq = K[:, M, M]
    ones = torch.ones_like(pi)
    outer = pi.unsqueeze(1) * pi.unsqueeze(2)
    cross = pi.unsqueeze(1) * c.unsqueeze(2)
    above = qp(2.0 * (G + cross + cross.mT + qq[:, None, None] * outer), (rho * qq).unsqueeze(1) * pi, ones)
    below = qp(2.0 * G, None, ones)
    up = _dot(pi, above.x) >= 0
    down = _dot(pi, below.x) <= 0
    best = _pick(up, above, below)
    kink = ~(up | down) & torch.isfinite(K.sum((1, 2)))
    if bool(kink.any()):
        best = _pick(~kink, best, _on_kink(G, pi))
    return best


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1)


def _pick(first: Bool[Tensor, " R"], a: Solution, b: Solution) -> Solution:
    x = torch.where(first.unsqueeze(1), a.x, b.x)
    return Solution(x, torch.where(first, a.residual, b.residual), torch.where(first, a.failed, b.failed))


def _on_kink(G: Float[Tensor, "R M M"], pi: Float[Tensor, "R M"]) -> Solution:
    """argmin lambda'G lambda over the simplex and pi'lambda = 0.

    pi'lambda falls in the multiplier tau of 2 G lambda + tau pi; both ends of a jump are minimisers for their
    tau, and so are all points between them.
    """
    ones = torch.ones_like(pi)
    zero = torch.zeros_like(pi[:, 0])
    reach = G.diagonal(dim1=1, dim2=2).sum(1) / pi.abs().amax(1).clamp_min(1e-300)
    high = reach
    low = zero
    x_low = qp(2.0 * G, None, ones)
    x_high = qp(2.0 * G, -high.unsqueeze(1) * pi, ones)
    for _ in range(BISECTIONS):
        if not bool((_dot(pi, x_high.x) > 0).any()):
            break
        high = torch.where(_dot(pi, x_high.x) > 0, 4.0 * high, high)
        x_high = qp(2.0 * G, -high.unsqueeze(1) * pi, ones)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        x_middle = qp(2.0 * G, -middle.unsqueeze(1) * pi, ones)
        over = _dot(pi, x_middle.x) > 0
        low = torch.where(over, middle, low)
        high = torch.where(over, high, middle)
        x_low = _pick(over, x_middle, x_low)
        x_high = _pick(over, x_high, x_middle)
    a = _dot(pi, x_low.x)
    b = _dot(pi, x_high.x)
    share = torch.where(a > b, -b / (a - b), 0.0).clamp(0.0, 1.0).unsqueeze(1)
    x = share * x_low.x + (1.0 - share) * x_high.x
    return Solution(x, torch.maximum(x_low.residual, x_high.residual), x_low.failed | x_high.failed)
