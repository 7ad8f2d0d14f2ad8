"""MLM-CMOO (Algorithm 1): single-loop proximal-Lagrangian descent under constraints g <= 0.

min over (x, lam) of  F/c_t + [H(x, lam) - e(x, lam)] + A(g(x), z),   F = sum_i lam_i f_i,  H = |G lam|,
c_t = c_0 (t+1)^p e(x, lam) = min over the simplex of H(x, theta) + |theta - lam|^2 / (2 gamma_1)
A(g, z)   = max over [0, r]^N of mu'g - |mu - z|^2 / (2 gamma_2),   at mu* = clip(z + gamma_2 g, 0, r)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.errors import ConfigError, choose
from mobench.solvers import min_norm, project_simplex, qp
from mobench.solvers.prox_norm import prox_norm, prox_norm_free

# |G lam| below this times the largest gradient is rounding, of which the square root of a Gram matrix leaves
# so much
TINY = 1e-8
TIE = 1e-7


@dataclass(frozen=True, kw_only=True)
class MLMCMOO(Algorithm):
    """One step, with M = G'G, n(v) = M v / |G v|, h(v) = grad_x |G(x) v| = (sum_i v_i Hess f_i) G v / |G v|:

        theta+ = P(theta - eta (n(theta) + (theta - lam) / gamma_1)),
            mu+ = clip(mu + eta (g - (mu - z) / gamma_2), 0, r)
        U = h(lam) - h(theta+),   lam' = argmin over the simplex of |G lam|
        d = -(G lam / c_t + U + J mu+),   x+ = x + alpha d
        lam+ = P(lam - alpha ((lam - lam') / c_t + n(lam) - (lam - theta+) / gamma_1))
        z+ = clip(z + beta / gamma_2 (mu+ - z), 0, r)

    P projects onto the simplex. With three objectives or more lam' minimises |G v|^2 + 1e-7 tr M |v - lam|^2:
    where gradients depend on each other the shortest combination has many weights, of which rounding would
    choose; fixed points are the same. The multiplier of g is nu = c_t mu. The method ignores the preference.

    Fields:
        variant: "corrected", as above; "literal", as printed: mu descends, h and n are proximal points (of x
            and of the weights) instead of gradients, U has the opposite sign, the weights' update subtracts a
            proximal point of x, which is defined for M = P only (left out elsewhere). It does not see its
            constraints, and is here for comparison.
        projections: false leaves out P and the clips of "literal", which prints none.
        inner: "gradient", as above; "exact": theta+ and mu+ solve their problems. mu+ is then gamma_2 g
            at once, and the step alpha (1 + sum of mu): networks need gamma_2 <= 0.1 (River Flow with
            alpha = 0.1 diverges even so).
        lam_target: "unconstrained" lam', or "constrained": that of min |G lam + J nu|, nu >= 0 on constraints
            with g >= -active.
        prox_steps, prox_step: number and size of the gradient steps that "literal" takes to a proximal point
            of x.
        use_u: false leaves U out. u_clip: |U| <= u_clip |G lam / c_t + J mu+| (null: as it is). h_power: 2
            uses |G v|^2 / 2 for H, which is smooth where |G v| = 0: where no constraint binds iterates end
            there, and those of h_power = 1 oscillate.
        eta, eta_mu (null: eta), beta, gamma1, gamma2, r, c0, penalty_power p: as above.
        diagnose: every so many steps the stationarity R_t (distance of 0 to gradient plus normal cone of the
            penalised problem at the top, times c_t, in x, lam and z; the theorem's has the signs that are
            mended here) and the inner error |(theta+, mu+) - (theta*, mu*)|; 0: never.

    Raises ConfigError for steps outside of their stable range: eta / gamma_1, eta_mu / gamma_2 and
    beta / gamma_2 below 2. Departures: the signs of the mu step, U and the multiplier term, and the second
    term of the weights' update are corrected (mobench's docs name each); theta, lam are kept in the simplex
    and mu, z in [0, r], as the paper's proof has it. Source: anonymous, "Gradient-based constrained
    multi-objective optimization", Algorithm 1.
    """

    constraints: ClassVar[tuple[int, int | None]] = (0, None)
    constraint_kind: ClassVar[str | None] = "inequality"
    varies: ClassVar[frozenset[str]] = frozenset(
        {"step_size", "eta", "beta", "gamma1", "gamma2", "c0", "penalty_power"}
    )
    citation: ClassVar[str] = "Gradient-based constrained multi-objective optimization (MLM-CMOO), 2025"
    preferred: ClassVar[bool] = False
    own_step: ClassVar[str] = "its weights and multipliers move with the step size of the variables"

    step_size: Real = 0.02
    variant: str = "corrected"
    projections: bool = True
    inner: str = "gradient"
    lam_target: str = "unconstrained"
    active: Real = 5e-3
    prox_steps: int = 20
    prox_step: Real = 0.1
    use_u: bool = True
    u_clip: Real | None = None
    h_power: int = 1
    eta: Real = 0.02
    eta_mu: Real | None = None
    beta: Real = 0.02
    gamma1: Real = 1.0
    gamma2: Real = 1.0
    r: Real = 50.0
    c0: Real = 1.0
    penalty_power: Real = 0.25
    diagnose: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.variant", self.variant, ("corrected", "literal"))
        choose("algorithm.inner", self.inner, ("gradient", "exact"))
        choose("algorithm.lam_target", self.lam_target, ("unconstrained", "constrained"))
        if self.h_power not in (1, 2):
            raise ConfigError(
                f"algorithm.h_power={self.h_power} must be 1 (H = |G lam|) or 2 (H = |G lam|^2 / 2)."
            )
        for name in ("eta", "beta", "gamma1", "gamma2", "r", "c0", "prox_step", "active"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"algorithm.{name}={getattr(self, name)} must be > 0.")
        for name in ("eta_mu", "u_clip"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ConfigError(f"algorithm.{name}={getattr(self, name)} must be > 0, or null.")
        if not 0 <= self.penalty_power < 0.5:
            raise ConfigError(
                f"algorithm.penalty_power={self.penalty_power} must lie in [0, 1/2): c_t = c_0 (t+1)^p."
            )
        if self.prox_steps < 1 or self.diagnose < 0:
            raise ConfigError("algorithm.prox_steps must be at least 1 and algorithm.diagnose at least 0.")
        if self.inner == "gradient" and self.variant == "corrected":
            self._stable("eta", self.eta, "gamma1", self.gamma1)
            key, step = ("eta", self.eta) if self.eta_mu is None else ("eta_mu", self.eta_mu)
            self._stable(key, step, "gamma2", self.gamma2)
        self._stable("beta", self.beta, "gamma2", self.gamma2)
        literal = {
            "inner": "gradient",
            "use_u": True,
            "h_power": 1,
            "u_clip": None,
            "diagnose": 0,
        }
        for name, value in literal.items():
            if self.variant == "literal" and getattr(self, name) != value:
                raise ConfigError(
                    f"algorithm.{name}={getattr(self, name)} is supported only by "
                    "algorithm.variant=corrected."
                )
        if self.variant == "corrected" and not self.projections:
            raise ConfigError("algorithm.projections=false is supported only by algorithm.variant=literal.")

    def _stable(self, step: str, size: Real, proximal: str, gamma: Real) -> None:
        if not size / gamma < 2.0:
            raise ConfigError(
                f"algorithm.{step}={size} is too large for algorithm.{proximal}={gamma}: a step multiplies "
                f"the distance to its target by |1 - {step}/{proximal}| = {abs(1 - size / gamma):g} >= 1. "
                f"Choose {step} < {2 * gamma:g}."
            )

    @property
    def _eta_mu(self) -> Step:
        return self.eta if self.eta_mu is None else self.eta_mu

    def needs(self, spec: Spec) -> frozenset[str]:
        second = self.use_u or self.diagnose or self.variant == "literal"
        return frozenset({"jacobian", "hvp"} if second else {"jacobian"})

    def init(self, ctx: Context) -> State:
        R, M = ctx.prefs.shape
        uniform = torch.full_like(ctx.prefs, 1.0 / M)
        none = ctx.prefs.new_zeros(R, ctx.spec.N)
        columns = {
            name: ctx.prefs.new_full((R,), torch.nan) for name in ("own", "comp", "u_ratio", "inner_ratio")
        }
        if self.diagnose:
            nan = ctx.prefs.new_full((R,), torch.nan)
            columns |= {"stationarity_t": nan, "inner_error": nan.clone()}
        weights = {"lam": uniform, "theta": uniform.clone()}
        return {**weights, "mu": none, "z": none.clone(), "nu": none.clone(), **columns}

    def penalty(self, t: int) -> Any:
        """c_t."""
        return self.c0 * (t + 1.0) ** self.penalty_power

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        c = self.penalty(t)
        gram = point.gramian("f")
        g = point.G.double()
        lam = state["lam"]
        theta = state["theta"]
        mu = state["mu"]
        z = state["z"]
        target, residual, failed = self._target(point, gram, g, lam)
        at_lam = self._norm(gram, lam)
        at_theta = self._norm(gram, theta)
        if self.variant == "literal":
            d, columns = self._literal(point, state, gram, g, target, c, alpha)
            return (
                d,
                columns | self._columns(gram, -columns.pop("main"), columns["mu"], g, c, at_theta[1]),
                Info(residual, failed),
            )
        solved = None
        if self.inner == "exact":
            solved = self._prox_weights(gram, lam)
            theta = solved.x
            mu = (z + self.gamma2 * g).clamp(0.0, self.r)
            residual = torch.fmax(residual, solved.residual)
            failed = failed | solved.failed
        else:
            slope = self._slope(at_theta) + (theta - lam) / self.gamma1
            theta = project_simplex(theta - self.eta * slope)
            mu = (mu + self._eta_mu * (g - (mu - z) / self.gamma2)).clamp(0.0, self.r)
        main = point.vjp(torch.cat([lam / c, mu], dim=1).to(point.x.dtype))
        columns = self._columns(gram, main, mu, g, c, at_theta[1])
        ascent = main
        if self.use_u:
            U = self._h(point, lam, at_lam[1]) - self._h(point, theta, self._norm(gram, theta)[1])
            size = torch.linalg.vector_norm(U, dim=1)
            length = torch.linalg.vector_norm(main, dim=1)
            columns["u_ratio"] = (size / length.clamp_min(torch.finfo(length.dtype).tiny)).double()
            if self.u_clip is not None:
                U = U * (self.u_clip * length / size.clamp_min(torch.finfo(length.dtype).tiny)).clamp_max(
                    1.0
                ).unsqueeze(1)
            ascent = main + U
        if self.diagnose and (t + 1) % self.diagnose == 0:  # the row of step t + 1 shows this step's numbers
            columns |= self._diagnosed(point, gram, g, state, theta, mu, target, c, at_lam)
        pull = (lam - target) / c + self._slope(at_lam) - (lam - theta) / self.gamma1
        new = {"lam": project_simplex(lam - alpha * pull), "theta": theta, "mu": mu}
        new["z"] = (z + self.beta / self.gamma2 * (mu - z)).clamp(0.0, self.r)
        return -ascent, {**state, **new, **columns}, Info(residual, failed)

    def _target(self, point: Point, gram: Tensor, g: Tensor, lam: Tensor) -> Any:
        """lam' with residual and failures."""
        if self.lam_target == "unconstrained" or not g.shape[1]:
            if gram.shape[1] == 2:
                return min_norm(gram)
            ridge = TIE * gram.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
            return qp(gram + torch.diag_embed(ridge.expand_as(lam)), ridge * lam, torch.ones_like(lam))
        K = point.gramian("all")
        M = gram.shape[1]
        live = torch.cat([torch.ones_like(gram[:, 0]), (g >= -self.active).to(K)], dim=1)
        scale = K.diagonal(dim1=1, dim2=2).amax(1, keepdim=True).clamp_min(torch.finfo(K.dtype).tiny)
        # inactive constraints lie on axes of their own, where their multipliers are 0
        K = K * live.unsqueeze(1) * live.unsqueeze(2) + torch.diag_embed(scale * (1.0 - live))
        a = torch.cat([torch.ones_like(gram[:, 0]), torch.zeros_like(g)], dim=1)
        solution = qp(K, None, a)
        return solution._replace(x=solution.x[:, :M])

    def _norm(self, gram: Float[Tensor, "R M M"], v: Float[Tensor, "R M"]) -> tuple[Tensor, Tensor]:
        """M v (R, M), and |G v| (R, 1) away from 0."""
        product = torch.bmm(gram, v.unsqueeze(2))
        square = torch.bmm(v.unsqueeze(1), product).squeeze(2)
        # a square below TINY^2 of the largest gradient's is rounding
        least = gram.diagonal(dim1=1, dim2=2).amax(1, keepdim=True) * TINY**2
        return product.squeeze(2), torch.maximum(square, least + torch.finfo(torch.float64).tiny).sqrt()

    def _slope(self, norm: tuple[Tensor, Tensor]) -> Float[Tensor, "R M"]:
        """grad of H in the weights v, from `_norm` of v."""
        product, length = norm
        return product if self.h_power == 2 else product / length

    def _h(self, point: Point, v: Float[Tensor, "R M"], length: Float[Tensor, "R 1"]) -> Float[Tensor, "R P"]:
        """grad of H in x."""
        w = v.to(point.x.dtype)
        d = point.vjp(w)
        return point.hvp(w, d if self.h_power == 2 else d / length.to(d))

    def _prox_x(self, point: Point, v: Float[Tensor, "R M"]) -> Float[Tensor, "R P"]:
        """argmin_u |G(u) v| + |u - x|^2 / 2, by gradient steps."""
        w = v.to(point.x.dtype)
        x = point.x
        u = x
        for _ in range(self.prox_steps):
            at = point.moved(u)
            d = at.vjp(w)
            unit = d / torch.linalg.vector_norm(d, dim=1, keepdim=True).clamp_min(torch.finfo(d.dtype).tiny)
            u = u - self.prox_step * (at.hvp(w, unit) + u - x)
        return u

    def _prox_weights(self, gram: Tensor, lam: Tensor) -> Any:
        """theta* with residual and failures."""
        if self.h_power == 1:
            return prox_norm(gram, lam, self.gamma1)
        eye = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
        over = self.gamma1.unsqueeze(2) if isinstance(self.gamma1, Tensor) else self.gamma1
        return qp(gram + eye / over, lam / self.gamma1, torch.ones_like(lam))

    def _columns(
        self, gram: Tensor, main: Tensor, mu: Tensor, g: Tensor, c: Any, length: Tensor
    ) -> dict[str, Tensor]:
        """The entries of `report`: residual c |G lam / c + J mu|, complementarity, nu, eta over its bound."""
        scale = c.squeeze(1) if isinstance(c, Tensor) else c
        steepness = 1.0 / self.gamma1 + gram.diagonal(dim1=1, dim2=2).sum(1, keepdim=True) / (
            1.0 if self.h_power == 2 else length
        )
        nu = c * mu
        comp = (nu * g).abs().amax(1) if g.shape[1] else torch.zeros_like(g.sum(1))
        return {
            "own": scale * torch.linalg.vector_norm(main, dim=1).double(),
            "comp": comp,
            "nu": nu,
            "inner_ratio": (0.5 * self.eta * steepness).squeeze(1),
        }

    def _diagnosed(
        self,
        point: Point,
        gram: Tensor,
        g: Tensor,
        state: State,
        theta: Tensor,
        mu: Tensor,
        target: Tensor,
        c: Any,
        at_lam: tuple[Tensor, Tensor],
    ) -> dict[str, Tensor]:
        """R_t and the inner error."""
        lam = state["lam"]
        z = state["z"]
        best = self._prox_weights(gram, lam).x
        top = (z + self.gamma2 * g).clamp(0.0, self.r)
        inner = torch.cat([theta - best, mu - top], dim=1)
        grad_x = point.vjp(torch.cat([lam, c * top], dim=1).to(point.x.dtype))
        grad_x = grad_x + c * (
            self._h(point, lam, at_lam[1]) - self._h(point, best, self._norm(gram, best)[1])
        )
        grad_lam = lam - target + c * (self._slope(at_lam) - (lam - best) / self.gamma1)
        parts = [grad_x.double(), tangent_to_simplex(lam, -grad_lam), c / self.gamma2 * (top - z)]
        norm = torch.linalg.vector_norm
        return {"stationarity_t": norm(torch.cat(parts, dim=1), dim=1), "inner_error": norm(inner, dim=1)}

    def _literal(
        self, point: Point, state: State, gram: Tensor, g: Tensor, target: Tensor, c: Any, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State]:
        """Lines 3 to 10 as printed."""
        simplex = project_simplex if self.projections else (lambda v: v)

        def box(v: Tensor) -> Tensor:
            return v.clamp(0.0, self.r) if self.projections else v

        lam = state["lam"]
        theta = state["theta"]
        mu = state["mu"]
        z = state["z"]
        theta = simplex(theta - self.eta * (prox_norm_free(gram, theta) + (theta - lam) / self.gamma1))
        mu = box(mu - self._eta_mu * (g - (mu - z) / self.gamma2))
        near = self._prox_x(point, theta)
        main = point.vjp(torch.cat([lam / c, mu], dim=1).to(point.x.dtype))
        V = prox_norm_free(gram, lam)
        if V.shape[1] == near.shape[1]:
            V = V - near.double()
        new = simplex(lam - alpha * ((lam - target) / c + V - (lam - theta) / self.gamma1))
        z = box(z + self.beta / self.gamma2 * (mu - z))
        ascent = main + self._prox_x(point, lam) - near
        return -ascent, {**state, "lam": new, "theta": theta, "mu": mu, "z": z, "main": -main}

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        """Columns of the residual, complementarity, multipliers and ratios.

        own_residual |G lam + c_t J mu|, complementarity max_j |c_t mu_j g_j|, multiplier_j = c_t mu_j,
        u_ratio (of U before it is clipped), inner_ratio: eta over its largest stable value,
        2 / (1/gamma_1 + tr M / |G theta|).
        """
        out = {"own_residual": state["own"], "complementarity": state["comp"]}
        if self.use_u and self.variant == "corrected":
            out["u_ratio"] = state["u_ratio"]
        out["inner_ratio"] = state["inner_ratio"]
        out |= {name: state[name] for name in ("stationarity_t", "inner_error") if name in state}
        return out | {f"multiplier_{j + 1}": state["nu"][:, j] for j in range(state["nu"].shape[1])}


def tangent_to_simplex(x: Float[Tensor, "R n"], v: Float[Tensor, "R n"]) -> Float[Tensor, "R n"]:
    """Projection of v onto the tangent cone of the simplex at x: {u : 1'u = 0, u_i >= 0 where x_i = 0}.

    u_i = v_i - tau where x_i > 0, max(v_i - tau, 0) elsewhere, tau such that they sum to 0: coordinates at 0
    join in the order of their v, largest first, as long as v_i exceeds the mean of those that have joined.
    """
    free = x > 0
    key = torch.where(free, torch.inf, v)
    order = key.argsort(dim=1, descending=True, stable=True)
    sums = v.gather(1, order).cumsum(1)
    count = torch.arange(1, v.shape[1] + 1, dtype=v.dtype, device=v.device)
    mean = sums / count
    last = ((key.gather(1, order) > mean) | free.gather(1, order)).sum(1, keepdim=True).sub(1).clamp_min(0)
    tau = mean.gather(1, last)
    return torch.where(free, v - tau, (v - tau).clamp_min(0.0))
