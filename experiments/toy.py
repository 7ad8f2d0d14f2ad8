"""Published tables of the papers that are not packages yet."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

PUBLISHED = Path(__file__).parent / "published"


@functools.cache
def published(name: str) -> pd.DataFrame:
    """A table of published numbers: artifact, row, column, metric, value, std, unit, note.

    Shared: do not write into it.
    """
    return pd.read_csv(PUBLISHED / f"{name}.csv", dtype=str, keep_default_na=False)
