"""The origin of a number: commit, versions, files, device, date; for a job, of each of its processes."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobench.system.paths import package

if TYPE_CHECKING:  # versions and commits are known without it
    import torch

PACKAGES = (
    "mobench",
    "torch",
    "numpy",
    "scipy",
    "numba",
    "hydra-core",
    "omegaconf",
    "cvxpy",
    "moocore",
    "pandas",
    "matplotlib",
)
CODE = ("git_sha", "git_dirty", "files", "versions")
"""Fields of a process that name its code."""


def _git(*args: str) -> str | None:
    # `status` would lock the index to refresh it, and a job that is killed then leaves the lock behind, which
    # refuses every later commit
    command = ["git", "--no-optional-locks", *args]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def code() -> dict[str, Any]:
    """Commit and dirty flag of the checkout (None where there is none)."""
    sha = _git("rev-parse", "HEAD")
    status = _git("status", "--porcelain", "--untracked-files=no") if sha else None
    return {"git_sha": sha, "git_dirty": None if status is None else bool(status)}


def describe() -> dict[str, Any]:
    """Version of the code in full: what `code` says, and the nearest tag."""
    return {**code(), "git_describe": _git("describe", "--always", "--dirty", "--tags")}


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that numbers depend on."""
    out = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = "not installed"
    return out


def digest(paths: Iterable[Path], base: Path) -> str:
    """Hash of the names and contents of files below a folder."""
    out = hashlib.sha256()
    for path in sorted(paths):
        data = path.read_bytes()
        out.update(f"{path.relative_to(base).as_posix()} {len(data)}\n".encode())
        out.update(data)
    return out.hexdigest()


@functools.cache
def files_at_start() -> str:
    """Returns the hash of the files and of the versions at this function's first call in the process.

    The papers' files, which lie inside the package when it is installed, are left out.
    """
    files = [p for p in package().rglob("*.py") if "experiments" not in p.relative_to(package()).parts]
    return hashlib.sha256(f"{digest(files, package())} {json.dumps(versions())}".encode()).hexdigest()


def device_name(device: torch.device | None = None) -> str:
    """Returns the name of the hardware; without a device the processor."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return _processor()


@functools.cache
def _processor() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return f"CPU {model}"


def stamp(device: torch.device | None = None) -> dict[str, Any]:
    """Returns code, versions, device and date."""
    return {
        **code(),
        "versions": versions(),
        "device": device_name(device),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


# processes: an entry for each that computed rows of a job, or for several in a row that do not differ


def this_process(device: torch.device) -> dict[str, Any]:
    """Returns commit, hash of mobench's files, versions of packages and device of this process.

    The hash tells two edits of one commit apart.
    """
    return {
        **code(),
        "files": files_at_start()[:16],
        "versions": versions(),
        "device": device_name(device),
    }


def differences(before: Iterable[Mapping[str, Any]], here: Mapping[str, Any]) -> str:
    """Returns in words which code and packages of earlier processes differ from this one's."""
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
