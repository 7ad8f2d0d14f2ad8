"""mobench: gradient-based multi-objective optimization, compared.

In a shell `mobench --help`; in Python `mobench.run`, `mobench.load` and `mobench.objectives`.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mobench.api import Run, load, objectives, run

# torch reads it at its first large allocation: activations on huge pages, else page faults are a third of a step
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

try:
    __version__ = version("mobench")
except PackageNotFoundError:  # imported from a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["Run", "load", "objectives", "run"]


def __getattr__(name: str) -> Any:
    """The Python interface, imported when it is asked for: it needs torch, for which `mobench --help` need not wait."""
    if name in __all__:
        from mobench import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
