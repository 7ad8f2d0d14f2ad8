"""A user's problems, which a command names by the functions that make them.

    problem=file.py:make
    problem=package.module:make

Each process that composes such a job calls the function, so it can be swept, sent to workers and resumed. It
is the job of `mobench.run(problem=make())`: identified by what the problem's functions compute, and by no
name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from mobench.core.served import keep
from mobench.errors import ConfigError, MobenchError, suggest


@runtime_checkable
class OwnProblem(Protocol):
    """A problem that `mobench.objectives` or `mobench.networks` has made."""

    functions: Any

    def code(self) -> str: ...

    def overrides(self, code: str, keys: Collection[str]) -> list[str]: ...


def overrides(choice: str, keys: Collection[str]) -> list[str]:
    """Returns the overrides that choose the problem which a function makes.

    The problem's functions stay in memory for the jobs of this process.

    Args:
        choice: `file.py:make` or `package.module:make`.
        keys: those that the user sets.

    Raises:
        ConfigError: there is no such function, it fails, or its problem cannot be identified.
    """
    place, _, name = (choice, "", "") if choice.endswith(".py") else choice.rpartition(":")
    stamp = None
    if place.endswith(".py"):
        path = Path(place).expanduser().resolve()
        if not path.is_file():
            near = suggest(path.name, sorted(file.name for file in path.parent.glob("*.py")))
            raise ConfigError(f"problem={choice}: there is no file {path}.{near}")
        place = str(path)
        stamp = path.stat().st_mtime_ns, path.stat().st_size  # a file that has changed is read again
    problem, code = _made(choice, place, name, stamp)
    keep(code, problem.functions)
    return problem.overrides(code, keys)


@functools.cache
def _made(choice: str, place: str, name: str, _stamp: tuple[int, int] | None) -> tuple[OwnProblem, str]:
    """Returns what the function makes, with the hash of what it computes."""
    with _explained(f"problem={choice} cannot be imported"):
        module = _imported(place)
    if not callable(getattr(module, name, None)):
        functions = [key for key, value in vars(module).items() if _defined(module, value)]
        raise ConfigError(
            f"problem={choice}: {place} has no function {name!r}; write problem={place}:FUNCTION. Its "
            f"functions are {', '.join(functions) or 'none'}.{suggest(name, functions)}"
        )
    with _explained(f"problem={choice} is called without arguments and fails"):
        problem = getattr(module, name)()
    if not isinstance(problem, OwnProblem):
        raise ConfigError(
            f"problem={choice} returns a value of type {type(problem).__name__}; expected what "
            "mobench.objectives(...) or mobench.networks(...) returns. A class is chosen by a YAML file "
            "(docs/plugins.md)."
        )
    with _explained(f"problem={choice} has no hash, so a job could not find its rows; use mobench.run"):
        return problem, problem.code()


def _defined(module: ModuleType, value: object) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _imported(place: str) -> ModuleType:
    """Imports a file, or a module by its name; it may import files beside it, as a program may."""
    path = Path(place)
    folder = str(path.parent if path.suffix == ".py" else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if path.suffix != ".py":
        return importlib.import_module(place)
    linecache.checkcache(place)  # the text of an older state
    # the name of no library, whose functions would be identified by their names
    module = ModuleType(f"own_{hashlib.sha256(place.encode()).hexdigest()}")
    module.__file__ = place
    sys.modules[module.__name__] = module
    # no bytecode on disk, whose age is compared with the text's in whole seconds
    code = compile(path.read_bytes(), place, "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102  the user's own file
    return module


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raises the error of a user's code as a ConfigError, with the file and line in that code."""
    try:
        yield
    except MobenchError as error:
        raise ConfigError(f"{what}: {error}") from error
    except Exception as error:  # whatever a user's code raises is an error of the configuration
        steps = [step for step in traceback.extract_tb(error.__traceback__) if _is_of_user(step.filename)]
        where = f" ({steps[-1].filename}, line {steps[-1].lineno})" if steps else ""
        raise ConfigError(f"{what}: {type(error).__name__}: {error}{where}") from error


def _is_of_user(file: str) -> bool:
    return file != __file__ and not any(part in file for part in ("<", "importlib", "site-packages"))
