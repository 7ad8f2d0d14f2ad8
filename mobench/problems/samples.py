"""A user's data on the device of a problem, and the facts about them that its rows record."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from mobench.core.cache import Cache
from mobench.data.tables import Table
from mobench.models.stacked import Tree, cast, leaves, mapped


def held(cache: Cache, split: str, table: Table, x: Tensor) -> Tree:
    """All samples of a table, on the device and in the type of x; moved once.

    Args:
        split: the name of the table in the cache.
    """

    def made() -> Tree:
        with torch.inference_mode(False):  # automatic differentiation will need them
            return mapped(lambda t: cast(t, x), table.tree)

    return cache.made((split, x.dtype, x.device), made)


def facts(tables: Mapping[str, Table | None]) -> dict[str, Any]:
    """Returns the size and the SHA-256 of each table that there is."""
    recorded: dict[str, Any] = {}
    for name, table in tables.items():
        if table is not None:
            recorded |= {f"{name}_sha256": _digest(table), f"{name}_size": table.size}
    return recorded


def _digest(table: Table) -> str:
    total = sha256()
    for leaf in leaves(table.tree):
        total.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
        total.update(leaf.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
