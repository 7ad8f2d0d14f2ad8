"""The configuration of a job, put together from the project's own files without Hydra.

Hydra takes a tenth of a second to compose one, most of it for what our files do not use: packages,
interpolated defaults, its own node. Here the files of `conf/` are merged as plain dictionaries, in the order
of the defaults in `conf/config.yaml`:

    schema, problem, ..., logger, conf/config.yaml itself, protocol, tuned, experiment
    then the values of the command, then ${...}, then the types of the schema

Only what these files use is understood: choices of groups, `override /group: name` in a defaults list, a
file that extends another one of its group, `# @package _global_`, values `key=value` and `++key=value`, the
interpolations `${key}`, `${oc.env:...}` and `${oc.select:...}` that are a whole value, and `${at:...}`.
Whatever else a command or a file says, and whatever would be an error, is left to Hydra: `Direct.composed`
returns None. Tests compare the result with Hydra's for jobs of every experiment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mobench.config import hydra_adapter, schema

# values that Hydra's grammar reads as Python does; all others are read by Hydra's parser
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
WORD = re.compile(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
# keys of Hydra's own node in the file at the top that change nothing about a job
IDLE = {"output_subdir", "run", "sweep", "job", "help"}
LITERALS = {"null": None, "true": True, "false": False}
NO_WORD = {"null", "true", "false", "nan", "inf"}
KEY = re.compile(r"(\+\+)?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
CHOICE = re.compile(r"([a-z_]+|\+experiment)=([\w./-]+)")
SWEEP = {"mode": "MULTIRUN"}  # all that an experiment says to Hydra, which has read it when jobs are composed
REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\}")
SCALES = ("smoke", "laptop", "paper")
SIMPLE_AT = re.compile(r"\$\{at:([\w.-]+|\[[\w.,-]*\]),([\w.-]+|\[[\w.,-]*\]),([\w.-]+|\[[\w.,-]*\])\}")
AT = re.compile(r"\$\{at:[^${}]*\}")
SELECT = re.compile(r"\$\{oc\.select:([a-z_]+(?:\.\w+)*),(\$\{at:[^${}]*\})\}")
ENVIRONMENT = re.compile(r"\$\{oc\.env:(\w+)(?:,[^${}]*)?\}")

Node = dict[Any, Any]


class Unknown(Exception):
    """Something that only Hydra understands, or that is an error, which Hydra words."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file of configuration.

    Attributes:
        groups: what its defaults list chooses for other groups.
        extends: the file of its own group that it extends.
        everywhere: whether its keys are those of the whole configuration, not of its group.
    """

    keys: Node
    groups: dict[str, str]
    extends: str | None
    everywhere: bool


def composed(overrides: Sequence[str]) -> dict[str, Any] | None:
    """Returns what Hydra composes for a job of mobench's own parts, from files that a process reads once;
    None where Hydra has to be asked.
    """
    found = _of_process().composed(overrides)
    return found if found is not None and of_mobench(found) else None


@functools.cache
def _of_process() -> Direct:
    return Direct(schema.conf_dir())


class Direct:
    """Composes the jobs of one command.

    Args:
        folder: of the configuration; it is read once, and each file when it is first needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._top: tuple[list[tuple[str, str]], Node] | None = None
        self._files: dict[str, File | None] = {}
        self._merged: dict[tuple[tuple[str, str], ...], Node] = {}
        self._read: dict[str, tuple[bool, str, Any]] = {}
        self._groups: dict[str, bool] = {}

    def composed(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """Returns what Hydra composes, as `schema.plain` returns it; None where it has to be asked."""
        try:
            return self._composed(overrides)
        except (Unknown, KeyError, OSError, yaml.YAMLError, HydraException, OmegaConfBaseException):
            return None

    def _composed(self, overrides: Sequence[str]) -> dict[str, Any]:
        chosen: dict[str, str] = {}
        values: list[tuple[bool, str, Any]] = []
        for override in overrides:
            choice = CHOICE.fullmatch(override)
            if choice is not None and self._is_group(choice[1].lstrip("+")):
                chosen[choice[1]] = choice[2]
            elif self._is_group(override.partition("=")[0].lstrip("+")):
                raise Unknown  # a choice in another form, such as 'ls' in quotes
            else:
                values.append(self._value(override))
        config = copied(self._of_files(chosen))
        for added, key, value in values:
            _set(config, key.split("."), copied(value), added)
        return _typed(_resolved(config))

    # files

    def _is_group(self, name: str) -> bool:
        if name not in self._groups:
            self._groups[name] = (self.folder / name).is_dir()
        return self._groups[name]

    def _of_files(self, chosen: dict[str, str]) -> Node:
        """What all files say, before any value of the command."""
        key = tuple(sorted(chosen.items()))
        if key not in self._merged:
            self._merged[key] = self._merge(chosen)
        return self._merged[key]

    def _merge(self, chosen: dict[str, str]) -> Node:
        order, main = self._main()
        order += [(name, "") for name in chosen if name == "+experiment"]
        if set(chosen) - {name for name, _ in order}:
            raise Unknown
        found: dict[str, list[File]] = {}
        wanted = dict(chosen)
        # Hydra opens the last entry of a defaults list first: it decides what earlier ones choose
        for name, default in reversed(order):
            if name in ("schema", "_self_", "tuned"):
                continue
            found[name] = self._chain(name.lstrip("+"), wanted.get(name, default))
            wanted.setdefault(name, default)
            for file in found[name]:
                if file.groups.keys() & found.keys():
                    raise Unknown
                wanted |= {group: choice for group, choice in file.groups.items() if group not in wanted}
        tuned = f"{wanted['protocol']}/{wanted['algorithm']}"
        out = copied(defaults())
        for name, _ in order:
            if name == "_self_":
                _merge(out, main)
            elif name == "tuned" and self._file(f"tuned/{tuned}") is not None:
                _lay(out, "tuned", self._chain("tuned", tuned))
            elif name in found:
                _lay(out, name.lstrip("+"), found[name])
        return out

    def _main(self) -> tuple[list[tuple[str, str]], Node]:
        """The defaults list of the file at the top, as (group, choice), and its other keys."""
        if self._top is None:
            self._top = self._listed()
        order, main = self._top
        return list(order), main

    def _listed(self) -> tuple[list[tuple[str, str]], Node]:
        """The same, read from the file."""
        node = self._loaded("config")[0]
        if node is None or not set(node.get("hydra") or {}) <= IDLE:
            raise Unknown
        order: list[tuple[str, str]] = []
        for entry in node["defaults"]:
            ((group, choice),) = entry.items() if isinstance(entry, dict) else ((entry, ""),)
            if group == "optional tuned" and choice == "${protocol}/${algorithm}":
                order.append(("tuned", ""))
            elif not group.startswith("override hydra/"):
                order.append((group, choice))
        return order, {key: value for key, value in node.items() if key not in ("defaults", "hydra")}

    def _chain(self, group: str, name: str) -> list[File]:
        """A file of a group after those that it extends."""
        file = self._file(f"{group}/{name}")
        if file is None:
            raise Unknown
        before = [] if file.extends is None else self._chain(group, file.extends)
        return [*before, file]

    def _file(self, path: str) -> File | None:
        if path not in self._files:
            self._files[path] = self._opened(path)
        return self._files[path]

    def _opened(self, path: str) -> File | None:
        node, package = self._loaded(path)
        if node is None:
            return None
        groups: dict[str, str] = {}
        extends: list[str] = []
        listed = node.pop("defaults", [])
        for entry in listed:
            if isinstance(entry, dict) and len(entry) == 1:
                ((key, choice),) = entry.items()
                group = key.removeprefix("override /")
                if group == key or not WORD.fullmatch(str(choice)):
                    raise Unknown
                groups.setdefault(group, choice)
            elif isinstance(entry, str) and WORD.fullmatch(entry) and entry != "_self_":
                extends.append(entry)
        # a file that extends another one says so, and lies over it
        if len(extends) > 1 or (extends and listed != [extends[0], "_self_"]):
            raise Unknown
        if path.startswith("experiment/") and node.get("hydra") == SWEEP:
            del node["hydra"]
        if package not in (None, "_global_") or "hydra" in node:
            raise Unknown
        return File(node, groups, extends[0] if extends else None, package == "_global_")

    def _loaded(self, path: str) -> tuple[Node | None, str | None]:
        """The content of a file, None if there is none, and the package that it names."""
        file = self.folder / f"{path}.yaml"
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None, None
        package = None
        for line in text.splitlines():
            if not line.startswith("#"):
                break
            if "@" in line and (found := re.fullmatch(r"#\s*@package\s+(\S+)\s*", line)):
                package = found[1]
        node = hydra_adapter.yaml_of(text)
        if node is None:
            return {}, package
        if not isinstance(node, dict):
            raise Unknown
        return node, package

    # values

    def _value(self, override: str) -> tuple[bool, str, Any]:
        """Whether a value may be a new one, its key, and the value."""
        if override not in self._read:
            self._read[override] = value_of(override)
        return self._read[override]


def value_of(override: str) -> tuple[bool, str, Any]:
    """Returns what an override says: whether its key may be a new one, the key, and the value.

    Raises:
        Unknown: it does something else than to set a value.
    """
    key, equals, text = override.partition("=")
    name = KEY.fullmatch(key)
    if name is None or not equals:
        raise Unknown
    if number := NUMBER.fullmatch(text):
        return name[1] is not None, name[2], float(text) if number[2] else int(text)
    if WORD.fullmatch(text) and text.lower() not in NO_WORD:
        return name[1] is not None, name[2], text
    found: Override = hydra_adapter.parsed_value(override)
    if found.is_sweep_override() or found.package is not None:
        raise Unknown
    if found.type not in (OverrideType.CHANGE, OverrideType.FORCE_ADD):
        raise Unknown
    value = found.value()
    if not _has_names(value):
        raise Unknown
    return found.type is OverrideType.FORCE_ADD, found.key_or_group, value


def _has_names(value: Any) -> bool:
    """Returns whether all keys in a value are texts."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_names(entry) for key, entry in value.items())
    return not isinstance(value, list) or all(map(_has_names, value))


def of_mobench(config: Mapping[str, Any]) -> bool:
    """Returns whether all classes that a configuration names are mobench's own."""
    return all(isinstance(target, str) and target.startswith("mobench.") for target in _targets(config))


def _targets(node: Any) -> Iterator[Any]:
    """All classes that a configuration names."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "_target_":
                yield value
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)


def copied(node: Any) -> Any:
    """Returns a copy of nested dictionaries and lists."""
    if isinstance(node, dict):
        return {key: copied(value) for key, value in node.items()}
    if isinstance(node, list):
        return [copied(value) for value in node]
    return node


def _lay(config: Node, group: str, files: Sequence[File]) -> None:
    """Lays the files of a choice over a configuration."""
    for file in files:
        _merge(config, file.keys if file.everywhere else {group: file.keys})


def _merge(into: Node, node: Node) -> None:
    """Lays one nested dictionary over another; lists are replaced."""
    for key, value in node.items():
        before = into.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            _merge(before, value)
        elif isinstance(value, dict) and isinstance(before, str):
            raise Unknown  # it may be an interpolation, which Hydra would resolve here
        else:
            into[key] = copied(value)


def _set(config: Node, path: Sequence[str], value: Any, added: bool) -> None:
    """Sets a value below keys that exist; with `added` they need not."""
    node = config
    for i, key in enumerate(path[:-1]):
        if added and i > 0 and key not in node:
            node[key] = {}
        node = node.get(key)  # type: ignore[assignment]
        if not isinstance(node, dict):
            raise Unknown
    last = path[-1]
    if last not in node and not (added and len(path) > 1):
        raise Unknown
    # a list or a number in place of a mapping, or the reverse: Hydra says whether that may be
    if value is not None and isinstance(value, dict) != isinstance(node.get(last, value), dict):
        raise Unknown
    if isinstance(value, dict) and value and not added:  # its keys must exist
        raise Unknown
    _merge(node, {last: value})


@functools.cache
def defaults() -> Node:
    """Returns the schema with its defaults."""
    found = OmegaConf.to_container(OmegaConf.structured(schema.Root))
    assert isinstance(found, dict)
    return found


# interpolations


def _resolved(config: Node) -> Node:
    """The configuration with the values of its interpolations."""
    scale = config["scale"]["name"] if isinstance(config["scale"], dict) else None
    if not isinstance(scale, str) or "$" in scale:
        raise Unknown
    busy: list[str] = []

    def reference(key: str) -> Any:
        node: Any = config
        for name in key.split("."):
            if not isinstance(node, dict) or name not in node:
                raise KeyError(key)
            node = node[name]
        if key in busy:
            raise Unknown
        busy.append(key)
        found = copied(walk(node))
        busy.pop()
        return found

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: walk(value) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        if isinstance(node, str):
            return _text(node, scale, reference)
        return node

    found = walk(config)
    assert isinstance(found, dict)
    return found


def _text(text: str, scale: str, reference: Callable[[str], Any]) -> Any:
    """What a text stands for."""
    if "${" not in text:
        if text == "???" or "\\" in text:
            raise Unknown
        return text
    if found := REFERENCE.fullmatch(text):
        return reference(found[1])
    if "${" not in AT.sub("", text):
        return copied(_at(text, scale))
    if found := SELECT.fullmatch(text):
        try:
            chosen = reference(found[1])
        except KeyError:
            return copied(_at(found[2], scale))
        if chosen is None:
            raise Unknown
        return chosen
    if found := ENVIRONMENT.fullmatch(text):
        return _environment(text, os.environ.get(found[1]))
    raise Unknown


def _literal(text: str) -> Any:
    """A number, a switch, null, or a list of them, as OmegaConf's grammar reads it."""
    if text.startswith("["):
        return [_literal(part) for part in text[1:-1].split(",")] if text != "[]" else []
    if number := NUMBER.fullmatch(text):
        return float(text) if number[2] else int(text)
    if text in LITERALS:
        return LITERALS[text]
    raise Unknown


@functools.lru_cache(maxsize=4096)
def _at(text: str, scale: str) -> Any:
    """What a text stands for with its `${at:smoke,laptop,paper}`."""
    if (simple := SIMPLE_AT.fullmatch(text)) and scale in SCALES:
        with contextlib.suppress(Unknown):
            return _literal(simple[1 + SCALES.index(scale)])
    schema.register_resolver()
    found = OmegaConf.to_container(OmegaConf.create({"scale": {"name": scale}, "value": text}), resolve=True)
    assert isinstance(found, dict)
    return found["value"]


@functools.lru_cache(maxsize=64)
def _environment(text: str, now: str | None) -> Any:
    """What `${oc.env:NAME,default}` stands for, while the variable has a value."""
    found = OmegaConf.to_container(OmegaConf.create({"value": text}), resolve=True)
    assert isinstance(found, dict)
    return found["value"]


# types


def _typed(config: Node) -> dict[str, Any]:
    """The configuration, if each value has the type that the schema gives to it."""
    return dict(_checked(config, schema.Root))


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _checked(value: Any, kind: Any) -> Any:
    """A value of a type. Raises Unknown for any other, which Hydra converts or refuses."""
    if kind is Any or type(value) is kind:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        types = _types(kind)
        if list(value) != list(types):
            raise Unknown
        return {key: _checked(value[key], types[key]) for key in types}
    arguments = get_args(kind)
    if type(None) in arguments and len(arguments) == 2:
        return None if value is None else _checked(value, arguments[0])
    if kind is float and type(value) is int:
        return float(value)
    if get_origin(kind) is list and type(value) is list:
        return [_checked(entry, arguments[0]) for entry in value]
    if get_origin(kind) is dict and type(value) is dict and all(type(key) is str for key in value):
        return value
    raise Unknown
