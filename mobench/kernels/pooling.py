"""Maxima of 2 x 2 windows whose four corners are tensors of one shape: sweeps over consecutive numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NUMBERS = (3.0, 2.0, 1.0, 0.0)  # of the corners, row by row


def maxima(z: Sequence[Tensor], at: Tensor | None = None) -> Tensor:
    """The largest corner of each window.

    at: its number (the first of equal ones, as PyTorch's max-pooling), for `marked`; then z is used up.
    """
    a, b, c, d = z
    upper = torch.maximum(a, b)
    lower = torch.maximum(c, d)
    most = torch.maximum(upper, lower)
    if at is not None:
        torch.lerp(c.ge_(d), a.ge_(b).add_(2.0), upper.ge_(lower), out=at)  # weights 0 and 1: exact
    return most


def marked(at: Tensor, out: Sequence[Tensor]) -> None:
    """out: for each corner 1 where it is the maximum of its window, 0 elsewhere."""
    for corner, number in zip(out, NUMBERS, strict=True):
        torch.eq(at, number, out=corner)
