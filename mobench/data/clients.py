"""Clients of federated learning: which images of a base set each of them holds, and how it turns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from mobench.core.random import generator
from mobench.core.types import Real
from mobench.data.files import digest_of
from mobench.data.images import CLASSES, Images
from mobench.errors import ConfigError, choose

KINDS = ("stratified", "rotation", "partial")
SPLITS = ("train", "test")
ROTATIONS = (0,) * 7 + (90, 90, 180)  # degrees, of ten clients


@dataclass(frozen=True, eq=False)
class Clients:
    """The parts of a base set that each of M clients holds.

    The tensors are shared by all users: do not write into them.

    Fields:
        train, test: indices into base.train and base.test, client by client, in the order of the draw:
            classes are mixed, so that the first so many images, or a batch of successive ones, are a random
            sample of the client's.
        turns: quarter turns against the clock of a client's pictures, torch.rot90(pictures, turns, (-2, -1));
            to be applied by whoever takes pictures, in training and test.
        classes: the classes that a client keeps, ascending.
        digest: sha256 of the sizes of all parts, train, test, turns and classes as int64, little-endian.
    """

    train: tuple[Int64[Tensor, " _"], ...]
    test: tuple[Int64[Tensor, " _"], ...]
    turns: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    digest: str

    def __len__(self) -> int:
        """M."""
        return len(self.turns)

    def counts(self, base: Images, split: str) -> Int64[np.ndarray, "M C"]:
        """Images of each class that each client holds."""
        held = self.train if choose("split", split, SPLITS) == "train" else self.test
        labels = getattr(base, f"{split}_labels")
        return torch.stack([torch.bincount(labels[part], minlength=CLASSES) for part in held]).numpy()


def partition(
    base: Images,
    kind: str,
    clients: int = 10,
    classes_per_client: int | None = None,
    rotations: Sequence[Real] | None = None,
    seed: int = 0,
    train_size: int | None = None,
    test_size: int | None = None,
) -> Clients:
    """Share a base set between clients; train and test alike.

    kind:
        stratified  the images of each class, permuted and cut into M equal parts; the remainder
                    (fewer than M) is dropped
        rotation    the stratified cut; client i turns its pictures by rotations[i] degrees, multiples of 90,
                    against the clock (null with ten clients: seven times 0, 90, 90, 180)
        partial     the stratified cut; of its part client i keeps `classes_per_client` classes, drawn
                    uniformly without replacement and independently of other clients, the same in train and
                    test

    The cut depends on seed, base set, sizes and M alone: it is the same for all kinds. The classes of a
    client depend on seed and client alone; those of a smaller `classes_per_client` are among those of a
    larger one. train_size, test_size: of the first so many images of the base set; None: all.
    Raises ConfigError for what cannot be done, with the key of the configuration.
    Source: the OMD-TCH paper splits at random into equal parts; that its splits are stratified is public
    practice.
    """
    choose("problem.partition", kind, KINDS)
    if clients < 1:
        raise ConfigError(f"problem.clients={clients} is too small; there must be at least 1 client.")
    turns = _turns(kind, clients, rotations)
    classes = _classes(kind, clients, classes_per_client, seed)
    sizes = {"train": train_size, "test": test_size}
    train, test = (_cut(base, split, size, classes, seed) for split, size in sizes.items())
    with torch.inference_mode(False):
        first, second = (tuple(torch.from_numpy(part) for part in parts) for parts in (train, test))
    ragged = [*train, *test, np.array(turns), *(np.array(some) for some in classes)]
    digest = digest_of(np.array([len(part) for part in ragged]), *(part.astype(np.int64) for part in ragged))
    return Clients(first, second, turns, classes, digest)


def _turns(kind: str, clients: int, rotations: Sequence[Real] | None) -> tuple[int, ...]:
    """Quarter turns of each client, 0..3."""
    if kind != "rotation":
        if rotations is not None:
            raise ConfigError(
                f"problem.rotations={list(rotations)} has no effect with problem.partition={kind}, because "
                "only the images of problem.partition=rotation are rotated. Set it to null, or choose that "
                "partition."
            )
        return (0,) * clients
    if rotations is None:
        if clients != len(ROTATIONS):
            raise ConfigError(
                f"problem.rotations=null stands for {list(ROTATIONS)}, which needs {len(ROTATIONS)} clients, "
                f"but problem.clients={clients}. Give {clients} numbers, one for each client."
            )
        rotations = ROTATIONS
    if len(rotations) != clients:
        raise ConfigError(
            f"problem.rotations={list(rotations)} has {len(rotations)} numbers, but needs {clients}, one for "
            f"each of problem.clients={clients}."
        )
    for degrees in rotations:
        if degrees % 90 != 0:
            raise ConfigError(
                f"problem.rotations={list(rotations)} contains {degrees}; rotations must be multiples of 90 "
                "(degrees, counterclockwise), so that images need no interpolation. Choose from 0, 90, 180, "
                "270."
            )
    return tuple(int(degrees // 90) % 4 for degrees in rotations)


def _classes(kind: str, clients: int, count: int | None, seed: int) -> tuple[tuple[int, ...], ...]:
    """Classes that each client keeps."""
    if kind != "partial":
        if count is not None:
            raise ConfigError(
                f"problem.classes_per_client={count} has no effect with problem.partition={kind}, whose "
                f"clients have all classes. Set it to null, or choose problem.partition=partial."
            )
        return (tuple(range(CLASSES)),) * clients
    if count is None:
        raise ConfigError(
            "problem.partition=partial needs problem.classes_per_client, the number of classes of each "
            f"client, but it is null. Choose 1..{CLASSES}."
        )
    if not 1 <= count <= CLASSES:
        raise ConfigError(
            f"problem.classes_per_client={count} is out of range: the images have {CLASSES} classes. "
            f"Choose 1..{CLASSES}."
        )
    drawn = [
        generator(seed, data="clients", use="classes", client=i).permutation(CLASSES) for i in range(clients)
    ]
    return tuple(tuple(sorted(int(c) for c in some[:count])) for some in drawn)


def _cut(
    base: Images, split: str, size: int | None, classes: tuple[tuple[int, ...], ...], seed: int
) -> list[Int64[np.ndarray, " _"]]:
    """Indices of each client.

    One permutation of all images (one of each class, too) cuts; another one, independent of the first, gives
    the order: in the order of the first a part would have its classes one after the other.
    """
    labels = getattr(base, f"{split}_labels").numpy()
    if size is not None and not 1 <= size <= len(labels):
        raise ConfigError(
            f"problem.{split}_size={size} is out of range: data={base.name} has {len(labels)} {split} "
            f"images. Choose 1..{len(labels)}, or null for all."
        )
    M = len(classes)
    labels = labels[:size]
    rng = generator(seed, data="clients", use="cut", images=base.name, split=split)
    shuffled, order = (rng.permutation(len(labels)) for _ in range(2))
    owner = np.full(len(labels), -1)  # of the remainder
    for c in range(CLASSES):
        members = shuffled[labels[shuffled] == c]
        part = len(members) // M
        owner[members[: part * M]] = np.repeat(np.arange(M), part)
    masks = [(owner == i) & np.isin(labels, classes[i]) for i in range(M)]
    held = [order[mask[order]].astype(np.int64) for mask in masks]
    for i, part_of_i in enumerate(held):
        if not len(part_of_i):
            raise ConfigError(
                f"problem.clients={M}: client {i} would have no {split} images. The first {len(labels)} "
                f"{split} images of data={base.name} are cut into {M} equal parts class by class, and of its "
                f"classes {list(classes[i])} there are at most "
                f"{max(int((labels == c).sum()) for c in classes[i])} images each. Choose fewer clients or a "
                f"larger problem.{split}_size (null: all)."
            )
    return held
