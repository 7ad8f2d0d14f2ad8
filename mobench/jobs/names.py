"""The names of jobs' folders, remembered: whether a job is finished is known without building it, so without
torch.

    outputs/cache/names-<hash of the package's files and of versions>.json
        {"names": {hash of a configuration: name}, "sha256": of the names}

The name of a folder follows from a job's configuration and from mobench's code alone, unless the
configuration names classes of somebody else, whose code is part of the name; those are never remembered. The
file is found by a hash of all of mobench's files and of the versions of the packages, so any edit or upgrade
forgets all names. It is asked only as long as the process has not imported what builds jobs: then building is
exact, and quick. A file that cannot be read, or is not what mobench wrote, is made again with a line of
notice; one that cannot be written costs time only.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mobench.config import direct
from mobench.errors import StoreError
from mobench.system import forms, sources
from mobench.system.files import write_atomic
from mobench.system.paths import outputs_root

# keys that say where a job is listed, how it is shown and whether finished rows count, not which job it is
ASIDE = ("artifact", "jobs", "grid", "like", "cross", "logger", "progress", "rerun")


@dataclass(frozen=True)
class KnownJob:
    """A job that was not built: its configuration, and the name of its folder."""

    config: dict[str, Any]
    key: str

    def keeping_rows(self) -> KnownJob:
        """Returns the same job without `rerun`: finished rows count."""
        return replace(self, config={**self.config, "rerun": False})


def known(config: dict[str, Any]) -> KnownJob | None:
    """Returns the job of a configuration if the name of its folder is known."""
    sources.at_start()  # before the modules that `remember` speaks for are imported
    if "mobench.jobs.job" in sys.modules or (entry := _entry(config)) is None:
        return None
    name = _stored(_path()).get(entry)
    return None if name is None else KnownJob(config, name)


def remember(jobs: Iterable[tuple[dict[str, Any], str]]) -> None:
    """Writes the names of jobs that were built, by their configurations."""
    found = {entry: name for config, name in jobs if (entry := _entry(config)) is not None}
    if not outputs_root().exists():  # looking writes nothing
        return
    path = _path()
    before = _stored(path)
    # code that was edited since this process began may give other names
    if found.items() <= before.items() or sources.edited():
        return
    try:
        every = before | found
        stored = json.dumps({"names": every, "sha256": _digest(every)})
        write_atomic(path, stored.encode(), durable=False)
        for other in path.parent.glob("names-*.json"):
            if other != path:
                other.unlink(missing_ok=True)
    except (StoreError, OSError):
        return  # rows come first: a full disk is reported where they are written
    _stored.cache_clear()


def _path() -> Path:
    return outputs_root() / "cache" / f"names-{sources.at_start()[:16]}.json"


@functools.lru_cache(maxsize=2)
def _stored(path: Path) -> dict[str, str]:
    """What the file says; nothing if there is none, or none that can be read."""
    try:
        found = forms.read_json(path)
        if isinstance(found, dict) and found.get("sha256") == _digest(found.get("names")):
            return dict(found["names"])
        problem = "it holds something else than the names that mobench wrote"
    except FileNotFoundError:
        return {}
    except StoreError as error:
        problem = str(error)
    print(f"notice: {path} cannot be read ({problem}); it is made again.", file=sys.stderr)
    return {}


def _digest(known: Any) -> str:
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _entry(config: Mapping[str, Any]) -> str | None:
    """Hash of a configuration; None if it names classes of somebody else, or is no plain data."""
    if not direct.of_mobench(config):
        return None
    node = {key: value for key, value in config.items() if key not in ASIDE}
    try:
        return hashlib.sha256(json.dumps(node).encode()).hexdigest()[:32]
    except (TypeError, ValueError):
        return None
