"""Base sets of images: two made of scikit-learn's digits, and the official files of MNIST and CIFAR-10.

MNIST, Fashion-MNIST and the embedded ones are grey and 28 x 28; CIFAR-10 has three channels and 32 x 32.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import importlib.util
import os
import pickle
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.errors import DataError, choose

SIZE = 28
CLASSES = 10
NOISE = 90  # of digits_hard, grey levels of 255
COUNTS = {"train": 60_000, "t10k": 10_000}  # images in the official files of MNIST and Fashion-MNIST

CIFAR_SIZE = 32
MOSAIC_FOLDER = "cifar10"
MOSAIC_LABELS = "cifar10_labels.npz"
MOSAICS = {"train": 25, "test": 10}  # files of the subset
MOSAIC = (40, 25)  # rows and columns of images in each
SUBSET = "CIFAR-10, 25k train subset"
# the first 2,500 of each class
SUBSET_DIGEST = "666eff18d994f40daec4a918d112a41718bbc77c50677377325cc21ea5416a0f"

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


def default_root() -> Path:
    """The folder of data files: $MOBENCH_DATA, else `data`; as in conf/config.yaml."""
    return Path(os.environ.get("MOBENCH_DATA") or "data")


def absolute(root: str | Path) -> str:
    """Key of caches: a relative path means another folder after a change of the working directory."""
    return str(Path(root).expanduser().absolute())


def digest_of(*arrays: np.ndarray) -> str:
    """sha256 of the bytes of all arrays, in this order; the same on every machine."""
    total = hashlib.sha256()
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
    subset = False
    if name == "cifar10":
        arrays, subset = _cifar10(Path(root))
    else:
        arrays = _embedded(name) if name in EMBEDDED else _official(name, Path(root))
    label = SUBSET if subset else LABELS[name]
    with torch.inference_mode(False):
        x, y, test, test_y = (torch.from_numpy(a) for a in arrays)
    return Images(name, label, x, y, test, test_y, digest_of(*arrays), name in EMBEDDED, subset)


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


def _torchvision(name: str) -> Any:
    """torchvision's class of the set, for its folder, its file names and its checksums."""
    from torchvision.datasets import CIFAR10, MNIST, FashionMNIST

    return {"mnist": MNIST, "fashion_mnist": FashionMNIST, "cifar10": CIFAR10}[name]


def folder_of(name: str, root: str | Path) -> Path:
    """Returns the folder of an official set's files; for CIFAR-10, the one that has some of them."""
    base = Path(absolute(root))
    return base / _cifar_source(base) if name == "cifar10" else base / _torchvision(name).__name__ / "raw"


def _again(name: str, root: Path) -> str:
    return f"`mobench data {name} --root {root}`"


def missing_files(name: str, root: str | Path) -> list[str]:
    """Returns the files of an official set that are missing, both packed and unpacked."""
    folder = folder_of(name, root)
    if name == "cifar10":
        return [file for file in _cifar_files(folder.name) if not (folder / file).is_file()]
    return [
        file
        for file, _ in _torchvision(name).resources
        if not ((folder / file).is_file() or (folder / file).with_suffix("").is_file())
    ]


def _official(name: str, root: Path) -> list[np.ndarray]:
    """Train, its labels, test, its labels."""
    folder = folder_of(name, root)
    again = _again(name, root)
    try:
        if missing := missing_files(name, root):
            raise DataError(
                f"data={name} needs {', '.join(missing)} in {folder} (the official files, packed or "
                "unpacked), which could not be found. The environment variable MOBENCH_DATA or data_root "
                f"sets the folder {root}; {again} downloads the files into it. "
                "data=digits is embedded and needs no file."
            )
        tensors = {file: _tensor(folder / file, md5, again) for file, md5 in _torchvision(name).resources}
    except OSError as error:
        raise DataError(
            f"The files of data={name} in {folder} could not be read, or could not be unpacked into the "
            f"temporary folder {tempfile.gettempdir()} (the environment variable TMPDIR sets another): "
            f"{error}."
        ) from error
    parts = []
    for split, count in COUNTS.items():
        images, labels = (tensors[f"{split}-{kind}-ubyte.gz"] for kind in ("images-idx3", "labels-idx1"))
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
            f"{archive} has md5 {seen} ({archive.stat().st_size} bytes), but the official file has md5 "
            f"{md5}. It is incomplete or modified; delete it, then {again} downloads it again."
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
    # all that it raises
    except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} ({path.stat().st_size} bytes) is not a complete IDX file: "
            f"{error or type(error).__name__}. Delete it, then {again} downloads it again."
        ) from error


def _check(
    folder: Path, file: str, tensor: Tensor, shape: tuple[int, ...], ends: tuple[int, int], again: str
) -> None:
    """Raise DataError unless the tensor has the shape, and its least and largest number are `ends`."""
    if tuple(tensor.shape) != shape:
        raise DataError(
            f"{folder / file} has shape {tuple(tensor.shape)}, but the official file has {shape}. Delete it, "
            f"then {again} downloads it again."
        )
    seen = (int(tensor.min()), int(tensor.max()))
    if seen != ends:
        raise DataError(
            f"{folder / file} has values from {seen[0]} to {seen[1]}, but the official file has {ends[0]} to "
            f"{ends[1]}. Delete it, then {again} downloads it again."
        )


# CIFAR-10


def _cifar_source(root: Path) -> str:
    """The folder that is read: of the official batches, else of the mosaics.

    A broken first is no reason for the second.
    """
    official: str = _torchvision("cifar10").base_folder
    return official if (root / official).is_dir() or not (root / MOSAIC_FOLDER).is_dir() else MOSAIC_FOLDER


def _cifar_files(folder: str) -> list[str]:
    """Returns the files that belong into the folder."""
    if folder == MOSAIC_FOLDER:
        return [f"{split}_{k:02d}.webp" for split, count in MOSAICS.items() for k in range(count)] + [
            MOSAIC_LABELS
        ]
    kind = _torchvision("cifar10")
    return [file for file, _ in kind.train_list + kind.test_list]


def _cifar10(root: Path) -> tuple[list[np.ndarray], bool]:
    """Train, its labels, test, its labels; whether this is the subset."""
    folder = folder_of("cifar10", root)
    again = _again("cifar10", root)
    subset = folder.name == MOSAIC_FOLDER
    try:
        if missing := missing_files("cifar10", root):
            wanted = f"the files of the {SUBSET}" if subset else "the official batches, unpacked"
            other = "" if subset else f", nor is there a folder {root / MOSAIC_FOLDER} with the {SUBSET}"
            raise DataError(
                f"data=cifar10 needs {', '.join(missing)} in {folder} ({wanted}), which could not be "
                f"found{other}. The environment variable MOBENCH_DATA or data_root sets the folder {root}; "
                f"{again} downloads the official files into it. data=digits is embedded and needs no file."
            )
        return (_mosaics(folder) if subset else _batches(folder, again)), subset
    except OSError as error:
        raise DataError(f"The files of data=cifar10 in {folder} could not be read: {error}.") from error


def _batches(folder: Path, again: str) -> list[np.ndarray]:
    """The official files."""
    kind = _torchvision("cifar10")
    parts: list[np.ndarray] = []
    for files in (kind.train_list, kind.test_list):
        images = []
        labels = []
        for file, md5 in files:
            batch = unpickled(folder / file, md5, f"delete it, then {again} downloads it again.")
            images.append(np.asarray(batch["data"], dtype=np.uint8).reshape(-1, 3, CIFAR_SIZE, CIFAR_SIZE))
            labels.append(np.asarray(batch["labels"], dtype=np.int64))
        parts += [np.concatenate(images), np.concatenate(labels)]
    return parts


class _Arrays(pickle.Unpickler):
    """Reads text, numbers, containers and arrays, and refuses all else that a pickle could run."""

    known: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(1).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.zeros(1).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): codecs.encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise DataError(
                f"a data file contains {module}.{name}, which is not an array, so it is not an official file."
            )
        return self.known[module, name]


def unpickled(path: Path, md5: str, advice: str) -> dict[str, Any]:
    """The content of an official file with the right checksum, read as data: a pickle could do anything."""
    content = path.read_bytes()  # once: a file could be exchanged after its checksum
    seen = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if seen != md5:
        raise DataError(
            f"{path} has md5 {seen} ({len(content)} bytes), but the official file has md5 {md5}. It is "
            f"incomplete or modified; {advice}"
        )
    batch: dict[str, Any] = _Arrays(BytesIO(content), encoding="latin1").load()
    return batch


def _mosaics(folder: Path) -> list[np.ndarray]:
    """A subset with the official pixels in another container: lossless WebP files of 40 rows of 25 images."""
    labels = _mosaic_labels(folder / MOSAIC_LABELS)
    parts = []
    for split, count in MOSAICS.items():
        images = [_mosaic(folder / f"{split}_{k:02d}.webp") for k in range(count)]
        parts += [np.concatenate(images), labels[f"{split}_labels"].astype(np.int64)]
    if (seen := digest_of(*parts)) != SUBSET_DIGEST:
        raise DataError(
            f"The files in {folder} are readable, but their pixels and labels have sha256 {seen}, while the "
            f"{SUBSET} has {SUBSET_DIGEST}. Some of them were modified or replaced; copy the folder again."
        )
    return parts


def _mosaic_labels(path: Path) -> dict[str, np.ndarray]:
    """Labels of both splits, one for each image and class 0..9."""
    tables = {}
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            for split in MOSAICS:
                tables[f"{split}_labels"] = arrays[f"{split}_labels"]
    except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} ({path.stat().st_size} bytes) is not a complete NPZ file with the arrays train_labels "
            f"and test_labels: {error}. Copy the folder again."
        ) from error
    for split, count in MOSAICS.items():
        labels = tables[f"{split}_labels"]
        shape = (count * MOSAIC[0] * MOSAIC[1],)
        if (
            labels.shape != shape
            or labels.dtype.kind not in "iu"
            or not np.isin(labels, range(CLASSES)).all()
        ):
            raise DataError(
                f"{path}: {split}_labels has shape {labels.shape} and type {labels.dtype}, but expected "
                f"{shape[0]} whole numbers 0..{CLASSES - 1}. Copy the folder again."
            )
    return tables


def _mosaic(path: Path) -> UInt8[np.ndarray, "N 3 32 32"]:
    """The images of one file, row by row."""
    from PIL import Image

    rows, columns = MOSAIC
    content = path.read_bytes()
    try:
        with Image.open(BytesIO(content), formats=["WEBP"]) as picture:
            size = picture.size
            pixels = np.asarray(picture.convert("RGB"))
    except (EOFError, OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"{path} ({len(content)} bytes) is not a complete WebP image, or Pillow was built without WebP: "
            f"{str(error).split('<')[0].strip()}. Copy the folder again."
        ) from error
    wanted = (columns * CIFAR_SIZE, rows * CIFAR_SIZE)
    if size != wanted:
        raise DataError(
            f"{path} is {size[0]} x {size[1]} pixels, but expected {wanted[0]} x {wanted[1]}: {rows} rows of "
            f"{columns} images. Copy the folder again."
        )
    tiles = pixels.reshape(rows, CIFAR_SIZE, columns, CIFAR_SIZE, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(rows * columns, 3, CIFAR_SIZE, CIFAR_SIZE)


def download(name: str, root: str | Path) -> None:
    """Bring the official files below `root` by torchvision, from its mirrors; files that are there stay.

    Raises DataError where a mirror does not answer, or the folder cannot be written.
    """
    from http.client import HTTPException

    kind = _torchvision(name)
    folder = folder_of(name, root)
    files = [file for file, _ in kind.resources] if name != "cifar10" else _cifar_files(kind.base_folder)
    if name == "cifar10":
        folder = folder.parent / kind.base_folder
    try:
        kind(absolute(root), download=True)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{name} could not be downloaded into {folder}: {reason.rstrip('.')}. Try again with a "
            f"network connection, or copy the official files {', '.join(files)} into that folder. "
            "data=digits is embedded and needs no file."
        ) from error
    _load.cache_clear()  # may hold the subset that was found before
