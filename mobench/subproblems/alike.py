"""The combination of unit gradients with equal projections onto all of them:  b = C^+ 1,  C their cosines."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch

from mobench.core.arrays import Array, integers, tensor
from mobench.kernels.compiled import kernels
from mobench.subproblems.blocks import same
from mobench.subproblems.qp import rows
from mobench.subproblems.spectrum import RANK, spectrum

SURE = 1e4
"""Frobenius norm of the inverse of C up to which it is used: far from where the rank is in question. Beyond,
eigenvalues decide.
"""


NOTHING = 1e-20
"""1'C^+ 1 = |U^+ 1|^2, U the unit gradients, below this is what rounding leaves of 0: no direction has equal
projections onto all of them.
"""


class Alike(NamedTuple):
    """b (R, M), 0 of gradients of length 0; length (R, M) of the gradients; cosines C (R, M, M), rows of
    which are 0 where the gradient is; residual (R,): the largest |(C b)_m - 1| where C has full rank, else
    that of its eigenvectors; NaN where G is not finite.
    """

    b: Array
    length: Array
    cosines: Array
    residual: Array


def alike(xp: ModuleType, G: Array) -> Alike:
    """Solves for b, by the least-squares solution of smallest norm where the gradients are dependent."""
    M = G.shape[1]
    kernel = kernels("alike", tensor(G)) if M > 2 else None
    if kernel is not None:
        parts = kernel.alike(rows(tensor(G)), SURE)
        b, length, C, residual, hard = (same(xp, torch.from_numpy(part)) for part in parts)
        _decide(xp, hard, C, b, residual, length > 0)
        return Alike(b, length, C, residual)
    probe = G.sum((1, 2))
    poison = probe - probe  # 0, or NaN
    square = xp.diagonal(G, 0, 1, 2)
    there = square > 0
    length = xp.where(there, square, 0.0) ** 0.5
    inverse = xp.where(there, 1.0 / xp.where(there, length, 1.0), 0.0)
    C = G * inverse[:, :, None] * inverse[:, None, :]
    one = xp.where(there, 0.0 * square + 1.0, 0.0)
    if M == 2:
        up = 1.0 + C[:, 0, 1]  # the eigenvalue of (1, 1); the other one is 2 - up
        kept = up > RANK * xp.maximum(up, 2.0 - up)
        both = there[:, 0] & there[:, 1]
        value = xp.where(kept & both, 1.0 / xp.where(kept, up, 1.0), 0.0)
        b = xp.where(both[:, None], value[:, None], 1.0) * one
        residual = xp.where(kept & both, abs(up * value - 1.0), 0.0)
        return Alike(b + poison[:, None], length, C, residual + poison)
    full = C
    if not there.all():
        i = integers(G, M)
        full = 1.0 * C
        full[:, i, i] += 1.0 - one
    solved = same(xp, torch.linalg.inv_ex(tensor(full))[0])  # NumPy's raises where one matrix is singular
    b = (solved * one[:, None, :]).sum(2)
    residual = xp.amax(abs((full * b[:, None, :]).sum(2) - one), 1)
    hard = ~((solved * solved).sum((1, 2)) <= SURE * SURE) & (poison == 0)
    _decide(xp, hard, C, b, residual, there)
    return Alike(b + poison[:, None], length, C, residual + poison)


def _decide(xp: ModuleType, hard: Array, C: Array, b: Array, residual: Array, there: Array) -> None:
    """Fills in b and the residual of hard runs: eigenvalues decide the rank of their cosines."""
    if hard.any():
        found = spectrum(tensor(C[hard]))
        one = tensor(xp.where(there[hard], 1.0, 0.0), torch.float64)
        b[hard] = same(xp, found.apply(1.0 / found.values, one))
        residual[hard] = same(xp, found.residual)
