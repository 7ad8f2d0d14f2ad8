"""Published numbers: `experiments/<paper>/published/<name>.csv`, all in one format.

artifact,row,column,metric,value,std,unit,note
csmoo/fig33,beta>=0.5,CSMOO-2,final Tchebycheff value,0.0945,,,"approximately; plateau"

>>> published("csmoo/fig33").number(row="beta>=0.5")
0.0945
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mobench.errors import ConfigError, suggest
from mobench.system import paths

COLUMNS = ["artifact", "row", "column", "metric", "value", "std", "unit", "note"]


@dataclass(frozen=True)
class Published:
    """Printed numbers and words. `rows`: the table, all of it text; shared, do not write into it."""

    name: str
    rows: pd.DataFrame

    def where(self, **cells: str) -> Published:
        """Returns the rows with these cells: `where(row="EPO", metric="iterations")`."""
        chosen = self.rows
        for column, value in cells.items():
            chosen = chosen[chosen[column] == value]
        return Published(self.name, chosen)

    def _one(self, cells: dict[str, str]) -> pd.Series:
        rows = self.where(**cells).rows
        if len(rows) != 1:
            raise KeyError(f"published {self.name}: {len(rows)} rows have {cells}, one was expected")
        return rows.iloc[0]

    def text(self, **cells: str) -> str:
        """Returns the one value with these cells, as it is printed."""
        return str(self._one(cells)["value"])

    def number(self, **cells: str) -> float:
        """Returns the one value with these cells; NaN where nothing is printed."""
        return float(self.text(**cells) or np.nan)

    def std(self, **cells: str) -> float:
        """Returns the printed standard deviation of the one value with these cells; NaN where none is."""
        return float(self._one(cells)["std"] or np.nan)

    def numbers(self, by: str, **cells: str) -> dict[str, float]:
        """Returns the values with these cells by another column: `numbers("row", metric="iterations")`."""
        rows = self.where(**cells).rows
        return {str(k): float(v or np.nan) for k, v in zip(rows[by], rows["value"], strict=True)}


@functools.cache
def published(id: str) -> Published:
    """Returns the table `<paper>/<name>` of published numbers.

    Raises:
        ConfigError: There is no such table, or it has other columns.
    """
    paper, _, name = id.partition("/")
    folder = paths.experiments() / paper / "published"
    path = folder / f"{name}.csv"
    if not path.exists():
        known = sorted(p.stem for p in folder.glob("*.csv"))
        raise ConfigError(
            f"published {id!r}: there is no {name}.csv in "
            f"experiments/{paper}/published.{suggest(name, known)}"
        )
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(rows) != COLUMNS:
        raise ConfigError(
            f"published {id!r}: its columns are {', '.join(map(str, rows))}; expected {', '.join(COLUMNS)}."
        )
    return Published(id, rows)
