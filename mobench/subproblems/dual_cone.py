"""Projection of combinations of the gradients onto their dual cone, the directions that raise no objective.

    pi(J'u) = J'(u + z*),   z* = argmin |J'(u + z)|^2   s.t.  z >= 0

Several projections share one Gram matrix.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import tensor
from mobench.kernels.compiled import kernels
from mobench.subproblems.host import on_host
from mobench.subproblems.qp import qp, rows
from mobench.subproblems.solution import GOOD, GROWTH, Solution

INDEPENDENT = 1e-11  # a row depends on others if its square beside them is less than this share of it
TIE = 1e-14  # slopes below this, in units of their terms, are zeros that rounding has missed


@on_host()
def dual_cone(G: Float[Tensor, "R M M"], u: Float[Tensor, "R2 m M"]) -> Solution:
    """Projects J'u_1, ..., J'u_m onto the dual cone {v: Jv >= 0} of the rows of J.

        x_i = u_i + argmin 1/2 z'Gz + (G u_i)'z   s.t.  z >= 0

    J'x_i is unique; x_i itself is one of many where rows are dependent.

    Args:
        G: Gram matrix JJ' of each run.
        u: combinations of the rows, (R, m, M), or (1, m, M) for all runs.

    Returns:
        The weights x (R, m M), one projection after the other, and the largest of the m residuals: relative
        violation of G(u + z) >= 0, z >= 0 and of their complementarity. A slope is relative to |g_j| times
        the length of the terms of J'(u + z), z_j to that length over |g_j|.

    Source: Quinton and Rey 2024, Proposition 1; Lopez-Paz and Ranzato 2017, equation 11.
    """
    R, M = G.shape[:2]
    m = u.shape[1]
    kernel = kernels("dual_cone", G)
    if kernel is None:
        return _pivoted(G, u.expand(R, m, M))
    limits = np.array([INDEPENDENT, TIE, GROWTH, GOOD])
    x, residual, done = kernel.dual_cone(rows(G), rows(u), limits)
    found = tensor(x, G.dtype).view(R, m * M)
    certificate = tensor(residual, G.dtype)
    failed = torch.zeros(R, dtype=torch.bool)
    if not done.all():
        # rows that are dependent up to rounding: pivoting decides which of them count
        left = torch.from_numpy(np.flatnonzero(~done))
        other = _pivoted(G[left], u.expand(R, m, M)[left])
        found[left] = other.x
        certificate[left] = other.residual
        failed[left] = other.failed
    return Solution(found, certificate, failed)


def _pivoted(G: Float[Tensor, "R M M"], u: Float[Tensor, "R m M"]) -> Solution:
    """The projections as quadratic programs of their own."""
    R, m, M = u.shape
    slope = torch.bmm(u.to(G), G).reshape(R * m, M)
    many = G.unsqueeze(1).expand(R, m, M, M).reshape(R * m, M, M)
    z, residual, failed = qp(many, -slope)
    x = u.to(G) + z.view(R, m, M)
    return Solution(x.reshape(R, m * M), residual.view(R, m).amax(1), failed.view(R, m).any(1))
