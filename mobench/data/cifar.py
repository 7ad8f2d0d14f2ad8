"""CIFAR-10 and CIFAR-100: the official files, read by torchvision, or parts as lossless WebP files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from mobench.data.files import absolute, missing_in, reading, require

SIDE = 32  # height and width of an image
MOSAIC = (40, 25)  # rows and columns of images in a WebP file
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Subset:
    """A part of the official images: the first so many of each class.

    Fields: label: for figures. train, test: the numbers of WebP files of 1,000 images.
    """

    label: str
    train: int
    test: int

    def mosaics(self, split: str) -> list[str]:
        """Names of the WebP files of a split."""
        return [f"{split}_{k:02d}.webp" for k in range(getattr(self, split))]


SUBSETS = {
    "cifar10": Subset("CIFAR-10, 25k train subset", 25, 10),
    "cifar100": Subset("CIFAR-100, 220 of 600 images per class", 18, 4),
}


def official(name: str) -> Any:
    """torchvision's class of the set, for its folder, its file names and its checksums."""
    from torchvision.datasets import CIFAR10, CIFAR100

    return {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]


def folder_of(name: str, root: str | Path) -> Path:
    """Returns the folder that is read: of the official files, else of the subset.

    A broken first is no reason for the second.
    """
    base = Path(absolute(root))
    whole: Path = base / official(name).base_folder
    return whole if whole.is_dir() or not (base / name).is_dir() else base / name


def missing_files(name: str, root: str | Path) -> list[str]:
    """Returns the files that are missing in `folder_of(name, root)`."""
    folder = folder_of(name, root)
    if folder.name == name:
        subset = SUBSETS[name]
        return missing_in(folder, [*subset.mosaics("train"), *subset.mosaics("test"), f"{name}_labels.npz"])
    kind = official(name)
    files = [file for file, _ in kind.train_list + kind.test_list]
    return missing_in(folder, [*files, kind.meta["filename"]])


def read(name: str, root: str) -> tuple[list[np.ndarray], bool]:
    """Images (N, 3, 32, 32) and labels of train, then of test; True if they are the subset."""
    folder = folder_of(name, root)
    subset = folder.name == name
    require(name, root, folder, missing_files(name, root))
    parts: list[np.ndarray] = []
    for split in SPLITS:
        if subset:
            table = folder / f"{name}_labels.npz"
            with reading(name, root, table), table.open("rb") as file:
                labels = np.load(file, allow_pickle=False)[f"{split}_labels"]
            mosaics = [folder / file for file in SUBSETS[name].mosaics(split)]
            parts += [np.concatenate([_mosaic(name, root, path) for path in mosaics]), labels]
        else:
            with reading(name, root, folder):
                data = official(name)(root, train=split == "train")
            parts += [np.ascontiguousarray(data.data.transpose(0, 3, 1, 2)), np.array(data.targets)]
        parts[-1] = parts[-1].astype(np.int64)
    return parts, subset


def _mosaic(name: str, root: str, path: Path) -> UInt8[np.ndarray, "N 3 32 32"]:
    """The images of one file, row by row."""
    from PIL import Image

    rows, columns = MOSAIC
    with reading(name, root, path), Image.open(path, formats=["WEBP"]) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(rows, SIDE, columns, SIDE, 3)
    return pixels.transpose(0, 2, 4, 1, 3).reshape(rows * columns, 3, SIDE, SIDE)
