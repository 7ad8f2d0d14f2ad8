"""Problems of one's own that a command names by what makes them: `problem=file.py:make`,
`problem=package.module:make`.

The function is called again in each process that needs the problem, so such jobs can be swept, sent to
workers and resumed. They are known by what the problem's functions compute, as those of `mobench.run` are,
and by no name of a file.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from mobench.errors import ConfigError, MobenchError, suggest

_NAMED = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_][\w.]*)")
UNKNOWN = "unknown-"  # how names begin of functions that cannot be hashed


class OwnProblem(ABC):
    """What `mobench.objectives` and `mobench.networks` return: functions, which no configuration can hold."""

    functions: Any

    @abstractmethod
    def hashed(self) -> str:
        """Returns the hash of what the functions compute, or a name that nothing else has."""

    @abstractmethod
    def overrides(self, code: str, given: Collection[str]) -> list[str]:
        """Returns the overrides that choose this problem.

        Args:
            code: under which jobs find its functions.
            given: keys that the user sets.
        """


@dataclass(frozen=True)
class Made:
    """A problem with the hash of what its functions compute, and where it comes from, `/home/me/file.py:make`."""

    problem: OwnProblem
    code: str
    source: str


def made(choice: str) -> Made:
    """Returns the problem that a choice names; a file is read again once it has changed.

    Raises:
        ConfigError: there is no such file, module or function, or it fails, or makes something else.
    """
    match = _NAMED.fullmatch(choice)
    if match is None or match["name"] == "py":
        path = Path(choice).expanduser()
        raise ConfigError(
            f"problem={choice} names a file; name its function, too: problem={choice}:make."
            + (f" It defines {', '.join(_names(path)) or 'none'}." if path.is_file() else "")
        )
    place, name = match["place"], match["name"]
    path = Path(place).expanduser()
    if path.suffix != ".py" and "/" not in place and "\\" not in place:
        return _made(place, name, None)
    if not path.is_file():
        near = suggest(path.name, sorted(file.name for file in path.parent.glob("*.py")))
        raise ConfigError(f"problem={choice}: there is no file {path.absolute()}.{near}")
    found = path.stat()
    return _made(str(path.resolve()), name, (found.st_mtime_ns, found.st_size))


def functions_of(source: str, code: str) -> Any:
    """Returns the functions of a job from what makes them.

    Raises:
        ConfigError: they cannot be made, or compute something else than they did when the job was planned.
    """
    found = made(source)
    if code != found.code and not code.startswith(UNKNOWN):
        raise ConfigError(
            f"{source} makes another problem now than when this job was planned; repeat the command, which "
            "plans a job of its own for what the file says now."
        )
    return found.problem.functions


@functools.lru_cache(maxsize=64)
def _made(place: str, name: str, _stamp: tuple[int, int] | None) -> Made:
    """Imports a file, or a module, and makes the problem."""
    choice = f"problem={place}:{name}"
    module = _module(choice, place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = [key for key, one in vars(module).items() if _is_own(module, one) or isinstance(one, OwnProblem)]
            listed = f" It has {', '.join(known)}." if known else " It defines none."
            raise ConfigError(f"{choice}: {place} has no function {name!r}.{listed}{suggest(name, known)}")
        value = getattr(value, part)
    if not isinstance(value, OwnProblem):
        value = _called(choice, value)
    return Made(value, value.hashed(), f"{place}:{name}")


def _is_own(module: ModuleType, value: object) -> bool:
    """Tells whether a function is of the module itself."""
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _called(choice: str, function: Any) -> OwnProblem:
    """Returns what a function makes. Raises ConfigError if it is no problem."""
    expected = "what mobench.objectives(...) or mobench.networks(...) returns"
    if not callable(function):
        raise ConfigError(f"{choice} is of type {type(function).__name__}; expected a function of {expected}.")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigError(
            f"{choice} is called without arguments, but {error}. Give its parameters defaults, or write a function "
            "for each problem."
        ) from error
    except ValueError:  # a builtin without a signature
        pass
    try:
        found = function()
    except MobenchError as error:
        raise ConfigError(f"{choice}: {error}") from error
    except Exception as error:  # whatever a user's function raises is an error of the configuration
        raise ConfigError(f"{choice} fails: {_raised(error)}") from error
    if not isinstance(found, OwnProblem):
        raise ConfigError(
            f"{choice} returns a value of type {type(found).__name__}; expected {expected}. A class of "
            "problems is chosen by a YAML file (docs/plugins.md)."
        )
    return found


def _module(choice: str, place: str) -> ModuleType:
    """Imports a module by its name, or a file, whose folder is then searched for its neighbours as Python does."""
    path = Path(place)
    try:
        if path.suffix != ".py":
            _search(Path.cwd(), first=False)
            return importlib.import_module(place)
        _search(path.parent, first=True)
        # no name of a library, whose functions would be known by their names
        name = f"mobench_own_{path.stem}_{hashlib.sha256(place.encode()).hexdigest()[:8]}".replace(".", "_")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        linecache.checkcache(place)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    except ModuleNotFoundError as error:
        if path.suffix == ".py" or error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ConfigError(f"{choice} cannot be imported: {_raised(error)}") from error
        raise ConfigError(
            f"{choice}: there is no module {error.name!r} in {Path.cwd()} or on PYTHONPATH. A file is named "
            "with its ending: problem=FOLDER/FILE.py:FUNCTION."
        ) from error
    except Exception as error:  # whatever a user's file raises is an error of the configuration
        raise ConfigError(f"{choice} cannot be imported: {_raised(error)}") from error


def _search(folder: Path, first: bool) -> None:
    """Lets Python find the modules of a folder."""
    if str(folder) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(folder))


def _raised(error: BaseException) -> str:
    """Returns an error with the place in the user's code that it comes from."""
    steps = traceback.extract_tb(error.__traceback__)
    own = [step for step in steps if "importlib" not in step.filename and step.filename != __file__]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own and not isinstance(error, SyntaxError) else ""
    return f"{type(error).__name__}: {error}{where}"


def _names(path: Path) -> list[str]:
    """Returns the names of the functions at the top of a file, which is not run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
