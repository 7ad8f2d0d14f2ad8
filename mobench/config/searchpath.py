"""Folders of configuration that a command line adds to the project's, and what they hold.

    --config-dir mine/conf
    hydra.searchpath=[file:///home/me/mine/conf,pkg://my_package.conf]

Hydra looks into them itself. Here they are read for what has to be known before Hydra composes anything: the
experiments that there are, the text of `--help`, completion, and the file that a message is about.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from mobench.config.schema import choices, conf_dir

KEY = "hydra.searchpath="
FLAGS = ("--config-dir", "-cd")


def folder_names(arguments: Sequence[str]) -> list[str]:
    """Returns the folders that `--config-dir` and `hydra.searchpath` name, as they were written.

    What cannot be read is left for Hydra to refuse.
    """
    names: list[str] = []
    for i, argument in enumerate(arguments):
        if argument in FLAGS:
            names += arguments[i + 1 : i + 2]
        elif argument.startswith("--config-dir="):
            names.append(argument.partition("=")[2])
        elif argument.lstrip("+").startswith(KEY):
            try:
                value = OverridesParser.create().parse_override(argument).value()
            except HydraException:
                continue
            names += [str(part) for part in value] if isinstance(value, list) else []
    return names


def folder(name: str) -> Path | None:
    """The folder on disk behind `file://...`, `pkg://...` or a path; None where there is none."""
    scheme, separator, rest = name.partition("://")
    if separator and scheme == "pkg":
        return _package(rest)
    if separator and scheme != "file":
        return None
    path = Path(rest if separator else name)
    return path if path.is_dir() else None


def _package(name: str) -> Path | None:
    """Returns the folder of a package, `my_package.conf` or `my_package/conf`."""
    try:
        spec = importlib.util.find_spec(name.replace("/", ".").strip("."))
    except (ImportError, ValueError):
        return None
    places = (spec.submodule_search_locations if spec else None) or []
    return next((path for path in map(Path, places) if path.is_dir()), None)


def folders(arguments: Sequence[str]) -> list[Path]:
    """Returns the folders of a command line that exist."""
    paths = (folder(name) for name in folder_names(arguments))
    return [path for path in paths if path is not None]


def places(arguments: Sequence[str]) -> list[Path]:
    """Returns the folders of configuration that a command line reads."""
    return [*folders(arguments), conf_dir()]


def experiments(arguments: Sequence[str]) -> list[str]:
    """Returns the names of experiments in folders that a command line adds."""
    return choices("experiment", *folders(arguments), alone=True)
