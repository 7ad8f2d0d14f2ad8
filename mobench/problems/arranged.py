"""Decision variables as a dictionary of tensors, for functions that name their parts.

x (P,)  <->  {"a": (2, 3), "b": {"c": (), "d": (4,)}},   parts in the order of the dictionary
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.random import generator
from mobench.errors import ConfigError
from mobench.models.stacked import Tree, leaves, mapped
from mobench.problems.probe import trying


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Names and shapes of the parts of x.

    Attributes:
        like: a dictionary of tensors, tuples, lists or further dictionaries of them; only shapes count.
    """

    like: Tree

    @staticmethod
    def of(start: Mapping[str, Any]) -> Arrangement:
        """Returns the arrangement of a start, whose tensors may be arrays and numbers too.

        Raises:
            ConfigError: the start holds something else, or nothing.
        """
        arrangement = Arrangement(_tensors(start, "start"))
        if not leaves(arrangement.like):
            raise ConfigError(f"start={start!r} holds no tensor; give one for each part of x.")
        return arrangement

    @functools.cached_property
    def shapes(self) -> Tree:
        """The shape of each part, as lists."""
        return mapped(lambda t: list(t.shape), self.like)

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each part."""
        return [t.numel() for t in leaves(self.like)]

    @property
    def dim(self) -> int:
        """P."""
        return sum(self.sizes)

    def vector(self, what: str, tree: Tree, spread: bool = False) -> Float[Tensor, " P"]:
        """x, float64, of parts that are arranged in this way.

        Args:
            what: what a message calls them.
            spread: whether a part may be one number for all of its entries, and infinite, as bounds are.

        Raises:
            ConfigError: the parts are not arranged in this way.
        """
        return torch.cat(_parts(self.like, tree, what, spread))

    def parts(self, x: Float[Tensor, " P"]) -> Tree:
        """Views of x."""
        pieces = iter(x.split(self.sizes))
        return mapped(lambda t: next(pieces).view(t.shape), self.like)

    def taking(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of parts (and further arguments) as a function of x."""

        @functools.wraps(fn)
        def of_vector(x: Tensor, *rest: Any) -> Any:
            return fn(self.parts(x), *rest)

        return of_vector


def variables(
    start: Any, bounds: Any, dim: int | None, name: str
) -> tuple[dict[str, Any], Callable[..., Any] | None, Arrangement | None]:
    """Returns what start, bounds and dim of `mobench.objectives` are as keys of the problem.

    The others are the function that draws a start, and the arrangement of x if functions take parts of it.

    Raises:
        ConfigError: a start that is not finite, or of another kind; no dim.
    """
    drawn = start(generator(0, problem=name, use="start")) if callable(start) else start
    several = isinstance(drawn, list | tuple) and drawn and all(isinstance(s, Mapping) for s in drawn)
    each = drawn if several else (drawn,)
    arrangement = None
    if isinstance(each[0], Mapping) and not isinstance(each[0].get("kind"), str):
        arrangement = Arrangement.of(each[0])
        if dim not in (None, arrangement.dim):
            raise ConfigError(f"dim={dim}, but start has {arrangement.dim} entries; leave dim out.")
        dim = arrangement.dim
        if not callable(start):
            start = torch.stack([arrangement.vector("start", s) for s in each]).squeeze(0)
    if bounds is not None and hasattr(bounds, "__len__"):
        bounds = [_limit(arrangement, bound) for bound in bounds]
    kind, entries = _start(start, bounds)
    dim = entries if dim is None else dim
    if dim is None:
        raise ConfigError("objectives(...) needs dim= (the number of variables) or a start= vector.")
    keys = {"bounds": bounds, "start": kind, "variables": dim}
    return keys, start if callable(start) else None, arrangement


def _limit(arrangement: Arrangement | None, bound: Any) -> Any:
    """A bound of all entries, with None in place of infinite numbers, as a configuration has it."""
    if arrangement is not None and isinstance(bound, Mapping):
        bound = arrangement.vector("bounds", bound, spread=True)
    if hasattr(bound, "tolist"):
        bound = bound.tolist()
    if isinstance(bound, list | tuple):
        return [_limit(None, b) for b in bound]
    return None if isinstance(bound, float) and math.isinf(bound) else bound


def _start(start: Any, bounds: Any) -> tuple[dict[str, Any], int | None]:
    """Returns `problem.start`, and the number of its entries if it is known."""
    if start is None:
        # bounds that are not two are refused when the problem is made
        two = hasattr(bounds, "__len__") and len(bounds) == 2
        low, high = bounds if two else (-1.0, 1.0)
        if any(b is None or hasattr(b, "__len__") for b in (low, high)):
            return {"kind": "in_bounds"}, None
        return {"kind": "uniform", "low": low, "high": high}, None
    if isinstance(start, Mapping):
        return dict(start), None
    if callable(start):
        return {"kind": "sampler"}, None
    with trying(f"start={start!r} is not a vector, a function of a generator or a mapping", ""):
        vector = torch.as_tensor(start, dtype=torch.float64)
    one_each = vector.ndim == 2 and len(vector) > 1
    if not (vector.ndim == 1 or one_each) or not bool(torch.isfinite(vector).all()):
        raise ConfigError(
            f"start has shape {tuple(vector.shape)}; give a finite vector of shape (P,), or one for each "
            "preference, or a function or a mapping."
        )
    return {"kind": "given", "value": vector.tolist()}, vector.shape[-1]


def _tensors(tree: Any, where: str) -> Tree:
    """The same tree with tensors in place of arrays and numbers."""
    if isinstance(tree, Mapping):
        return {key: _tensors(value, f"{where}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, list | tuple) and not all(isinstance(value, int | float) for value in tree):
        parts = [_tensors(value, f"{where}[{i}]") for i, value in enumerate(tree)]
        if hasattr(tree, "_fields"):
            return type(tree)(*parts)
        return parts if isinstance(tree, list) else tuple(parts)
    return _number(tree, where)


def _number(value: Any, where: str, finite: bool = True) -> Tensor:
    with trying(f"{where} is {type(value).__name__}; expected a tensor, an array or a number", ""):
        tensor = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    if finite and not bool(tensor.isfinite().all()):
        raise ConfigError(f"{where} is not finite.")
    return tensor


def _parts(like: Tree, tree: Any, where: str, spread: bool) -> list[Tensor]:
    """The entries of each part, in the order of `like`."""
    if isinstance(like, Tensor):
        part = _number(tree, where, finite=not spread)
        if spread and part.ndim == 0:
            part = part.expand(like.shape)
        if part.shape != like.shape:
            raise ConfigError(f"{where} has the shape {tuple(part.shape)}; expected {tuple(like.shape)}.")
        return [part.reshape(-1)]
    if isinstance(like, Mapping):
        if not isinstance(tree, Mapping) or tree.keys() != like.keys():
            has = ", ".join(map(str, tree)) if isinstance(tree, Mapping) else type(tree).__name__
            raise ConfigError(f"{where} has {has}; expected the keys {', '.join(map(str, like))}.")
        return [part for key in like for part in _parts(like[key], tree[key], f"{where}[{key!r}]", spread)]
    if not isinstance(tree, list | tuple) or len(tree) != len(like):
        raise ConfigError(f"{where} must be a sequence of {len(like)} parts.")
    pairs = enumerate(zip(like, tree, strict=True))
    return [part for i, (a, b) in pairs for part in _parts(a, b, f"{where}[{i}]", spread)]
