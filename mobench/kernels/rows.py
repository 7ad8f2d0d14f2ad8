"""Gram matrices of float32 rows on a CPU, and sums of such rows that cancel, by kernels for Numba."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.kernels.compiled import on_cpu

# fewer numbers than these, or shorter rows, are not worth a kernel
NUMBERS = 1 << 15
COLUMNS = 256


def gram(J: Float[Tensor, "R k P"]) -> Float[Tensor, "R k k"] | None:
    """Returns J J^T in float64; None where array operations are the better choice."""
    if J.numel() < NUMBERS or J.shape[2] < COLUMNS or J.dtype != torch.float32 or J.stride(2) != 1:
        return None
    kernel = on_cpu("kernels.gramian", J)
    if kernel is None:
        return None
    R, M, P = J.shape
    run, row, _ = J.stride()
    flat = J.detach().as_strided(((R - 1) * run + (M - 1) * row + P,), (1,))
    out = J.new_empty(R, M, M, dtype=torch.float64)
    kernel.gram(flat.numpy(), run, row, P, out.numpy())
    return out


def cancelled(w: Float[Tensor, "R k"], G: Float[Tensor, "R k k"], share: float) -> list[int] | None:
    """Returns the runs in which |J^T w| is less than the length of its terms over `share`.

    None where array operations are the only choice.
    """
    kernel = on_cpu("kernels.gramian", G)
    if kernel is None:
        return None
    weights = np.ascontiguousarray(w.detach().numpy())
    runs: list[int] = kernel.cancelled(weights, np.ascontiguousarray(G.detach().numpy()), share).tolist()
    return runs
