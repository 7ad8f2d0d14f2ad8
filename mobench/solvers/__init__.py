"""Exact, batched, scale-free solvers of small programs, with certificates; nothing replaces a failed solve.

`mobench.solvers.reference` (imported on request, needs CVXPY) has the same functions, one run at a time.

May import: core, kernels.
"""

from mobench.solvers.lp import epo_lp, lp
from mobench.solvers.projections import project_simplex, project_weighted_simplex
from mobench.solvers.qp import min_norm, qp, qp_residual
from mobench.solvers.solution import TOLERANCE, Solution

__all__ = [
    "TOLERANCE",
    "Solution",
    "epo_lp",
    "lp",
    "min_norm",
    "project_simplex",
    "project_weighted_simplex",
    "qp",
    "qp_residual",
]
