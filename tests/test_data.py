"""Image data: pinned digests, the recipe of pictures, and files that are missing, broken or read-only."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import os
import pickle
import shutil
import socket
import sys
import tarfile
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobench.cli.data import main
from mobench.core.random import generator
from mobench.data import Images, cifar, files, load_images, multi_images
from mobench.data import images as base
from mobench.data import multi as family
from mobench.errors import ConfigError, DataError
from tests.conftest import process
from tests.test_clients import DIGESTS as CLIENTS

DIGESTS = {
    "digits": "5eb2ebda67b73ab8b3443123c5d41a591299250e21f4fa82b56c6c59169f95c9",
    "digits_hard": "ae259427d3d48c2bcd27a9f3b3ed5c0651f2bbec58ce31d8b8980032d1b6872a",
    "mnist": "1e35582d42a90940c55b956deb61875c020b567ed20e3c5b174f52bf7809ed9b",
    "fashion_mnist": "ece172613115fb18b120bec8f6c02271af90b8b8f0a5af5c51cbd5ceed68e619",
    "cifar10": "666eff18d994f40daec4a918d112a41718bbc77c50677377325cc21ea5416a0f",  # 25,000 training images
}
PAIRS = {
    ("digits", "digits"): "4b37491d553e2efc3bd136c124659a54d510c48fe73bb7b44cf7704e01fbe213",
    ("digits_hard", "digits_hard"): "af33814a594675aaf9e317d14dec3b89704916c00c64fe08f23772a54a5cda88",
    ("digits", "digits_hard"): "79101eaf2b3d3698ea13cef12b1ac15883db53a4fb18db6bbaa5f2eab565b842",
    ("mnist", "mnist"): "58105f9d973950b147c508cc31c67e9f49d3e7f6cbe9b0d2e0e363af37acfffe",
    ("fashion_mnist", "fashion_mnist"): "098a9ed757ee869d9af591a69a79a0cb4aa5895a8f9f6ad776ae2e4369aa2d71",
    ("mnist", "fashion_mnist"): "213535df24d515c9e4d618609d8abed6e51174b1d0aca089df961f909ea2145d",
}
EMBEDDED = [p for p in PAIRS if p[0].startswith("digits")]
SPLITS = ("train", "test")
MNIST_CLASSES = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # training images of each class


def split_of(data: Any, split: str) -> tuple[np.ndarray, np.ndarray]:
    return getattr(data, split).numpy(), getattr(data, f"{split}_labels").numpy()


# --- embedded base sets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "digits_hard"])
def test_embedded_set(name: str, tmp_path: Path) -> None:
    data = load_images(name, tmp_path / "nothing")
    assert (data.name, data.embedded, data.digest) == (name, True, DIGESTS[name])
    assert data.train.shape == (1437, 28, 28)
    assert data.test.shape == (360, 28, 28)
    assert data.train_labels.bincount().tolist() == [136, 154, 151, 135, 143, 143, 151, 153, 138, 133]
    assert data.test_labels.bincount().tolist() == [42, 28, 26, 48, 38, 39, 30, 26, 36, 47]
    assert (int(data.train.min()), int(data.train.max())) == (0, 255)
    assert load_images(name, tmp_path) is data  # read once, whatever the folder
    assert not list(tmp_path.iterdir())


def test_digits_by_hand() -> None:
    from sklearn.datasets import load_digits

    official = load_digits()
    data = load_images("digits", "")
    place = {"train": 0, "test": 0}
    for k, (image, label) in enumerate(zip(official.images, official.target, strict=True)):
        split = "test" if k % 5 == 0 else "train"
        x, y = split_of(data, split)
        at = place[split]
        place[split] += 1
        assert y[at] == label
        for row, column in ((0, 3), (4, 4), (7, 2)):
            block = x[at, 2 + 3 * row : 5 + 3 * row, 2 + 3 * column : 5 + 3 * column]
            assert (block == round(image[row, column] * 255 / 16 + 1e-9)).all()
        assert x[at].sum() == x[at, 2:26, 2:26].sum()


def test_hard_digits_are_turned_and_noisy() -> None:
    for split in SPLITS:
        (x, y), (z, w) = (split_of(load_images(name, ""), split) for name in ("digits", "digits_hard"))
        assert (y == w).all()
        # a quarter turn against the clock: the last column becomes the first row
        turned = x.transpose(0, 2, 1)[:, ::-1].astype(int)
        noise = z.astype(int) - turned
        inner = (turned >= 90) & (turned <= 165)  # nothing is clipped
        assert (noise[inner].min(), noise[inner].max()) == (-90, 90)
        assert abs(noise[inner].mean()) < 1.0
        assert abs(noise[inner].std() - np.sqrt(181**2 / 12)) < 1.0
        assert (noise[turned == 0] >= 0).all()
        assert 0.45 < (noise[turned == 0] > 0).mean() < 0.55


def test_another_process_makes_the_same_data() -> None:
    """Pictures and clients are the same; modules that embedded data do not need are not imported."""
    code = "from mobench.data import *\nfrom mobench.data.clients import partition\nimport sys\n"
    code += "print(multi_images('digits', 'digits_hard', '', shifts=(0, 0)).digest)\n"
    code += "print(partition(load_images('digits', ''), 'partial', classes_per_client=2).digest)\n"
    code += "assert 'torchvision' not in sys.modules and 'matplotlib' not in sys.modules"
    done = process([sys.executable, "-c", code])
    expected = [PAIRS["digits", "digits_hard"], CLIENTS["partial 2"]]
    assert done.stdout.split() == expected, done.stderr


# --- pictures of two ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", EMBEDDED)
def test_pictures_of_embedded_sets(pair: tuple[str, str]) -> None:
    data = multi_images(*pair, "", shifts=(0, 0))
    assert (data.embedded, data.digest) == (True, PAIRS[pair])
    assert data.train.shape == (2 * 1437, 36, 36)
    assert data.test.shape == (720, 36, 36)
    assert all(load_images(name, "").label in data.label for name in pair)
    for split in SPLITS:
        labels = split_of(data, split)[1]
        for side, name in enumerate(pair):
            counts = np.bincount(split_of(load_images(name, ""), split)[1])
            assert (np.bincount(labels[:, side]) == 2 * counts).all()  # each set is as large as the other


def test_the_recipe_with_two_sets() -> None:
    """The draws in their order: the contents of a published digest follow without this package."""
    data = multi_images("digits", "digits_hard", "", shifts=(0, 0))
    for split in SPLITS:
        (x, y), (z, w) = (split_of(load_images(name, ""), split) for name in ("digits", "digits_hard"))
        rng = generator(0, data="multi", first="digits", second="digits_hard", split=split)
        n = len(x)
        partners = [*rng.permutation(n), *rng.permutation(n)]
        order = rng.permutation(2 * n)
        pictures, labels = split_of(data, split)
        for k in np.random.default_rng(0).integers(2 * n, size=40):
            i = order[k] % n
            j = partners[order[k]]
            assert (pictures[k] == composed(x[i], z[j], (0, 0), (8, 8), add=False)).all()
            assert tuple(labels[k]) == (y[i], w[j])


def test_shifted_items() -> None:
    """The same pairs, composed by a loop with the same shifts; a part is the beginning."""
    corners = multi_images("digits", "digits_hard", "", shifts=(0, 0))
    data = multi_images("digits", "digits_hard", "", shifts=[3, 4])
    assert data.label == f"{corners.label}, shifted by up to 3 and 4 pixels"
    assert data.digest != corners.digest
    for split in SPLITS:
        (x, _), (z, _) = (split_of(load_images(name, ""), split) for name in ("digits", "digits_hard"))
        pictures, labels = split_of(data, split)
        assert (labels == split_of(corners, split)[1]).all()
        n = len(x)
        i, j = family._pairs(
            n, n, generator(0, data="multi", first="digits", second="digits_hard", split=split)
        )
        drawn = generator(
            0, data="multi", first="digits", second="digits_hard", split=split, of="positions"
        ).integers(0, [4, 4, 5, 5], size=(2 * n, 4))
        assert [set(column) for column in drawn.T] == [{0, 1, 2, 3}] * 2 + [{0, 1, 2, 3, 4}] * 2
        for k in np.random.default_rng(1).integers(2 * n, size=40):
            down, right, up, left = drawn[k]
            places = (down, right), (8 - up, 8 - left)
            assert (pictures[k] == composed(x[i[k]], z[j[k]], *places, add=False)).all()
    part = multi_images("digits", "digits_hard", "", 100, 30, (3, 4))
    assert (part.train == data.train[:100]).all()
    assert (part.test == data.test[:30]).all()


@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 3), (3, 5), (4, 8), (2, 9), (7, 1)])
def test_use_of_images_is_as_even_as_it_can_be(n: int, m: int) -> None:
    i, j = family._pairs(n, m, generator(0, use="test", n=n, m=m))
    assert len(i) == len(j) == 2 * n
    assert (np.bincount(i, minlength=n) == 2).all()
    counts = np.bincount(j, minlength=m)
    assert len(counts) == m
    assert counts.max() - counts.min() <= 1


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = multi_images("digits", "digits_hard", "", shifts=(0, 0))
    for chunk in (1, 7, 1000, 10**6):
        monkeypatch.setattr(family, "CHUNK", chunk)
        one, two = (load_images(name, "") for name in ("digits", "digits_hard"))
        assert (family._split(one, two, "test", None)[0] == whole.test.numpy()).all()
        moved = family._split(one, two, "test", None, (4, 1))[0]
        assert (moved == multi_images("digits", "digits_hard", "", shifts=(4, 1)).test.numpy()).all()


# item 2 and the diagonal positions of both items in the nine training pictures of the authors' Multi-MNIST
# that are drawn in msanezary/MultiMNIST-classification; item 1 of picture n is training image n
DRAWN = [
    (30337, 3, 7), (4570, 2, 5), (30521, 4, 7), (24048, 2, 8), (19526, 4, 8),
    (1057, 2, 7), (45034, 3, 6), (25043, 4, 5), (37681, 4, 7),
]  # fmt: skip


def composed(one: np.ndarray, two: np.ndarray, *places: tuple[int, int], add: bool = True) -> np.ndarray:
    """Both images at their places, pixel by pixel: their sum, clipped at 255, or their maximum."""
    canvas = np.zeros((36, 36), dtype=np.uint8)
    for image, (down, right) in zip((one, two), places, strict=True):
        for r, c in itertools.product(range(28), repeat=2):
            here, new = int(canvas[r + down, c + right]), int(image[r, c])
            canvas[r + down, c + right] = min(here + new, 255) if add else max(here, new)
    return canvas


@pytest.mark.parametrize("pair", EMBEDDED)
@pytest.mark.parametrize("split", SPLITS)
def test_pictures_on_the_diagonal(pair: tuple[str, str], split: str) -> None:
    """The draws in their order, without this package: partners first, then places."""
    data = multi_images(*pair, "")
    assert data.label.endswith(", on the diagonal")
    assert data.digest == multi_images(*pair, "", shifts="diagonal").digest != PAIRS[pair]
    (x, y), (z, w) = (split_of(load_images(name, ""), split) for name in pair)
    pictures, labels = split_of(data, split)
    n = len(x)
    assert pictures.shape == (2 * n, 36, 36)
    assert (labels[:, 0] == np.tile(y, 2)).all()  # item 1 in the order of its set, twice
    if pair[0] == pair[1]:
        assert (labels[:, 0] != labels[:, 1]).all()
    else:
        assert 0.05 < (labels[:, 0] == labels[:, 1]).mean() < 0.15
    names = {"data": "multi", "first": pair[0], "second": pair[1], "split": split}
    rng = generator(0, **names, of="diagonal partners")
    j = rng.integers(len(z), size=2 * n)
    while pair[0] == pair[1] and (same := w[j] == np.tile(y, 2)).any():
        j[same] = rng.integers(len(z), size=same.sum())
    rng = generator(0, **names, of="diagonal")
    a = rng.integers(1, 5, size=2 * n)
    b = rng.integers(5, 9, size=2 * n)
    assert {*zip(a.tolist(), b.tolist(), strict=True)} == {(u, v) for u in range(1, 5) for v in range(5, 9)}
    for k in np.random.default_rng(2).integers(2 * n, size=25):
        assert (pictures[k] == composed(x[k % n], z[j[k]], (a[k], a[k]), (b[k], b[k]))).all()
        assert labels[k, 1] == w[j[k]]


@pytest.mark.data("mnist")
def test_the_authors_pictures(data_folder: Path) -> None:
    x, y = split_of(load_images("mnist", data_folder), "train")
    j, a, b = np.array(DRAWN).T
    pictures = family.overlap(x, np.arange(9), x, j, np.stack([a, a, b, b], 1))
    assert y[:9].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1]  # as printed beside the drawings
    assert (y[j] != y[:9]).all()
    for k, picture in enumerate(pictures):
        assert (picture == composed(x[k], x[j[k]], (a[k], a[k]), (b[k], b[k]))).all()
    assert (pictures == 255).sum() > (np.concatenate([x[:9], x[j]]) == 255).sum()  # where they overlap


def test_a_sum_is_clipped_and_a_maximum_is_not_added() -> None:
    levels = np.full((1, 28, 28), 200, dtype=np.uint8)
    at = np.array([[1, 1, 5, 5]])
    none = np.zeros(1, dtype=int)
    for add, both in ((True, 255), (False, 200)):
        picture = family.overlap(levels, none, levels, none, at, add)[0]
        assert (picture[5:29, 5:29] == both).all()
        assert (picture[1:5, 1:29] == 200).all()
        assert (picture[29:33, 5:33] == 200).all()
        assert not picture[0].any()
        assert not picture[33:].any()


@pytest.mark.parametrize("shifts", ["diagonal", (0, 0), (3, 4)])
@pytest.mark.parametrize("sizes", [(1, 1), (100, 30), (2874, 720), (None, 5), (5, None)])
def test_a_subset_is_the_beginning(
    sizes: tuple[int | None, int | None], shifts: str | tuple[int, int]
) -> None:
    whole = multi_images("digits", "digits_hard", "", shifts=shifts)
    part = multi_images("digits", "digits_hard", "", *sizes, shifts)
    for split, size in zip(SPLITS, sizes, strict=True):
        (x, y), (z, w) = (split_of(d, split) for d in (whole, part))
        assert len(z) == len(w) == (len(x) if size is None else size)
        assert (z == x[:size]).all()
        assert (w == y[:size]).all()
    arrays = [a for split in SPLITS for a in split_of(part, split)]
    assert part.digest == hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
    assert (part.digest == whole.digest) == (sizes == (2874, 720))


def test_data_can_be_used_with_gradients_whoever_asked_first() -> None:
    family._multi.cache_clear()
    base._load.cache_clear()
    with torch.inference_mode():
        data = multi_images("digits", "digits", "", 3, 3)
    tensors = (data.train, data.train_labels, data.test, data.test_labels)
    assert not any(tensor.is_inference() for tensor in (*tensors, load_images("digits", "").train))


@pytest.mark.parametrize(
    ("split", "size", "largest"),
    [("train", 0, 2874), ("train", -1, 2874), ("train", 2875, 2874), ("test", 0, 720), ("test", 721, 720)],
)
def test_impossible_sizes(split: str, size: int, largest: int) -> None:
    sizes: dict[str, Any] = {f"{split}_size": size}
    with pytest.raises(
        ConfigError, match=rf"problem\.{split}_size={size} is out of range.*Choose 1\.\.{largest}"
    ):
        multi_images("digits", "digits_hard", "", **sizes)


# --- official files, made small -----------------------------------------------------------------------------

FILES = base.FILES
SMALL = {"train": 20, "t10k": 10}


def idx(a: np.ndarray) -> bytes:
    """The format of the official files: magic number, sizes, bytes."""
    head = [0x0800 + a.ndim, *a.shape]
    return b"".join(n.to_bytes(4, "big") for n in head) + a.astype(np.uint8).tobytes()


def contents() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    out = {}
    for split, n in SMALL.items():
        x = rng.integers(0, 256, size=(n, 28, 28))
        x[0, 0, :2] = 0, 255
        out[f"{split}-images-idx3-ubyte"] = x
        out[f"{split}-labels-idx1-ubyte"] = np.arange(n) % 10
    return out


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with packed MNIST and Fashion-MNIST of 20 + 10 random images, taken for the official ones."""
    from torchvision.datasets import MNIST, FashionMNIST

    arrays = list(contents().values())
    whole = files.digest_of(*(a.astype(np.uint8 if a.ndim == 3 else np.int64) for a in arrays))
    for name, kind in (("mnist", MNIST), ("fashion_mnist", FashionMNIST)):
        folder = tmp_path / "root" / kind.__name__ / "raw"
        folder.mkdir(parents=True)
        resources = []
        for file, a in contents().items():
            packed = gzip.compress(idx(a), mtime=0)
            (folder / f"{file}.gz").write_bytes(packed)
            resources.append((f"{file}.gz", hashlib.md5(packed).hexdigest()))
        monkeypatch.setattr(kind, "resources", resources)  # of downloads
        monkeypatch.setitem(files.SHA256, name, whole)
    return tmp_path / "root"


def raw(root: Path, kind: str = "MNIST") -> Path:
    return root / kind / "raw"


def unpack(folder: Path, which: str = "*.gz", keep: bool = False) -> None:
    for packed in sorted(folder.glob(which)):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        if not keep:
            packed.unlink()


def same(data: Images) -> None:
    """The tensors hold what was put into the files."""
    for split, file in (("train", "train"), ("test", "t10k")):
        x, y = split_of(data, split)
        assert (x == contents()[f"{file}-images-idx3-ubyte"]).all()
        assert (y == contents()[f"{file}-labels-idx1-ubyte"]).all()
        assert (x.dtype, y.dtype) == (np.uint8, np.int64)


def listing(root: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder with size and time of change."""
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in sorted([root, *root.rglob("*")])}


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    """Nothing below the folder can be written, and nothing is."""
    places = [root, *root.rglob("*")]
    for p in places:
        p.chmod(0o555 if p.is_dir() else 0o444)
    before = listing(root)
    try:
        yield
        assert listing(root) == before
    finally:
        for p in places:
            p.chmod(0o755 if p.is_dir() else 0o644)


@pytest.mark.parametrize(("name", "label"), [("mnist", "MNIST"), ("fashion_mnist", "Fashion-MNIST")])
def test_packed_files_are_read_where_nothing_can_be_written(name: str, label: str, small: Path) -> None:
    with read_only(small):
        data = load_images(name, small)
    same(data)
    assert (data.name, data.label, data.embedded) == (name, label, False)
    assert load_images(name, str(small)) is data


@pytest.mark.parametrize("layout", ["unpacked", "both", "part"])
def test_unpacked_files_are_accepted_and_packed_ones_come_first(layout: str, small: Path) -> None:
    unpack(raw(small), "t10k-labels*.gz" if layout == "part" else "*.gz", keep=layout == "both")
    if layout == "both":
        (raw(small) / "train-images-idx3-ubyte").write_bytes(b"something else")
    before = listing(small)
    same(load_images("mnist", small))
    assert listing(small) == before


def test_a_relative_root_follows_the_working_directory(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.parent)
    same(load_images("mnist", "root"))
    (small.parent / "other").mkdir()
    monkeypatch.chdir(small.parent / "other")
    with pytest.raises(DataError, match="could not be found"):
        load_images("mnist", "root")


def test_missing_files_are_named(small: Path) -> None:
    for name in ("train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"):
        (raw(small) / name).unlink()
    with pytest.raises(DataError) as caught:
        load_images("mnist", small)
    text = str(caught.value)
    assert "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz in" in text
    command = f"mobench data mnist --root {small}"
    for part in (str(raw(small)), "MOBENCH_DATA", "data_root", command, "data=digits"):
        assert part in text
    assert "train-images" not in text
    (raw(small) / "train-labels-idx1-ubyte.gz").mkdir()  # a folder is no file
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz, t10k-images"):
        multi_images("digits", "mnist", small)


def changed(whole: bytes, damage: str) -> bytes:
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    return {"flipped": flipped, "truncated": whole[:-5], "empty": b"", "another": b"\x89PNG" + whole}[damage]


@pytest.mark.parametrize("file", [FILES[0], FILES[3]])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "another"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_changed_file_is_refused(file: str, damage: str, packed: bool, small: Path) -> None:
    if not packed:
        unpack(raw(small))
    path = raw(small) / (f"{file}.gz" if packed else file)
    whole = path.read_bytes()
    path.write_bytes(changed(whole, damage))
    with pytest.raises(DataError, match=r"could not be read as a file|have sha256 .*official ones") as caught:
        load_images("mnist", small)
    assert str(raw(small)) in str(caught.value)
    assert f"mobench data mnist --root {small}" in str(caught.value)
    path.write_bytes(whole)  # an error is not remembered
    same(load_images("mnist", small))


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="the superuser reads everything")
def test_a_file_that_may_not_be_read(small: Path) -> None:
    (raw(small) / f"{FILES[0]}.gz").chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        load_images("mnist", small)


# --- CIFAR-10, made small -----------------------------------------------------------------------------------

BATCHES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
FOLDERS = {"batches": "cifar-10-batches-py", "mosaics": "cifar10"}
WEBP = {"train": 2, "test": 1}  # files of two rows of five images


def colours(n: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    """n images (n, 3, 32, 32) in which each channel, row and column differs, and labels."""
    rng = np.random.default_rng(key)
    return rng.integers(0, 256, size=(n, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, size=n)


def small_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, ...]:
    """Six files of seven images that pass for the official ones; returns their contents."""
    from torchvision.datasets import CIFAR10

    folder = root / FOLDERS["batches"]
    folder.mkdir(parents=True)
    sums = []
    parts = [colours(7, k) for k in range(6)]
    for name, (x, y) in zip(BATCHES, parts, strict=True):
        entry = {"batch_label": name, "data": x.reshape(7, 3072), "labels": y.tolist()}
        entry["filenames"] = ["a.png"] * 7
        (folder / name).write_bytes(pickle.dumps(entry, protocol=2))
        sums.append([name, hashlib.md5((folder / name).read_bytes()).hexdigest()])
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}, protocol=2))
    meta = hashlib.md5((folder / "batches.meta").read_bytes()).hexdigest()
    monkeypatch.setattr(CIFAR10, "train_list", sums[:5])
    monkeypatch.setattr(CIFAR10, "test_list", sums[5:])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": meta})
    train, labels = (np.concatenate(a) for a in zip(*parts[:5], strict=True))
    return train, labels, *parts[5]


def mosaic(x: np.ndarray) -> bytes:
    """Ten images as two rows of five, placed one by one."""
    from PIL import Image

    canvas = np.zeros((64, 160, 3), dtype=np.uint8)
    for k, image in enumerate(x):
        top = 32 * (k // 5)
        left = 32 * (k % 5)
        for channel in range(3):
            canvas[top : top + 32, left : left + 32, channel] = image[channel]
    out = io.BytesIO()
    Image.fromarray(canvas).save(out, "WEBP", lossless=True)
    return out.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, allow_pickle=True, **arrays)
    return out.getvalue()


def small_mosaics(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, ...]:
    """Three files of ten images and their labels that pass for the subset; returns their contents."""
    folder = root / FOLDERS["mosaics"]
    folder.mkdir(parents=True)
    monkeypatch.setitem(cifar.SUBSETS, "cifar10", replace(cifar.SUBSETS["cifar10"], **WEBP))
    monkeypatch.setattr(cifar, "MOSAIC", (2, 5))
    (x, y), (z, w) = (colours(10 * n, 7 + n) for n in WEBP.values())
    for name, part in (("train_00", x[:10]), ("train_01", x[10:]), ("test_00", z)):
        (folder / f"{name}.webp").write_bytes(mosaic(part))
    labels = npz(train_labels=y.astype(np.uint8), test_labels=w.astype(np.uint8), train_index=np.arange(20))
    (folder / "cifar10_labels.npz").write_bytes(labels)
    whole = hashlib.sha256(b"".join(a.tobytes() for a in (x, y, z, w))).hexdigest()
    monkeypatch.setitem(files.SHA256, "cifar10 subset", whole)
    return x, y, z, w


MAKE = {"batches": small_batches, "mosaics": small_mosaics}


def same_colours(data: Images, wanted: tuple[np.ndarray, ...]) -> None:
    pictures = (*split_of(data, "train"), *split_of(data, "test"))
    for a, b in zip(pictures, wanted, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    assert data.digest == hashlib.sha256(b"".join(a.tobytes() for a in wanted)).hexdigest()
    assert not data.train.is_inference()


@pytest.mark.parametrize("kind", list(MAKE))
def test_cifar_is_read_where_nothing_can_be_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = MAKE[kind](tmp_path / "root", monkeypatch)
    with read_only(tmp_path / "root"), torch.inference_mode():
        data = load_images("cifar10", tmp_path / "root")
    same_colours(data, wanted)
    label = "CIFAR-10" if kind == "batches" else "CIFAR-10, 25k train subset"
    assert (data.name, data.label, data.embedded, data.subset) == ("cifar10", label, False, kind == "mosaics")
    assert load_images("cifar10", tmp_path / "root") is data
    assert base.folder_of("cifar10", tmp_path / "root") == tmp_path / "root" / FOLDERS[kind]


def test_the_whole_set_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mosaics(tmp_path, monkeypatch)
    wanted = small_batches(tmp_path, monkeypatch)
    same_colours(load_images("cifar10", tmp_path), wanted)


@pytest.mark.parametrize("damage", ["missing", "flipped", "truncated", "empty"])
def test_a_broken_whole_set_is_no_reason_for_the_subset(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mosaics(tmp_path, monkeypatch)
    small_batches(tmp_path, monkeypatch)
    path = tmp_path / FOLDERS["batches"] / "data_batch_3"
    message = r"cifar-10-batches-py could not be read as a file.*corrupted.*mobench data cifar10"
    if damage == "missing":
        path.unlink()
        message = r"data=cifar10 needs data_batch_3 in \S*cifar-10-batches-py, which could not be found"
    else:
        path.write_bytes(changed(path.read_bytes(), damage))
    with pytest.raises(DataError, match=message):
        load_images("cifar10", tmp_path)


def test_a_pickle_without_the_right_checksum_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    small_batches(tmp_path, monkeypatch)
    (tmp_path / FOLDERS["batches"] / "data_batch_2").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="could not be read"):
        load_images("cifar10", tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_no_cifar_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_images("cifar10", tmp_path)
    text = str(caught.value)
    for part in (*BATCHES, FOLDERS["batches"], "MOBENCH_DATA", "data=digits"):
        assert part in text
    assert f"mobench data cifar10 --root {tmp_path}" in text
    assert "\n" not in text


WRITTEN = colours(10, 8)[0]  # the images of test_00.webp
LABELS_20 = np.arange(20, dtype=np.uint8) % 10
BROKEN = {
    "missing": ("train_01.webp", None, r"data=cifar10 needs train_01\.webp in \S*cifar10, which could not"),
    "truncated": ("test_00.webp", mosaic(WRITTEN)[:-40], "test_00.webp could not be read"),
    "empty": ("test_00.webp", b"", "test_00.webp could not be read"),
    "one pixel": (
        "test_00.webp",
        mosaic(WRITTEN ^ (np.arange(WRITTEN.size).reshape(WRITTEN.shape) == 9)),
        "have sha256",
    ),
    "labels": ("cifar10_labels.npz", npz(train_labels=LABELS_20)[:-30], "labels.npz could not be read"),
    "one array": ("cifar10_labels.npz", npz(train_labels=LABELS_20), "labels.npz could not be.*test_labels"),
    "objects": (
        "cifar10_labels.npz",
        npz(train_labels=np.array([{}] * 20, dtype=object), test_labels=LABELS_20[:10]),
        "labels.npz could not be read",
    ),
    "too few": (
        "cifar10_labels.npz",
        npz(train_labels=LABELS_20[:-1], test_labels=LABELS_20[:10]),
        "have sha256",
    ),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_a_changed_file_of_the_subset_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, content, message = BROKEN[case]
    wanted = small_mosaics(tmp_path, monkeypatch)
    path = tmp_path / "cifar10" / file
    whole = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_images("cifar10", tmp_path)
    assert "mobench data cifar10" in str(caught.value)
    assert "\n" not in str(caught.value)
    path.write_bytes(whole)
    same_colours(load_images("cifar10", tmp_path), wanted)


# --- mobench data ---------------------------------------------------------------------------------


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No network; the addresses of the requests."""
    requests: list[str] = []

    def refuse(request: Any, *_: Any, **__: Any) -> None:
        requests.append(request if isinstance(request, str) else request.full_url)
        raise urllib.error.URLError(socket.gaierror(-3, "Temporary failure in name resolution"))

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    return requests


def test_list(
    small: Path, capsys: pytest.CaptureFixture[str], offline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (raw(small, "FashionMNIST") / "t10k-labels-idx1-ubyte.gz").unlink()
    monkeypatch.setenv("MOBENCH_DATA", str(small))
    assert main(["--list"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == [*DIGESTS, *family.FAMILY]
    assert lines["multi_fashion_mnist"] == "made of mnist and fashion_mnist; not written"
    assert lines["digits"] == f"embedded, 1437 + 360 images, sha256 {DIGESTS['digits'][:16]}"
    assert lines["mnist"].startswith(f"found in {raw(small)}, 20 + 10 images")
    assert lines["fashion_mnist"].startswith("not found: t10k-labels-idx1-ubyte.gz missing in")
    assert lines["cifar10"].startswith("not found: data_batch_1, data_batch_2,")
    (raw(small, "FashionMNIST") / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    assert main(["--list"]) == 0
    assert "damaged: " in capsys.readouterr().out
    assert not offline


def test_default_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOBENCH_DATA", raising=False)
    assert files.default_root() == Path("data")
    monkeypatch.setenv("MOBENCH_DATA", "/somewhere")
    assert files.default_root() == Path("/somewhere")


def test_download_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: list[str]
) -> None:
    assert main(["mnist", "--root", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert len(offline) == 2  # both mirrors
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("mobench data: error: mnist could not be downloaded into")
    for part in (str(raw(tmp_path)), "name resolution", "data=digits"):
        assert part in captured.err
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_download_that_breaks_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from http.client import IncompleteRead, RemoteDisconnected

    other = RuntimeError("File not found or corrupted."), NotADirectoryError("file")
    for error in (IncompleteRead(b"abc", 7), RemoteDisconnected("closed"), TimeoutError("late"), *other):

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr("urllib.request.urlopen", fail)
        assert main(["fashion_mnist", "--root", str(tmp_path)]) == 1
        assert "fashion_mnist could not be downloaded" in capsys.readouterr().err


def test_nothing_is_downloaded_twice(
    small: Path, capsys: pytest.CaptureFixture[str], offline: list[str]
) -> None:
    before = listing(small)
    assert main(["mnist", "fashion_mnist", "digits", "--root", str(small)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["mnist", "fashion_mnist", "digits"]
    assert "checked: 20 + 10 images" in out[0]
    assert "nothing to download" in out[2]
    assert listing(small) == before
    assert not offline


def test_a_set_of_pictures_is_written(
    small: Path, capsys: pytest.CaptureFixture[str], offline: list[str]
) -> None:
    """The file that a user reads with NumPy alone holds the data that the problems train on."""
    assert main(["multi_mnist", "multi_fashion_mnist", "--root", str(small)]) == 0
    assert not offline
    out = capsys.readouterr().out.splitlines()
    for line, name in zip(out, ("multi_mnist", "multi_fashion_mnist"), strict=True):
        data = multi_images(*family.FAMILY[name], small)
        assert f"written to {small / name}.npz: 40 + 20 pictures, sha256 {data.digest[:16]}" in line
        with np.load(small / f"{name}.npz") as arrays:
            assert set(arrays) == {"train", "train_labels", "test", "test_labels"}
            assert all((arrays[key] == getattr(data, key).numpy()).all() for key in arrays)


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_download(damage: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror's file is stored, checked and read; the other files are not requested."""
    target = tmp_path / "target"
    source = raw(small)
    shutil.copytree(source, raw(target))
    broken = raw(target) / "train-images-idx3-ubyte.gz"
    if damage == "missing":
        broken.unlink()
    else:
        broken.write_bytes(broken.read_bytes()[:-9])
    fetched: list[str] = []

    def mirror(url: str, filename: str | Path, *_: Any) -> None:
        fetched.append(Path(url).name)
        shutil.copy(source / Path(url).name, filename)

    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", mirror)
    assert main(["mnist", "--root", str(target)]) == 0
    assert fetched == ["train-images-idx3-ubyte.gz"]
    same(load_images("mnist", target))


def test_the_subset_is_listed_and_not_taken_for_the_whole_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mosaics(tmp_path, monkeypatch)
    assert main(["--list", "--root", str(tmp_path)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    line = lines["cifar10"]
    assert line.startswith(f"found in {tmp_path / 'cifar10'}, 20 + 10 images, sha256 ")
    assert line.endswith("CIFAR-10, 25k train subset")
    assert not offline
    assert main(["cifar10", "--root", str(tmp_path)]) == 1
    assert len(offline) == 1
    error = capsys.readouterr().err
    assert f"cifar10 could not be downloaded into {tmp_path / FOLDERS['batches']}" in error
    assert load_images("cifar10", tmp_path).subset  # still of use


def test_download_of_cifar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import CIFAR10

    wanted = small_batches(tmp_path / "source", monkeypatch)
    small_mosaics(tmp_path / "target", monkeypatch)
    archive = tmp_path / CIFAR10.filename
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "source" / FOLDERS["batches"], FOLDERS["batches"])
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest())
    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr(
        "torchvision.datasets.utils._urlretrieve", lambda url, filename, *_: shutil.copy(archive, filename)
    )
    assert load_images("cifar10", tmp_path / "target").subset
    for _ in range(2):
        assert main(["cifar10", "--root", str(tmp_path / "target")]) == 0
        out = capsys.readouterr().out
        assert f"in {tmp_path / 'target' / FOLDERS['batches']}, checked: 35 + 7 images" in out
        assert "subset" not in out
        monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", None)  # nothing is downloaded twice
    same_colours(load_images("cifar10", tmp_path / "target"), wanted)


def test_command_line_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mnits"]) == 1
    assert "Did you mean 'mnist'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "--list" in capsys.readouterr().err


# --- the official files -------------------------------------------------------------------------------------


def needing(*sets: str) -> Any:
    """A case of a parametrised test, and the data sets that it needs."""
    return pytest.param(sets[0] if len(sets) == 1 else sets, marks=pytest.mark.data(*sets))


@pytest.mark.parametrize("name", [needing("mnist"), needing("fashion_mnist")])
def test_official_set(name: str, data_folder: Path) -> None:
    folder = base.folder_of(name, data_folder)
    before = listing(folder)
    data = load_images(name, data_folder)
    assert listing(folder) == before
    assert (data.digest, data.embedded) == (DIGESTS[name], False)
    assert data.train.shape == (60_000, 28, 28)
    assert data.test.shape == (10_000, 28, 28)
    classes = MNIST_CLASSES if name == "mnist" else [6000] * 10
    assert data.train_labels.bincount().tolist() == classes
    mean = {"mnist": 0.1307, "fashion_mnist": 0.2860}[name]  # published by torchvision's examples
    assert abs(data.train.float().mean().item() / 255 - mean) < 1e-4


@pytest.mark.parametrize("pair", [needing(*p) for p in PAIRS if p not in EMBEDDED])
def test_official_pictures(pair: tuple[str, str], data_folder: Path) -> None:
    try:
        data = multi_images(*pair, data_folder, shifts=(0, 0))
        assert (data.digest, data.embedded) == (PAIRS[pair], False)
        assert data.train.shape == (120_000, 36, 36)
        assert data.test.shape == (20_000, 36, 36)
        for side, name in enumerate(pair):
            classes = load_images(name, data_folder).train_labels.bincount()
            assert torch.equal(data.train_labels[:, side].bincount(), 2 * classes)
        assert data.label.count("MNIST") == len(set(pair))
    finally:
        family._multi.cache_clear()  # 180 MB each


@pytest.mark.data("cifar10")
def test_official_colours(data_folder: Path) -> None:
    folder = base.folder_of("cifar10", data_folder)
    before = listing(folder)
    data = load_images("cifar10", data_folder)
    assert listing(folder) == before
    n = 25_000 if data.subset else 50_000
    assert data.train.shape == (n, 3, 32, 32)
    assert data.test.shape == (10_000, 3, 32, 32)
    assert data.train_labels.bincount().tolist() == [n // 10] * 10
    assert data.test_labels.bincount().tolist() == [1000] * 10
    # the first three training images are a frog and two trucks
    assert data.train_labels[:3].tolist() == [6, 9, 9]
    mean = (0.4921, 0.4823, 0.4463) if data.subset else (0.4914, 0.4822, 0.4465)
    for channel, wanted in enumerate(mean):
        assert abs(data.train[:, channel].double().mean().item() / 255 - wanted) < 1e-4
    if data.subset:
        assert data.digest == DIGESTS["cifar10"]
        assert data.label == "CIFAR-10, 25k train subset"
