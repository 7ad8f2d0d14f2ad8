"""Pictures with 40 binary attributes: CelebA, from a folder that you provide, and a generated stand-in.

CelebA (Liu, Luo, Wang, Tang 2015, "Deep learning face attributes in the wild") may be used for non-commercial
research only, on the terms of its authors. Nothing of it comes with this package, and nothing is downloaded:
ask for it at the project's page, https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int8, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.data.files import absolute, advice, digest_of, missing_in, reading, require
from mobench.errors import ConfigError, DataError, choose
from mobench.system.console import say
from mobench.system.paths import cache_root

FOLDER = "celeba"
IMAGES = "img_align_celeba"
LIST = "list_attr_celeba.txt"
PARTITION = "list_eval_partition.txt"
USED = 162_770 + 19_962  # training and test images of the official set
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
ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips",
    "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin",
    "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open",
    "Mustache", "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline",
    "Rosy_Cheeks", "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat",
    "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip

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

    def pictures(self, split: str) -> UInt8[Tensor, "N 3 S S"]:
        """Red, green, blue of all pictures of a split; those of CelebA are decoded when first used.

        Raises DataError for an image that is broken.
        """
        if split not in self._pictures:
            pixels = decoded(self._files[split], self.side)
            with torch.inference_mode(False):
                self._pictures[split] = torch.from_numpy(pixels)
        return self._pictures[split]

    @cached_property
    def digest(self) -> str:
        """sha256 of labels and pictures, training part first; asks for the pictures."""
        sums = "".join(digest_of(self.pictures(split).numpy()) for split in SPLITS).encode()
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
    pictures: dict[str, Tensor] = {}
    paths: dict[str, list[Path]] = {}
    label = LABELS[name]
    if name in EMBEDDED:
        pixels, labels = synthetic()
        labels = dict(labels)
    else:
        paths, labels = _official(root)
        images = sum(len(part) for part in paths.values())
        if images < USED:
            label += f", {images:,} of {USED:,} training and test images"
    with torch.inference_mode(False):
        for split, size in sizes.items():
            largest = len(labels[split])
            if size is not None and not 1 <= size <= largest:
                raise ConfigError(
                    f"problem.{split}_size={size} is out of range: {LABELS[name]} has {largest} {split} "
                    f"images. Choose 1..{largest}, or null for all."
                )
            labels[split] = labels[split][:size]
            if name in EMBEDDED:
                pictures[split] = torch.from_numpy(pixels[split][:size])
            else:
                paths[split] = paths[split][:size]
        train, test = (torch.from_numpy(labels[split]) for split in SPLITS)
    if paths:
        folder = Path(root) / FOLDER / IMAGES
        there = {path.name for path in folder.iterdir()}
        wanted = [path.name for part in paths.values() for path in part]
        require(name, root, folder, [file for file in wanted if file not in there])
    attributes = names_of(name)
    return Faces(name, label, attributes, train, test, SIZES[name], name in EMBEDDED, pictures, paths)


def names_of(name: str) -> tuple[str, ...]:
    """Names of the 40 attributes of a set."""
    return ATTRIBUTES if name == "celeba" else tuple(f"attribute_{m + 1:02d}" for m in range(len(ATTRIBUTES)))


# the official layout


def missing_files(root: str | Path) -> list[str]:
    """Returns the missing parts of the official layout in <root>/celeba; single images are not checked."""
    return missing_in(Path(absolute(root)) / FOLDER, [LIST, PARTITION, f"{IMAGES}/"])


def _official(root: str) -> tuple[dict[str, list[Path]], dict[str, Int8[np.ndarray, "N 40"]]]:
    """Images and their attributes (0 or 1) of each part, in the order of list_attr_celeba.txt."""
    folder = Path(root) / FOLDER
    require("celeba", root, folder, missing_files(root))
    with reading("celeba", root, folder / LIST), (folder / LIST).open(encoding="utf-8") as lines:
        count = int(next(lines))
        table = pd.read_csv(lines, sep=r"\s+")  # one name less than columns: the first is the index
    with reading("celeba", root, folder / PARTITION):
        part = pd.read_csv(folder / PARTITION, sep=r"\s+", header=None, index_col=0)[1]
    faults = {
        f"the first line of {LIST} says {count} images, but {len(table)} follow": len(table) != count,
        f"the second line of {LIST} has other names than CelebA's 40": tuple(table.columns) != ATTRIBUTES,
        f"attributes in {LIST} are other than 1 and -1": not table.isin([1, -1]).all(axis=None),
        f"{PARTITION} lists other images than {LIST}, or others first": not table.index.equals(part.index),
        f"{LIST} lists an image twice": not table.index.is_unique,
        f"numbers in {PARTITION} are other than 0, 1 and 2": not part.isin([0, 1, 2]).all(),
        f"{PARTITION} lists no image of train (0) or of test (2)": not {0, 2} <= set(part),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise DataError(f"{folder}: {fault}. Copy both official lists again: {advice('celeba', root)}")
    marks = (table.to_numpy() == 1).astype(np.int8)
    names = table.index.to_numpy()
    held = {split: (part == number).to_numpy() for split, number in SPLITS.items()}
    paths = {split: [folder / IMAGES / name for name in names[mask]] for split, mask in held.items()}
    return paths, {split: marks[mask] for split, mask in held.items()}


# decoding


def decoded(files: Sequence[Path], side: int) -> UInt8[np.ndarray, "N 3 S S"]:
    """Returns the pictures of some images as an array on the disk, which is cached.

    The cache is keyed by the names, sizes and times of the images. It is written under another name and then
    renamed, so that a reader sees all of it or nothing; two jobs that need it at the same time both
    decode. One that is damaged is written anew.

    Raises:
        DataError: an image cannot be read, or the cache cannot be written.
    """
    key = hashlib.sha256(f"2|{side}".encode())
    for path in files:
        with reading("celeba", path.parents[2], path):
            status = path.stat()
        key.update(f"|{path.name}|{status.st_size}|{status.st_mtime_ns}".encode())
    cached = cache_root() / f"celeba-{side}-{key.hexdigest()[:32]}.npy"
    shape = (len(files), 3, side, side)
    try:
        with suppress(FileNotFoundError, EOFError, ValueError):  # no cache, or one that is damaged
            array = np.load(cached, mmap_mode="c")
            if array.shape == shape:
                return array
        if len(files) > CHUNK:
            say(
                f"mobench: decoding {len(files)} images of {files[0].parent} into {cached.parent} "
                "(only once).",
                sys.stderr,
            )
        cached.parent.mkdir(parents=True, exist_ok=True)
        # several machines may share the folder
        temporary = cached.with_name(f".{cached.name}.{socket.gethostname()}.{os.getpid()}.tmp")
        try:
            _decode(files, side, temporary)
            temporary.replace(cached)
        finally:
            temporary.unlink(missing_ok=True)
        return np.load(cached, mmap_mode="c")
    except OSError as error:
        raise DataError(
            f"The decoded images could not be stored in {cached.parent} "
            f"({math.prod(shape) / 2**20:.0f} MiB): {error}. "
            "Free space, or choose another folder with MOBENCH_CACHE=DIR."
        ) from error


def _decode(files: Sequence[Path], side: int, target: Path) -> None:
    """Write all pictures to `target`; not through a memory map, which a full disk would kill."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(files), 3, side, side)}
    # Pillow decodes without Python's lock
    workers = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    with workers, target.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        for k in range(0, len(files), CHUNK):
            out.write(np.stack(list(workers.map(partial(_picture, side=side), files[k : k + CHUNK]))).data)
        out.flush()
        os.fsync(out.fileno())


def _picture(path: Path, side: int) -> UInt8[np.ndarray, "3 S S"]:
    """The square in the middle of one image, made smaller."""
    from PIL import Image

    with reading("celeba", path.parents[2], path), Image.open(path, formats=["JPEG"]) as image:
        if image.size != ORIGINAL:
            raise ValueError(
                f"it has {image.size[0]} x {image.size[1]} pixels, but CelebA's aligned and cropped images "
                f"have {ORIGINAL[0]} x {ORIGINAL[1]}"
            )
        box = (0, TOP, ORIGINAL[0], TOP + ORIGINAL[0])
        square = image.convert("RGB").crop(box).resize((side, side), Image.Resampling.BILINEAR)
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
