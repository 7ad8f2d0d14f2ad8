"""mobench: gradient-based multi-objective optimization, compared.

In a shell `mobench --help`; in Python `mobench.run`, `mobench.load`, `mobench.runs`, `mobench.objectives` and
`mobench.networks`, for the rows of many jobs `mobench.rows`, `mobench.table`, `mobench.plot` and
`mobench.choose`, in a training loop of your own `mobench.solve`, `mobench.Balanced` and `mobench.record`,
and with Flower `mobench.flower`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from mobench.api import Run, load, networks, objectives, run
    from mobench.study.choice import choose
    from mobench.study.pictures import plot
    from mobench.study.recording import record
    from mobench.study.rows import rows, runs
    from mobench.study.summary import table
    from mobench.training import Balanced, solve

__all__ = [
    "Balanced",
    "Run",
    "choose",
    "load",
    "networks",
    "objectives",
    "plot",
    "record",
    "rows",
    "run",
    "runs",
    "solve",
    "table",
]
_MODULES = {
    "Balanced": "mobench.training",
    "solve": "mobench.training",
    "choose": "mobench.study.choice",
    "plot": "mobench.study.pictures",
    "record": "mobench.study.recording",
    "rows": "mobench.study.rows",
    "runs": "mobench.study.rows",
    "table": "mobench.study.summary",
}  # the others are in mobench.api


def _version() -> str:
    """Returns the version of the installed package, on demand: this takes longer than all else here."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mobench")
    except PackageNotFoundError:  # imported from a checkout that was never installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    """Returns a name of the Python interface, imported on first use, since torch takes seconds to import."""
    if name == "__version__":
        return _version()
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_MODULES.get(name, "mobench.api")), name)
    if name == "flower":  # a package of its own, which needs Flower
        from importlib import import_module

        return import_module("mobench.flower")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
