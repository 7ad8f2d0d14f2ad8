"""Named randomness: every random number is a pure function of (seed, named axes, stream, step).

Nothing is stored in a checkpoint, and a run draws the same numbers alone and inside a batch.
Starts use NumPy's Philox, one generator a run; batch indices inside the loop use a counter generator
(splitmix64, Steele et al. 2014) on int64 tensors, all runs at once.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.arrays import SMALL, Array, integers, tensor


def seed_for(base: int, **axes: object) -> int:
    """A 63-bit seed that changes only with `base` and the named axes."""
    key = "|".join(f"{k}={axes[k]}" for k in sorted(axes))
    return int.from_bytes(sha256(f"{base}|{key}".encode()).digest()[:8], "big") >> 1


def generator(base: int, **axes: object) -> np.random.Generator:
    """NumPy generator keyed by name; for starts and data, not for the loop."""
    return np.random.Generator(np.random.Philox(key=seed_for(base, **axes)))


def _signed(u: int) -> int:
    """The int64 with the bits of the unsigned number u."""
    return u - (1 << 64) if u >= 1 << 63 else u


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)


def _shift(x: Array, k: int) -> Array:
    """Logical right shift of int64."""
    return (x >> k) & ((1 << (64 - k)) - 1)


def _splitmix(x: Array) -> Array:
    x = x + _GAMMA
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def _bits(keys: Int[Tensor, " R"], stream: str, t: int, n: int) -> Float[Tensor, "R n"]:
    """53 random bits for each number, as whole numbers."""
    # a chain of small operations: NumPy's cost less
    few = keys.device.type == "cpu" and len(keys) * n <= SMALL
    keys_: Array = keys.numpy() if few else keys
    salt = _signed(seed_for(t, stream=stream))
    bits = _shift(_splitmix(_splitmix(keys_ ^ salt)[:, None] + integers(keys_, n) * _GAMMA), 11)
    return tensor(bits).to(torch.float64)


def salted(keys: Int[Tensor, " R"], number: int, use: str) -> Int[Tensor, " R"]:
    """Keys of the runs for one purpose and number."""
    return keys ^ _signed(seed_for(number, use=use))


def counter_uniform(keys: Int[Tensor, " R"], stream: str, t: int, n: int) -> Float[Tensor, "R n"]:
    """n uniform numbers in [0, 1) for each run: a function of (key, stream, t) alone."""
    return _bits(keys, stream, t, n) * 2.0**-53


def counter_normal(keys: Int[Tensor, " R"], stream: str, t: int, n: int) -> Float[Tensor, "R n"]:
    """n standard normal numbers for each run: a function of (key, stream, t) alone.

    Inverse distribution function.
    """
    return torch.special.ndtri((_bits(keys, stream, t, n) + 0.5) * 2.0**-53)


def counter_indices(keys: Int[Tensor, " R"], stream: str, t: int, n: int, high: int) -> Int[Tensor, "R n"]:
    """n indices in [0, high) for each run, drawn with replacement."""
    return (counter_uniform(keys, stream, t, n) * high).to(torch.int64).clamp_max(high - 1)
