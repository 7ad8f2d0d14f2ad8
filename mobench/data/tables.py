"""A user's data as tensors whose first axis is the sample: from tensors, a Dataset or a DataLoader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data import default_collate as collate

from mobench.core.types import check_dense
from mobench.errors import ConfigError


@dataclass(frozen=True)
class Table:
    """Samples.

    Attributes:
        tree: a tensor (N, ...), or a tuple, list or dict of trees.
        size: N.
        batch_size: of the loader that they come from, else None.
    """

    tree: Any
    size: int
    batch_size: int | None = None


def as_table(what: str, data: Any) -> Table:
    """The samples of `data`, read once and kept in memory.

    Args:
        what: how messages call the data.
        data: a tensor or an array, or a tuple or dict of them; a Dataset with a length, whose items become
            one batch by PyTorch's default collation; or a DataLoader, whose collation it is then, and whose
            batch size is kept. Orders are not taken from a loader: mobench shuffles by seed.

    Raises:
        ConfigError: the data have no length, no common one, or items that differ from reading to reading;
            the loader has a sampler of its own.
    """
    batch_size = None
    together = collate
    if isinstance(data, DataLoader):
        _check_sampler(what, data)
        batch_size = data.batch_size
        together = data.collate_fn
        data = data.dataset
    if isinstance(data, TensorDataset) and together is collate:
        data = data.tensors
    if isinstance(data, Tensor | np.ndarray | Mapping) or _are_columns(data):
        tree = _as_tensors(what, data)
    else:
        tree = _collated(what, data, together)
    sizes = {len(t) if t.ndim else 0 for t in _leaves(tree)}
    if len(sizes) != 1 or 0 in sizes:
        raise ConfigError(
            f"{what}: the tensors have {sorted(sizes)} entries along their first axis; expected one number, "
            "that of the samples. Pad items of different length to one length."
        )
    return Table(tree, sizes.pop(), batch_size)


def _check_sampler(what: str, loader: DataLoader[Any]) -> None:
    plain = isinstance(loader.sampler, SequentialSampler) or (
        isinstance(loader.sampler, RandomSampler) and not loader.sampler.replacement
    )
    if isinstance(loader.dataset, IterableDataset):
        raise ConfigError(
            f"{what}: an IterableDataset has no samples that can be drawn by number. Give list(dataset), "
            "or a Dataset with __len__ and __getitem__."
        )
    if not plain or loader.batch_size is None:
        raise ConfigError(
            f"{what}: the DataLoader has a sampler of its own ({type(loader.sampler).__name__}), which "
            "mobench does not use: batches are drawn by seed. Give the data set, and weights as one of its "
            "tensors."
        )


def _are_columns(data: Any) -> bool:
    """A tuple of tensors is columns; a list is samples, as list(dataset) gives."""
    return isinstance(data, tuple) and all(
        isinstance(part, Tensor | np.ndarray | Mapping) or _are_columns(part) for part in data
    )


def _as_tensors(what: str, data: Any) -> Any:
    if isinstance(data, Tensor):
        check_dense(what, data)
        return data.detach()
    if isinstance(data, np.ndarray):
        try:
            return torch.from_numpy(np.ascontiguousarray(data))
        except TypeError as error:
            raise ConfigError(f"{what}: an array of {data.dtype} is no tensor: {error}") from error
    if isinstance(data, Mapping):
        return {key: _as_tensors(what, value) for key, value in data.items()}
    found = [_as_tensors(what, part) for part in data]
    return type(data)(*found) if hasattr(data, "_fields") else tuple(found)


def _collated(what: str, data: Any, together: Any) -> Any:
    try:
        size = len(data)
        items = [data[i] for i in range(size)]
    except (TypeError, KeyError) as error:
        raise ConfigError(
            f"{what} is {type(data).__name__}; expected tensors, a Dataset with __len__ and __getitem__, "
            f"or a DataLoader of one ({error})."
        ) from error
    if not items:
        raise ConfigError(f"{what} has no samples.")
    try:
        tree = _as_tensors(what, together(items))
        for i in {0, size // 2, size - 1}:
            once = _leaves(_as_tensors(what, together([items[i]])))
            again = _leaves(_as_tensors(what, together([data[i]])))
            if not all(torch.equal(a, b) for a, b in zip(once, again, strict=True)):
                raise ConfigError(
                    f"{what}: item {i} differs from reading to reading (random augmentation?). Items are "
                    "read once: give fixed ones, and put augmentation into the module (torch.rand_like has "
                    "named random numbers there)."
                )
    except (TypeError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{what}: the items cannot be put into one batch: {error}. Pad them to one length, convert "
            "pictures to tensors, or give a DataLoader with a collate_fn that does."
        ) from error
    return tree


def _leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, Mapping) else tree
    return [leaf for part in parts for leaf in _leaves(part)]
