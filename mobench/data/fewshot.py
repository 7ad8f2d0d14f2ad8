"""Classes for few-shot episodes: CIFAR-100 split as FC100, or digits of a grey set in four rotations."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from mobench.data.images import CIFAR_SIZE, EMBEDDED, _mosaic, absolute, digest_of, load_images, unpickled
from mobench.errors import DataError, choose

TURNS = 4
FINE = 100  # classes of CIFAR-100
SPLITS: Mapping[str, tuple[int, ...]] = {  # superclasses of CIFAR-100; Oreshkin, Rodriguez, Lacoste (2018)
    "train": (1, 2, 3, 4, 5, 6, 9, 10, 15, 17, 18, 19),
    "validation": (8, 11, 13, 16),
    "test": (0, 7, 12, 14),
}
MOSAIC_FOLDER = "cifar100"
MOSAIC_LABELS = "cifar100_labels.npz"
MOSAICS = {"train": 18, "test": 4}  # files of the subset
SUBSET = "CIFAR-100, 220 of 600 images per class"
SUBSET_DIGEST = "72ed2b00c561d3bea01512dd0d2f758fe64711d57f77a72ceb24440fc41212c3"  # 180 + 40 of each class

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
    return _cifar100(Path(root)) if name == "cifar100" else _turned(name, root)


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


def _cifar100(root: Path) -> FewShot:
    from torchvision.datasets import CIFAR100

    official = root / CIFAR100.base_folder
    mosaics = root / MOSAIC_FOLDER
    subset = mosaics.is_dir() and not official.is_dir()  # a broken first is no reason for the second
    sums = dict(CIFAR100.train_list + CIFAR100.test_list)
    files = [f"{split}_{k:02d}.webp" for split, count in MOSAICS.items() for k in range(count)]
    folder, wanted = (mosaics, [*files, MOSAIC_LABELS]) if subset else (official, list(sums))
    again = f"`python -c \"from torchvision.datasets import CIFAR100; CIFAR100('{root}', download=True)\"`"
    try:
        if missing := [file for file in wanted if not (folder / file).is_file()]:
            what = f"the files of the subset {SUBSET}" if subset else "the official files, unpacked"
            other = "" if subset else f", nor is there a folder {mosaics} with the subset {SUBSET}"
            raise DataError(
                f"data=cifar100 needs {', '.join(missing)} in {folder} ({what}), which could not be "
                f"found{other}. The environment variable MOBENCH_DATA or data_root sets the folder {root}; "
                f"{again} downloads the official files into it. data=digits is embedded and needs no file."
            )
        images, labels, above = _mosaics(folder) if subset else _batches(folder, sums, again)
    except OSError as error:
        raise DataError(f"The files of data=cifar100 in {folder} could not be read: {error}.") from error
    digest = digest_of(images, labels, above)
    if subset and digest != SUBSET_DIGEST:
        raise DataError(
            f"The files in {folder} are readable, but their pixels and labels have sha256 {digest}, while "
            f"the subset {SUBSET} has {SUBSET_DIGEST}. Some of them were modified or replaced; copy the "
            f"folder again. data=digits is embedded and needs no file."
        )
    splits = {split: tuple(np.flatnonzero(np.isin(above, some)).tolist()) for split, some in SPLITS.items()}
    with torch.inference_mode(False):
        x = torch.from_numpy(images)
        y = torch.from_numpy(labels)
    return FewShot("cifar100", label_of(subset), x, 1, y, splits, digest, False, subset)


def _batches(folder: Path, sums: Mapping[str, str], again: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, labels, superclass of each class."""
    advice = f"delete the folder, then {again} downloads it again. data=digits is embedded and needs no file."
    images = []
    labels = []
    above = np.zeros(FINE, dtype=np.int64)
    for file, md5 in sums.items():
        batch = unpickled(folder / file, md5, advice)
        images.append(np.asarray(batch["data"], dtype=np.uint8).reshape(-1, 3, CIFAR_SIZE, CIFAR_SIZE))
        labels.append(np.asarray(batch["fine_labels"], dtype=np.int64))
        above[labels[-1]] = np.asarray(batch["coarse_labels"], dtype=np.int64)
    return np.concatenate(images), np.concatenate(labels), above


def label_of(subset: bool) -> str:
    """The label of CIFAR-100, or of the subset."""
    return f"{SUBSET if subset else 'CIFAR-100'}, classes of FC100"


def _mosaics(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, labels, superclass of each class of the subset: official pixels in lossless WebP files."""
    images = [
        _mosaic(folder / f"{split}_{k:02d}.webp") for split, count in MOSAICS.items() for k in range(count)
    ]
    path = folder / MOSAIC_LABELS
    keys = (*(f"{split}_labels" for split in MOSAICS), "fine_to_coarse")
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            *labels, above = (arrays[key].astype(np.int64) for key in keys)
        return np.concatenate(images), np.concatenate(labels), above
    except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} ({path.stat().st_size} bytes) is not a complete NPZ file with the arrays "
            f"{', '.join(keys)}: {error}. Copy the folder again. data=digits is embedded and needs no file."
        ) from error
