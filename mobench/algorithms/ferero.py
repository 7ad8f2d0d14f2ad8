"""FERERO (Algorithm 1): preference-guided descent from one quadratic subprogram over multipliers.

minimise_{C_A} F(theta)  s.t.  G = B_g F + b_g <= 0,  H = B_h F + b_h = 0
d = -J^T w,  w = A_ag' lambda,  A_ag = [A; B_g; B_h],  lambda = (lf, lg, lh)
lambda = argmin 1/2 lambda' Q lambda - lambda' p,  Q = A_ag K A_ag',  p = (0, c_g G, c_h H)           (2.3)
over lf >= 0, lg >= 0, lh free and  lf' (A F) = 1' A F  ("adaptive", 2.4)  or  1' lf = 1
("simplex", Remark 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms import ferero_geometry as geometry
from mobench.algorithms.mgda import squared_length
from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Weighting
from mobench.core.oracle import Spec
from mobench.core.preferences import ray
from mobench.errors import ConfigError, choose
from mobench.solvers import Solution, project_weighted_simplex, qp, reference
from mobench.solvers.dual import Dual, solve_dual
from mobench.solvers.pgd import projected_gradient

Matrix = Sequence[Sequence[Real]]
TERMS = ("stationarity", "slackness", "violation", "violation_square")  # of the theorems' merits


@dataclass(frozen=True, kw_only=True)
class Preferred(Algorithm):
    """The base of Algorithms 1 to 3: preference as cone and constraints, and the domain of the multipliers.

    Fields:
        cone: "pareto" (A = I) or the rows of A (scaled to unit norm). extreme_rays: M rays y_m that span the
            cone instead. ascend_to: F_target; the cone of controlled ascent from F(theta_0) to it instead.
        line: the equality constraint. "ray": the preference ray 1/w through 0; "shifted": the line through
            F(theta_0) along that ray; "through": along that ray through `line_through`; "points": through the
            two points `line_points`; "matrix": `equality_matrix` F + `equality_offset` = 0; "none".
        inequality_matrix, inequality_offset: B_g, b_g; upper: f_m <= upper_m (null: no bound), rows of the
            same.
        Constraints g <= 0 of the problem are further rows of G, with gradients of their own: F becomes (F, g)
        in all that
            follows, with zeros for g in A and B_h.
        c_g, c_h: rates at which violations are driven to 0 (stable for step_size <= 1/c).
        domain: "adaptive" or "simplex".
        merit: whether the rows have `sum_stationarity`, `sum_slackness`, `sum_violation` and
            `sum_violation_square`: sums over the steps so far of |J' A_ag' lambda_t|^2, lg' [-G]_+,
            |[G]_+|_1 + |H|_1 and |H|^2, the terms of which the merits of Theorems 1 to 4 are made.
    """

    added_fields: ClassVar[Mapping[str, Any]] = {**Algorithm.added_fields, "merit": False}
    positive: ClassVar[bool] = True
    constraints: ClassVar[tuple[int, int | None]] = (0, None)
    constraint_kind: ClassVar[str | None] = "inequality"
    citation: ClassVar[str] = "Chen et al. 2024 (FERERO)"

    cone: str | Matrix = "pareto"
    extreme_rays: Matrix | None = None
    ascend_to: Sequence[Real] | None = None
    line: str = "ray"
    line_through: Sequence[Real] | None = None
    line_points: Matrix | None = None
    equality_matrix: Matrix | None = None
    equality_offset: Sequence[Real] | None = None
    inequality_matrix: Matrix | None = None
    inequality_offset: Sequence[Real] | None = None
    upper: Sequence[Real | None] | None = None
    c_g: Real = 1.0
    c_h: Real = 1.0
    domain: str = "adaptive"
    merit: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.domain", self.domain, ("adaptive", "simplex"))
        choose("algorithm.line", self.line, ("ray", "shifted", "through", "points", "matrix", "none"))
        if isinstance(self.cone, str):
            choose("algorithm.cone", self.cone, ("pareto",))
        if sum([self.cone != "pareto", self.extreme_rays is not None, self.ascend_to is not None]) > 1:
            raise ConfigError(
                "Give only one of algorithm.cone, algorithm.extreme_rays and algorithm.ascend_to."
            )
        for line, key in (
            ("through", "line_through"),
            ("points", "line_points"),
            ("matrix", "equality_matrix"),
        ):
            if (self.line == line) != (getattr(self, key) is not None):
                raise ConfigError(
                    f"algorithm.line={line} and algorithm.{key} must be used together, but line={self.line}."
                )
        if not (self.c_g > 0 and self.c_h > 0):
            raise ConfigError(f"algorithm.c_g={self.c_g} and algorithm.c_h={self.c_h} must be > 0.")

    def misfits(self, spec: Spec) -> list[str]:
        h = 0 if self.line == "none" else spec.M - 1
        if spec.N and h + spec.N > spec.P:
            return [
                f"its direction must satisfy {h} equalities (algorithm.line={self.line}) and {spec.N} "
                f"constraints to first order, but the problem has only P={spec.P} variables"
            ]
        return []

    def _cone(self, ctx: Context, F0: Float[Tensor, "R M"]) -> Float[Tensor, "R n M"]:
        M = ctx.spec.M
        R = len(F0)
        if self.extreme_rays is not None:
            A = geometry.cone_from_rays(geometry.rows_of(self.extreme_rays, M, "extreme_rays", F0))
        elif self.ascend_to is not None:
            target = geometry.rows_of([self.ascend_to], M, "ascend_to", F0)
            cones = [geometry.cone_with_ascent(y) for y in F0 - target]
            most = max(len(A) for A in cones)
            # runs with fewer facets get rows of zeros: unlike a facet given twice, these change no step
            # length
            return torch.stack([torch.nn.functional.pad(A, (0, 0, 0, most - len(A))) for A in cones])
        elif self.cone == "pareto":
            A = torch.eye(M).to(F0)
        else:
            A = geometry.unit_rows(geometry.rows_of(self.cone, M, "cone", F0))  # type: ignore[arg-type]
        return A.expand(R, -1, -1)

    def _equality(self, ctx: Context, F0: Float[Tensor, "R M"]) -> tuple[Tensor, Tensor]:
        """B_h (R, h, M) and b_h (R, h)."""
        R, M = F0.shape
        if self.line == "none" or M == 1:
            return F0.new_zeros(R, 0, M), F0.new_zeros(R, 0)
        if self.line == "matrix":
            B = geometry.rows_of(self.equality_matrix, M, "equality_matrix", F0)  # type: ignore[arg-type]
            return B.expand(R, -1, -1), _offset(self.equality_offset, B, "equality_offset").expand(R, -1)
        v = ray(ctx.prefs)
        z = torch.zeros_like(F0)
        if self.line == "shifted":
            z = F0
        elif self.line == "through":
            through = [self.line_through]
            z = geometry.rows_of(through, M, "line_through", F0).expand(R, -1)  # type: ignore[arg-type]
        elif self.line == "points":
            ends = geometry.rows_of(self.line_points, M, "line_points", F0)  # type: ignore[arg-type]
            if len(ends) != 2:
                raise ConfigError("algorithm.line_points must contain two points.")
            v = (ends[0] - ends[1]).expand(R, -1)
            z = ends[1].expand(R, -1)
        B = geometry.line_basis(v)
        return B, -(B @ z.unsqueeze(-1)).squeeze(-1)

    def _inequality(self, F0: Float[Tensor, "R M"]) -> tuple[Tensor, Tensor]:
        """B_g (R, g, M) and b_g (R, g)."""
        R, M = F0.shape
        B = [F0.new_zeros(0, M)]
        b = [F0.new_zeros(0)]
        if self.inequality_matrix is not None:
            B.append(geometry.rows_of(self.inequality_matrix, M, "inequality_matrix", F0))
            b.append(_offset(self.inequality_offset, B[-1], "inequality_offset"))
        if self.upper is not None:
            if len(self.upper) != M:
                raise ConfigError(f"algorithm.upper needs M={M} entries (null for no bound).")
            bounded = [(m, float(u)) for m, u in enumerate(self.upper) if u is not None]
            eye = torch.eye(M).to(F0)
            B += [eye[m : m + 1] for m, _ in bounded]
            b += [F0.new_tensor([-u]) for _, u in bounded]
        return torch.cat(B).expand(R, -1, -1), torch.cat(b).expand(R, -1)

    def init(self, ctx: Context) -> State:
        F0 = torch.zeros_like(ctx.prefs)
        if self.line == "shifted" or self.ascend_to is not None:  # an evaluation of all data is not free
            F0 = ctx.exact(ctx.theta)[:, : ctx.spec.M].to(ctx.prefs)
        A = self._cone(ctx, F0)
        Bg, bg = self._inequality(F0)
        Bh, bh = self._equality(ctx, F0)
        if N := ctx.spec.N:
            pad = torch.nn.functional.pad
            A = pad(A, (0, N))
            Bh = pad(Bh, (0, N))
            constraint_rows = pad(torch.eye(N).to(F0), (ctx.spec.M, 0)).expand(len(F0), -1, -1)
            Bg = torch.cat([pad(Bg, (0, N)), constraint_rows], dim=1)
            bg = pad(bg, (0, N))
        lam = torch.cat([A.new_ones(A.shape[:2]), torch.zeros_like(bg), torch.zeros_like(bh)], dim=1)
        state = {"A": A, "Bg": Bg, "bg": bg, "Bh": Bh, "bh": bh}
        # expanded tensors share memory between runs, which checkpoints and slices must not
        state = {k: v.contiguous() for k, v in state.items()}
        sums = {"merit": lam.new_zeros(len(lam), len(TERMS))} if self.merit else {}
        return {**state, "A_ag": torch.cat([A, Bg, Bh], dim=1), "lam": lam, **sums}

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Float[Tensor, " R"]]:
        F = F.double()
        out = {}
        M = F.shape[1]
        if state["bh"].shape[1]:
            out["equality_violation"] = torch.linalg.vector_norm(
                _affine(state["Bh"][..., :M], F, state["bh"]), dim=-1
            )
        # inequalities of the algorithm; those of the problem have the column `violation`
        count = state["bg"].shape[1] - (state["A"].shape[-1] - M)
        if count:
            Bg = state["Bg"][:, :count, :M]
            bg = state["bg"][:, :count]
            out["inequality_violation"] = _affine(Bg, F, bg).clamp_min(0).amax(-1)
        if self.merit:
            out |= {f"sum_{term}": state["merit"][:, k] for k, term in enumerate(TERMS)}
        return out

    def _with_merit(
        self,
        state: State,
        stationarity: Float[Tensor, " R"],
        lg: Float[Tensor, "R g"],
        F: Float[Tensor, "R K"],
        other: Float[Tensor, "R K"] | None = None,
    ) -> State:
        """Returns the state with the terms of the merit of one step added to its sums.

        Args:
            stationarity: |J' A_ag' lambda|^2, or an unbiased estimate.
            lg: the multipliers of G.
            F: the values of the step.
            other: values of an independent sample, with which H H' is an unbiased estimate of |H|^2.
        """
        G = _affine(state["Bg"], F, state["bg"])
        H = _affine(state["Bh"], F, state["bh"])
        again = H if other is None else _affine(state["Bh"], other, state["bh"])
        slackness = (lg * (-G).clamp_min(0)).sum(-1)
        violation = G.clamp_min(0).sum(-1) + H.abs().sum(-1)
        terms = [stationarity, slackness, violation, (H * again).sum(-1)]
        return {**state, "merit": state["merit"] + torch.stack(terms, dim=-1)}

    def _domain(self, F: Float[Tensor, "R M"], state: State) -> tuple[Tensor, Tensor]:
        """Weights a (R, n) and sum s (R, 1) of lf' a = s."""
        A = state["A"]
        if self.domain == "simplex":
            return _facets(A), A.new_ones(len(A), 1)
        AF = (A @ F.unsqueeze(-1)).squeeze(-1)
        return AF, AF.sum(-1, keepdim=True)

    def _project(self, lam: Tensor, a: Tensor, s: Tensor, g: int) -> Tensor:
        """Projection onto the domain: weighted simplex for lf, orthant for lg (g of them), lh free."""
        n = a.shape[1]
        parts = [project_weighted_simplex(lam[:, :n], a, s), lam[:, n : n + g].clamp_min(0), lam[:, n + g :]]
        return torch.cat(parts if g else [parts[0], parts[2]], dim=1)


def _facets(A: Float[Tensor, "R n M"]) -> Float[Tensor, "R n"]:
    """1 for the rows of A, 0 for rows of zeros that only fill up a batch (controlled ascent)."""
    return (A != 0).any(-1).to(A)


def _offset(b: Sequence[Real] | None, B: Tensor, what: str) -> Tensor:
    if b is None:
        return B.new_zeros(len(B))
    if len(b) != len(B):
        raise ConfigError(
            f"algorithm.{what} has {len(b)} entries, but there are {len(B)} rows; give one entry per row."
        )
    return B.new_tensor([float(x) for x in b])


def _affine(B: Tensor, F: Tensor, b: Tensor) -> Tensor:
    """B F + b."""
    return torch.baddbmm(b.unsqueeze(-1), B, F.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class FERERO(Preferred, Weighting):
    """FERERO, Algorithm 1.

    Fields: `subproblem`: "exact" (lh eliminated, certified), "pgd" (the paper's inner loop: at most
    `inner_steps` projected gradient steps of size `inner_step`, stopped when the L1 change of w is below
    `inner_tolerance`) or "cvxpy". `inner_start` of pgd: "warm" continues from the last multipliers
    re-projected onto the new domain, "cold" starts each solve at lf = 1/n, lh = lg = 1 as the public code
    does (lf projected onto the domain). pgd is inexact by design: its residual is recorded, not failed.
    """

    gramian: ClassVar[bool] = True
    weighs_constraints: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pgd": {"subproblem": "pgd", "inner_steps": 20, "inner_step": 0.01},
        "shifted": {"line": "shifted", "domain": "simplex"},
        "threshold": {"line": "none", "upper": [0.9, 0.9]},
    }

    subproblem: str = "exact"
    inner_steps: int = 250
    inner_step: Real = 0.1
    inner_tolerance: Real = 1e-5
    inner_start: str = "warm"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "pgd", "cvxpy"))
        choose("algorithm.inner_start", self.inner_start, ("warm", "cold"))
        if self.inner_steps < 1:
            raise ConfigError(f"algorithm.inner_steps={self.inner_steps} must be at least 1.")
        if not 0 < self.inner_step < math.inf:
            raise ConfigError(f"algorithm.inner_step={self.inner_step} must be > 0, and finite.")
        if not self.inner_tolerance >= 0:
            raise ConfigError(f"algorithm.inner_tolerance={self.inner_tolerance} must be >= 0.")
        if self.merit and self.subproblem == "pgd":
            raise ConfigError(
                "algorithm.merit=true needs the minimisers of the subproblem, which subproblem=pgd does not "
                "find: Theorem 1's merit is made of them. Choose algorithm.subproblem=exact."
            )

    def misfits(self, spec: Spec) -> list[str]:
        reasons = super().misfits(spec)
        bounded = spec.N or self.upper is not None or self.inequality_matrix is not None
        if self.merit and self.line != "none" and bounded:
            reasons.append(
                "algorithm.merit=true needs the multipliers of the inequalities, which it does not compute "
                f"beside an equality (algorithm.line={self.line})"
            )
        return reasons

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        if self.subproblem != "pgd" and state["bh"].shape[1]:
            program = Dual(
                state["A_ag"],
                state["bg"],
                state["bh"],
                self.c_g,
                self.c_h,
                self.domain == "adaptive",
                self._solver,
            )
            w, residual, failed, unsolvable = solve_dual(program, G, F)
            if self.merit:
                state = self._with_merit(state, squared_length(w, G), F.new_zeros(len(F), 0), F)
            return w, state, Info(residual, failed, unsolvable)
        a, s = self._domain(F, state)
        cG = self.c_g * _affine(state["Bg"], F, state["bg"]) if state["bg"].shape[1] else None
        if self.subproblem == "pgd":
            cH = self.c_h * _affine(state["Bh"], F, state["bh"]) if state["bh"].shape[1] else None
            return self._pgd(G, a, s, cG, cH, state)
        A = state["A_ag"]
        n = a.shape[1]
        b = None
        if cG is not None:
            b = torch.nn.functional.pad(cG, (a.shape[1], 0))
            a = torch.nn.functional.pad(a, (0, cG.shape[1]))
        x, residual, failed = self._solver(A @ G @ A.mT, b, a, s.squeeze(-1))
        w = (x.unsqueeze(1) @ A).squeeze(1)
        if self.merit:
            state = self._with_merit(state, squared_length(w, G), x[:, n:], F)
        return w, state, Info(residual, failed)

    @property
    def _solver(self) -> Callable[..., Solution]:
        return reference.qp if self.subproblem == "cvxpy" else qp

    def _pgd(
        self, K: Tensor, a: Tensor, s: Tensor, cG: Tensor | None, cH: Tensor | None, state: State
    ) -> tuple[Tensor, State, Info]:
        A_ag = state["A_ag"]
        n = a.shape[1]
        g = state["bg"].shape[1]
        Q = A_ag @ K @ A_ag.mT
        p = torch.cat([torch.zeros_like(a)] + [x for x in (cG, cH) if x is not None], dim=1)
        if self.inner_start == "warm":
            lam = state["lam"]
        else:
            facets = _facets(state["A"])
            lf = facets / facets.sum(-1, keepdim=True)
            lam = torch.cat([lf, a.new_ones(len(a), Q.shape[-1] - n)], dim=1)
        lam, residual = projected_gradient(
            Q, p, lam, a, s, A_ag, g, self.inner_step, self.inner_steps, self.inner_tolerance
        )
        w = (lam.unsqueeze(1) @ A_ag).squeeze(1)
        return w, {**state, "lam": lam}, Info(residual, None)
