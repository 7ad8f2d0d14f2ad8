"""Passes functions, modules and data of a user's program to the jobs that run in it, by a name.

A configuration cannot hold them. It holds the name, a hash of what they compute (`mobench.jobs.fingerprint`),
under which `served` returns them while `serving` is open: in this process, during a run. Those of a problem
that a command names by a function (`mobench.config.named`) stay as long as the process lives.
"""

from __future__ import annotations

import contextlib
import inspect
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from mobench.errors import ConfigError

AGAIN = {
    "problem.code": "mobench.run(problem=mobench.objectives(...)), or "
    "mobench.run(problem=mobench.networks(...)), or repeat the command that named problem=FILE.py:FUNCTION",
    "record.code": "mobench.run(measures={...})",
}
# objects that `serving` serves, in the thread that opened it
_SERVED: ContextVar[Mapping[str, Any]] = ContextVar("served", default=MappingProxyType({}))
_KEPT: dict[str, Any] = {}  # in all threads


def keep(code: str, functions: Any) -> None:
    """Lets jobs with this `code` find their functions until the process ends."""
    _KEPT[code] = functions


def served(code: str, key: str = "problem.code") -> Any:
    """Returns the object that is served under a name.

    Args:
        key: of the configuration that holds the name, for the message.

    Raises:
        ConfigError: there is none; the program that defined it has ended.
    """
    by_code = {**_KEPT, **_SERVED.get()}
    if code not in by_code:
        raise ConfigError(
            f"{key}={code}: these functions exist only in the Python program that defined them; rerun it "
            f"there with {AGAIN[key]}."
        )
    return by_code[code]


@contextlib.contextmanager
def serving(code: str, functions: Any) -> Iterator[None]:
    """Let jobs with this `code` find their functions, until the end of the block."""
    token = _SERVED.set({**_SERVED.get(), code: functions})
    try:
        yield
    finally:
        _SERVED.reset(token)


def source(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """Text of each function, as far as Python can find it; for a reader of the rows."""
    texts = []
    for fn in functions:
        try:
            texts.append(inspect.getsource(fn))
        except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # of a file that was edited since
            texts.append(f"{fn!r} (no source text)")
    return texts
