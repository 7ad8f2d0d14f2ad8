"""Parts of a configuration: the classes that it names by `_target_`, with their arguments."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hydra.utils import get_class

from mobench.errors import ConfigError, MobenchError, suggest

TARGET = "_target_"
LAYERS = ("constraint", "space")  # optional groups that wrap the oracle, in this order
NUMBERS = {"float", "int", "Real", "None"}  # names of types in annotations


@functools.lru_cache(maxsize=256)
def parameters(cls: type) -> list[str]:
    """Names of a constructor's configurable parameters."""
    if dataclasses.is_dataclass(cls):
        return [f.name for f in dataclasses.fields(cls) if f.init]
    names = list(inspect.signature(cls).parameters)
    return [n for n in names if n not in ("oracle", "problem", "runs", "args", "kwargs")]


def load_class(target: str, where: str) -> type:
    """The class behind a `_target_`; a wrong path is one clear message."""
    try:
        return get_class(target)
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        if "non-class" in str(error):  # Hydra's word for what it has imported and does not take
            raise ConfigError(
                f"{where}._target_={target!r} was imported but is no class, as a configuration needs. "
                "A problem that a function makes by mobench.networks(...) or mobench.objectives(...) is "
                "problem=FILE.py:FUNCTION (or MODULE:FUNCTION) on the command line, and "
                "mobench.run(problem=FUNCTION(), ...) in Python (docs/networks.md)."
            ) from error
        raise ConfigError(f"{where}._target_={target!r} cannot be imported: {_why(target, error)}") from error


def _why(target: str, error: Exception) -> str:
    """Why a class cannot be imported; of a module that Python does not find, where Python looks."""
    top = target.partition(".")[0]
    if "." not in target or not top.isidentifier() or importlib.util.find_spec(top) is not None:
        return str(error)
    path = os.environ.get("PYTHONPATH")
    return (
        f"there is no module {top!r}. If {top}.py is your file, set the folder that contains it: export "
        f"PYTHONPATH=FOLDER ({'it is now ' + path if path else 'it is not set'}). "
        "The workers of a launcher need the same setting."
    )


@dataclass(frozen=True)
class Part:
    """A class that a configuration names, with its arguments.

    Attributes:
        where: its place: `problem`, `problem.model`.
        target: the import path of the class.
        arguments: by name; other parts may stand in them.
    """

    where: str
    target: str
    arguments: dict[str, Any]

    @functools.cached_property
    def cls(self) -> type:
        """The class, imported when it is first asked for."""
        return load_class(self.target, self.where)

    def parts(self) -> list[Part]:
        """Returns this part and all that stand in its arguments, this one first."""
        parts: list[Part] = []
        folded(self, lambda part, _: parts.append(part))
        return parts[::-1]

    def build(self, **extra: Any) -> Any:
        """Builds the object, and those in its arguments, all with `extra`.

        Raises:
            ConfigError: a constructor refuses its arguments.
        """
        return folded(self, lambda part, arguments: part._made(arguments, extra))

    def _made(self, arguments: dict[str, Any], extra: dict[str, Any]) -> Any:
        try:
            return self.cls(**arguments, **extra)
        except MobenchError:  # a CompatibilityError is a TypeError, and says what to do
            raise
        except (TypeError, ValueError) as error:
            message = f"{self.where} ({self.cls.__name__}) cannot be built from {arguments}: {error}"
            raise ConfigError(message) from error

    def faults(self) -> list[str]:
        """Returns what the constructor would not take: unknown names; text, lists, mappings and switches
        where the annotation names nothing but numbers, and fractions where it names whole ones.
        """
        known = parameters(self.cls)
        unknown = [
            f"{self.where}.{key} is unknown; {self.where} takes "
            f"{', '.join(known) or 'no keys'}.{suggest(key, known)}"
            for key in self.arguments
            if key not in known
        ]
        wrong = []
        for name, (whole, default) in _numbers(self.cls).items():
            value = self.arguments.get(name)
            such = f", such as {default}" if isinstance(default, int | float) else ""
            if isinstance(value, str | list | Mapping | bool):
                hint = getattr(self.cls, "hints", {}).get(name, "")
                wrong.append(f"{self.where}.{name}={value!r} must be a number{such}.{hint}")
            elif whole and isinstance(value, float) and math.isfinite(value) and value != int(value):
                wrong.append(f"{self.where}.{name}={value} must be a whole number{such}.")
        return wrong + unknown


def read(value: Any, where: str, infinite: list[str] | None = None) -> Any:
    """Returns a value of a configuration with a Part in place of each node that names a class.

    Args:
        where: its place.
        infinite: gets a message for each number that is not finite, which no identity and no meta.json can
            hold.
    """
    if isinstance(value, Mapping):
        inner = {key: read(v, f"{where}.{key}", infinite) for key, v in value.items() if key != TARGET}
        return Part(where, str(value[TARGET]), inner) if TARGET in value else inner
    if isinstance(value, list):
        return [read(v, where, infinite) for v in value]
    if infinite is not None and isinstance(value, float) and not math.isfinite(value):
        infinite.append(f"{where}={value} is not finite; all numbers in a configuration must be finite.")
    return value


def folded(value: Any, make: Callable[[Part, dict[str, Any]], Any]) -> Any:
    """Returns a value with what `make` makes of each part and its arguments, inner parts first."""
    if isinstance(value, Part):
        return make(value, folded(value.arguments, make))
    if isinstance(value, dict):
        return {key: folded(v, make) for key, v in value.items()}
    return [folded(v, make) for v in value] if isinstance(value, list) else value


def instantiate(node: Mapping[str, Any], where: str, **extra: Any) -> Any:
    """Builds what a node with a `_target_` names; see `Part.build`."""
    return read(node, where).build(**extra)


@functools.lru_cache(maxsize=256)
def _numbers(cls: type) -> dict[str, tuple[bool, Any]]:
    """Returns the parameters whose annotation names nothing but numbers: whether those are whole ones, and
    the default.
    """
    numbers = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        kind = parameter.annotation
        words = (kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))).split("|")
        names = {word.strip().rpartition(".")[2] for word in words}
        if names <= NUMBERS:
            numbers[name] = ("int" in names and names <= {"int", "None"}, parameter.default)
    return numbers


def part_types() -> dict[str, type]:
    """Returns the base class of each group whose files name a class."""
    from mobench.core.algorithm import Algorithm  # torch, which whoever looks at a folder need not import
    from mobench.core.oracle import Oracle
    from mobench.core.problem import Problem

    return {"problem": Problem, "oracle": Oracle, "algorithm": Algorithm, **dict.fromkeys(LAYERS, Oracle)}


def check_parts(
    config: Mapping[str, Any],
    packages: tuple[str, ...] | None = None,
    error: type[MobenchError] = ConfigError,
) -> None:
    """Refuses a configuration that comes from a file and names anything but parts of a job; nothing is built.

    A path such as mobench.module.subprocess.Popen begins with mobench, but its class is another package's.

    Args:
        config: of a job.
        packages: where its classes must be defined; None: wherever Python finds them. Their modules are
            imported, so a folder of somebody else's should be read with `packages`.
        error: what is raised.

    Raises:
        MobenchError: a class, nested ones included, is no problem, oracle, algorithm, constraint or space.
    """
    bases = tuple(part_types().values())
    for part in Part("config", "", read(config, "config")).parts()[1:]:
        known = packages is None or part.target.startswith(packages)
        cls = part.cls if known else None
        inside = packages is None or (cls is not None and cls.__module__.startswith(packages))
        if cls is None or not issubclass(cls, bases) or not inside:
            whose = "" if packages is None else " of mobench"
            raise error(
                f"{part.where} names {part.target}, which is no problem, oracle, algorithm, constraint or "
                f"space{whose}, so the job is not run."
            )
