"""Names of problems and algorithms as they are written on the command line.

A job's folder and identity know classes. Several names may stand for one class with other settings, such as
`omd_tch` and `ada_omd_tch`: the name whose file agrees with most of the job's settings is taken, and of equal
ones that of the class, else the shortest.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from mobench.config.schema import choices, conf_dir
from mobench.errors import MobenchError


@functools.cache
def _files(group: str) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Returns by class the names of a configuration group and what their files set."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    try:
        known = {name: _settings(group, name) for name in choices(group)}
    except MobenchError:  # a report of rows alone, without the configuration
        return found
    for name, settings in known.items():
        found.setdefault(str(settings.get("_target_", "")).rsplit(".", 1)[-1], []).append((name, settings))
    return found


def _settings(group: str, name: str) -> dict[str, Any]:
    """Returns what a file sets, on top of the files that it builds on."""
    own: dict[str, Any] = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text()) or {}
    merged: dict[str, Any] = {}
    for base in own.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            merged |= _settings(group, base)
    return merged | own


def name_of(group: str, settings: Any) -> str | None:
    """Returns the name of a part of a job's identity; None if no file of the group has its class."""
    if not isinstance(settings, Mapping) or not isinstance(settings.get("class"), str):
        return None
    named = _files(group).get(settings["class"], [])
    agreeing = {name: sum(settings.get(key) == value for key, value in own.items()) for name, own in named}
    own = settings["class"].lower()

    def order(name: str) -> tuple[int, bool, int, str]:
        return -agreeing[name], name.replace("_", "") != own, len(name), name

    return min(agreeing, key=order, default=None)
