"""The combination of unit gradients with equal projections onto all of them:  b = C^+ 1,  C their cosines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mobench.core.arrays import Array
from mobench.kernels.compiled import compiled_solver
from mobench.solvers.spectrum import spectrum

SURE = 1e4
"""Frobenius norm of the inverse of C up to which the inverse is used; beyond, eigenvalues decide the rank."""

NOTHING = 1e-20
"""Values of 1'C^+ 1 = |U^+ 1|^2, U the unit gradients, below this are rounding of 0.

No direction has equal projections onto all gradients then.
"""


class Alike(NamedTuple):
    """The combinations b with lengths, cosines and certificates.

    b (R, M), 0 of gradients of length 0; length (R, M) of the gradients; cosines C (R, M, M), rows of which
    are 0 where the gradient is; residual (R,): the largest |(C b)_m - 1| where C has full rank, else that of
    its eigenvectors; NaN where G is not finite.
    """

    b: Array
    length: Array
    cosines: Array
    residual: Array


def alike(G: Array) -> Alike:
    """Solves for b, by the least-squares solution of smallest norm where the gradients are dependent."""
    b, length, C, residual, hard = compiled_solver("alike").alike(G, SURE)
    if hard.any():  # eigenvalues decide the rank of the cosines
        parts = spectrum(C[hard])
        inverse = 1.0 / np.where(parts.nonzero, parts.values, 1.0)
        b[hard] = parts.apply(inverse, 1.0 * (length[hard] > 0))
        residual[hard] = parts.residual
    return Alike(b, length, C, residual)
