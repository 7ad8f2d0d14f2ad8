"""The Multi-MNIST family: pictures of two overlapping images, one task for the class of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.data.files import absolute, digest_of
from mobench.data.images import EMBEDDED, SIZE, Images, load_images
from mobench.errors import ConfigError

SHIFT = 8  # of item 2 against item 1, down and to the right, pixels
CANVAS = SIZE + SHIFT
DIAGONAL = "diagonal"
FIRST, SECOND = (1, 4), (5, 8)  # row and column of item 1 and of item 2 on the diagonal, both ends included
FAMILY = {  # by name, the base sets of item 1 and item 2
    "multi_mnist": ("mnist", "mnist"),
    "multi_fashion": ("fashion_mnist", "fashion_mnist"),
    "multi_fashion_mnist": ("mnist", "fashion_mnist"),
}
CHUNK = 4096  # pictures composed at once: 3 MB for each of their items


@dataclass(frozen=True, eq=False)
class MultiImages:
    """Pictures of two images each. The tensors are shared by all users of the set: do not write into them.

    Fields:
        train, test: grey levels, 0 = background.
        train_labels, test_labels: class of item 1 (upper left) and of item 2 (lower right), 0..9.
        digest: sha256 of train, train_labels, test, test_labels, little-endian; of the subset, where it is
            one.
        label: for figures, a part of a sentence. embedded: no file was read.
    """

    train: UInt8[Tensor, "N 36 36"]
    train_labels: Int64[Tensor, "N 2"]
    test: UInt8[Tensor, "T 36 36"]
    test_labels: Int64[Tensor, "T 2"]
    digest: str
    label: str
    embedded: bool


def multi_images(
    first: str,
    second: str,
    root: str | Path,
    train_size: int | None = None,
    test_size: int | None = None,
    shifts: str | Sequence[int] = DIAGONAL,
) -> MultiImages:
    """Pictures with item 1 from the base set `first` and item 2 from `second`; made once in a process.

    A split with n images of the first set has 2n pictures. Training pictures are made of training images,
    test pictures of test images.

    `shifts="diagonal"`, the recipe of the authors' files: item 1 of pictures k and n + k is image k, in rows
    and columns a..a+27 of 36 x 36 pixels, item 2 in b..b+27; a is uniform in 1..4 and b in 5..8. Item 2 is
    any image of the second set; of the same set as item 1, any of another class. The two are added, and the
    sum is clipped at 255.

    `shifts=(s1, s2)`, a recipe of ours: from the corners (item 1 in rows and columns 0..27, item 2 in 8..35)
    item 1 is shifted by 0..s1 pixels down and, independently, by as many to the right, item 2 by 0..s2 pixels
    up and to the left; all are equally likely. Each pixel is the larger of the two. The pictures have a fixed
    random order: each image is item 1 of two of them, and each of the m images of the second set is item 2 of
    2n/m, rounded down or up.

    train_size, test_size: the first so many pictures; None: all. Files are looked for below `root`.
    Raises ConfigError for an unknown name, an impossible size or shift, DataError for missing or changed
    files.
    Source: Lin et al. (2019), "Pareto multi-task learning", whose generator is not published;
    docs/multi_mnist.md tells how the recipe was recovered, and what of it is not known. Which image is whose
    partner is drawn anew, so these are pictures like the authors', not the same ones.
    """
    return _multi(first, second, absolute(root), train_size, test_size, placement(shifts))


def placement(shifts: str | Sequence[int]) -> str | tuple[int, int]:
    """Returns "diagonal", or the largest shifts of item 1 and item 2, pixels.

    Raises ConfigError for other words, and unless both shifts are 0..8.
    """
    if shifts == DIAGONAL:
        return DIAGONAL
    pair = list(shifts) if isinstance(shifts, Sequence) and not isinstance(shifts, str) else []
    if len(pair) != 2 or not all(type(s) is int and 0 <= s <= SHIFT for s in pair):
        raise ConfigError(
            f"problem.shifts={shifts} must be diagonal, or two whole numbers from 0 to {SHIFT}: the "
            "largest shifts of the upper left and of the lower right item from their corners, in pixels, as "
            "in [3, 4]."
        )
    return pair[0], pair[1]


@lru_cache(maxsize=4)
def _multi(
    first: str,
    second: str,
    root: str,
    train_size: int | None,
    test_size: int | None,
    shifts: str | tuple[int, int],
) -> MultiImages:
    one = load_images(first, root)
    two = load_images(second, root)
    for base in (one, two):
        if base.train.shape[1:] != (SIZE, SIZE):
            shape = " x ".join(str(n) for n in base.train.shape[1:])
            raise ConfigError(
                f"problem.data={base.name} has images of {shape}, but pairs are made from grey images of "
                f"{SIZE} x {SIZE}. Choose digits, digits_hard, mnist or fashion_mnist."
            )
    sizes = {"train": train_size, "test": test_size}
    for split, size in sizes.items():
        largest = 2 * len(getattr(one, split))
        if size is not None and not 1 <= size <= largest:
            raise ConfigError(
                f"problem.{split}_size={size} is out of range: data {first} + {second} have {largest} "
                f"{split} images. Choose 1..{largest}, or null for all."
            )
    arrays = [a for split, size in sizes.items() for a in _split(one, two, split, size, shifts)]
    with torch.inference_mode(False):
        x, y, test, test_y = (torch.from_numpy(a) for a in arrays)
    label = f"overlapping pairs: {one.label} (upper left) and {two.label} (lower right)"
    if first == second:
        label = f"overlapping pairs: {one.label}"
    if isinstance(shifts, str):
        label += ", on the diagonal"
    elif any(shifts):
        label += f", shifted by up to {shifts[0]} and {shifts[1]} pixels"
    embedded = first in EMBEDDED and second in EMBEDDED
    return MultiImages(x, y, test, test_y, digest_of(*arrays), label, embedded)


def overlap(
    one: UInt8[np.ndarray, "n 28 28"],
    i: Int[np.ndarray, " N"],
    two: UInt8[np.ndarray, "m 28 28"],
    j: Int[np.ndarray, " N"],
    places: Int[np.ndarray, "N 4"],
    add: bool = True,
) -> UInt8[np.ndarray, "N 36 36"]:
    """Returns pictures of images one[i] and two[j].

    places: row and column of item 1, then of item 2. add: the sum of both, clipped at 255; else the larger
    one.
    """
    pictures = np.zeros((len(i), CANVAS, CANVAS), dtype=np.uint8)
    for place in np.unique(places, axis=0):
        y, x, down, right = place
        at = np.flatnonzero((places == place).all(1))
        for k in range(0, len(at), CHUNK):
            part = at[k : k + CHUNK]
            whole = np.zeros((len(part), CANVAS, CANVAS), dtype=np.uint8)
            whole[:, y : y + SIZE, x : x + SIZE] = one[i[part]]
            corner = whole[:, down : down + SIZE, right : right + SIZE]
            other = two[j[part]]
            if add:
                corner[:] = np.minimum(corner, 255 - other) + other  # in bytes, which do not overflow so
            else:
                np.maximum(corner, other, out=corner)
            pictures[part] = whole
    return pictures


def partners(
    y1: Int[np.ndarray, " N"], y2: Int[np.ndarray, " m"], differ: bool, rng: np.random.Generator
) -> Int[np.ndarray, " N"]:
    """Draws an image of the second set for each label of item 1, uniformly; of another class if `differ`."""
    j = rng.integers(len(y2), size=len(y1))
    while differ and len(same := np.flatnonzero(y2[j] == y1)):
        j[same] = rng.integers(len(y2), size=len(same))
    return j


def on_diagonal(n: int, rng: np.random.Generator) -> Int[np.ndarray, "n 4"]:
    """Draws the places of both items of n pictures."""
    a, b = (rng.integers(low, high + 1, size=n) for low, high in (FIRST, SECOND))
    return np.stack([a, a, b, b], 1)


def _pairs(n: int, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of item 1 (of n images) and item 2 (of m) for all 2n pictures of our recipe."""
    N = 2 * n
    item1 = np.tile(np.arange(n), 2)
    item2 = np.concatenate([rng.permutation(m) for _ in range(-(-N // m))])[:N]
    order = rng.permutation(N)
    return item1[order], item2[order]


def _split(
    one: Images, two: Images, split: str, size: int | None, shifts: str | tuple[int, int] = (0, 0)
) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and labels of one split.

    All of a split are drawn whatever its size, so that a part of them is the same pictures.
    """
    (x1, y1), (x2, y2) = (
        (getattr(base, split).numpy(), getattr(base, f"{split}_labels").numpy()) for base in (one, two)
    )
    names = {"data": "multi", "first": one.name, "second": two.name, "split": split}
    n = len(x1)
    if isinstance(shifts, str):
        i = np.tile(np.arange(n), 2)
        j = partners(y1[i], y2, one.name == two.name, generator(0, **names, of="diagonal partners"))
        places = on_diagonal(2 * n, generator(0, **names, of="diagonal"))
    else:
        i, j = _pairs(n, len(x2), generator(0, **names))
        places = np.tile([0, 0, SHIFT, SHIFT], (2 * n, 1))
        if any(shifts):
            drawn = generator(0, **names, of="positions")
            choices = np.repeat(shifts, 2) + 1
            places += drawn.integers(0, choices, size=(2 * n, 4)) * [1, 1, -1, -1]
    i, j = i[:size], j[:size]
    pictures = overlap(x1, i, x2, j, places[:size], add=isinstance(shifts, str))
    return pictures, np.stack([y1[i], y2[j]], 1)
