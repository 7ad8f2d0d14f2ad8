"""Classes that a configuration names by `_target_`: found, described by their constructors, instantiated."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import os
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.utils import get_class

from mobench.config.schema import choices
from mobench.errors import ConfigError, MobenchError
from mobench.jobs.fingerprint import is_own

TARGET = "_target_"
# keys of the configuration that decide a job's rows, and so its identity
HASHED = (
    "problem",
    "oracle",
    "algorithm",
    "preferences",
    "seeds",
    "steps",
    "dtype",
    "max_failure_share",
    "record",
)
LAYERS = ("constraint", "space")  # optional groups that wrap the oracle, in this order


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
        return _own_class(target) if target.startswith("mobench.") else get_class(target)
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{where}._target_={target!r} cannot be imported: {_why(target, error)}") from error


@functools.cache
def _own_class(target: str) -> type:
    """A class of mobench, looked up once; one of a user's own may be edited and imported again."""
    return get_class(target)


def _why(target: str, error: Exception) -> str:
    """Why a class cannot be imported; of a module that Python does not find, where Python looks."""
    top = target.partition(".")[0]
    if "." not in target or not top.isidentifier() or importlib.util.find_spec(top) is not None:
        return str(error)
    given = os.environ.get("PYTHONPATH")
    return (
        f"there is no module {top!r}. If {top}.py is your file, set the folder that contains it: export "
        f"PYTHONPATH=FOLDER ({'it is now ' + given if given else 'it is not set'}). "
        "The workers of a launcher need the same setting."
    )


def target_nodes(node: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields each node with a `_target_`, and where it stands: `problem`, `problem.model`."""
    if isinstance(node, Mapping):
        if TARGET in node:
            yield where, node
        for key, value in node.items():
            yield from target_nodes(value, f"{where}.{key}")


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
    for where, node in target_nodes(config, "config"):
        target = node[TARGET]
        known = isinstance(target, str) and (packages is None or target.startswith(packages))
        cls = load_class(target, where) if known else None
        inside = packages is None or (cls is not None and cls.__module__.startswith(packages))
        if cls is None or not issubclass(cls, bases) or not inside:
            whose = "" if packages is None else " of mobench"
            raise error(
                f"{where} names {target}, which is no problem, oracle, algorithm, constraint or "
                f"space{whose}, so the job is not run."
            )


def enabled(config: Mapping[str, Any], layer: str) -> bool:
    """Whether a layer is chosen. Raises ConfigError if keys are set for one that is not."""
    node = config.get(layer) or {}
    if TARGET in node:
        return True
    if left := {k: v for k, v in node.items() if v is not None}:
        (key, value), *_ = left.items()
        options = [name for name in choices(layer) if name != "none"]
        raise ConfigError(
            f"{layer}.{key}={value} is set, but {layer}=none. Set {layer} to one of {', '.join(options)}, "
            f"or set {layer}.{key}=null."
        )
    return False


def own_classes(config: Mapping[str, Any]) -> dict[str, type]:
    """Classes outside of mobench that a configuration names, and where: {"problem": my_parts.Ellipsoids}."""
    nodes = [
        (where, str(node[TARGET]))
        for group in ("problem", "oracle", "algorithm", *LAYERS)
        for where, node in target_nodes(config.get(group), group)
    ]
    found = {where: load_class(target, where) for where, target in nodes if not target.startswith("mobench.")}
    return {where: cls for where, cls in found.items() if is_own(cls)}


def instantiate(config: Mapping[str, Any], where: str, **extra: Any) -> Any:
    """Instantiate a `_target_` node and those inside it, all with `extra`;
    a constructor's errors become ConfigError.
    """
    node = dict(config)
    cls = load_class(str(node.pop(TARGET)), where)
    args = {
        k: instantiate(v, f"{where}.{k}", **extra) if isinstance(v, Mapping) and TARGET in v else v
        for k, v in node.items()
    }
    try:
        return cls(**args, **extra)
    except MobenchError:  # a CompatibilityError is a TypeError, and says what to do
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where} ({cls.__name__}) cannot be built from {args}: {error}") from error
