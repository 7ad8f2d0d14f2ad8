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
from mobench.kernels.compiled import kernels
from mobench.subproblems.host import on_host
from mobench.subproblems.nearest import nearest
from mobench.subproblems.qp import qp, rows
from mobench.subproblems.solution import GOOD, GROWTH
from mobench.subproblems.spectrum import spectrum

INDEPENDENT = 1e-11  # a row depends on others if its square beside them is less than this share of it
TIE = 1e-14  # slopes below this, in units of their terms, are zeros that rounding has missed
UNKNOWN = 1e-6  # share of its length by which a gradient may depart from others unseen: G is its square


class Projections(NamedTuple):
    """m projections of R runs: a `Solution`, and `hard`, the runs in which the Gram matrix does not tell
    whether gradients are dependent. Their x is that of dependent gradients; `nearest` knows better, from J.
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
    kernel = kernels("dual_cone", G)
    if kernel is None:
        found, certificate, done = _pivoted(G, u.expand(R, m, M))
    else:
        limits = np.array([INDEPENDENT, TIE, GROWTH, GOOD])
        x, residual, ended = kernel.dual_cone(rows(G), rows(u), limits)
        found = tensor(x, G.dtype).view(R, m * M)
        certificate = tensor(residual, G.dtype)
        done = torch.from_numpy(ended)
    failed = torch.zeros_like(done)
    if bool(done.all()):
        return Projections(found, certificate, failed)
    hard = tuple(torch.nonzero(~done)[:, 0].tolist())
    for r in hard:
        projected = nearest(_factor(G[r]), u[r if len(u) > 1 else 0], UNKNOWN)
        found[r] = projected.x.reshape(-1)
        certificate[r] = projected.residual
        failed[r] = projected.failed
    return Projections(found, certificate, failed, hard)


def _factor(G: Float[Tensor, "M M"]) -> Float[Tensor, "M M"]:
    """Rows with the Gram matrix G."""
    length = G.diagonal().clamp_min(0.0).sqrt()
    inverse = torch.where(length > 0, 1.0 / length, 0.0)
    found = spectrum((G * inverse * inverse.unsqueeze(1)).unsqueeze(0))
    return found.vectors[0] * found.values.clamp_min(0.0).sqrt() * length.unsqueeze(1)


def _pivoted(
    G: Float[Tensor, "R M M"], u: Float[Tensor, "R m M"]
) -> tuple[Float[Tensor, "R n"], Float[Tensor, " R"], Bool[Tensor, " R"]]:
    """x, the residuals of the directions, and done, as the kernel finds them, by quadratic programs."""
    R, m, M = u.shape
    u = u.to(G)
    slope = torch.bmm(u, G).reshape(R * m, M)
    many = G.unsqueeze(1).expand(R, m, M, M).reshape(R * m, M, M)
    x = u + qp(many, -slope).x.view(R, m, M)
    length = G.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt().unsqueeze(1)
    terms = (length * u.abs()).sum(2, keepdim=True)
    inverse = torch.where((length > 0) & (terms > 0), 1.0 / (length * terms), 0.0)
    natural = torch.minimum((x - u) * length * length, torch.bmm(x, G)) * inverse
    residual = natural.abs().amax((1, 2))
    # dependent rows are not excluded here: what they leave are weights as long as 1 / their distance
    short = ((length * x.abs()).sum(2, keepdim=True) <= terms * INDEPENDENT**-0.5).all((1, 2))
    return x.reshape(R, m * M), residual, short & (residual <= GOOD) | ~G.isfinite().all((1, 2))
