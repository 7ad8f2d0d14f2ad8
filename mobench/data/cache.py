"""Where what is slow to make, and may be deleted at any time, is kept: decoded pictures, trained starts."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """$MOBENCH_CACHE, else `cache` in the outputs folder; never beside original files,
    which may be read-only.
    """
    from mobench.system.paths import outputs_root

    return Path(os.environ.get("MOBENCH_CACHE") or outputs_root() / "cache").absolute()
