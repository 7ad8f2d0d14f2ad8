"""The Multi-MNIST family: pictures of two overlapping images, one task for the class of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from mobench.core.random import generator
from mobench.data.images import EMBEDDED, SIZE, Images, absolute, digest_of, load_images
from mobench.errors import ConfigError

SHIFT = 8  # of item 2 against item 1, down and to the right, pixels
CANVAS = SIZE + SHIFT
CHUNK = 4096  # pictures composed at once: 3 MB for each of their items


@dataclass(frozen=True, eq=False)
class MultiImages:
    """Pictures of two images each. The tensors are shared by all who ask for the set: do not write into them.

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
    shifts: Sequence[int] = (0, 0),
) -> MultiImages:
    """Pictures with item 1 from the base set `first` and item 2 from `second`; made once in a process.

    From the corners (item 1 in rows and columns 0..27, item 2 in 8..35 of 36 x 36 pixels) item 1 is shifted
    by 0..shifts[0] pixels down and, independently, by as many to the right, item 2 by 0..shifts[1] pixels up
    and to the left; all are equally likely. Each pixel is the larger of the two. A split with n images of the
    first set has 2n pictures, in a fixed random order: each image is item 1 of two of them, and each of the m
    images of the second set is item 2 of 2n/m, rounded down or up. Training pictures are made of training
    images, test pictures of test images.

    train_size, test_size: the first so many pictures; None: all. Files are looked for below `root`.
    Raises ConfigError for an unknown name, an impossible size or shift, DataError for missing or changed
    files.
    Source: the recipe is our own, after Sabour, Frosst, Hinton (2017) and Lin et al. (2019), "Pareto
    multi-task learning". The authors' pictures are made in another way (docs/corrections.md).
    """
    return _multi(first, second, absolute(root), train_size, test_size, largest_shifts(shifts))


def largest_shifts(shifts: Sequence[int]) -> tuple[int, int]:
    """Returns the largest shifts of item 1 and item 2, pixels. Raises ConfigError unless both are 0..8."""
    found = list(shifts) if isinstance(shifts, Sequence) and not isinstance(shifts, str) else []
    if len(found) != 2 or not all(type(s) is int and 0 <= s <= SHIFT for s in found):
        raise ConfigError(
            f"problem.shifts={shifts} must be two whole numbers from 0 to {SHIFT}: the largest shifts of the "
            "upper left and of the lower right item from their corners, in pixels, as in [3, 4]."
        )
    return found[0], found[1]


@lru_cache(maxsize=4)
def _multi(
    first: str,
    second: str,
    root: str,
    train_size: int | None,
    test_size: int | None,
    shifts: tuple[int, int],
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
    if any(shifts):
        label += f", shifted by up to {shifts[0]} and {shifts[1]} pixels"
    embedded = first in EMBEDDED and second in EMBEDDED
    return MultiImages(x, y, test, test_y, digest_of(*arrays), label, embedded)


def _pairs(n: int, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of item 1 (of n images) and item 2 (of m) for all 2n pictures."""
    N = 2 * n
    item1 = np.tile(np.arange(n), 2)
    item2 = np.concatenate([rng.permutation(m) for _ in range(-(-N // m))])[:N]
    order = rng.permutation(N)
    return item1[order], item2[order]


def _split(
    one: Images, two: Images, split: str, size: int | None, largest: tuple[int, int] = (0, 0)
) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and labels of one split; items are shifted by up to so many pixels from their corners."""
    (x1, y1), (x2, y2) = (
        (getattr(base, split).numpy(), getattr(base, f"{split}_labels").numpy()) for base in (one, two)
    )
    rng = generator(0, data="multi", first=one.name, second=two.name, split=split)
    i, j = (index[:size] for index in _pairs(len(x1), len(x2), rng))
    pictures = np.zeros((len(i), CANVAS, CANVAS), dtype=np.uint8)
    if not any(largest):
        shifts = np.zeros((len(i), 4), dtype=int)
    else:  # of all pictures of the split, so that a part of them is the same pictures
        drawn = generator(0, data="multi", first=one.name, second=two.name, split=split, of="positions")
        choices = np.repeat(largest, 2) + 1
        shifts = drawn.integers(0, choices, size=(2 * len(x1), 4))[: len(i)]
    for place in np.unique(shifts, axis=0):
        down, right, up, left = place
        at = np.flatnonzero((shifts == place).all(1))
        for k in range(0, len(at), CHUNK):
            part = at[k : k + CHUNK]
            whole = np.zeros((len(part), CANVAS, CANVAS), dtype=np.uint8)
            whole[:, down : down + SIZE, right : right + SIZE] = x1[i[part]]
            y, x = SHIFT - up, SHIFT - left
            corner = whole[:, y : y + SIZE, x : x + SIZE]
            np.maximum(corner, x2[j[part]], out=corner)
            pictures[part] = whole
    return pictures, np.stack([y1[i], y2[j]], 1)
