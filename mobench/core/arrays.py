"""NumPy for small problems on the CPU, PyTorch for the rest: one source, two array libraries.

A NumPy operation on a hundred numbers costs a third of a PyTorch one, and these solvers are long chains of
small operations. They call only operations that both libraries know under one name (operators, fancy
indexing, `where`, `minimum`, `amin`, ...), so there is one formula, not two, and the results agree to
rounding.
"""

from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any  # numpy.ndarray or Tensor

SMALL = 4096  # elements of the first array up to which NumPy is faster


def arrays(*tensors: Tensor | None) -> tuple[ModuleType, list[Array]]:
    """The library to use and the inputs in it, as float64 without copying what is float64 already.

    NumPy if the first tensor is on the CPU and has at most `SMALL` elements. None stays None.
    """
    first = tensors[0]
    assert first is not None
    if first.numel() <= SMALL and first.device.type == "cpu":
        return np, [None if t is None else t.detach().double().numpy() for t in tensors]
    return torch, [None if t is None else t.detach().double() for t in tensors]


def tensor(x: Array, dtype: torch.dtype | None = None) -> Tensor:
    """Back to PyTorch, rounded to `dtype`."""
    out: Tensor = x if isinstance(x, Tensor) else torch.from_numpy(x)
    return out if dtype is None or out.dtype == dtype else out.to(dtype)


def scalar(value: float | int | Tensor, like: Tensor) -> Tensor:
    """A setting beside a tensor: one number, or one of each run. On a GPU nothing is copied from the host."""
    if isinstance(value, Tensor):
        return value.to(like)
    return torch.full((), float(value), dtype=like.dtype, device=like.device)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor of the host; to a GPU through pinned memory, so that the host does not wait for it."""
    if device.type != "cuda" or x.is_cuda:
        return x.to(device)
    if torch.cuda.is_current_stream_capturing():  # a replay would copy from memory that is gone
        raise RuntimeError("a copy from the host")
    return x.pin_memory().to(device, non_blocking=True)


def zeros(like: Array, *shape: int) -> Array:
    return like.new_zeros(shape) if isinstance(like, Tensor) else np.zeros(shape)


def integers(like: Array, n: int) -> Array:
    """0, 1, ..., n - 1 beside `like`."""
    return torch.arange(n, device=like.device) if isinstance(like, Tensor) else np.arange(n)


def runs_last(xp: ModuleType, x: Array) -> Array:
    """(R, ...) -> (..., R), in memory as well."""
    if xp is torch:
        return x.movedim(0, -1).contiguous()
    return np.ascontiguousarray(x.transpose(*range(1, x.ndim), 0))
