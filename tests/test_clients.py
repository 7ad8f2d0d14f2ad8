"""Shares of clients: the stratified cut, turns, partial classes, digests, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobench.data import Images, load_images
from mobench.data.clients import Clients, partition
from mobench.errors import ConfigError

SPLITS = ("train", "test")
SCENARIOS: dict[str, dict[str, Any]] = {
    "stratified": {"kind": "stratified"},
    "rotation": {"kind": "rotation"},
    "partial 2": {"kind": "partial", "classes_per_client": 2},
    "partial 5": {"kind": "partial", "classes_per_client": 5},
}
DIGESTS = {  # digits, ten clients, seed 0
    "stratified": "038d3de6d235bfae1bf3e188b062ecccf24d74e504d7da5e613699392257b355",
    "rotation": "b25ac5be1a43b5a9601013a2f43e0529cab44b2c9afcfe577cd2675e01c50488",
    "partial 2": "f435828fdc6f33fb58c0945a9bf18bc1d11fabde1debee2612b61c7375358e31",
    "partial 5": "c5932f141489a4639ac3a955148a76c8f962af2a730b88f8e5bb1d3e02adc927",
}


@pytest.fixture(scope="module")
def digits() -> Images:
    return load_images("digits", "")


def held(clients: Clients, split: str) -> list[np.ndarray]:
    return [part.numpy() for part in getattr(clients, split)]


def labels_of(base: Images, split: str) -> np.ndarray:
    return getattr(base, f"{split}_labels").numpy()


# --- the cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_digests_are_pinned(name: str, digits: Images) -> None:
    clients = partition(digits, **SCENARIOS[name])
    assert clients.digest == DIGESTS[name]
    again = partition(digits, **SCENARIOS[name], seed=0)
    assert again is not clients
    assert again.digest == clients.digest
    assert partition(digits, **SCENARIOS[name], seed=25).digest != clients.digest


@pytest.mark.parametrize("name", list(SCENARIOS))
@pytest.mark.parametrize("M", [1, 3, 10])
def test_clients_share_no_image(name: str, M: int, digits: Images) -> None:
    options = SCENARIOS[name] | ({"rotations": [90] * M} if name == "rotation" else {})
    clients = partition(digits, clients=M, **options)
    parts = (clients, clients.train, clients.test, clients.turns, clients.classes)
    assert [len(part) for part in parts] == [M] * 5
    for split in SPLITS:
        shares = held(clients, split)
        together = np.concatenate(shares)
        assert len(set(together.tolist())) == len(together)
        assert together.min() >= 0
        assert together.max() < len(labels_of(digits, split))
        for share in shares:
            assert share.dtype == np.int64


@pytest.mark.parametrize("kind", ["stratified", "rotation"])
def test_equal_numbers_of_each_class(kind: str, digits: Images) -> None:
    clients = partition(digits, kind)
    for split, total in (("train", 140), ("test", 30)):
        tenth = np.bincount(labels_of(digits, split)) // 10
        assert (clients.counts(digits, split) == tenth).all()
        assert clients.counts(digits, split).sum(1).tolist() == [total] * 10
        assert [len(part) for part in held(clients, split)] == [total] * 10
    assert clients.classes == (tuple(range(10)),) * 10


def test_counts_by_hand(digits: Images) -> None:
    clients = partition(digits, "partial", 4, classes_per_client=3, seed=1)
    for split in SPLITS:
        counts = clients.counts(digits, split)
        labels = labels_of(digits, split)
        assert counts.shape == (4, 10)
        for i, part in enumerate(held(clients, split)):
            for c in range(10):
                assert counts[i, c] == sum(1 for k in part if labels[k] == c)
    with pytest.raises(ConfigError, match="split='valid' is unknown"):
        clients.counts(digits, "valid")


def test_the_remainder_of_a_class_is_dropped(digits: Images) -> None:
    parts = partition(digits, "stratified", 7).train
    used = np.bincount(labels_of(digits, "train")[torch.cat(parts).numpy()])
    whole = np.bincount(labels_of(digits, "train"))
    assert (used == whole - whole % 7).all()
    assert (whole % 7 > 0).any()


@pytest.mark.parametrize("seed", [0, 42])
def test_the_cut_is_the_same_for_all_kinds(seed: int, digits: Images) -> None:
    whole = partition(digits, "stratified", seed=seed)
    turned = partition(digits, "rotation", seed=seed)
    for split in SPLITS:
        labels = labels_of(digits, split)
        for i, part in enumerate(held(whole, split)):
            assert (held(turned, split)[i] == part).all()
            for C in (1, 5, 10):
                some = partition(digits, "partial", classes_per_client=C, seed=seed)
                # its order as well
                assert (held(some, split)[i] == part[np.isin(labels[part], some.classes[i])]).all()


@pytest.mark.parametrize("sizes", [(200, None), (None, 200), (300, 150)])
def test_sizes_are_those_of_the_beginning(sizes: tuple[int | None, int | None], digits: Images) -> None:
    clients = partition(digits, "stratified", 5, train_size=sizes[0], test_size=sizes[1])
    for split, size in zip(SPLITS, sizes, strict=True):
        labels = labels_of(digits, split)[:size]
        assert (clients.counts(digits, split) == np.bincount(labels) // 5).all()
        assert max(part.max() for part in held(clients, split)) < len(labels)
    whole = partition(digits, "stratified", 5)
    for split, size in zip(SPLITS, sizes, strict=True):
        assert (size is None) == all(
            np.array_equal(a, b) for a, b in zip(held(clients, split), held(whole, split), strict=True)
        )


# --- turns --------------------------------------------------------------------------------------------------


def test_turns_of_ten_clients(digits: Images) -> None:
    assert partition(digits, "rotation").turns == (0, 0, 0, 0, 0, 0, 0, 1, 1, 2)
    cifar = partition(digits, "rotation", rotations=[0] * 7 + [180] * 3)
    assert cifar.turns == (0, 0, 0, 0, 0, 0, 0, 2, 2, 2)
    assert cifar.digest != DIGESTS["rotation"]
    for kind in ("stratified", "partial"):
        options = {"classes_per_client": 2} if kind == "partial" else {}
        assert partition(digits, kind, **options).turns == (0,) * 10


def test_degrees_become_quarter_turns(digits: Images) -> None:
    degrees = [0, 90, 180.0, 270, 360, -90, 450, -180]
    assert partition(digits, "rotation", 8, rotations=degrees).turns == (0, 1, 2, 3, 0, 3, 1, 2)


def test_a_turn_is_against_the_clock_and_exact(digits: Images) -> None:
    """The last column becomes the first row, pixel by pixel, as the field's text says."""
    x = digits.train[:3]
    for turns in partition(digits, "rotation", 4, rotations=[0, 90, 180, 270]).turns:
        expected = x.numpy()
        for _ in range(turns):
            expected = np.stack([np.stack([a[:, -1 - k] for k in range(28)]) for a in expected])
        assert (torch.rot90(x, turns, (-2, -1)).numpy() == expected).all()
    assert not torch.equal(torch.rot90(x, 1, (-2, -1)), x)


# --- partial classes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1, 2, 5, 10])
@pytest.mark.parametrize("seed", [0, 1010])
def test_partial_has_its_classes_only(C: int, seed: int, digits: Images) -> None:
    clients = partition(digits, "partial", classes_per_client=C, seed=seed)
    for i, classes in enumerate(clients.classes):
        assert len(set(classes)) == C
        assert list(classes) == sorted(classes)
        for split in SPLITS:
            assert np.flatnonzero(clients.counts(digits, split)[i]).tolist() == list(classes)
            tenth = np.bincount(labels_of(digits, split)) // 10
            assert (clients.counts(digits, split)[i, list(classes)] == tenth[list(classes)]).all()


def test_fewer_classes_are_among_more_and_clients_do_not_matter(digits: Images) -> None:
    two, five = (partition(digits, "partial", classes_per_client=C, seed=37).classes for C in (2, 5))
    assert all(set(a) < set(b) for a, b in zip(two, five, strict=True))
    assert partition(digits, "partial", 4, classes_per_client=2, seed=37).classes == two[:4]


# --- digest -------------------------------------------------------------------------------------------------


def test_the_digest_covers_everything(digits: Images) -> None:
    clients = partition(digits, "rotation", 2, rotations=[0, 270], train_size=60, test_size=50)
    parts = [*held(clients, "train"), *held(clients, "test"), clients.turns, *clients.classes]
    numbers = [len(part) for part in parts] + [int(v) for part in parts for v in part]
    assert clients.digest == hashlib.sha256(b"".join(v.to_bytes(8, "little") for v in numbers)).hexdigest()
    others = [
        partition(digits, "stratified", 2, train_size=60, test_size=50),
        partition(digits, "rotation", 2, rotations=[90, 270], train_size=60, test_size=50),
        partition(digits, "rotation", 2, rotations=[0, 270], train_size=61, test_size=50),
        partition(digits, "rotation", 2, rotations=[0, 270], train_size=60, test_size=49),
        partition(digits, "partial", 2, classes_per_client=9, train_size=60, test_size=50),
        partition(digits, "rotation", 2, rotations=[0, 270], train_size=60, test_size=50, seed=1),
        partition(
            load_images("digits_hard", ""), "rotation", 2, rotations=[0, 270], train_size=60, test_size=50
        ),
    ]
    assert len({clients.digest, *(c.digest for c in others)}) == 8


def test_indices_can_be_used_with_gradients(digits: Images) -> None:
    with torch.inference_mode():
        clients = partition(digits, "stratified", 3)
    assert not any(part.is_inference() for part in (*clients.train, *clients.test))


# --- what is refused ----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "C too large": (
        {"kind": "partial", "classes_per_client": 11},
        r"problem\.classes_per_client=11 is out of range.*10 classes\. Choose 1\.\.10",
    ),
    "C missing": (
        {"kind": "partial"},
        r"problem\.partition=partial needs problem\.classes_per_client.*it is null",
    ),
    "C for rotation": (
        {"kind": "rotation", "classes_per_client": 2},
        r"problem\.classes_per_client=2 has no effect with problem\.partition=rotation.*partition=partial",
    ),
    "C for stratified": (
        {"classes_per_client": 10},
        r"problem\.classes_per_client=10 has no effect with problem\.partition=stratified",
    ),
    "no quarter turn": (
        {"kind": "rotation", "clients": 2, "rotations": [0, 45]},
        r"problem\.rotations=\[0, 45\] contains 45; rotations must be multiples of 90.*0, 90, 180, 270",
    ),
    "too few turns": (
        {"kind": "rotation", "rotations": [0, 90]},
        r"problem\.rotations=\[0, 90\] has 2 numbers, but needs 10, .*problem\.clients=10",
    ),
    "no turns for these clients": (
        {"kind": "rotation", "clients": 9},
        r"problem\.rotations=null .*needs 10 clients, but problem\.clients=9\. Give 9 numbers",
    ),
    "no training images": (
        {"train_size": 20},
        r"problem\.clients=10: client 0 would have no train images.*larger problem\.train_size",
    ),
    "train_size": (
        {"train_size": 1438},
        r"problem\.train_size=1438 is out of range.*1437 train images.*Choose 1\.\.1437",
    ),
    "test_size": ({"test_size": 0}, r"problem\.test_size=0 is out of range: data=digits has 360 test"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused(name: str, digits: Images) -> None:
    options, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as caught:
        partition(digits, **({"kind": "stratified"} | options))
    assert "\n" not in str(caught.value)


def test_a_client_whose_classes_are_too_small(digits: Images) -> None:
    """With 29 clients classes 1, 2 and 7 are empty everywhere: who draws only them has nothing."""
    with pytest.raises(
        ConfigError, match=r"client \d+ would have no test images.* classes \[[127]\] there are at most 2"
    ):
        partition(digits, "partial", 29, classes_per_client=1)
    assert partition(digits, "stratified", 29).counts(digits, "test").sum(1).min() > 0


# --- the official files -------------------------------------------------------------------------------------


@pytest.mark.data("mnist")
def test_mnist(data_folder: Path) -> None:
    base = load_images("mnist", data_folder)
    clients = partition(base, "rotation")
    assert clients.digest == "209477516864318aec7ebf3d7788bd8a73d461ab42c082f079ca2f08a5f5f79e"
    for split, total in (("train", 5996), ("test", 996)):
        assert [len(part) for part in held(clients, split)] == [total] * 10
        assert (clients.counts(base, split) == np.bincount(labels_of(base, split)) // 10).all()
    for C, train, test in ((2, 1200, 200), (5, 3000, 500)):
        some = partition(base, "partial", classes_per_client=C)
        assert all(abs(len(part) - train) < 0.1 * train for part in held(some, "train"))
        assert all(abs(len(part) - test) < 0.1 * test for part in held(some, "test"))
