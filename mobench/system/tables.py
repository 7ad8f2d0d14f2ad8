"""Tables as text that keep every bit of their numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def read_csv(path: Path | io.BytesIO, **options: Any) -> pd.DataFrame:
    """`pandas.read_csv`, in which each number is the floating-point number nearest to its text.

    That is the default of pandas since 3.1, which deprecates the option; older versions change the last bit
    of some numbers without it.
    """
    import pandas as pd

    major, minor = pd.__version__.split(".")[:2]
    if (int(major), int(minor)) < (3, 1):
        options["float_precision"] = "round_trip"
    table: pd.DataFrame = pd.read_csv(path, **options)
    return table
