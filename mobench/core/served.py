"""Passes functions, modules and data of a user's program to the jobs that run in it, by a name.

A configuration cannot hold them. It holds the name, a hash of what they compute (`mobench.jobs.fingerprint`).
They are found under it while `serving` is open: in this process, during a run. Of a problem that a command
names (`mobench.core.named`) they are made again in any process.
"""

from __future__ import annotations

import contextlib
import inspect
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from mobench.core import named
from mobench.errors import ConfigError

AGAIN = {
    "problem.code": "problem=mobench.objectives(...)), or mobench.run(problem=mobench.networks(...)",
    "record.code": "measures={...}",
}
# what `serving` serves, in the thread that opened it
_SERVED: ContextVar[Mapping[str, Any]] = ContextVar("served", default=MappingProxyType({}))


def served(code: str, key: str = "problem.code", made_by: str | None = None) -> Any:
    """Returns what is served under a name.

    Args:
        key: of the configuration that holds the name, for the message.
        made_by: what makes it, `file.py:make`.

    Raises:
        ConfigError: nothing is; the program that defined it has ended.
    """
    if code not in _SERVED.get():
        if made_by is not None:
            return named.functions_of(made_by, code)
        raise ConfigError(
            f"{key}={code}: these functions exist only in the Python program that defined them; rerun it "
            f"there with mobench.run({AGAIN[key]})."
        )
    return _SERVED.get()[code]


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
    found = []
    for fn in functions:
        try:
            found.append(inspect.getsource(fn))
        except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # of a file that was edited since
            found.append(f"{fn!r} (no source text)")
    return found
