"""Files of JSON and YAML, and the form of their nodes: whatever is wrong is one sentence with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mobench.errors import ConfigError, MobenchError, StoreError

SHOWN = 60  # characters of a wrong node in a message
Kinds = type | tuple[type, ...]


def read_json(path: Path) -> Any:
    """Returns what a file of JSON holds.

    Raises:
        FileNotFoundError: there is no such file.
        StoreError: it cannot be read, or is not JSON that Python can read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except RecursionError as error:
        raise StoreError(f"{path} cannot be read: it nests too deeply.") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def fields(
    where: str, node: Any, kinds: Mapping[str, Kinds], error: type[MobenchError] = StoreError
) -> dict[str, Any]:
    """Returns a node that is a mapping and has these fields, each of one of its kinds (an int is a float).

    Raises:
        MobenchError: it is another node; the message has `where`, the node and what was expected.
    """
    if not isinstance(node, dict):
        raise error(f"{where} is {shown(node)}; expected a mapping with {', '.join(kinds) or 'names'}.")
    for name, kind in kinds.items():
        allowed = kind if isinstance(kind, tuple) else (kind,)
        accepted = (*allowed, int) if float in allowed else allowed
        value = node.get(name)
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in allowed):
            words = " or ".join("null" if each is type(None) else each.__name__ for each in allowed)
            fault = f"is {shown(value)}" if name in node else "is missing"
            raise error(f"{where}: {name} {fault}; expected {words}.")
    return node


def mapping(where: str, node: Any) -> dict[str, Any]:
    """Returns a node of a configuration that is a mapping with names as keys; an empty one for null.

    Raises:
        ConfigError: it is none.
    """
    if node is None:
        return {}
    if not isinstance(node, Mapping) or not all(isinstance(key, str) for key in node):
        raise ConfigError(f"{where}={shown(node)} must be a mapping whose keys are names.")
    return dict(node)


def texts(where: str, node: Any) -> list[str]:
    """Returns a node of a configuration that is a list of texts.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(node, list | tuple) or not all(isinstance(entry, str) for entry in node):
        raise ConfigError(f"{where}={shown(node)} must be a list of texts, such as [algorithm=ls, steps=10].")
    return list(node)


def shown(node: Any) -> str:
    """Returns a node as messages show it, cut where it is long."""
    try:
        text = repr(node)
    except RecursionError:
        return "a node that nests too deeply"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
