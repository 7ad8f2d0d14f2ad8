"""Base sets of images: two made of scikit-learn's digits, and the official files of MNIST and CIFAR-10.

MNIST, Fashion-MNIST and the embedded ones are grey and 28 x 28; CIFAR-10 has three channels and 32 x 32.
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.data import cifar
from mobench.data.files import absolute, digest_of, missing_in, reading, require, verify
from mobench.errors import DataError, choose

SIZE = 28
CLASSES = 10
NOISE = 90  # of digits_hard, grey levels of 255
SUBSET = cifar.SUBSETS["cifar10"].label

LABELS = {
    "digits": "scikit-learn digits, enlarged to 28 x 28",
    "digits_hard": "scikit-learn digits, enlarged, turned by 90 degrees and with noise (stand-in for "
    "Fashion-MNIST and CIFAR-10)",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}
EMBEDDED = ("digits", "digits_hard")
OFFICIAL = ("mnist", "fashion_mnist", "cifar10")


@dataclass(frozen=True, eq=False)
class Images:
    """A base set. The tensors are shared by all users of the set: do not write into them.

    Fields:
        name: the argument of `load_images`. label: for figures, a part of a sentence.
        train, test: grey levels (N, 28, 28), 0 = background; of CIFAR-10 red, green, blue (N, 3, 32, 32).
        train_labels, test_labels: classes 0..9.
        digest: sha256 of train, train_labels, test, test_labels, little-endian.
        embedded: made of data that come with a dependency; else of files.
        subset: `train` is but a part of the official training images; the label says so as well.
    """

    name: str
    label: str
    train: UInt8[Tensor, "N ..."]
    train_labels: Int64[Tensor, " N"]
    test: UInt8[Tensor, "T ..."]
    test_labels: Int64[Tensor, " T"]
    digest: str
    embedded: bool
    subset: bool = False


def load_images(name: str, root: str | Path) -> Images:
    """The base set `name`; files are looked for below `root`, and never written. Read once in a process.

    Raises ConfigError for an unknown name, DataError for missing, incomplete or changed files.
    """
    choose("data", name, LABELS)
    return _load(name, "" if name in EMBEDDED else absolute(root))


@lru_cache(maxsize=4)
def _load(name: str, root: str) -> Images:
    subset = False
    if name in EMBEDDED:
        arrays = _embedded(name)
    elif name == "cifar10":
        arrays, subset = cifar.read(name, root)
    else:
        arrays = _official(name, root)
    digest = digest_of(*arrays)
    if name in OFFICIAL:
        verify(f"{name} subset" if subset else name, root, folder_of(name, root), digest)
    label = SUBSET if subset else LABELS[name]
    with torch.inference_mode(False):
        x, y, test, test_y = (torch.from_numpy(a) for a in arrays)
    return Images(name, label, x, y, test, test_y, digest, name in EMBEDDED, subset)


# embedded


def _embedded(name: str) -> list[np.ndarray]:
    """Train, its labels, test, its labels: every fifth image, from the first, is a test image.

    Integers throughout.
    """
    pictures, labels = _digits()
    grey = (pictures.astype(np.int64) * 255 + 8) // 16  # of 0..16
    images = np.pad(np.kron(grey, np.ones((1, 3, 3), dtype=np.int64)), ((0, 0), (2, 2), (2, 2)))
    if name == "digits_hard":
        rng = generator(0, data="digits_hard", use="noise")
        turned = np.rot90(images, axes=(1, 2))
        images = np.clip(turned + rng.integers(-NOISE, NOISE, size=turned.shape, endpoint=True), 0, 255)
    test = np.arange(len(images)) % 5 == 0
    x = images.astype(np.uint8)
    y = labels.astype(np.int64)
    return [x[~test], y[~test], x[test], y[test]]


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 8, 8) of 0..16 and labels (n,) of scikit-learn's digits.

    Its file of numbers is read as `load_digits` reads it, without importing scikit-learn, which takes longer
    than a short job; where the file lies elsewhere, `load_digits` finds it.
    """
    spec = importlib.util.find_spec("sklearn")
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place, "datasets", "data", "digits.csv.gz")
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                table = np.loadtxt(lines, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images, digits.target


# official files

FOLDERS = {"mnist": "MNIST/raw", "fashion_mnist": "FashionMNIST/raw"}
FILES = tuple(
    f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)


def folder_of(name: str, root: str | Path) -> Path:
    """Returns the folder of an official set's files; for CIFAR, the one that has some of them."""
    return Path(absolute(root)) / FOLDERS[name] if name in FOLDERS else cifar.folder_of(name, root)


def missing_files(name: str, root: str | Path) -> list[str]:
    """Returns the files of an official set that are missing, both packed and unpacked."""
    if name not in FOLDERS:
        return cifar.missing_files(name, root)
    folder = folder_of(name, root)
    unpacked = set(FILES) - set(missing_in(folder, FILES))
    return missing_in(folder, [f"{file}.gz" for file in FILES if file not in unpacked])


def _official(name: str, root: str) -> list[np.ndarray]:
    """Train, its labels, test, its labels."""
    folder = folder_of(name, root)
    require(name, root, folder, missing_files(name, root))
    return [_idx(name, root, folder / file) for file in FILES]


def _idx(name: str, root: str, unpacked: Path) -> np.ndarray:
    """Grey levels or classes of a file: bytes behind a header of a magic number and the sizes."""
    packed = unpacked.with_name(f"{unpacked.name}.gz")
    path = packed if packed.is_file() else unpacked
    with reading(name, root, path):
        content = gzip.decompress(path.read_bytes()) if path == packed else path.read_bytes()
        if "labels" in path.name:
            return np.frombuffer(content, np.uint8, offset=8).astype(np.int64)
        return np.frombuffer(content, np.uint8, offset=16).reshape(-1, SIZE, SIZE).copy()


def download(name: str, root: str | Path) -> None:
    """Bring the official files below `root` by torchvision, from its mirrors; files that are there stay.

    Raises DataError where a mirror does not answer, or the folder cannot be written.
    """
    from http.client import HTTPException

    from torchvision.datasets import MNIST, FashionMNIST

    if name == "cifar10":
        kind: Any = cifar.official(name)
        folder = Path(absolute(root)) / kind.base_folder
    else:
        kind = {"mnist": MNIST, "fashion_mnist": FashionMNIST}[name]
        folder = folder_of(name, root)
    try:
        kind(absolute(root), download=True)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{name} could not be downloaded into {folder}: {reason.rstrip('.')}. Try again with a "
            f"network connection, or copy the official files into that folder. data=digits is embedded and "
            "needs no file."
        ) from error
    _load.cache_clear()  # may hold the subset that was found before
