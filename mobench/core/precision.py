"""The precision of a network's products: fp32, or factors rounded to bf16 with sums in fp32.

    fp32   C = A B
    bf16   C = bf16(A) bf16(B),  each product of two such numbers exact in fp32, sums and C in fp32

A network takes its products of activations and weights (matrix products and convolutions, forward and
backward) from here, and nothing else does: parameters, biases, reductions, softmax, losses, Gram matrices,
subproblems and certificates know no bf16. Three ways compute the same numbers up to the order of sums:

    unit       a CPU's matrix unit, by oneDNN, which rounds the factors itself
    rounded    factors rounded here, fp32 products: on any machine, slower than fp32
    cuda       bf16 tensors; matrix products give fp32, cuDNN's convolutions give bf16, which is rounded again

What bf16 costs in accuracy: a product is off by 2^-9 of its factors, a gradient by less than one per cent as
long as no ReLU and no window of a max-pooling switches. Some do (in a LeNet up to .4 per cent of the
entries), each with all of its slope, so that the gradient below them is off by 2 to 10 per cent: about as
much as the fp32 gradient changes if all parameters move by 2^-9. Neither sums nor stored activations are the
cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as nn
from torch import Tensor

Way = Literal["fp32", "unit", "rounded", "cuda"]

# one for all threads, not one of each: on a GPU, autograd goes backward in threads of its own
_ways: list[Way] = ["fp32"]


@contextmanager
def products(way: Way) -> Iterator[None]:
    """Computes the products of networks in this way inside of the block."""
    _ways.append(way)
    try:
        yield
    finally:
        _ways.pop()


@contextmanager
def _unit() -> Iterator[None]:
    """Lets oneDNN round the factors of fp32 products to bf16."""
    backend: Any = torch.backends.mkldnn  # its stubs name no parts
    kinds = (backend.matmul, backend.conv)
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "bf16"
        yield
    finally:
        for kind, old in zip(kinds, before, strict=True):
            kind.fp32_precision = old


def rounded(x: Tensor) -> Tensor:
    """Returns x with 8 significant bits, in its own dtype."""
    return x.to(torch.bfloat16).to(x.dtype)


def _computed(a: Tensor, b: Tensor, way: Way) -> Tensor:
    """a b, of matrices or of batches of them; nothing is recorded for derivatives."""
    product = torch.mm if a.ndim == 2 else torch.bmm
    if way == "cuda":
        return product(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32)
    if way == "rounded":
        return product(rounded(a), rounded(b))
    with _unit():
        return product(a, b)


class _Product(torch.autograd.Function):
    """a b, whose derivatives are such products too."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, way: Way) -> Tensor:
        return _computed(a, b, way)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, b, ctx.way = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        first, second, _ = ctx.needs_input_grad
        return (
            _Product.apply(g, b.mT, ctx.way) if first else None,
            _Product.apply(a.mT, g, ctx.way) if second else None,
            None,
        )


class _Convolution(torch.autograd.Function):
    """The convolution of x with W, in two dimensions; second derivatives are fp32 products of what was
    rounded.
    """

    @staticmethod
    def forward(x: Tensor, W: Tensor, stride: int, padding: int, groups: int, way: Way) -> Tensor:
        a = _factor(x, way)
        b = _factor(W, way)
        if way == "unit":
            with _unit():
                return nn.conv2d(a, b, None, stride, padding, 1, groups)
        return nn.conv2d(a, b, None, stride, padding, 1, groups).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, W, *ctx.settings, ctx.way = inputs
        ctx.save_for_backward(x, W)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        stride, padding, groups = ctx.settings
        factors = [_factor(t, ctx.way) for t in (g, *ctx.saved_tensors)]
        wanted = [*ctx.needs_input_grad[:2], False]
        sizes = (None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, wanted)
        backward = torch.ops.aten.convolution_backward
        if ctx.way == "unit":
            with _unit():
                found = backward(*factors, *sizes)
        else:
            found = backward(*factors, *sizes)
        first, second = (None if part is None else part.to(g.dtype) for part in found[:2])
        return first, second, None, None, None, None


def _factor(x: Tensor, way: Way) -> Tensor:
    """What a convolution is given."""
    if way == "cuda":
        return x.bfloat16()
    return rounded(x) if way == "rounded" else x


def mm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns a b of two matrices. out: where it is written."""
    if _ways[-1] == "fp32":
        return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
    return _written(a, b, out)


def bmm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns a b of two batches of matrices. out: where it is written."""
    if _ways[-1] == "fp32":
        return torch.bmm(a, b) if out is None else torch.bmm(a, b, out=out)
    return _written(a, b, out)


def _written(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    found: Tensor = _Product.apply(a, b, _ways[-1])
    return found if out is None else out.copy_(found)


def baddbmm(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Returns c + a b of batches of matrices."""
    way = _ways[-1]
    if way == "fp32":
        return torch.baddbmm(c, a, b)
    found: Tensor = _Product.apply(a, b, way)
    return c + found


def add_product(c: Tensor, a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
    """Adds alpha a b to c in place; nothing is recorded for derivatives."""
    way = _ways[-1]
    add = c.addmm_ if c.ndim == 2 else c.baddbmm_
    if way == "fp32":
        return add(a, b, alpha=alpha)
    if way == "unit":
        with _unit():
            return add(a, b, alpha=alpha)
    return c.add_(_computed(a, b, way), alpha=alpha)


def conv2d(
    x: Tensor, W: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, groups: int = 1
) -> Tensor:
    """Returns the convolution of x with W plus the bias."""
    way = _ways[-1]
    if way == "fp32":
        return nn.conv2d(x, W, bias, stride, padding, 1, groups)
    found: Tensor = _Convolution.apply(x, W, stride, padding, groups, way)
    return found if bias is None else found + bias.view(-1, 1, 1)


class Measured(NamedTuple):
    """How a CPU computes a product with bf16 factors, of (rows, inner, columns).

    Attributes:
        rounds: whether oneDNN rounds the factors, as a matrix unit needs them; else it computes in fp32.
        gain: seconds of the fp32 product over those of that one.
        tensors: the same of bf16 tensors.
    """

    shape: tuple[int, int, int]
    rounds: bool
    gain: float
    tensors: float


LEAST = 1.1  # gain that counts as one: less is noise


@cache
def measured(shape: tuple[int, int, int], threads: int) -> Measured:
    """Returns what this machine does with a product of that shape; measured once, in about .1 s."""
    m, k, n = shape
    given = torch.Generator().manual_seed(0)
    a = torch.randn(m, k, generator=given)
    b = torch.randn(k, n, generator=given)
    halves = (a.bfloat16(), b.bfloat16())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        exact = rounded(a) @ rounded(b)
        rounds = bool((_computed(a, b, "unit") - exact).norm() < 2**-12 * exact.norm())
        calls: list[Callable[[], Tensor]] = [
            lambda: torch.mm(a, b),
            lambda: _computed(a, b, "unit"),
            lambda: torch.mm(*halves),
        ]
        plain, unit, tensors = _least(calls)
    finally:
        torch.set_num_threads(before)
    return Measured(shape, rounds, plain / unit, plain / tensors)


def _least(calls: list[Callable[[], Tensor]], repeats: int = 9) -> list[float]:
    """Seconds of CPU of each, the least of some turns: other processes can only add to it."""
    least = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            tick = time.process_time()
            call()
            least[i] = min(least[i], time.process_time() - tick)
    return least
