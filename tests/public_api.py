"""The public names as lines of text:  python -m tests.public_api [--update]

docs/public.txt holds these lines; docs/stability.md says what they promise, and lists the modules.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

from mobench.bundle import archive, build
from mobench.cli import bundle, flags
from mobench.config.schema import Root, choices

REPOSITORY = Path(__file__).resolve().parent.parent
SNAPSHOT = REPOSITORY / "docs" / "public.txt"
STABILITY = REPOSITORY / "docs" / "stability.md"
UPDATE = "python -m tests.public_api --update"
GROUPS = ("problem", "algorithm", "oracle", "constraint", "space", "data", "hardware", "scale", "logger")


def modules() -> list[str]:
    """Public modules, as docs/stability.md lists them."""
    section = STABILITY.read_text().partition("## Public modules")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(mobench[\w.]*)` \|", section, re.MULTILINE)


def public(module: Any) -> list[str]:
    """Names of a module: `__all__`, else the classes and functions that it defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    members = {n: v for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__}
    return sorted(name for name in members if not name.startswith("_"))


def signature(function: Callable[..., Any]) -> str:
    """Names, kinds and defaults of the parameters; types may become wider without notice."""
    try:
        parsed = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parsed.parameters.values()]
    text = str(parsed.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    text = re.sub(r"<[^<>]* object at 0x\w+>|<factory>", "<default>", text)
    # a set is printed in another order in each process
    return re.sub(
        r"frozenset\(\{([^{}]*)\}\)", lambda m: f"frozenset({{{', '.join(sorted(m[1].split(', ')))}}})", text
    )


def members(name: str, cls: type) -> Iterator[str]:
    """Methods, properties and fields of a class that mobench defines."""
    if issubclass(cls, BaseException):
        bases = ", ".join(base.__name__ for base in cls.__bases__)
        yield f"{name}({bases})"
        return
    yield f"{name}{signature(cls)}"
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for key in sorted(
        {n for base in cls.__mro__ if base.__module__.startswith("mobench") for n in vars(base)}
    ):
        value = inspect.getattr_static(cls, key)
        if key.startswith("_") or (key in fields and not callable(value)):
            continue
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if inspect.isfunction(value):
            yield f"{name}.{key}{signature(value)}"
        elif isinstance(value, property) or not isinstance(value, Enum | type):
            yield f"{name}.{key}"


def imported(name: str) -> ModuleType:
    """The module; what the packages that it imports say of each other's age is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)


def python() -> Iterator[str]:
    """Names of the public modules."""
    for name in modules():
        module = imported(name)
        for key in public(module):
            value = getattr(module, key)
            if isinstance(value, type):
                yield from members(f"{name}.{key}", value)
            elif callable(value):
                yield f"{name}.{key}{signature(value)}"
            else:
                yield f"{name}.{key}"


def keys(cls: type, prefix: str = "") -> Iterator[str]:
    """Keys of the configuration."""
    for field in dataclasses.fields(cls):
        yield f"{prefix}{field.name}"
        inner = field.default_factory
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from keys(inner, f"{prefix}{field.name}.")


def command_line() -> Iterator[str]:
    """Commands with their flags."""
    for name, short, valued in flags.KNOWN:
        yield f"mobench {name}{f' ({short})' if short else ''}{' VALUE' if valued else ''}"
    for name, parser in bundle.parsers().items():
        for action in parser._actions:
            yield f"mobench {name} {'|'.join(action.option_strings) or action.metavar}"


def lines() -> list[str]:
    """Everything that is public."""
    sections = {
        "Python": list(python()),
        "command line": list(command_line()),
        "keys of the configuration": list(keys(Root)),
        "choices": [f"{group}={name}" for group in GROUPS for name in choices(group)],
        "artifacts": [f"+experiment={name}" for name in choices("experiment")],
        "formats": [f"claims.json {build.FORMAT}", f"manifest.json {archive.FORMAT}"],
    }
    out: list[str] = []
    for title, entries in sections.items():
        out += [f"# {title}", *entries, ""]
    return out[:-1]


def difference() -> str:
    """The differences from the snapshot, as a diff; empty if there are none."""
    snapshot = SNAPSHOT.read_text().splitlines() if SNAPSHOT.exists() else []
    return "\n".join(difflib.unified_diff(snapshot, lines(), "docs/public.txt", "the code", lineterm="", n=0))


def removed() -> list[str]:
    """Lines of the snapshot that are public no more: a new name breaks nobody's program."""
    now = set(lines())
    return [line for line in SNAPSHOT.read_text().splitlines() if line not in now]


def main() -> int:
    """Prints the difference, or writes the snapshot anew; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.public_api", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write docs/public.txt anew")
    changes = difference()
    if changes:
        print(changes)
    if not parser.parse_args().update:
        return int(bool(changes))
    SNAPSHOT.write_text("\n".join(lines()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
