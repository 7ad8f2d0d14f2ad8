"""Which code computed a job's rows: an entry for each of its processes, or for several in a row that do not
differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mobench.system import provenance, sources

if TYPE_CHECKING:
    import torch

CODE = ("git_sha", "git_dirty", "files", "versions")


def this(device: torch.device) -> dict[str, Any]:
    """Returns commit, hash of mobench's files, versions of packages and device of this process.

    The hash tells two edits of one commit apart.
    """
    return {
        **provenance.code(),
        "files": sources.at_start()[:16],
        "versions": provenance.versions(),
        "device": provenance.device_name(device),
    }


def differences(before: Iterable[Mapping[str, Any]], here: Mapping[str, Any]) -> str:
    """Returns in words what code and packages of earlier processes were, where this one has others."""
    words: dict[str, None] = {}
    for one in before:
        said = [
            f"{name} {_shown(then)} instead of {_shown(now)}"
            for name, then, now in _pairs(one, here)
            if then != now
        ]
        if not said and any(one.get(name) != here.get(name) for name in CODE):
            said = ["files of mobench that were edited since"]
        words |= dict.fromkeys(said)
    return ", ".join(words)


def _pairs(one: Mapping[str, Any], here: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    yield "commit", one.get("git_sha"), here.get("git_sha")
    then = one.get("versions") or {}
    now = here.get("versions") or {}
    for name in sorted(then.keys() | now.keys()):
        yield name, then.get(name), now.get(name)


def _shown(value: Any) -> str:
    return "unknown" if value is None else f"{value!s:.10}"


def together(processes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns commit, changes and versions of several processes; what differs is joined by " and "."""
    names = dict.fromkeys(name for one in processes for name in one.get("versions") or {})
    dirty = [one.get("git_dirty") for one in processes]
    return {
        "git_sha": _joined([one.get("git_sha") for one in processes]),
        "git_dirty": True if any(dirty) else dirty[0],
        "versions": {
            name: _joined([(one.get("versions") or {}).get(name) for one in processes]) for name in names
        },
    }


def _joined(values: Sequence[Any]) -> Any:
    """A value that all have, else all different ones in words."""
    several = list(dict.fromkeys(values))
    return (
        several[0] if len(several) == 1 else " and ".join("unknown" if v is None else str(v) for v in several)
    )
