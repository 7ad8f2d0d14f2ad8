"""Exact, batched, scale-free subproblems. Every solve returns its certificate; nothing replaces a failed one.

`mobench.subproblems.reference` (imported on request, needs CVXPY) has the same functions, one run at a time.

May import: core, kernels.
"""

from mobench.subproblems.lp import epo_lp, lp
from mobench.subproblems.projections import project_simplex, project_weighted_simplex
from mobench.subproblems.qp import min_norm, qp, qp_residual
from mobench.subproblems.solution import TOLERANCE, Solution

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
