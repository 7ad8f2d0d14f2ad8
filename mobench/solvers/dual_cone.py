"""Projection of combinations of the gradients onto their dual cone, the directions that raise no objective.

    pi(J'u) = J'(u + z*),   z* = argmin |J'(u + z)|^2   s.t.  z >= 0

Several projections share one Gram matrix.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import tensor
from mobench.kernels.compiled import compiled_solver
from mobench.solvers.host import on_host
from mobench.solvers.nearest import nearest
from mobench.solvers.qp import rows
from mobench.solvers.solution import GOOD, GROWTH
from mobench.solvers.spectrum import spectrum

INDEPENDENT = 1e-11  # a row depends on others if its square beside them is less than this share of it
TIE = 1e-14  # slopes below this, in units of their terms, are zeros that rounding has missed
UNKNOWN = 1e-6  # share of its length by which a gradient may depart from others unseen: G is its square


class Projections(NamedTuple):
    """m projections of R runs: a `Solution`, and the runs whose Gram matrix does not decide.

    In the runs `hard` it does not tell whether gradients are dependent. Their x is that of dependent
    gradients; `nearest` solves them from J.
    """

    x: Float[Tensor, "R n"]
    residual: Float[Tensor, " R"]
    failed: Bool[Tensor, " R"]
    hard: tuple[int, ...] = ()


@on_host()
def dual_cone(G: Float[Tensor, "R M M"], u: Float[Tensor, "R2 m M"]) -> Projections:
    """Projects J'u_1, ..., J'u_m onto the dual cone {v: Jv >= 0} of the rows of J.

        x_i = u_i + argmin 1/2 z'Gz + (G u_i)'z   s.t.  z >= 0

    J'x_i is unique; x_i itself is one of many where rows are dependent.

    Args:
        G: Gram matrix JJ' of each run.
        u: combinations of the rows, (R, m, M), or (1, m, M) for all runs.

    Returns:
        The weights x (R, m M), one projection after the other, and the largest of the m residuals: relative
        violation of G(u + z) >= 0, z >= 0 and of their complementarity. A slope is relative to |g_j| times
        the length of the terms of J'u, z_j to that length over |g_j|: it is a residual of the direction,
        which large weights that cancel do not excuse.

    Source: Quinton and Rey 2024, Proposition 1; Lopez-Paz and Ranzato 2017, equation 11.
    """
    R, M = G.shape[:2]
    m = u.shape[1]
    limits = np.array([INDEPENDENT, TIE, GROWTH, GOOD])
    x, residual, ended = compiled_solver("dual_cone").dual_cone(rows(G), rows(u), limits)
    weights = tensor(x, G.dtype).view(R, m * M)
    certificate = tensor(residual, G.dtype)
    done = torch.from_numpy(ended)
    failed = torch.zeros_like(done)
    if bool(done.all()):
        return Projections(weights, certificate, failed)
    hard = tuple(torch.nonzero(~done)[:, 0].tolist())
    for r in hard:
        projected = nearest(_factor(G[r]), u[r if len(u) > 1 else 0], UNKNOWN)
        weights[r] = projected.x.reshape(-1)
        certificate[r] = projected.residual
        failed[r] = projected.failed
    return Projections(weights, certificate, failed, hard)


def _factor(G: Float[Tensor, "M M"]) -> Float[Tensor, "M M"]:
    """Rows with the Gram matrix G."""
    length = G.diagonal().clamp_min(0.0).sqrt()
    inverse = torch.where(length > 0, 1.0 / length, 0.0)
    cosines = spectrum(rows(G * inverse * inverse.unsqueeze(1))[None])
    root = np.sqrt(np.maximum(cosines.values, 0.0))
    return torch.from_numpy(cosines.vectors[0] * root).to(G) * length.unsqueeze(1)
