"""Gram matrices J J^T of float32 rows with the accuracy of float64, without a copy of all rows in float64.

A product of two float32 numbers is exact in float64, so that only sums are rounded. Rows are converted block
by block, in the cache, and each block adds to its matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import arrays

# bytes of a block in float64: half of a core's cache, beyond which the product waits for memory
BLOCK = 1 << 20
# the same on a GPU, where a block has to be worth its launch
DEVICE_BLOCK = 1 << 26
# on a GPU: into how many parts rows are cut, and how long they are at least
PARTS = 64
LONG = 1 << 12
# share of the length of a sum from which on the rounding of its terms counts
SEEN = 1e-3

Kernel = Callable[[Tensor], Tensor | None]
Screen = Callable[[Tensor, Tensor, float], list[int] | None]

_kernels: list[Kernel] = []
_screens: list[Screen] = []


def use(kernel: Kernel, screen: Screen) -> None:
    """Registers compiled code: `kernel` for Gram matrices of float32 rows, `screen` for `cancelled`.

    Either returns None for what array operations should compute. The core imports no compiled code: the
    package of oracles registers it.
    """
    if kernel not in _kernels:
        _kernels.append(kernel)
        _screens.append(screen)


def gram(J: Float[Tensor, "R k P"]) -> Float[Tensor, "R k k"]:
    """Returns J J^T of each run in float64: rounded to float32 it would not be positive semidefinite.

    Memory beside J: the matrices, and of float32 rows one block of at most `BLOCK` bytes in float64
    (`DEVICE_BLOCK` on a GPU; at least one column) or, of a compiled kernel, 2 KiB a row.
    """
    if J.dtype == torch.float64:
        return torch.bmm(J, J.mT)
    for kernel in _kernels:
        G = kernel(J)
        if G is not None:
            return G
    return blocked(J)


def _symmetric(G: Float[Tensor, "R k k"]) -> Float[Tensor, "R k k"]:
    """Returns the matrix with this lower triangle: some libraries round the two triangles apart."""
    return G.tril().add_(G.tril(-1).mT)


def _product(J: Float[Tensor, "R k P"]) -> Float[Tensor, "R k k"]:
    """Returns J J^T, on a GPU as a sum over parts of the columns.

    A product of a few long rows would occupy a few of its many processors.
    """
    R, _, P = J.shape
    if J.device.type == "cpu" or P < LONG:
        return torch.bmm(J, J.mT)
    cut = P // PARTS * PARTS
    head = J[..., :cut].unflatten(2, (PARTS, -1)).transpose(1, 2).flatten(0, 1)
    rest = J[..., cut:]
    out = torch.bmm(head, head.mT).unflatten(0, (R, PARTS)).sum(1)
    return out.baddbmm_(rest, rest.mT)


def blocked(J: Float[Tensor, "R k P"]) -> Float[Tensor, "R k k"]:
    """Returns J J^T in float64, symmetric: some runs at a time, or some columns of one run."""
    R, M, P = J.shape
    room = (BLOCK if J.device.type == "cpu" else DEVICE_BLOCK) // 8
    runs = room // max(1, M * P)
    if runs >= R:
        return _symmetric(_product(J.double()))
    out = J.new_zeros(R, M, M, dtype=torch.float64)
    width = P if runs > 0 else max(1, room // M)
    memory = J.new_empty(max(1, runs) * M * width, dtype=torch.float64)
    for some, result in zip(J.split(max(1, runs)), out.split(max(1, runs)), strict=True):
        for part in some.split(width, dim=2):
            block = memory[: part.numel()].view(part.shape).copy_(part)
            result.baddbmm_(block, block.mT)
    return _symmetric(out)


def cancelled(w: Float[Tensor, "R k"], G: Float[Tensor, "R k k"], eps: float) -> list[int]:
    """Runs in which rounding of the terms of J^T w by `eps` is more than `SEEN` of its length.

    On a GPU the host waits once.
    """
    for screen in _screens:
        some = screen(w, G, SEEN / eps)
        if some is not None:
            return some
    xp, (w_, G_) = arrays(w, G)
    square = (w_ * (G_ @ w_[:, :, None])[:, :, 0]).sum(1)
    terms = (abs(w_) * abs(xp.diagonal(G_, 0, 1, 2)) ** 0.5).sum(1)
    runs = xp.where(square * (SEEN / eps) ** 2 < terms * terms, 1, 0).nonzero()
    return [int(r) for r in (runs[0] if isinstance(runs, tuple) else runs[:, 0])]


def combination(J: Float[Tensor, "k P"], w: Float[Tensor, " k"]) -> Float[Tensor, " P"]:
    """Returns J^T w, added up in float64, block by block, and rounded once."""
    out = J.new_empty(J.shape[1])
    width = max(1, (BLOCK if J.device.type == "cpu" else DEVICE_BLOCK) // 8 // len(J))
    for part, some in zip(J.split(width, dim=1), out.split(width), strict=True):
        some.copy_(part.double().mT.mv(w.double()))
    return out
