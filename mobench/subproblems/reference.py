"""The same subproblems through CVXPY, one run at a time: CLARABEL for the QPs, HIGHS for the LPs.

For `subproblem: cvxpy` of an algorithm, and what the batched solvers are tested against. Each problem is normalised
before CVXPY sees it, because its tolerances are absolute: at gradients of size 1e-6 an unnormalised min-norm problem
comes back "optimal" with weights that are wrong by 0.03.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.subproblems.arrays import Array
from mobench.subproblems.lp import epo_data, homogeneous, homogeneous_residual
from mobench.subproblems.qp import program_residual
from mobench.subproblems.solution import Solution, certified

REFERENCE_TOLERANCE = 1e-6  # of an interior-point solver; the certificate is the same as that of the exact solvers
CLARABEL = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "tol_ktratio": 1e-10}


def _solved(problem: Any, **options: Any) -> bool:
    """Run CVXPY. What the answer is worth is judged by the certificate, so only its absence counts here."""
    import cvxpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(**options)
        except cvxpy.SolverError:
            return False
    return problem.status in ("optimal", "optimal_inaccurate")


def qp(
    Q: Float[Tensor, "R n n"],
    b: Float[Tensor, "R n"] | None,
    a: Float[Tensor, "R n"] | None = None,
    r: Float[Tensor, " R"] | None = None,
    lower: float | Tensor = 0.0,
    upper: float | Tensor | None = None,
) -> Solution:
    """As `mobench.subproblems.qp`; failed means a residual above `REFERENCE_TOLERANCE`."""
    import cvxpy

    R, n = Q.shape[:2]

    def full(value: float | Tensor | None, default: float, *shape: int) -> Array:
        value = default if value is None else value
        return torch.as_tensor(value, dtype=torch.float64, device="cpu").expand(*shape).numpy()

    Q_, b_ = full(Q.detach().cpu(), 0.0, R, n, n), full(b, 0.0, R, n)
    a_, r_ = full(a, 0.0, R, n), full(r, 1.0, R)
    low, high = full(lower, 0.0, R, n), full(upper, np.inf, R, n)
    x = np.full((R, n), np.nan)
    probe = Q_.sum((1, 2)) + b_.sum(1) + a_.sum(1) + r_
    for i in np.flatnonzero(np.isfinite(probe)):
        # In units of x and of the objective in which the data are of order 1.
        trace, steep = np.trace(Q_[i]), np.abs(b_[i]).max()
        top = a_[i].max() or 1.0
        if a is not None:
            unit = r_[i] / top or 1.0
        else:
            unit = steep / trace if trace > 0 and steep > 0 else 1.0
        gamma = max(trace * unit, steep) or 1.0
        y = cvxpy.Variable(n)
        P, q = Q_[i] * (unit / gamma), b_[i] / gamma
        value = 0.5 * cvxpy.quad_form(y, cvxpy.psd_wrap(P)) - q @ y
        below, above = np.isfinite(low[i]), np.isfinite(high[i])
        rules = []
        if below.any():
            rules.append(y[below] >= low[i][below] / unit)
        if above.any():
            rules.append(y[above] <= high[i][above] / unit)
        if a is not None:
            rules.append((a_[i] / top) @ y == r_[i] / (top * unit))
        if _solved(cvxpy.Problem(cvxpy.Minimize(value), rules), solver="CLARABEL", **CLARABEL):
            x[i] = np.clip(np.asarray(y.value) * unit, low[i], high[i])
    with np.errstate(all="ignore"):
        residual = program_residual(np, x, Q_, b_, None if a is None else a_, r_, low, high)
        solution = certified(np, x, residual, probe, Q.dtype, REFERENCE_TOLERANCE)
    return Solution(*(t.to(Q.device) for t in solution))


def min_norm(gram: Float[Tensor, "R n n"], active: Bool[Tensor, "R n"] | None = None) -> Solution:
    """As `mobench.subproblems.min_norm`."""
    ones = torch.ones_like(gram[:, 0])
    if active is None:
        return qp(gram, None, ones)
    empty = ~active.any(1)
    keep = active | empty.unsqueeze(1)
    gram = gram.masked_fill(~(active.unsqueeze(1) & active.unsqueeze(2)), 0)
    x, residual, failed = qp(gram, None, ones, upper=torch.where(keep, 2.0, 0.0))
    return Solution(x.masked_fill(empty.unsqueeze(1), 0), residual.masked_fill(empty, 0), failed & ~empty)


def lp(c: Float[Tensor, "R n"], G: Float[Tensor, "R k n"], h: Float[Tensor, "R k"]) -> Solution:
    """As `mobench.subproblems.lp`; failed means a residual above `REFERENCE_TOLERANCE`."""
    import cvxpy

    c_, G_, h_ = (t.detach().cpu().double().numpy() for t in (c, G, h))
    with np.errstate(all="ignore"):
        probe = c_.sum(1) + G_.sum((1, 2)) + np.where(h_ == -np.inf, 0.0, h_).sum(1)
        c_, G_ = homogeneous(np, c_, G_, h_)
    x, y = np.full(c_.shape, np.nan), np.full(G_.shape[:2], np.nan)
    for i in np.flatnonzero(np.isfinite(probe)):
        beta = cvxpy.Variable(c_.shape[1])
        rows = G_[i] @ beta >= 0
        problem = cvxpy.Problem(cvxpy.Maximize(c_[i] @ beta), [rows, beta >= 0, cvxpy.sum(beta) == 1])
        if _solved(problem, solver="HIGHS"):
            x[i], y[i] = beta.value, np.abs(rows.dual_value)
    with np.errstate(all="ignore"):
        residual = homogeneous_residual(np, x, y, c_, G_)
        solution = certified(np, x, residual, probe, c.dtype, REFERENCE_TOLERANCE)
    return Solution(*(t.to(c.device) for t in solution))


def epo_lp(
    K: Float[Tensor, "R M M"],
    Ca: Float[Tensor, "R M"],
    balance: Bool[Tensor, " R"],
    jstar: Int[Tensor, " R"],
    restricted: bool = True,
) -> Solution:
    """As `mobench.subproblems.epo_lp`."""
    return lp(*epo_data(torch, K.detach(), Ca.detach(), balance, jstar, restricted))


def solve_reference(kind: str, *inputs: Any, **options: Any) -> Solution:
    """`kind` is min_norm, qp, lp or epo_lp; the inputs are those of the function of that name."""
    solvers: dict[str, Callable[..., Solution]] = {"min_norm": min_norm, "qp": qp, "lp": lp, "epo_lp": epo_lp}
    return solvers[kind](*inputs, **options)
