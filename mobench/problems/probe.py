"""Checks of what a user gives to `mobench.objectives` and `mobench.networks`, and of what it returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from mobench.errors import ConfigError


@contextlib.contextmanager
def trying(what: str, advice: str, kind: type[ConfigError] = ConfigError) -> Iterator[None]:
    """Whatever a user's function raises inside of the block is an error of the configuration.

    Args:
        what: a sentence without its end, such as "Objective 1 fails at the start".
        advice: what it was called with, or what to do.
        kind: class of the error; a ConfigError that is raised inside stays as it is.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}\n{advice}".rstrip()) from error


def check_functions(what: str, argument: Any, takes: str = "x") -> tuple[Callable[..., Any], ...]:
    """Returns the functions that an argument holds, one or a list of them.

    Raises:
        ConfigError: it holds something else.
    """
    functions = tuple(argument) if isinstance(argument, tuple | list) else (argument,)
    for fn in functions:
        if not callable(fn):
            raise ConfigError(
                f"{what} contains {fn!r}; it must be a function of {takes} or a list of such functions."
            )
    return functions


def check_entries(M: int, **points: Sequence[float | int] | None) -> None:
    """Raises ConfigError unless each point that is given has an entry for each of M objectives."""
    for key, value in points.items():
        if value is not None and len(value) != M:
            raise ConfigError(f"problem.{key}={list(value)} must have {M} entries, one per objective.")


def check_unchanged(versions: Sequence[int], tensors: Sequence[Tensor]) -> None:
    """Raises ConfigError if a function has written into tensors since they had these versions."""
    if [t._version for t in tensors] != list(versions):
        raise ConfigError(
            "A function writes into the data (an operation in place, such as relu_). Copy first."
        )
