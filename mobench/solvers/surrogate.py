"""Quadratically constrained surrogate of CSMOO, solved in its small dual.

    minimise  h_0(d) = a_0'd + 1/2 d'T_0 d   s.t.   h_k(d) = c_k + a_k'd + 1/2 d'T_k d <= 0,  k = 1..K,
        d in Q
    Q = {d = (dx, dy) : x + dx in X,  dy >= low},   T_k = tau_k on x, diag(tau_y,k) on y
        (11), (14)

For mu >= 0 (and mu_0 = 1) the Lagrangian is an isotropic quadratic on x and on each y. Its minimiser over Q
is a projection, and the dual lives in K dimensions whatever the size of x:

    d(mu) = P_Q(-v/s),  v = sum mu_k a_k,  s = sum mu_k T_k,   dq/dmu_k = h_k(d(mu))
    generalised Hessian of q:  -H,  H = sum over blocks of variables of J B J'/s,  J_k = a_k + T_k d,
        B = DP_Q

Source: CSMOO paper, (10), (11), (13), (14). The paper calls CVXPY; the dual and its certificates are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import tensor
from mobench.core.sets import Ball, Box, Free, Intervals, Set
from mobench.kernels.compiled import compiled_solver
from mobench.solvers.host import on_host
from mobench.solvers.qp import rows as in_rows
from mobench.solvers.solution import GOOD, TINY, TOLERANCE

LOOSE = 1e-3  # share of the terms that cancel in a_k'd which counts as size of h_k on the way
SHIFT = 1e-14  # least damping: keeps the matrix of dependent active constraints regular
FIRST = 1e-2  # damping after a step that was taken back
CANCELLED = 1e-5  # share of the terms that cancel in d which counts as size of h: TOLERANCE of it is ROUNDING
ROUNDING = 1e-14  # share of the terms that cancel in d up to which a number may be zero
FAR = 1e14  # multipliers beyond this run away: the surrogate is infeasible
NEWTON = 20  # steps of Newton's method: from good multipliers two to five are needed
PROOF = 8  # the step at which it looks for a proof of infeasibility
MODEL = 4  # active sets tried for the model of one step
INTERIOR = 60  # interior-point steps: 12 to 20 are needed
# in the order of `mobench.solvers.kernels.surrogate.Limits`
_STEPS = (NEWTON, PROOF, MODEL, INTERIOR)
LIMITS = np.array([GOOD, TOLERANCE, TINY, LOOSE, SHIFT, FIRST, CANCELLED, ROUNDING, FAR, *_STEPS])
NOBODY = np.zeros((0, 0), bool)  # no mask: all coordinates move
# the sets of x that the kernel knows, with its numbers for them
SETS: dict[type[Set], int] = {Free: 0, Box: 1, Intervals: 1, Ball: 2}


class SurrogateSolution(NamedTuple):
    """Steps and multipliers of R surrogates, with their certificates.

    dx (R, P), dy (R, q)  minimiser; where infeasible the minimiser of max_k h_k over Q (13); NaN where failed
    mu (R, K)             multipliers; where infeasible those of (13), in the simplex: min over Q of mu'h > 0
                          proves it
    worst (R,)            max_k h_k at (dx, dy)
    residual (R,)         largest of constraint violation and duality gap, relative to their terms
    infeasible (R,)       no point of Q satisfies the constraints, as mu proves
    failed (R,)           neither solved to `TOLERANCE` nor proved infeasible (a run that is not finite has
                          diverged)
    """

    dx: Float[Tensor, "R P"]
    dy: Float[Tensor, "R q"]
    mu: Float[Tensor, "R K"]
    worst: Float[Tensor, " R"]
    residual: Float[Tensor, " R"]
    infeasible: Bool[Tensor, " R"]
    failed: Bool[Tensor, " R"]


@dataclass(frozen=True)
class Surrogate:
    """R surrogates with K constraints, P variables x in X and q auxiliary variables y.

    c (R, K); rows (R, K, P) of the constraints in x (the objective has none there); slopes (K + 1, q) of
    objective and constraints in y; tau (K + 1,) > 0 on x; tau_y (K + 1, q) >= 0, positive in the objective; x
    (R, P) the iterate; low (R, q) lower bounds of dy (-inf: none); moving (R, P): coordinates of x that may
    change, None for all.
    """

    c: Float[Tensor, "R K"]
    rows: Float[Tensor, "R K P"]
    slopes: Float[Tensor, "K1 q"]
    tau: Float[Tensor, " K1"]
    tau_y: Float[Tensor, "K1 q"]
    x: Float[Tensor, "R P"]
    low: Float[Tensor, "R q"]
    X: Set
    moving: Bool[Tensor, "R P"] | None = None

    def take(self, runs: Tensor) -> Surrogate:
        """The surrogates of some of the runs."""
        chosen = {name: getattr(self, name)[runs] for name in ("c", "rows", "x", "low")}
        return replace(self, **chosen, moving=None if self.moving is None else self.moving[runs])


@on_host()
def solve_surrogate(program: Surrogate, warm: Float[Tensor, "R K"] | None = None) -> SurrogateSolution:
    """Solve R surrogates at once; `warm`: multipliers to start from, such as those of the last iteration.

    A damped Newton iteration from `warm`; runs that it leaves go through a primal-dual interior-point method
    and the same iteration again; runs that this leaves get problem (13) and either a proof of infeasibility
    or `failed`. The certificate is computed from the step itself, by rows, whichever formula gave it.

    Raises:
        ValueError: x in a set that the kernel does not know.
    """
    X = program.X
    if type(X) not in SETS:
        names = ", ".join(X_type.__name__ for X_type in SETS)
        raise ValueError(f"CSMOO's surrogate is solved for X in {names}, not {type(X).__name__}.")
    inner = outer = np.zeros(0)
    if isinstance(X, (Box, Intervals)):
        inner, outer = (np.ones(program.rows.shape[2]) * end for end in (X.lower, X.upper))
    fields = ("c", "rows", "slopes", "tau", "tau_y", "x", "low")
    moving = NOBODY if program.moving is None else program.moving.contiguous().numpy()
    arrays = compiled_solver("surrogate").solve_surrogate(
        *(in_rows(getattr(program, name)) for name in fields),
        moving,
        in_rows(torch.ones_like(program.c) if warm is None else warm),
        SETS[type(X)],
        inner,
        outer,
        float(X.radius) if isinstance(X, Ball) else np.inf,
        LIMITS,
    )
    dx, dy, mu, worst, residual, infeasible = (tensor(part) for part in arrays)
    solution = SurrogateSolution(dx, dy, mu, worst, residual, infeasible, residual > TOLERANCE)
    return solution if bool((program.tau_y[1:] > 0).all()) else _checked(program, solution)


def _checked(program: Surrogate, solution: SurrogateSolution) -> SurrogateSolution:
    """Takes back solutions that violate a constraint by more than rounding of the step and of x.

    Where a y has no quadratic term in the constraints, multipliers of an infeasible surrogate grow beyond
    all bounds while the curvature along y stays, and so does the size of the terms to which the certificate
    compares a violation.
    """
    h, size = constraints(program, solution.dx, solution.dy)
    lengths = ((program.rows**2).sum(2) + (program.slopes[1:] ** 2).sum(1)) ** 0.5
    step = ((solution.dx**2).sum(1) + (program.x**2).sum(1) + (solution.dy**2).sum(1)) ** 0.5
    over = (h / (size + lengths * step.unsqueeze(1) + TINY)).amax(1)
    violated = (over > TOLERANCE) & ~solution.infeasible
    lost = violated.unsqueeze(1)
    dx, dy, mu = (torch.where(lost, torch.nan, part) for part in (solution.dx, solution.dy, solution.mu))
    residual = torch.where(violated, torch.fmax(over, solution.residual), solution.residual)
    return solution._replace(dx=dx, dy=dy, mu=mu, residual=residual, failed=solution.failed | violated)


def constraints(
    p: Surrogate, dx: Float[Tensor, "R P"], dy: Float[Tensor, "R q"]
) -> tuple[Float[Tensor, "R K"], Float[Tensor, "R K"]]:
    """h (R, K) and the size of its terms (R, K)."""
    linear = (p.rows @ dx[:, :, None])[:, :, 0]
    along = dy[:, None] * p.slopes[1:]
    bent = 0.5 * ((dx * dx).sum(1)[:, None] * p.tau[1:] + ((dy * dy)[:, None] * p.tau_y[1:]).sum(2))
    return p.c + linear + along.sum(2) + bent, abs(p.c) + abs(linear) + abs(along).sum(2) + bent
