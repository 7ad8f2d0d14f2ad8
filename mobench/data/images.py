"""Base sets of grey 28 x 28 images: two embedded ones, made of scikit-learn's digits, and the official MNIST files."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.errors import DataError, choose

SIZE = 28
CLASSES = 10
NOISE = 90  # of digits_hard, grey levels of 255
COUNTS = {"train": 60_000, "t10k": 10_000}  # images in the official files

LABELS = {
    "digits": "scikit-learn digits, enlarged to 28 x 28",
    "digits_hard": "scikit-learn digits, enlarged, turned by 90 degrees and with noise (stand-in for Fashion-MNIST)",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
}
EMBEDDED = ("digits", "digits_hard")
OFFICIAL = ("mnist", "fashion_mnist")


@dataclass(frozen=True, eq=False)
class Images:
    """A base set. The tensors are shared by all who ask for the set: do not write into them.

    Fields:
        name: what `load_images` was asked for. label: for figures, a part of a sentence.
        train, test: grey levels, 0 = background. train_labels, test_labels: classes 0..9.
        digest: sha256 of train, train_labels, test, test_labels, little-endian.
        embedded: made of data that come with a dependency; else of files.
    """

    name: str
    label: str
    train: UInt8[Tensor, "N 28 28"]
    train_labels: Int64[Tensor, " N"]
    test: UInt8[Tensor, "T 28 28"]
    test_labels: Int64[Tensor, " T"]
    digest: str
    embedded: bool


def default_root() -> Path:
    """The folder of data files: $MOBENCH_DATA, else `data`; as in conf/config.yaml."""
    return Path(os.environ.get("MOBENCH_DATA") or "data")


def absolute(root: str | Path) -> str:
    """Key of caches: a relative path means another folder after a change of the working directory."""
    return str(Path(root).expanduser().absolute())


def digest_of(*arrays: np.ndarray) -> str:
    """sha256 of the bytes of all arrays, in this order; the same on every machine."""
    total = sha256()
    for a in arrays:
        total.update(np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")).data)
    return total.hexdigest()


def load_images(name: str, root: str | Path) -> Images:
    """The base set `name`; files are looked for below `root`, and never written. Read once in a process.

    Raises ConfigError for an unknown name, DataError for missing, incomplete or changed files.
    """
    choose("data", name, LABELS)
    return _load(name, "" if name in EMBEDDED else absolute(root))


@lru_cache(maxsize=4)
def _load(name: str, root: str) -> Images:
    arrays = _embedded(name) if name in EMBEDDED else _official(name, Path(root))
    with torch.inference_mode(False):
        x, y, test, test_y = (torch.from_numpy(a) for a in arrays)
    return Images(name, LABELS[name], x, y, test, test_y, digest_of(*arrays), name in EMBEDDED)


# embedded


def _embedded(name: str) -> list[np.ndarray]:
    """Train, its labels, test, its labels: every fifth image, from the first, is a test image. Integers throughout."""
    from sklearn.datasets import load_digits

    found = load_digits()
    grey = (found.images.astype(np.int64) * 255 + 8) // 16  # of 0..16
    images = np.pad(np.kron(grey, np.ones((1, 3, 3), dtype=np.int64)), ((0, 0), (2, 2), (2, 2)))
    if name == "digits_hard":
        rng = generator(0, data="digits_hard", use="noise")
        turned = np.rot90(images, axes=(1, 2))
        images = np.clip(turned + rng.integers(-NOISE, NOISE, size=turned.shape, endpoint=True), 0, 255)
    test = np.arange(len(images)) % 5 == 0
    x, y = images.astype(np.uint8), found.target.astype(np.int64)
    return [x[~test], y[~test], x[test], y[test]]


# official files


def _torchvision(name: str) -> Any:
    """torchvision's class of the set, for its folder, its file names and its checksums."""
    from torchvision.datasets import MNIST, FashionMNIST

    return {"mnist": MNIST, "fashion_mnist": FashionMNIST}[name]


def folder_of(name: str, root: str | Path) -> Path:
    """Where the files of an official set belong."""
    return Path(absolute(root)) / _torchvision(name).__name__ / "raw"


def _again(name: str, root: Path) -> str:
    return f"`python -m mobench.data {name} --root {root}`"


def missing_files(name: str, root: str | Path) -> list[str]:
    """Archives of an official set that are there neither packed nor unpacked."""
    folder = folder_of(name, root)
    return [
        file
        for file, _ in _torchvision(name).resources
        if not ((folder / file).is_file() or (folder / file).with_suffix("").is_file())
    ]


def _official(name: str, root: Path) -> list[np.ndarray]:
    """Train, its labels, test, its labels."""
    folder, again = folder_of(name, root), _again(name, root)
    try:
        if missing := missing_files(name, root):
            raise DataError(
                f"data={name} needs {', '.join(missing)} in {folder} (the official files, packed or unpacked); not "
                f"found. The environment variable MOBENCH_DATA or data_root chooses the folder {root}; {again} "
                f"downloads the files into it. data=digits is embedded and needs no file."
            )
        found = {file: _tensor(folder / file, md5, again) for file, md5 in _torchvision(name).resources}
    except OSError as error:
        raise DataError(
            f"The files of data={name} in {folder} could not be read, or not be unpacked into the temporary folder "
            f"{tempfile.gettempdir()} (the environment variable TMPDIR chooses another): {error}."
        ) from error
    parts = []
    for split, count in COUNTS.items():
        images, labels = (found[f"{split}-{kind}-ubyte.gz"] for kind in ("images-idx3", "labels-idx1"))
        _check(folder, f"{split}-images-idx3-ubyte", images, (count, SIZE, SIZE), (0, 255), again)
        _check(folder, f"{split}-labels-idx1-ubyte", labels, (count,), (0, CLASSES - 1), again)
        parts += [images.numpy(), labels.numpy()]
    return parts


def _tensor(archive: Path, md5: str, again: str) -> Tensor:
    """Contents of an archive with the right checksum, or of the unpacked file where there is no archive."""
    from torchvision.datasets.mnist import read_image_file, read_label_file
    from torchvision.datasets.utils import calculate_md5

    read = read_image_file if "images" in archive.name else read_label_file
    if not archive.is_file():
        return _parsed(archive.with_suffix(""), read, again)
    seen = calculate_md5(archive)
    if seen != md5:
        raise DataError(
            f"{archive} has md5 {seen}, {archive.stat().st_size} bytes; the official file has md5 {md5}. It is "
            f"incomplete or changed: delete it, then {again} downloads it again."
        )
    # torchvision reads from a path; the folder of the archive may be read-only
    with tempfile.TemporaryDirectory(prefix="mobench-") as folder:
        unpacked = Path(folder) / archive.stem
        with gzip.open(archive) as source, unpacked.open("wb") as target:
            shutil.copyfileobj(source, target)
        return _parsed(unpacked, read, again)


def _parsed(path: Path, read: Callable[[str], Tensor], again: str) -> Tensor:
    try:
        with torch.inference_mode(False):
            return read(str(path))
    except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:  # all that it raises
        raise DataError(
            f"{path} ({path.stat().st_size} bytes) is no complete IDX file: {error or type(error).__name__}. Delete it, "
            f"then {again} downloads it again."
        ) from error


def _check(folder: Path, file: str, found: Tensor, shape: tuple[int, ...], ends: tuple[int, int], again: str) -> None:
    """Raise DataError unless the tensor has the shape, and its least and largest number are `ends`."""
    if tuple(found.shape) != shape:
        raise DataError(
            f"{folder / file} has shape {tuple(found.shape)}; the official file has {shape}. Delete it, then {again} "
            f"downloads it again."
        )
    seen = (int(found.min()), int(found.max()))
    if seen != ends:
        raise DataError(
            f"{folder / file} has numbers from {seen[0]} to {seen[1]}; the official file has {ends[0]} to {ends[1]}. "
            f"Delete it, then {again} downloads it again."
        )


def download(name: str, root: str | Path) -> None:
    """Bring the official files below `root` by torchvision, from its mirrors; files that are there stay.

    Raises DataError where a mirror does not answer, or the folder cannot be written.
    """
    from http.client import HTTPException

    folder = folder_of(name, root)
    try:
        _torchvision(name)(absolute(root), download=True)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{name} could not be downloaded into {folder}: {reason.rstrip('.')}. Try again where there is a network, "
            f"or copy the official files {', '.join(file for file, _ in _torchvision(name).resources)} into that "
            f"folder. data=digits is embedded and needs no file."
        ) from error
