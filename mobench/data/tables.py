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
        batch_size: of the loader that they come from, else None. drop_last: whether that loader leaves out
            the last batch of an epoch where it is short.
    """

    tree: Any
    size: int
    batch_size: int | None = None
    drop_last: bool = False


def as_table(what: str, data: Any) -> Table:
    """The samples of `data`, read once and kept in memory.

    Args:
        what: how messages call the data.
        data: a tensor or an array, or a tuple or dict of them; a Dataset with a length, whose items become
            one batch by PyTorch's default collation; or a DataLoader, whose collation it is then, and whose
            batch_size and drop_last are kept. Orders are not taken from a loader (shuffle, generator):
            mobench shuffles by seed.

    Raises:
        ConfigError: the data have no length, no common one, or items that differ from reading to reading;
            the loader has a sampler of its own, no batch, or a collation that mixes samples.
    """
    batch_size = None
    drop_last = False
    together = collate
    if isinstance(data, DataLoader):
        _check_sampler(what, data)
        batch_size = data.batch_size
        drop_last = data.drop_last
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
    size = sizes.pop()
    if drop_last and batch_size is not None and batch_size > size:
        raise ConfigError(
            f"{what}: the DataLoader has no batch: batch_size={batch_size} with drop_last=True leaves out "
            f"all {size} samples. Give a batch_size of at most {size}."
        )
    return Table(tree, size, batch_size, drop_last)


def _check_sampler(what: str, loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise ConfigError(
            f"{what}: an IterableDataset has no samples that can be drawn by number. Give list(dataset), "
            "or a Dataset with __len__ and __getitem__."
        )
    sampler = loader.sampler if loader.batch_size is not None else loader.batch_sampler
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    )
    if plain and getattr(sampler, "data_source", None) is loader.dataset:
        return
    if sampler is None:
        raise ConfigError(
            f"{what}: the DataLoader has batch_size=None, so its items are batches already, but mobench "
            "draws batches by seed. Give a data set of single samples, and a batch_size."
        )
    name = "sampler" if loader.batch_size is not None else "batch_sampler"
    raise ConfigError(
        f"{what}: the DataLoader has a {name} of its own ({type(sampler).__name__}), which mobench does not "
        "use: batches are drawn by seed, each sample once in an epoch. Give the data set (of some samples: "
        "torch.utils.data.Subset), and weights as one of its tensors."
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
    columns = [_as_tensors(what, part) for part in data]
    return type(data)(*columns) if hasattr(data, "_fields") else tuple(columns)


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
            alone = [_leaves(_as_tensors(what, together([item]))) for item in (items[i], data[i])]
            _check_item(what, i, alone, [t[i : i + 1] for t in _leaves(tree) if t.ndim and len(t) == size])
    except (TypeError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{what}: the items cannot be put into one batch: {error}. Pad them to one length, convert "
            "pictures to tensors, or give a DataLoader with a collate_fn that does."
        ) from error
    return tree


def _check_item(what: str, i: int, alone: list[list[Tensor]], rows: list[Tensor]) -> None:
    """Raises ConfigError for an item that is not what it was, when it is read again, or beside all others.

    Args:
        alone: its tensors, read twice. rows: those in the batch of all items.
    """
    if not all(map(_equal, *alone)):
        raise ConfigError(
            f"{what}: item {i} differs from reading to reading (random augmentation?). Items are read once: "
            "give fixed ones, and put augmentation into the module (torch.rand_like has named random numbers "
            "there)."
        )
    pairs = zip(rows, alone[0], strict=False)
    # padding to the longest of all may make a row longer
    if len(rows) == len(alone[0]) and not all(a.shape != b.shape or _equal(a, b) for a, b in pairs):
        raise ConfigError(
            f"{what}: collate_fn gives item {i} other values beside all items than alone (mixing of samples, "
            "statistics of a batch?). Items are put together once for all steps: do this in forward= or in "
            "the losses, which see each batch."
        )


def _equal(a: Tensor, b: Tensor) -> bool:
    """Returns whether two tensors are equal; NaN, which may stand for a missing label, equals itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, Mapping) else tree
    return [leaf for part in parts for leaf in _leaves(part)]
