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


def _files() -> list[Path]:
    """All files of the package but the papers', which lie inside it when it is installed."""
    return [p for p in package().rglob("*.py") if "experiments" not in p.relative_to(package()).parts]


@functools.cache
def at_start() -> str:
    """Returns the hash of the files and of the versions when it was first asked for in this process."""
    text = f"{digest(_files(), package())} {json.dumps(versions())}"
    return hashlib.sha256(text.encode()).hexdigest()
