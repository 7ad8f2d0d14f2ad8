"""Pictures with 40 binary attributes: CelebA, from a folder that you provide, and a generated stand-in.

CelebA (Liu, Luo, Wang, Tang 2015, "Deep learning face attributes in the wild") may be used for non-commercial
research only, on the terms of its authors. Nothing of it comes with this package, and nothing is downloaded:
ask for it at the project's page, https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int8, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.data.images import absolute, digest_of
from mobench.errors import ConfigError, DataError, choose
from mobench.system.console import say
from mobench.system.paths import cache_root

FOLDER = "celeba"
IMAGES = "img_align_celeba"
LIST = "list_attr_celeba.txt"
PARTITION = "list_eval_partition.txt"
WHOLE = 202_599  # images of the official set
ORIGINAL = (178, 218)  # width and height of an image
TOP = (ORIGINAL[1] - ORIGINAL[0]) // 2  # first row of the square in the middle
SIZES = {"celeba_synth": 16, "celeba": 64}  # side of a picture
EMBEDDED = ("celeba_synth",)
LABELS = {
    "celeba_synth": "generated pictures with 40 attributes (stand-in for CelebA)",
    "celeba": "CelebA, 64 x 64",
}
SPLITS = {"train": 0, "test": 2}  # numbers of the official partition; 1, validation, is not used
CHUNK = 1024  # images decoded before they are written
IMAGE = re.compile(r"[^/\\]+\.jpg")
MARKS = frozenset({"1", "-1"})

ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips",
    "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin",
    "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open",
    "Mustache", "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline",
    "Rosy_Cheeks", "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat",
    "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip
EMBEDDED_INSTEAD = "problem.data=celeba_synth is embedded and needs no file."

SYNTH = {"train": 2000, "test": 500}
FACTORS = 12  # hidden numbers behind a generated picture and its attributes
RATES = (0.05, 0.6)  # rarest and commonest attribute of the stand-in


@dataclass(frozen=True, eq=False)
class Faces:
    """Labelled pictures. The tensors are shared by all users of the set: do not write into them.

    Fields:
        name: the argument of `faces`. label: for figures, a part of a sentence.
        attributes: names of the columns of the labels.
        train_labels, test_labels: 1 where a picture has the attribute, else 0.
        side: height and width of a picture. embedded: generated, no file was read.
    """

    name: str
    label: str
    attributes: tuple[str, ...]
    train_labels: Int8[Tensor, "N A"]
    test_labels: Int8[Tensor, "T A"]
    side: int
    embedded: bool
    _pictures: dict[str, UInt8[Tensor, "N 3 S S"]] = field(default_factory=dict, repr=False)
    _files: dict[str, list[Path]] = field(default_factory=dict, repr=False)
    _sums: dict[str, str] = field(default_factory=dict, repr=False)

    def pictures(self, split: str) -> UInt8[Tensor, "N 3 S S"]:
        """Red, green, blue of all pictures of a split; those of CelebA are decoded when first used.

        Raises DataError for an image that is broken, and where the cache cannot be written.
        """
        if split not in self._pictures:
            pixels, self._sums[split] = decoded(self._files[split], self.side)
            with torch.inference_mode(False):
                self._pictures[split] = torch.from_numpy(pixels)
        return self._pictures[split]

    @property
    def digest(self) -> str:
        """sha256 of labels and pictures, training part first; asks for the pictures."""
        for split in SPLITS:
            self.pictures(split)
        sums = "".join(self._sums[split] for split in SPLITS).encode()
        return digest_of(
            self.train_labels.numpy(), self.test_labels.numpy(), np.frombuffer(sums, dtype=np.uint8)
        )


def faces(name: str, root: str | Path, train_size: int | None = None, test_size: int | None = None) -> Faces:
    """The set `name`: celeba_synth (embedded) or celeba (a folder below `root`); made once in a process.

    celeba: the official layout in <root>/celeba, with the official partition; its validation part is not
    used.

        img_align_celeba/000001.jpg ...   178 x 218 JPEG ("align and crop")
        list_attr_celeba.txt              number of images; 40 names; a line `000001.jpg -1 1 ...` for each
                                          image
        list_eval_partition.txt           a line `000001.jpg 0` for each image: 0 train, 1 validation, 2 test

    An image is cut to the 178 x 178 pixels in its middle (rows 20 to 197) and made 64 x 64 with Pillow's
    bilinear filter, which averages over all pixels that it covers. The pictures are kept in `cache_root()`.
    train_size, test_size: the first so many images of either part, in the order of list_attr_celeba.txt;
    None: all. Others need not be there.
    Raises ConfigError for an unknown name or an impossible size, DataError for missing or wrong files.
    """
    choose("problem.data", name, LABELS)
    return _faces(name, "" if name in EMBEDDED else absolute(root), train_size, test_size)


@lru_cache(maxsize=4)
def _faces(name: str, root: str, train_size: int | None, test_size: int | None) -> Faces:
    sizes = {"train": train_size, "test": test_size}
    if name in EMBEDDED:
        pictures, labels = synthetic()
        limits = {split: _limited(name, split, size, len(labels[split])) for split, size in sizes.items()}
        with torch.inference_mode(False):
            targets = {split: torch.from_numpy(labels[split][:n]) for split, n in limits.items()}
            tensors = {split: torch.from_numpy(pictures[split][:n]) for split, n in limits.items()}
        sums = {split: digest_of(x.numpy()) for split, x in tensors.items()}
        parts = targets["train"], targets["test"], SIZES[name]
        return Faces(name, LABELS[name], names_of(name), *parts, embedded=True, _pictures=tensors, _sums=sums)
    folder = Path(root) / FOLDER
    files, table, partition = _lists(root)
    targets = {}
    paths = {}
    for split, number in SPLITS.items():
        index = np.flatnonzero(partition == number)
        if not len(index):
            raise DataError(
                f"{folder / PARTITION} lists no {split} image ({number}), but must list at least one. Copy "
                f"the file again. {EMBEDDED_INSTEAD}"
            )
        index = index[: _limited(name, split, sizes[split], len(index))]
        with torch.inference_mode(False):
            targets[split] = torch.from_numpy(table[index])
        paths[split] = [folder / IMAGES / files[i] for i in index]
    _present(folder / IMAGES, [path.name for part in paths.values() for path in part])
    label = LABELS[name] if len(files) == WHOLE else f"{LABELS[name]}, {len(files):,} of {WHOLE:,} images"
    parts = targets["train"], targets["test"], SIZES[name]
    return Faces(name, label, names_of(name), *parts, embedded=False, _files=paths)


def names_of(name: str) -> tuple[str, ...]:
    """Names of the 40 attributes of a set."""
    return ATTRIBUTES if name == "celeba" else tuple(f"attribute_{m + 1:02d}" for m in range(len(ATTRIBUTES)))


def _limited(name: str, split: str, size: int | None, largest: int) -> int:
    """The number of pictures of a part that are used."""
    if size is None:
        return largest
    if not 1 <= size <= largest:
        raise ConfigError(
            f"problem.{split}_size={size} is out of range: {LABELS[name]} has {largest} {split} images. "
            f"Choose 1..{largest}, or null for all."
        )
    return size


# the official layout


def missing_files(root: str | Path) -> list[str]:
    """Returns the missing parts of the official layout in <root>/celeba; single images are not checked."""
    folder = Path(absolute(root)) / FOLDER
    lost = [file for file in (LIST, PARTITION) if not (folder / file).is_file()]
    return lost if (folder / IMAGES).is_dir() else [*lost, f"{IMAGES}/"]


@lru_cache(maxsize=1)
def _lists(root: str) -> tuple[list[str], Int8[np.ndarray, "N 40"], Int8[np.ndarray, " N"]]:
    """Names of the images, their attributes (0 or 1) and parts, in the order of list_attr_celeba.txt."""
    folder = Path(root) / FOLDER
    if missing := missing_files(root):
        raise DataError(
            f"data=celeba needs {', '.join(missing)} in {folder} (the official layout, images unpacked), "
            "which was not found. The environment variable MOBENCH_DATA or data_root sets the folder "
            f"{root}. CelebA is "
            "for non-commercial research only and is not downloaded automatically; see "
            f"https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html. {EMBEDDED_INSTEAD}"
        )
    files, table = _attributes(folder / LIST)
    place = {file: k for k, file in enumerate(files)}
    partition = np.full(len(files), -1, dtype=np.int8)
    path = folder / PARTITION
    for number, cells in _lines(path):
        if len(cells) != 2 or cells[1] not in ("0", "1", "2"):
            raise _wrong(
                path, number, f"found {' '.join(cells)[:60]!r}, but expected FILE.jpg and 0, 1 or 2."
            )
        if cells[0] not in place:
            raise _wrong(
                path, number, f"{cells[0][:60]!r} is not in {LIST}, but both must list the same images."
            )
        if partition[place[cells[0]]] >= 0:
            raise _wrong(
                path, number, f"{cells[0]} is listed a second time, but every image must be listed once."
            )
        partition[place[cells[0]]] = int(cells[1])
    if (partition < 0).any():
        lost = files[int(np.argmin(partition))]
        raise DataError(
            f"{path} lacks {int((partition < 0).sum())} images of {LIST}, the first being {lost}; it must "
            f"list all {len(files)}. Copy the file again. {EMBEDDED_INSTEAD}"
        )
    return files, table, partition


def _attributes(path: Path) -> tuple[list[str], Int8[np.ndarray, "N 40"]]:
    """Names of the images and their attributes."""
    lines = _lines(path)
    number, count = next(lines, (1, []))
    if len(count) != 1 or not count[0].isdecimal() or int(count[0]) < 1:
        raise _wrong(path, number, f"found {' '.join(count)[:60]!r}, but expected the number of images.")
    number, names = next(lines, (2, []))
    if tuple(names) != ATTRIBUTES:
        k = next(
            (k for k, pair in enumerate(zip(names, ATTRIBUTES, strict=False)) if pair[0] != pair[1]), None
        )
        first = "" if k is None else f", name {k + 1} is {names[k][:40]!r} instead of {ATTRIBUTES[k]!r}"
        raise _wrong(
            path,
            number,
            f"found {len(names)} names of attributes{first}, but expected CelebA's {len(ATTRIBUTES)}.",
        )
    files: list[str] = []
    marks = bytearray()  # 8 million of them
    seen: set[str] = set()
    for number, (file, *cells) in lines:
        if not IMAGE.fullmatch(file):
            raise _wrong(
                path, number, f"found {file[:60]!r}, but expected the name of an image such as 000001.jpg."
            )
        if len(cells) != len(ATTRIBUTES):
            raise _wrong(path, number, f"{file} has {len(cells)} values, but expected {len(ATTRIBUTES)}.")
        if not MARKS.issuperset(cells):
            bad = next(cell for cell in cells if cell not in MARKS)
            raise _wrong(path, number, f"{file} has the value {bad[:20]!r}, but expected 1 or -1.")
        if file in seen:
            raise _wrong(
                path, number, f"{file} is listed a second time, but every image must be listed once."
            )
        seen.add(file)
        files.append(file)
        marks.extend(map("1".__eq__, cells))
    if len(files) != int(count[0]):
        raise DataError(
            f"{path} lists {len(files)} images, but its first line says {count[0]}. It is incomplete or "
            f"modified; copy it again. {EMBEDDED_INSTEAD}"
        )
    return files, np.frombuffer(bytes(marks), dtype=np.int8).reshape(len(files), len(ATTRIBUTES)).copy()


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and words of every line that has some."""
    try:
        with path.open(encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                if cells := line.split():
                    yield number, cells
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} could not be read as text: {error}. Copy the file again. {EMBEDDED_INSTEAD}"
        ) from error


def _wrong(path: Path, number: int, what: str) -> DataError:
    return DataError(f"{path}, line {number}: {what} Copy the official file again. {EMBEDDED_INSTEAD}")


def _present(folder: Path, files: Sequence[str]) -> None:
    """Raise DataError unless all images are in the folder."""
    try:
        there = {entry.name for entry in os.scandir(folder)}
    except OSError as error:
        raise DataError(f"{folder} could not be read: {error}. {EMBEDDED_INSTEAD}") from error
    if lost := [file for file in files if file not in there]:
        raise DataError(
            f"{folder} lacks {len(lost)} of the {len(files)} requested images, the first being {lost[0]}. "
            "Unpack img_align_celeba.zip there, or limit problem.train_size and problem.test_size. "
            f"{EMBEDDED_INSTEAD}"
        )


# decoding


def decoded(files: Sequence[Path], side: int) -> tuple[UInt8[np.ndarray, "N 3 S S"], str]:
    """Returns the pictures of some images as an array on the disk, cached, and its sha256.

    The cache is keyed by the names, sizes and times of the images. It is written under another name and then
    renamed, so that a reader sees all of it or nothing; two jobs that need it at the same time both
    decode. The checksum is stored when the array is written, and not computed again.
    """
    key = hashlib.sha256(f"1|{side}".encode())
    try:
        for path in files:
            status = path.stat()
            key.update(f"|{path.name}|{status.st_size}|{status.st_mtime_ns}".encode())
    except OSError as error:
        raise DataError(f"{path} could not be read: {error}. {EMBEDDED_INSTEAD}") from error
    cached = cache_root() / f"celeba-{side}-{key.hexdigest()[:32]}.npy"
    note = cached.with_suffix(".json")
    shape = (len(files), 3, side, side)
    try:
        with suppress(FileNotFoundError, EOFError, ValueError, KeyError):  # no cache, or one that is broken
            array = np.load(cached, mmap_mode="c")
            if array.shape == shape and array.dtype == np.uint8:
                return array, str(json.loads(note.read_text())["sha256"])
        if len(files) > CHUNK:
            say(
                f"mobench: decoding {len(files)} images of {files[0].parent} into {cached.parent} "
                "(only once).",
                sys.stderr,
            )
        cached.parent.mkdir(parents=True, exist_ok=True)
        suffix = f"{socket.gethostname()}.{os.getpid()}.tmp"
        temporary, second = (path.with_name(f".{path.name}.{suffix}") for path in (cached, note))
        try:
            total = _decode(files, side, temporary)
            second.write_text(json.dumps({"sha256": total, "images": len(files)}))
            second.replace(note)
            temporary.replace(cached)
        finally:
            temporary.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
        return np.load(cached, mmap_mode="c"), total
    except OSError as error:
        raise DataError(
            f"The decoded images could not be stored in {cached.parent} "
            f"({math.prod(shape) / 2**20:.0f} MiB): {error}. "
            "Free space, or choose another folder with MOBENCH_CACHE=DIR."
        ) from error


def _decode(files: Sequence[Path], side: int, target: Path) -> str:
    """Write all pictures to `target`; their sha256.

    Not through a memory map, which a full disk would kill.
    """
    total = hashlib.sha256()
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(files), 3, side, side)}
    # Pillow decodes without Python's lock
    workers = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    with workers, target.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        for k in range(0, len(files), CHUNK):
            part = np.stack(list(workers.map(partial(_picture, side=side), files[k : k + CHUNK])))
            out.write(part.data)
            total.update(part.data)
        out.flush()
        os.fsync(out.fileno())
    return total.hexdigest()


def _picture(path: Path, side: int) -> UInt8[np.ndarray, "3 S S"]:
    """The square in the middle of one image, made smaller."""
    from PIL import Image

    try:
        with Image.open(path, formats=["JPEG"]) as image:
            size = image.size
            if size == ORIGINAL:
                box = (0, TOP, ORIGINAL[0], TOP + ORIGINAL[0])
                square = image.convert("RGB").crop(box).resize((side, side), Image.Resampling.BILINEAR)
    except (EOFError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        why = str(error).split("<")[0].strip() or type(error).__name__
        raise DataError(
            f"{path} is not a complete JPEG image: {why}. Unpack it again from img_align_celeba.zip. "
            f"{EMBEDDED_INSTEAD}"
        ) from error
    if size != ORIGINAL:
        raise DataError(
            f"{path} is {size[0]} x {size[1]} pixels, but expected {ORIGINAL[0]} x {ORIGINAL[1]}, the images "
            f"that CelebA calls aligned and cropped (img_align_celeba.zip). {EMBEDDED_INSTEAD}"
        )
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


# the stand-in


@lru_cache(maxsize=1)
def synthetic() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Pictures (N, 3, 16, 16) and labels (N, 40) of train and test, all made up.

    Behind a picture are 12 normal numbers u. The picture is grey, plus a smooth coloured pattern for each
    number (three bumps), squashed into 0..255 by tanh, and noise of 12 grey levels. An attribute is there
    where a_m'u + noise exceeds a threshold: a_m is a unit vector, most of it in three of the numbers, so that
    attributes which share some are correlated; the noise, of standard deviation .15 to .6, cannot be learned.
    The rates of the attributes, of train and test together, run evenly on a logarithmic scale from 5 to 60 %,
    in random order.
    """
    rng = generator(0, data="celeba_synth", use="pictures")
    N = sum(SYNTH.values())
    A = len(ATTRIBUTES)
    side = SIZES["celeba_synth"]
    y, x = np.mgrid[0:side, 0:side] / (side - 1.0)
    patterns = np.zeros((FACTORS, 3, side, side))
    for k in range(FACTORS):
        for _ in range(3):
            row, column = rng.random(2)
            width = rng.uniform(0.12, 0.35)
            bump = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2.0 * width**2))
            patterns[k] += rng.standard_normal((3, 1, 1)) * bump
    u = rng.standard_normal((N, FACTORS))
    shade = np.tanh(0.5 * np.einsum("nk,kchw->nchw", u, patterns))
    pictures = np.clip(
        np.rint(127.5 + 110.0 * shade + 12.0 * rng.standard_normal(shade.shape)), 0, 255
    ).astype(np.uint8)
    weights = 0.15 * rng.standard_normal((A, FACTORS))
    for m in range(A):
        weights[m, rng.choice(FACTORS, 3, replace=False)] += rng.choice([-1.0, 1.0], 3) * rng.uniform(
            0.5, 1.0, 3
        )
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    scores = u @ weights.T + rng.uniform(0.15, 0.6, A) * rng.standard_normal((N, A))
    rates = rng.permutation(np.geomspace(*RATES, A))
    thresholds = [np.quantile(scores[:, m], 1.0 - rate) for m, rate in enumerate(rates)]
    labels = (scores > np.array(thresholds)).astype(np.int8)
    cut = SYNTH["train"]
    return (
        {"train": pictures[:cut], "test": pictures[cut:]},
        {"train": labels[:cut], "test": labels[cut:]},
    )
