"""The check of a configuration before anything is built from it.

Two layers check a configuration before the first step. The dataclass `Root` refuses unknown keys at the top
level and in the plain groups. What a `_target_` builds is checked here against the constructor's own
parameters, recursively, with suggestions; so a misspelt key is an error wherever it is written: command line,
YAML file, experiment, plug-in.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

from mobench.config.schema import choices
from mobench.errors import ConfigError, choose, suggest
from mobench.jobs.targets import (
    HASHED,
    LAYERS,
    TARGET,
    enabled,
    load_class,
    parameters,
    part_types,
    target_nodes,
)

NUMBERS = {"float", "int", "Real", "None"}  # names of types in annotations
# groups and keys whose numbers are part of a job's identity
NUMERIC = (*HASHED, *LAYERS, "vary")
GRAPHS = ("auto", "off")
SIGNALS = ("USR2", "USR1", "TERM")


def validate(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown key below any `_target_`, with every problem found."""
    problems = []
    for group in ("problem", "oracle", "algorithm", *LAYERS):
        node = config.get(group)
        if group in LAYERS and not enabled(config, group):
            continue
        if not isinstance(node, Mapping) or TARGET not in node:
            raise ConfigError(_without_target(group, node))
        base = part_types()[group]
        cls = load_class(str(node[TARGET]), group)
        if not issubclass(cls, base):  # before anything is built
            problems.append(f"{group}._target_ is {cls.__name__}, which is not a mobench {base.__name__}.")
        for where, inner in target_nodes(node, group):
            cls = load_class(str(inner[TARGET]), where)
            known = parameters(cls)
            problems += _no_numbers(cls, inner, where)
            for key in inner:
                if key != TARGET and key not in known:
                    problems.append(
                        f"{where}.{key} is unknown; {where} takes "
                        f"{', '.join(known) or 'no keys'}.{suggest(key, known)}"
                    )
    for key in NUMERIC:
        problems += [
            f"{where}={value} is not finite; all numbers in a configuration must be finite."
            for where, value in _endless(config.get(key), key)
        ]
    if config.get("tuned") is not None:
        problems.append(
            "Tuned files set values of other groups (# @package _global_) and must not set 'tuned' itself."
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _without_target(group: str, node: Any) -> str:
    """What to say of a group that builds nothing: its file names no class, or nothing was chosen."""
    if not node:
        return f"{group} is not set, or its file is empty; choose {group}=one of {', '.join(choices(group))}."
    found = f"only {', '.join(map(str, node))}" if isinstance(node, Mapping) else f"but is {node!r}"
    return (
        f"{group} has no _target_, {found}: its YAML file must name its class, e.g. "
        f"`_target_: my_parts.My{group.capitalize()}`, and its fields as `key: value` lines."
    )


def _endless(node: Any, where: str) -> Iterator[tuple[str, float]]:
    """Numbers that are not finite: no identity and no meta.json can hold them."""
    if isinstance(node, float) and not math.isfinite(node):
        yield where, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _endless(value, f"{where}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from _endless(value, where)


def _no_numbers(cls: type, node: Mapping[str, Any], where: str) -> list[str]:
    """Text, lists, mappings and switches where the constructor's annotation names nothing but numbers, and
    fractions where it names whole ones.
    """
    found = []
    for name, (whole, default) in _numbers(cls).items():
        value = node.get(name)
        such = f", such as {default}" if isinstance(default, int | float) else ""
        if isinstance(value, str | list | Mapping | bool):
            found.append(f"{where}.{name}={value!r} must be a number{such}.")
        elif whole and isinstance(value, float) and math.isfinite(value) and value != int(value):
            found.append(f"{where}.{name}={value} must be a whole number{such}.")
    return found


@functools.lru_cache(maxsize=256)
def _numbers(cls: type) -> dict[str, tuple[bool, Any]]:
    """A constructor's parameters whose annotation names nothing but numbers: whether those are whole ones,
    and the default.
    """
    found = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        kind = parameter.annotation
        words = (kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))).split("|")
        names = {word.strip().rpartition(".")[2] for word in words}
        if names <= NUMBERS:
            found[name] = ("int" in names and names <= {"int", "None"}, parameter.default)
    return found


def check_numbers(config: Mapping[str, Any]) -> None:
    """Raises ConfigError for a setting of the job itself that lies outside of its range."""
    if config["steps"] < 1:
        raise ConfigError(f"steps={config['steps']} must be at least 1.")
    for key in ("every", "dense", "hypervolume_seconds"):
        if not config["record"].get(key, 0) >= 0:  # older jobs lack some
            raise ConfigError(f"record.{key}={config['record'][key]} must be >= 0.")
    if not 0 <= config["max_failure_share"] <= 1:
        raise ConfigError(
            f"max_failure_share={config['max_failure_share']} must lie in [0, 1]; it is a share."
        )
    for group, key, least in (
        ("hardware", "jobs_per_device", 1),
        ("hardware", "split", 1),
        ("hardware", "retries", 0),
        ("hardware", "threads", 1),
        ("hardware", "max_batch_runs", 1),
        ("checkpoint", "seconds", 0),
    ):
        if config[group][key] is not None and not config[group][key] >= least:
            raise ConfigError(f"{group}.{key}={config[group][key]} must be at least {least}.")
    _check_parts(config["hardware"])
    choose("checkpoint.signal", config["checkpoint"]["signal"], SIGNALS)
    choose("hardware.graphs", config["hardware"]["graphs"], GRAPHS)
    device = config["hardware"]["device"]
    if config["hardware"]["tf32"] and not device.startswith("cuda"):
        raise ConfigError(
            f"hardware.tf32=true is for a GPU, but hardware.device={device}; remove it, or add hardware=gpu."
        )


def _check_parts(hardware: Mapping[str, Any]) -> None:
    """Raises ConfigError for a chunk that does not exist, or that would be cut again."""
    if hardware["split"] is not None and hardware["part"] is not None:
        raise ConfigError(
            f"hardware.split={hardware['split']} and hardware.part={hardware['part']} both cut the job; give "
            "only one of them."
        )
    part = hardware["part"]
    if part is not None and not (len(part) == 2 and 0 <= part[0] < part[1]):
        raise ConfigError(f"hardware.part={part} must be [k, n] with 0 <= k < n; hardware.split sets it.")
