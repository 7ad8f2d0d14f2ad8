"""Where a number comes from: commit, versions, device, date."""

from __future__ import annotations

import functools
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """Version of the code in full: what `code` says, the nearest tag, and files that git does not know."""
    new = _git("ls-files", "--others", "--exclude-standard", "--full-name", ":/")
    return {
        **code(),
        "git_describe": _git("describe", "--always", "--dirty", "--tags"),
        "untracked": [] if new is None else new.splitlines(),
    }


def changes() -> str:
    """Changes of the checkout that are in no commit, as a diff; empty where there are none."""
    found = _git("diff", "HEAD", "--no-color", "--no-ext-diff")
    return f"{found}\n" if found else ""


def installed() -> list[str]:
    """Every installed package as name==version, in order."""
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    return [f"{name}=={number}" for name, number in sorted(found.items())]


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


def device_name(device: torch.device | None = None) -> str:
    """What ran it, in words; without a device the processor."""
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
    """Everything above with today's date."""
    return {
        **code(),
        "versions": versions(),
        "device": device_name(device),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
