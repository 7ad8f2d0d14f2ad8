"""Max-pooling of 2 x 2 windows with ReLU, and its adjoint: in one sweep each by a kernel that Numba compiles,
else by array operations, sweeps over consecutive numbers. Both give the same numbers to the bit.

A map (rows, channels, 2, columns, pictures) holds even and odd columns apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.kernels.compiled import kernels

NUMBERS = (3.0, 2.0, 1.0, 0.0)  # of the corners, row by row


def corners(x: Float[Tensor, "h C 2 v n"]) -> list[Float[Tensor, "g C v n"]]:
    """The four entries of each 2 x 2 window, row by row."""
    return [x[i::2, :, j] for i in (0, 1) for j in (0, 1)]


def maxima(z: Sequence[Tensor], at: Tensor | None = None) -> Tensor:
    """The largest corner of each window. at: its number (the first of equal ones, as PyTorch's max-pooling),
    for `marked`; then z is used up.
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


def alive(g: Tensor, h: Tensor, out: Tensor | None = None) -> Tensor:
    """g where the ReLU h is above 0, else 0."""
    found: Tensor = (
        torch.ops.aten.threshold_backward(g, h, 0)
        if out is None
        else torch.ops.aten.threshold_backward(g, h, 0, grad_input=out)
    )
    return found


def pooled(
    z: Float[Tensor, "h C 2 v n"],
    bias: Float[Tensor, "C 1 1"],
    out: Float[Tensor, "g C v n"],
    at: Float[Tensor, "g C v n"] | None = None,
) -> None:
    """out: ReLU of the maxima of windows plus the bias. at: see `maxima`. z may be used up."""
    kernel = kernels("windows", z)
    if kernel is None:
        torch.add(maxima(corners(z), at), bias, out=out).relu_()
        return
    zs = z.stride()
    os = out.stride()
    places = out if at is None else at
    assert zs[-1] == os[-1] == 1
    assert places.stride() == os
    assert bias.is_contiguous()
    G, C, V, n = out.shape
    if zs[3] == os[2] == n:  # columns follow each other
        n *= V
        V = 1
    kernel.pool(
        memory(z), zs[:4], memory(bias), memory(out), memory(places), os[:3], (G, C, V, n), at is not None
    )


def spread(
    d: Float[Tensor, "g S C v n"],
    at: Float[Tensor, "g C v n"],
    out: Float[Tensor, "h S C 2 v n"],
    h: Float[Tensor, "g C v n"] | None = None,
) -> None:
    """The adjoint of the pooling along S slopes: each entry of d at the maximum of its window, 0 elsewhere.
    h: the adjoint of the ReLU before it; d is 0 then where h is.
    """
    kernel = kernels("windows", d)
    if kernel is None:
        if h is not None:
            alive(d, h.unsqueeze(1).expand(d.shape), out=d)
        marks = at.new_empty(2 * len(at), at.shape[1], 2, *at.shape[2:])
        marked(at, corners(marks))
        torch.mul(
            marks.unflatten(0, (-1, 2)).unsqueeze(2),
            d.unsqueeze(1).unsqueeze(4),
            out=out.unflatten(0, (-1, 2)),
        )
        return
    ds = d.stride()
    hs = at.stride()
    os = out.stride()
    reached = at if h is None else h
    assert ds[-1] == hs[-1] == os[-1] == 1
    assert reached.stride() == hs
    G, S, C, V, n = d.shape
    if ds[3] == hs[2] == os[4] == n:
        n *= V
        V = 1
    kernel.spread(
        memory(d), ds[:4], memory(reached), memory(at), hs[:3], memory(out), os[:5], (G, S, C, V, n),
        h is not None,
    )  # fmt: skip


def memory(x: Tensor) -> Any:
    """The numbers from the first of x to its last, as an array."""
    if x.is_contiguous():
        return x.view(-1).numpy()
    last = sum((n - 1) * apart for n, apart in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((last + 1,), (1,)).numpy()
