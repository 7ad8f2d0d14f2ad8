"""CSMOO, basic form and CSMOO-1 (Algorithm 1): Tchebycheff descent under expectation constraints.

min over x in X of max_i lambda_i (f_i(x) - z_i)   s.t.  g(x) <= 0,   with an epigraph variable y
(2), (9)
(xbar, ybar) = argmin y + tau_0/2 |d|^2,  d = (x - x_t, y - y_t),  over x in X, y free,  s.t.
(10), (11)
    lambda_i (f_i - z_i + grad f_i'(x - x_t)) - y + tau_i/2 |d|^2 <= 0,
        g_j + grad g_j'(x - x_t) + tau_j/2 |d|^2 <= 0
(x, y) <- (x, y) + gamma_t (xbar - x, ybar - y)
(12) Where (11) has no feasible point: basic stays, CSMOO-1 minimises the largest constraint instead (13).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.tch import ideal_point
from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.errors import ConfigError, choose
from mobench.solvers import reference
from mobench.solvers.surrogate import SETS, Surrogate, SurrogateSolution, solve_surrogate


def conditions(spec: Spec, decay: float, what: str) -> list[str]:
    """Returns the conditions of Assumptions 2 and 3 that the exponents a (averages) and b (steps) break."""
    out = []
    a = spec.averaging
    b = decay
    if not 0.5 < b <= 1:
        out.append(
            f"{what}: step_decay b={b:g} violates 0.5 < b <= 1 (Assumption 3: sum gamma = inf, "
            "sum gamma^2 < inf)"
        )
    if a is not None and not 0.5 < a < 1:
        out.append(
            f"{what}: oracle.decay a={a:g} violates 0.5 < a < 1 (Assumption 2: sum rho = inf, sum rho^2 < "
            "inf)"
        )
    if a is not None and not 2 * b - a > 1:
        out.append(
            f"{what}: 2b - a = {2 * b - a:g} violates 2b - a > 1 (Assumptions 2 and 3: sum gamma^2/rho < inf)"
        )
    return out


@dataclass(frozen=True, kw_only=True)
class Penalised(Algorithm):
    """The base of CSMOO and its baseline: they scalarise by lambda and z, and take constraints g <= 0.

    Fields: `ideal`: "problem" (the ideal point that the problem declares), a number or M numbers.
    """

    constraints: ClassVar[tuple[int, int | None]] = (0, None)
    constraint_kind: ClassVar[str | None] = "inequality"
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "step_decay"})

    step_size: Real = 0.4
    step_decay: Real = 0.95
    ideal: str | Real | Sequence[Real] = "problem"

    def advice(self, spec: Spec) -> list[str]:
        decays = torch.as_tensor(self.step_decay, dtype=torch.float64).unique().tolist()
        violations = [words for decay in decays for words in conditions(spec, decay, type(self).__name__)]
        return list(dict.fromkeys(violations))


@dataclass(frozen=True, kw_only=True)
class Surrogated(Penalised):
    """The base of the three CSMOO methods: the surrogate (10), its solver, and counting.

    Fields: tau: proximal coefficient, a number or one for the objective and each constraint
    (m + n + 1 numbers). subproblem: "exact" (batched dual, certified) or "cvxpy" (CLARABEL, DPP, one run at a
    time, as the paper does). block_solve: with an oracle that moves one block of variables a step: "full"
    solves (11) over all of them, of which then only the block moves; "restricted" solves over that block,
    which can end where no block alone improves, short of the optimum (the maximum and the constraints couple
    the blocks).
    """

    citation: ClassVar[str] = "Constrained Stochastic Multi-Objective Optimization (CSMOO), 2025"
    own_step: ClassVar[str] = "its step is a fraction of the way to the solution of a program"

    tau: Real | Sequence[Real] = 0.08
    subproblem: str = "exact"
    block_solve: str = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "cvxpy"))
        choose("algorithm.block_solve", self.block_solve, ("restricted", "full"))
        taus = [self.tau] if isinstance(self.tau, (int, float)) else list(self.tau)
        if not all(tau > 0 for tau in taus):
            raise ConfigError(f"algorithm.tau={self.tau} must be > 0.")
        if self.schedule(0) > 1:
            raise ConfigError(
                f"algorithm.step_size={self.step_size}: the first step, step_size/step_offset^step_decay = "
                f"{self.schedule(0):g}, is a fraction of the way to the surrogate's solution and must be <= "
                "1."
            )

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"})

    @property
    def _solver(self) -> Callable[..., SurrogateSolution]:
        return reference.solve_surrogate if self.subproblem == "cvxpy" else solve_surrogate

    def misfits(self, spec: Spec) -> list[str]:
        K = spec.M + spec.N
        if type(spec.X) not in SETS:
            names = ", ".join(X.__name__ for X in SETS)
            return [
                f"its surrogate is solved for x in {names}, but the problem's X is {type(spec.X).__name__}"
            ]
        if isinstance(self.tau, (int, float)) or len(self.tau) == K + 1:
            return []
        return [
            f"algorithm.tau has {len(self.tau)} entries, but the objective and {K} constraint(s) need {K + 1}"
        ]

    def _taus(self, K: int) -> list[float]:
        if isinstance(self.tau, (int, float)):
            return [float(self.tau)] * (K + 1)
        return [float(tau) for tau in self.tau]

    @abstractmethod
    def _auxiliary(self, M: int, N: int, tau: list[float]) -> tuple[list[list[float]], list[list[float]]]:
        """slopes and tau_y (K + 1, q) of the auxiliary variables y."""

    @abstractmethod
    def _levels(self, value: Float[Tensor, "R M"], G: Float[Tensor, "R N"]) -> Float[Tensor, "R q"]:
        """y that fits weighted values and constraints."""

    def init(self, ctx: Context) -> State:
        M = ctx.spec.M
        N = ctx.spec.N
        prefs = ctx.prefs
        tau = self._taus(M + N)
        slopes, tau_y = self._auxiliary(M, N, tau)
        z = ideal_point(self.ideal, ctx)
        exact = ctx.exact(ctx.theta).to(prefs)
        R = len(prefs)

        def constant(rows: Any) -> Tensor:  # R first, as in every state
            table = torch.tensor(rows, dtype=prefs.dtype, device=prefs.device)
            return table.expand(R, *table.shape).contiguous()

        return {
            "w": prefs,
            "wz": prefs * z,
            "slopes": constant(slopes),
            "tau": constant(tau),
            "tau_y": constant(tau_y),
            "y": self._levels(prefs * (exact[:, :M] - z), exact[:, M:]),
            "mu": torch.ones_like(exact),
            "infeasible": torch.zeros(R, dtype=torch.int64, device=prefs.device),
        }

    def _program(self, point: Point, state: State) -> Surrogate:
        """(10) at the point's values and rows."""
        w = state["w"]
        y = state["y"]
        slopes = state["slopes"][0]
        values = point.values().double()
        rows = point.jacobian().double()
        N = values.shape[1] - w.shape[1]
        c = (
            torch.cat([w * values[:, : point.M] - state["wz"], values[:, point.M :]], dim=1)
            + y @ slopes[1:].T
        )
        scale = torch.cat([w, w.new_ones(len(w), N)], dim=1)
        low = self._lower(y)
        return Surrogate(
            c,
            scale.unsqueeze(2) * rows,
            slopes,
            state["tau"][0],
            state["tau_y"][0],
            point.x.double(),
            low,
            point.X,
            point.moving if self.block_solve == "restricted" else None,
        )

    def _lower(self, y: Float[Tensor, "R q"]) -> Float[Tensor, "R q"]:
        """Lower bounds of dy."""
        return torch.full_like(y, -torch.inf)

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        s = self._solver(self._program(point, state), state["mu"])
        still = self._stays(s)
        dx = torch.where(still, 0.0, s.dx)
        y = state["y"] + alpha * torch.where(still, 0.0, s.dy)
        # multipliers of (13) belong to another program: they are no guess for the next (11)
        mu = torch.where((s.infeasible | s.failed).unsqueeze(1), state["mu"], s.mu)
        state = {**state, "y": y, "mu": mu, "infeasible": state["infeasible"] + s.infeasible}
        return dx.to(point.x.dtype), state, Info(s.residual, s.failed)

    def _stays(self, s: SurrogateSolution) -> Tensor:
        """Runs (R, 1) that do not move: failed ones; the basic form adds infeasible ones."""
        return s.failed.unsqueeze(1)

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        out = {"infeasible_steps": state["infeasible"].double()}
        return out | {f"y_{k + 1}": state["y"][:, k] for k in range(state["y"].shape[1])}


@dataclass(frozen=True, kw_only=True)
class CSMOO1(Surrogated):
    """CSMOO-1: one epigraph variable y, started at its exact value; (13) where (11) is infeasible."""

    def _auxiliary(self, M: int, N: int, tau: list[float]) -> tuple[list[list[float]], list[list[float]]]:
        return [[1.0], *[[-1.0]] * M, *[[0.0]] * N], [[value] for value in tau]

    def _levels(self, value: Float[Tensor, "R M"], G: Float[Tensor, "R N"]) -> Float[Tensor, "R 1"]:
        return value.amax(1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class CSMOOBasic(CSMOO1):
    """The basic form: no move where (11) is infeasible; the running averages go on."""

    def _stays(self, s: SurrogateSolution) -> Tensor:
        return (s.failed | s.infeasible).unsqueeze(1)
