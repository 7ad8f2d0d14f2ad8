"""What code runs: a hash of the files of the package and of the versions that numbers depend on."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from mobench.system.paths import package
from mobench.system.provenance import versions


def digest(paths: Iterable[Path], base: Path) -> str:
    """Hash of the names and contents of files below a folder."""
    out = hashlib.sha256()
    for path in sorted(paths):
        data = path.read_bytes()
        out.update(f"{path.relative_to(base).as_posix()} {len(data)}\n".encode())
        out.update(data)
    return out.hexdigest()


def read() -> str:
    """Returns the hash of the package as it lies on disk now, and of the versions."""
    # kept rows and the drawings of papers lie beside it, or inside it when it is installed
    files = (p for p in package().rglob("*.py") if "experiments" not in p.relative_to(package()).parts)
    return hashlib.sha256(f"{digest(files, package())} {json.dumps(versions())}".encode()).hexdigest()


@functools.cache
def at_start() -> str:
    """Returns the hash when it was first asked for in this process."""
    return read()
