"""A user's functions of x and of samples; `mobench.objectives(..., data=...)` makes them.

f_m(x) = mean over the samples of a batch,   the user's f(x, batch);   g_n alike
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.cache import Cached
from mobench.core.preferences import Runs
from mobench.core.sampled import Batch, Sampled
from mobench.data.tables import Table
from mobench.errors import ConfigError
from mobench.models.stacked import Tree, leaves, mapped
from mobench.problems import samples
from mobench.problems.own import Own
from mobench.problems.probe import check_unchanged


@dataclass(frozen=True, kw_only=True)
class OwnSampled(Cached, Own, Sampled):
    """`Own` with data: every function takes (x, batch), where a batch has the structure of the data.

        values (R, P) -> (R, M + N),  row r: (f(x_r, batch_r), g(x_r, batch_r));  without a batch of all data

    Runs that share a batch, as all preferences of a seed do, get it once.

    Raises:
        ConfigError: as `Own`; or a function writes into the data, or has another number of values for a batch
            than for all data.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        x = self.X.project(self._theta(0).unsqueeze(0))[0]
        (whole,) = self._beside(x)
        before = [t._version for t in leaves(whole)]
        counts = self._sizes(x, whole)
        size = self._data.batch_size or self._data.size
        for part in {size, self._data.size % size or size}:
            if self._sizes(x, mapped(operator.itemgetter(slice(part)), whole)) != counts:
                raise ConfigError(
                    f"The functions have {counts} values for all {self._data.size} samples, but another "
                    f"number for a batch of {part}. Values are means over the samples: (M,), whatever the "
                    "batch."
                )
        check_unchanged(before, leaves(whole))

    @property
    def _data(self) -> Table:
        data = self._functions.data
        assert data is not None
        return data

    @property
    def n_samples(self) -> int:
        return self._data.size

    @property
    def drop_last(self) -> bool:
        return self._data.drop_last

    def _beside(self, x: Tensor) -> tuple[Tree, ...]:
        return (samples.held(self.cache, "data", self._data, x),)

    def take(self, batch: Batch) -> Batch:
        return batch

    def _seen(self, batch: Batch | Int[Tensor, "R B"] | None, x: Tensor) -> tuple[Tree, bool]:
        """Returns the data that the functions get, and whether they differ between the runs."""
        (table,) = self._beside(x)
        if batch is None:
            return table, False
        if isinstance(batch, Batch):
            alone = len(batch.chosen) == 1
            chosen = batch.chosen[0] if alone else batch.chosen[batch.group]
        else:
            chosen = batch
        return mapped(lambda t: t[chosen], table), chosen.ndim == 2

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R K"]:
        seen, each = self._seen(batch, x)
        stacked = self._functions.stacked
        if len(x) == 1:
            one = mapped(lambda t: t[0], seen) if each else seen
            return stacked(x.squeeze(0), one).unsqueeze(0)
        values: Tensor = torch.func.vmap(stacked, in_dims=(0, 0 if each else None))(x, seen)
        return values

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        return super().facts(runs) | samples.facts({"data": self._data})
