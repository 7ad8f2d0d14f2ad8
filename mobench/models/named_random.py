"""Dropout of any module with numbers that have names: a run draws the same alone and in a batch, and again
when a job is resumed.

PyTorch's dropout draws from one generator of the process, in the order of the calls. Inside of `named` the
functions of `torch.nn.functional` that drop, and `torch.rand_like` and `torch.randn_like`, draw from

    u = uniform(key of the run and step, place of the call in the forward pass)      (`core.random`)

instead; with a key of each run they can be batched by torch.func.vmap. What draws in any other way moves the
generator of the process, which `moved` tells.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from mobench.core.random import keyed_uniform
from mobench.errors import ConfigError

ALPHA = -1.7580993408473766  # -scale * alpha of SELU, to which alpha dropout sets what it drops


class _Stream:
    """The numbers of one forward pass of one run, or of all runs of a batch."""

    def __init__(self, key: Int[Tensor, ""] | None, batched: bool) -> None:
        self.key = key
        self.batched = batched
        self.place = 0

    def uniform(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The next numbers in [0, 1).

        Raises:
            ConfigError: nothing may be drawn.
        """
        if self.key is None:
            raise ConfigError(
                "The module draws random numbers after eval(), or in a step though it drew none when it was "
                "tried. Give torch.nn.functional.dropout(..., training=self.training), and draw in all steps."
            )
        self.place += 1
        u = keyed_uniform(self.key, self.place, math.prod(shape)).view(shape)
        return u if like.dtype == torch.float64 else u.to(torch.float32)


_LOCK = threading.Lock()
_inside: list[None] = []  # as many as there are blocks of `named`
_plain: dict[tuple[Any, str], Callable[..., Tensor]] = {}

# of this thread: others may train networks of their own meanwhile
_stream: ContextVar[_Stream | None] = ContextVar("stream", default=None)


@contextlib.contextmanager
def keyed(key: Int[Tensor, ""] | None, batched: bool = False) -> Iterator[None]:
    """One forward pass draws under this key, in a block of `named`.

    Args:
        key: None: nothing may be drawn.
        batched: whether torch.func.vmap computes all runs, for which PyTorch's attention has no rule.
    """
    token = _stream.set(_Stream(key, batched))
    try:
        yield
    finally:
        _stream.reset(token)


@contextlib.contextmanager
def named() -> Iterator[None]:
    """Functions that draw look for the key of their forward pass. Threads may overlap: the functions are
    replaced by the first that enters, and restored by the last that leaves.
    """
    with _LOCK:
        if not _inside:
            _plain.update({(place, name): getattr(place, name) for place, name in _DRAWING})
            for (place, name), plain in _plain.items():
                setattr(place, name, _switch(plain, _DRAWING[place, name]))
        _inside.append(None)
    try:
        yield
    finally:
        with _LOCK:
            _inside.pop()
            if not _inside:
                for (place, name), plain in _plain.items():
                    setattr(place, name, plain)


def _switch(plain: Callable[..., Tensor], drawn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def draw(*args: Any, **kwargs: Any) -> Tensor:
        stream = _stream.get()
        return plain(*args, **kwargs) if stream is None else drawn(stream, *args, **kwargs)

    return draw


def _kept(stream: _Stream, x: Tensor, p: float, shape: tuple[int, ...]) -> Tensor:
    return (stream.uniform(x, shape) >= p).to(x.dtype)


def _dropped(stream: _Stream, x: Tensor, p: float, inplace: bool, shape: tuple[int, ...]) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0.0:
        return x
    factor = _kept(stream, x, p, shape) / (1.0 - p) if p < 1.0 else torch.zeros_like(x)
    return x.mul_(factor) if inplace else x * factor


def _dropout(
    stream: _Stream, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return _dropped(stream, input, p, inplace, tuple(input.shape)) if training else input


def _channels(single: int) -> Callable[..., Tensor]:
    """Dropout of whole channels; an input of `single` dimensions has no axis of samples."""

    def drop(
        stream: _Stream, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        axes = 1 if input.ndim == single else 2
        shape = (*input.shape[:axes], *[1] * (input.ndim - axes))
        return _dropped(stream, input, p, inplace, shape) if training else input

    return drop


def _alpha_dropout(
    stream: _Stream, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    if not training or p == 0.0:
        return input
    a = ((1.0 - p) * (1.0 + p * ALPHA**2)) ** -0.5
    kept = _kept(stream, input, p, tuple(input.shape))
    out = a * (input * kept + ALPHA * (1.0 - kept)) - a * ALPHA * p
    return input.copy_(out) if inplace else out


def _attention(
    stream: _Stream,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "... L E"]:
    """softmax(Q K^T / sqrt(E) + mask) V with dropout of the weights; PyTorch's own where that can do it."""
    if dropout_p == 0.0 and not stream.batched:
        return _PLAIN_ATTENTION(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(groups, -3)
        value = value.repeat_interleave(groups, -3)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        shape = scores.shape[-2:]
        attn_mask = torch.ones(shape, dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if hidden else scores + attn_mask
    weights = scores.softmax(-1)
    return (weights if dropout_p == 0.0 else _dropout(stream, weights, dropout_p)) @ value


def _rand_like(stream: _Stream, input: Tensor, **kwargs: Any) -> Tensor:
    return stream.uniform(input, tuple(input.shape)).to(kwargs.get("dtype") or input.dtype)


def _randn_like(stream: _Stream, input: Tensor, **kwargs: Any) -> Tensor:
    # away from 0, where the inverse distribution function is infinite
    u = stream.uniform(input.double(), tuple(input.shape)) + 2.0**-54
    return torch.special.ndtri(u).to(kwargs.get("dtype") or input.dtype)


_PLAIN_ATTENTION = nn.scaled_dot_product_attention
_DRAWING: dict[tuple[Any, str], Callable[..., Tensor]] = {
    (nn, "dropout"): _dropout,
    (nn, "dropout1d"): _channels(2),
    (nn, "dropout2d"): _channels(3),
    (nn, "dropout3d"): _channels(4),
    (nn, "alpha_dropout"): _alpha_dropout,
    (nn, "scaled_dot_product_attention"): _attention,
    (torch, "rand_like"): _rand_like,
    (torch, "randn_like"): _randn_like,
}


def generators() -> tuple[Any, ...]:
    """The states of the generators of this process."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state(), random.getstate(), numpy[1]


def moved(before: tuple[Any, ...]) -> bool:
    """Whether something was drawn since."""
    state, python, numpy = generators()
    same = torch.equal(state, before[0]) and python == before[1] and bool((numpy == before[2]).all())
    return not same


class _Witness(TorchFunctionMode):
    """Notes the first function that moves the generator."""

    found: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.get_rng_state()
        out = func(*args, **(kwargs or {}))
        if self.found is None and not torch.equal(before, torch.get_rng_state()):
            self.found = str(resolve_name(func) or getattr(func, "__name__", func))
        return out


def who_draws(work: Callable[[], object]) -> str:
    """The name of what draws from the generator of the process."""
    with _Witness() as witness:
        work()
    return witness.found or "Python's random or NumPy"
