"""FERERO-SA (Algorithms 2 and 3): one loop for parameters and multipliers.

    g = J_1' A_ag' lambda_t,   theta <- theta - alpha g
    lf <- Proj(lf - gamma A J_2 g),   lh <- lh - gamma (B_h J_2 g - c_h H_1),
        lg <- [lg - gamma (B_g J_2 g - c_g G_1)]_+

Algorithm 2 uses one exact sample (J_2 = J_1); Algorithm 3 two independent minibatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.ferero import Preferred, _affine, _facets
from mobench.core.algorithm import Context, Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FEREROSA(Preferred):
    """Single-loop FERERO, Algorithm 2: both updates read the old theta and the old lambda.

    Fields: `gamma`: step of the multipliers; `gamma_decay`: gamma_t = gamma / (1 + t)^gamma_decay.
    lf starts at 1 (adaptive) or 1/n (simplex), lh and lg at 0. Departures: the sign of the theta step in
    (3.4a) as printed is a misprint (minus is meant); inequalities (lg) are our extension by the same rule.
    Columns `weight_1`..: the weights A_ag' lambda of the losses after the recorded step.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "gamma"})

    gamma: Real = 0.1
    gamma_decay: Real = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gamma > 0:
            raise ConfigError(f"algorithm.gamma={self.gamma} must be > 0.")

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jvp"})

    def init(self, ctx: Context) -> State:
        state = super().init(ctx)
        if self.domain == "simplex":
            facets = _facets(state["A"])
            state["lam"][:, : facets.shape[1]] = facets / facets.sum(-1, keepdim=True)
        return state

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        first = points[0]
        second = points[-1]
        lam = state["lam"]
        A_ag = state["A_ag"]
        n = state["A"].shape[1]
        g = state["bg"].shape[1]
        h = state["bh"].shape[1]
        F = first.values().double()
        grad = first.vjp(self._weights(state).to(first.x.dtype))
        pushed = second.jvp(grad).double()
        change = (A_ag @ pushed.unsqueeze(-1)).squeeze(-1)  # A_ag J_2 g
        if self.merit:
            other = second.values().double() if second is not first else None
            square = torch.linalg.vecdot(self._weights(state), pushed)  # E |J' w|^2 over both samples
            state = self._with_merit(state, square, lam[:, n : n + g], F, other)
        gamma = self.gamma if self.gamma_decay == 0 else self.gamma / (1.0 + t) ** self.gamma_decay
        if g:
            change[:, n : n + g] -= self.c_g * _affine(state["Bg"], F, state["bg"])
        if h:
            change[:, n + g :] -= self.c_h * _affine(state["Bh"], F, state["bh"])
        a, s = self._domain(F, state)
        moved = (
            lam - gamma * change if isinstance(gamma, torch.Tensor) else torch.add(lam, change, alpha=-gamma)
        )
        lam = self._project(moved, a, s, g)
        return -grad, {**self._seen(state, change, F), "lam": lam}, Info()

    def _seen(self, state: State, change: Float[Tensor, "R K"], F: Float[Tensor, "R M"]) -> State:
        """The state with sums for the rows updated; `change` is A_ag J_2 g - (0, c_g G, c_h H)."""
        return state

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        weights = self._weights(state)
        columns = {f"weight_{m + 1}": weights[:, m] for m in range(F.shape[1])}
        return {**super().report(F, state), **columns}

    def _weights(self, state: State) -> Float[Tensor, "R K"]:
        """Weights of the losses, and of the problem's constraints if there are any."""
        return (state["lam"].unsqueeze(1) @ state["A_ag"]).squeeze(1)


@dataclass(frozen=True, kw_only=True)
class StochasticFEREROSA(FEREROSA):
    """Algorithm 3: J_1, G_1, H_1 from one batch, J_2 from an independent one (M + 1 gradients a step).

    Fields:
        warm_steps: so many first steps descend the uniform mean of the losses over both batches, with
            multipliers at their start (the paper's Figure 6 starts near the front; how is not said).
        normalize: divides the weights A_ag' lambda by the sum of their absolute values, as the public code
            does and Algorithm 3 does not.
    Columns, one for each equality: `line_gram_1`.. and `line_pull_1`..: sums over all steps of B_h J_2 g and
    of c_h H_1. With a constant gamma lh = gamma (line_pull - line_gram): the first is the effect of the
    gradients on lh, the second that of the distance from the ray.
    """

    samples: ClassVar[int] = 2
    added_fields: ClassVar[Mapping[str, Any]] = {**FEREROSA.added_fields, "normalize": False}

    warm_steps: int = 0
    normalize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_steps < 0:
            raise ConfigError(f"algorithm.warm_steps={self.warm_steps} must be >= 0.")

    def init(self, ctx: Context) -> State:
        state = super().init(ctx)
        return {**state, "gram": torch.zeros_like(state["bh"]), "pull": torch.zeros_like(state["bh"])}

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        if t >= self.warm_steps:
            return super().step(points, state, t, alpha)
        first = points[0]
        second = points[-1]
        w = first.x.new_full((len(first.x), first.M), 0.5 / first.M)
        return -(first.vjp(w) + second.vjp(w)), state, Info()

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        sums = {
            f"line_{term}_{k + 1}": column
            for term in ("gram", "pull")
            for k, column in enumerate(state[term].unbind(1))
        }
        return {**super().report(F, state), **sums}

    def _seen(self, state: State, change: Float[Tensor, "R K"], F: Float[Tensor, "R M"]) -> State:
        pull = self.c_h * _affine(state["Bh"], F, state["bh"])
        gram = change[:, change.shape[1] - pull.shape[1] :] + pull
        return {**state, "gram": state["gram"] + gram, "pull": state["pull"] + pull}

    def _weights(self, state: State) -> Float[Tensor, "R K"]:
        w = super()._weights(state)
        return w / w.abs().sum(-1, keepdim=True).clamp_min(1e-300) if self.normalize else w
