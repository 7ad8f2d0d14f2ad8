"""Projections onto the dual cone of the gradients from the gradients themselves.

They serve runs in which some gradients depend on others up to rounding of the Gram matrix.

    d = argmin |v - J'u|   s.t.  Jv >= 0,          d = J'(u + z),  z >= 0

JJ' knows an angle between gradients down to 1e-8 only, and weights that make up for such an angle are as long
as its reciprocal: their sum J'(u + z) is lost in rounding. Here the rows are taken apart into J' = QR, and d
is J'u without its part in the span of the active gradients, so that nothing cancels: it is the answer of a J
that differs in its last digits. Run by run, in NumPy: such runs are rare.

The active set is that of Lawson and Hanson 1974, chapter 23 (NNLS).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import Array
from mobench.solvers.solution import TOLERANCE

SLOPE = 1e-14  # slopes of unit rows below this are rounding of 0
ROUNDINGS = 32  # rows are dependent if one is nearer to the span of others than so many of their dtype
MOST = 1e-4  # and never from further away
TURNS = 5  # more turns than so many times M mean that rounding goes in a circle


class Nearest(NamedTuple):
    """m projections of one run: weights u + z (m, M), directions d (m, P), and the largest residual.

    residual: of unit gradients, with lengths relative to sum |g_j| |u_j|, the largest of the slopes below
        -`zero` (what dependent gradients may have), of <d, d - J'u>, and of |d - J'(u + z)| as a share of its
        terms, which is by how much J would have to differ.
    """

    x: Float[Tensor, "m M"]
    d: Float[Tensor, "m P"]
    residual: float

    @property
    def failed(self) -> bool:
        """True if the residual is above `TOLERANCE`."""
        return not self.residual <= TOLERANCE


def nearest(J: Float[Tensor, "M P"], u: Float[Tensor, "m M"], zero: float | None = None) -> Nearest:
    """Projects J'u_1, ..., J'u_m onto {v: Jv >= 0}; in float64 whatever the dtype of J.

    zero: distance of a unit gradient from the span of others up to which it depends on them; None: what
        rounding to the dtype of J may have made.
    """
    if zero is None:
        zero = min(ROUNDINGS * torch.finfo(J.dtype).eps, MOST)
    J = J.detach().double()
    top = J.abs().amax(1, keepdim=True)
    length = torch.linalg.vector_norm(J / torch.where(top > 0, top, 1.0), dim=1, keepdim=True)
    unit = torch.where(top > 0, J / top / length, 0.0)
    Q, R = torch.linalg.qr(unit.mT)
    A = R.cpu().numpy()
    long = (top * length)[:, 0].cpu().numpy()
    coefficients = u.detach().double().cpu().numpy() * long
    scale = abs(coefficients).sum(1)
    coefficients = coefficients / np.where(scale > 0, scale, 1.0)[:, None]
    projections = [_projected(A, A @ v, zero) for v in coefficients]
    z = np.stack([part[0] for part in projections])
    y = np.stack([part[1] for part in projections])
    d = torch.from_numpy(y).to(J) @ Q.mT
    with np.errstate(all="ignore"):
        x = np.where(long > 0, (coefficients + z) * scale[:, None] / long, u.cpu().numpy())
    slopes = (d @ unit.mT).cpu().numpy()
    off = np.linalg.norm(y - (coefficients + z) @ A.T, axis=1) / (1.0 + z.sum(1))
    tilt = abs((y * (y - coefficients @ A.T)).sum(1))
    rise = np.where(slopes < -zero, -slopes, 0.0).max(1)
    residual = float(np.max([rise, off, tilt]))
    return Nearest(torch.from_numpy(x).to(J), d * torch.from_numpy(scale)[:, None].to(J), residual)


def _projected(A: Array, v: Array, zero: float) -> tuple[Array, Array]:
    """z >= 0 and y = v + A z nearest to 0, of columns of length 1 or 0."""
    M = A.shape[1]
    z = np.zeros(M)
    y = v
    active: list[int] = []
    barred: set[int] = set()  # they depend on the active ones
    for _ in range(TURNS * M):
        slopes = A.T @ y
        slopes[active + sorted(barred)] = 0.0
        j = int(slopes.argmin())
        if not slopes[j] < -SLOPE:
            break
        entered = _entered(A, v, z, [*active, j], zero)
        if entered is None:
            barred.add(j)
            continue
        active, z, y = entered
        barred.clear()
    return z, y


def _entered(
    A: Array, v: Array, z: Array, active: list[int], zero: float
) -> tuple[list[int], Array, Array] | None:
    """The minimum over the active rows, the last of which is new, without those that it takes below 0.

    None if rounding cannot tell the new row from the others.
    """
    new = active[-1]
    while active:
        Q, R = np.linalg.qr(A[:, active])
        if len(active) > len(R) or not (abs(np.diagonal(R)) > zero).all():
            return None
        trial = -np.linalg.solve(R, Q.T @ v)
        if (trial > 0).all():
            z = np.zeros_like(z)
            z[active] = trial
            y = v - Q @ (Q.T @ v)
            return active, z, y - Q @ (Q.T @ y)  # twice: rounding leaves a part in the span the first time
        if new in active and not trial[active.index(new)] > 0:
            return None
        now = z[active]
        shares = np.where(trial > 0, 1.0, now / np.where(trial > 0, 1.0, now - trial))
        now = now + shares.min() * (trial - now)
        now[shares.argmin()] = 0.0
        z = np.zeros_like(z)
        z[active] = now
        active = [j for j in active if z[j] > 0 or j == new]
    return None
