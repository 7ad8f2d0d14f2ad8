"""Decision variables as a dictionary of tensors, for functions that name their parts.

x (P,)  <->  {"a": (2, 3), "b": {"c": (), "d": (4,)}},   parts in the order of the dictionary
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError
from mobench.models.stacked import Tree, leaves, mapped


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
    try:
        tensor = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{where} is {type(value).__name__}; expected a tensor, an array or a number: {error}"
        ) from error
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
