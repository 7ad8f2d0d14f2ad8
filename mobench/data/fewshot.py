"""Classes for few-shot episodes: CIFAR-100 split as FC100, or digits of a grey set in four rotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from mobench.data import cifar
from mobench.data.files import absolute, digest_of, verify
from mobench.data.images import EMBEDDED, load_images
from mobench.errors import DataError, choose

TURNS = 4
SPLITS: Mapping[str, tuple[int, ...]] = {  # superclasses of CIFAR-100; Oreshkin, Rodriguez, Lacoste (2018)
    "train": (1, 2, 3, 4, 5, 6, 9, 10, 15, 17, 18, 19),
    "validation": (8, 11, 13, 16),
    "test": (0, 7, 12, 14),
}
SUPERCLASS = np.array([  # of each class of CIFAR-100
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
])  # fmt: skip

NAMES = ("digits", "mnist", "fashion_mnist", "cifar100")


@dataclass(frozen=True, eq=False)
class FewShot:
    """Images by class. The tensors are shared by all users of the set: do not write into them.

    Items are numbered 0..turns*N-1: item t*N + i is image i, turned t times by 90 degrees against the clock.

    Fields:
        name: the argument of `load_fewshot`. label: for figures, a part of a sentence.
        images: grey levels, or red, green, blue; official training images first, then official test images.
        turns: 1 or 4. labels: the class of each item (with 4 turns: digit + 10 t).
        splits: the classes of train, validation and test, ascending; a grey set has but train.
        digest: sha256 of images, labels and, of CIFAR-100, the superclass of each class, little-endian.
        embedded: made of data that come with a dependency. subset: a part of the official images; so says the
            label.
    """

    name: str
    label: str
    images: UInt8[Tensor, "N C H W"]
    turns: int
    labels: Int64[Tensor, " items"]
    splits: Mapping[str, tuple[int, ...]]
    digest: str
    embedded: bool
    subset: bool = False

    def take(self, index: Int[Tensor, " k"]) -> UInt8[Tensor, "k C H W"]:
        """The pictures of some items, turned."""
        N = len(self.images)
        pictures = self.images[index % N]
        turn = index // N
        for t in range(1, self.turns):
            turned = turn == t
            pictures[turned] = torch.rot90(pictures[turned], t, (-2, -1))
        return pictures

    def classes(self, split: str) -> tuple[int, ...]:
        """The classes of a split. Raises DataError where the set has none."""
        classes = self.splits[choose("problem.split", split, SPLITS)]
        if not classes:
            raise DataError(
                f"problem.split={split}: data={self.name} has no {split} classes; all of its "
                f"{len(self.splits['train'])} are train classes. Choose problem.split=train or data=cifar100."
            )
        return classes


def load_fewshot(name: str, root: str | Path) -> FewShot:
    """The set `name`: digits (embedded), mnist, fashion_mnist, cifar100; files are looked for below `root`.

    Read once in a process.

    cifar100: the official batches (cifar-100-python), else the subset in the folder cifar100; train and test
    images of a class are one, the classes are split by superclass into 60 / 20 / 20. The others: ten classes
    times four rotations are 40 train classes, train and test images together; some are hard to tell apart
    (0 and its half turn).

    Raises ConfigError for an unknown name, DataError for missing, incomplete or changed files.
    """
    choose("data", name, NAMES)
    return _load(name, "" if name in EMBEDDED else absolute(root))


@lru_cache(maxsize=2)
def _load(name: str, root: str) -> FewShot:
    return _cifar100(root) if name == "cifar100" else _turned(name, root)


def _turned(name: str, root: str) -> FewShot:
    """Four rotations of a grey set."""
    base = load_images(name, root)
    with torch.inference_mode(False):
        images = torch.cat([base.train, base.test]).unsqueeze(1)
        digits = torch.cat([base.train_labels, base.test_labels])
        kinds = int(digits.max()) + 1
        labels = torch.cat([digits + kinds * t for t in range(TURNS)])
    splits = {"train": tuple(range(TURNS * kinds)), "validation": (), "test": ()}
    label = f"{base.label}, each class in four rotations ({TURNS * kinds} classes)"
    digest = digest_of(images.numpy(), labels.numpy())
    return FewShot(name, label, images, TURNS, labels, splits, digest, base.embedded, base.subset)


# CIFAR-100


def _cifar100(root: str) -> FewShot:
    (train, train_labels, test, test_labels), subset = cifar.read("cifar100", root)
    images = np.concatenate([train, test])
    labels = np.concatenate([train_labels, test_labels])
    digest = digest_of(images, labels, SUPERCLASS)
    name = "cifar100 subset" if subset else "cifar100"
    verify(name, root, cifar.folder_of("cifar100", root), digest)
    splits = {
        split: tuple(np.flatnonzero(np.isin(SUPERCLASS, some)).tolist()) for split, some in SPLITS.items()
    }
    with torch.inference_mode(False):
        x = torch.from_numpy(images)
        y = torch.from_numpy(labels)
    return FewShot("cifar100", label_of(subset), x, 1, y, splits, digest, False, subset)


def label_of(subset: bool) -> str:
    """The label of CIFAR-100, or of the subset."""
    return f"{cifar.SUBSETS['cifar100'].label if subset else 'CIFAR-100'}, classes of FC100"
