"""Data hyper-cleaning: a weight for each training image, and S copies of the labels, more and more wrong.

g_s(x, W_s) = (1/n) sum_j sigmoid(x_j) CE(W_s a_j, label_s,j) + reg |W_s|^2,
f_s(W_s) = mean CE(W_s a, label), validation
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.bilevel import Bilevel, Step, View
from mobench.core.preferences import Runs
from mobench.core.random import generator
from mobench.core.seeds import PerSeed
from mobench.data.files import digest_of
from mobench.data.images import CLASSES, Images, load_images
from mobench.errors import ConfigError, choose
from mobench.problems.dataset import DataProblem

This = TypeVar("This", bound="HyperCleaning")  # beartype knows no typing.Self in methods


MASKS = ("independent", "nested")
PART = 4096  # images of a product of which only a sum is kept


class Labels(NamedTuple):
    """The split of one seed: training and validation images, labels of each task, 1 where they are wrong."""

    train: Int[Tensor, " n"]
    validation: Int[Tensor, " m"]
    labels: Int[Tensor, "S n"]
    wrong: Int[Tensor, "S n"]
    digest: str


Place = slice | Int[Tensor, " r"]
"""Runs of a seed: a slice where they lie at equal distances, since what a slice reads is not copied."""


class Sets(NamedTuple):
    """One seed on the device: its runs, pixels (n, d), one-hot labels of all tasks (n, S 10), 1 where a
    label is wrong; pixels and one-hot labels of validation (m, 10).
    """

    runs: Place

    train: Float[Tensor, "n d"]
    labels: Float[Tensor, "n K"]
    wrong: Float[Tensor, "S n"]
    validation: Float[Tensor, "m d"]
    truth: Float[Tensor, "m 10"]


@dataclass(frozen=True, kw_only=True)
class HyperCleaning(DataProblem, PerSeed[Labels], Bilevel):
    """S tasks with corruption rates p_s share the weights x of the training images; task s fits a linear
    softmax W_s (10, d) without bias to its own labels. y has S blocks. All derivatives are closed forms.

    With P = softmax(A W_s'), E = P - onehot(label_s), and n terms (or those of a batch):
        grad_W g_s = (1/n) sum_j sigmoid(x_j) E_j a_j' + 2 reg W_s
        H v        = (1/n) sum_j sigmoid(x_j) (P_j * z_j - P_j <P_j, z_j>) a_j' + 2 reg v,   z = A v'
        [J_xy v]_j = sigmoid'(x_j) <E_j, z_j> / n

    A run's seed makes the split of the base set's training images, which labels are wrong, and which class
    they show instead (each of the other nine alike). mu_g = 2 reg.

    Columns: test_loss_s, test_accuracy_s (per cent) on the test images, their means test_loss, test_accuracy;
    weight_wrong_s and weight_right_s, means of sigmoid(x_j) over the images whose label of task s is wrong,
    right (NaN where there is none).

    Fields:
        data: digits, digits_hard (embedded), mnist, fashion_mnist. data_root: folder of the files; no part of
            a job's identity.
        train_size, validation_size: images of either set, from the base set's training images. test_size:
            null: all.
        rates: p_s, in [0, 1). masks: independent (each task draws its own) | nested (a wrong label stays
            wrong at higher rates).
        reg: of |W|^2, > 0. shrink: side of the squares of pixels that are averaged (1: none).

    Source: multi-objective bilevel learning paper, Section 6. Departure: g has no factor 1/S.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {"constant": ("value",), "normal": ("scale",)}
    small: ClassVar[Mapping[str, Any]] = {
        "train_size": 60,
        "validation_size": 40,
        "test_size": 20,
        "shrink": 7,
    }
    citation: ClassVar[str] = (
        "Franceschi et al. 2017 (data hyper-cleaning); multi-objective bilevel learning paper"
    )

    data: str = "digits"
    train_size: int = 1000
    validation_size: int = 400
    test_size: int | None = None
    rates: Sequence[float] = (0.0, 0.15, 0.3, 0.45, 0.6)
    masks: str = "independent"
    reg: float = 0.1
    shrink: int = 1
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant", "value": 0.0})
    steps: int = 150

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.masks", self.masks, MASKS)
        for key in ("train_size", "validation_size", "shrink"):
            if getattr(self, key) < 1:
                raise ConfigError(f"problem.{key}={getattr(self, key)} must be at least 1.")
        if self.test_size is not None and self.test_size < 1:
            raise ConfigError(f"problem.test_size={self.test_size} must be at least 1 (null means all).")
        if not self.rates or not all(0 <= p < 1 for p in self.rates):
            raise ConfigError(
                f"problem.rates={list(self.rates)} must contain corruption rates in [0, 1), one for each "
                "task."
            )
        if not self.reg > 0:
            raise ConfigError(
                f"problem.reg={self.reg} must be > 0, so that the lower level is strongly convex."
            )

    # what there is

    @property
    def images(self) -> Images:
        """The base set; read once in a process."""
        images = load_images(self.data, self.data_root)
        wanted = self.train_size + self.validation_size
        available = len(images.train)
        if wanted > available:
            raise ConfigError(
                f"problem.train_size={self.train_size} and problem.validation_size={self.validation_size} "
                f"need {wanted} images, but {images.label} has {available} for training."
            )
        return images

    @property
    def n_objectives(self) -> int:
        return len(self.rates)

    @property
    def dim(self) -> int:
        return self.train_size

    @property
    def blocks(self) -> int:
        return len(self.rates)

    @property
    def pixels(self) -> int:
        """d."""
        side = self.images.train.shape[-1]
        if self.shrink > side:
            raise ConfigError(
                f"problem.shrink={self.shrink} is too large for images of {side} x {side} pixels."
            )
        return (side // self.shrink) ** 2

    @property
    def lower_dim(self) -> int:
        return CLASSES * self.pixels

    @property
    def lower_samples(self) -> int:
        return self.train_size

    @property
    def convexity(self) -> float:
        return 2.0 * self.reg

    @property
    def data_set(self) -> Images:
        return self.images

    def labels_of(self, seed: int) -> Labels:
        """Split and corrupted labels; drawn once in a process."""
        _ = self.images  # too few of them is an error in words
        sizes = self.train_size, self.validation_size
        return _labels(
            self.data,
            self.data_root,
            *sizes,
            tuple(float(p) for p in self.rates),
            self.masks,
            seed,
            self.name,
        )

    def instance(self, seed: int) -> Labels:
        return self.labels_of(seed)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        digests = {seed: labels.digest for seed, labels in self.instances(runs).items()}
        return super().facts(runs) | {"labels_sha256": digests}

    def bind(self: This, runs: Runs) -> This:
        """Returns the problem with the labels of the runs' seeds."""
        _ = self.pixels  # a shrink that leaves nothing is an error now
        return super().bind(runs)

    # on the device

    def _pixels(self, images: Tensor, like: Tensor) -> Float[Tensor, "n d"]:
        x = images.to(like.device, like.dtype) / 255.0
        return (nn.avg_pool2d(x.unsqueeze(1), self.shrink) if self.shrink > 1 else x).flatten(1)

    def groups(self, like: Tensor) -> Iterator[tuple[Place, Sets]]:
        """Runs of each seed, and its images."""

        def made() -> list[Sets]:
            return [self._sets(g, seed, like) for g, seed in enumerate(self.seeds)]

        for sets in self.cache.made(("sets", like.dtype, like.device), made):
            yield sets.runs, sets

    def _sets(self, g: int, seed: int, like: Tensor) -> Sets:
        base = self.images
        split = self.labels_of(seed)
        labels = nn.one_hot(split.labels, CLASSES).transpose(0, 1).flatten(1)
        truth = nn.one_hot(base.train_labels[split.validation], CLASSES)
        train = self._pixels(base.train[split.train], like)
        validation = self._pixels(base.train[split.validation], like)
        runs = _place((self.group == g).nonzero().squeeze(1), like.device)
        return Sets(runs, train, labels.to(like), split.wrong.to(like), validation, truth.to(like))

    def _test(self, like: Tensor) -> tuple[Float[Tensor, "T d"], Int[Tensor, " T"]]:
        """Test images and labels on the device."""

        def made() -> tuple[Tensor, Tensor]:
            labels = self.images.test_labels[: self.test_size].to(like.device)
            return self._pixels(self.images.test[: self.test_size], like), labels

        return self.cache.made(("test", like.dtype, like.device), made)

    def view(self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R b"] | None = None) -> View:
        return _Linear(self, x, batch)

    def columns_at(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> dict[str, Tensor]:
        S = len(self.rates)
        A, labels = self._test(x)
        loss, right = x.new_zeros(2, len(x), S).unbind(0)
        for part in torch.arange(len(A), device=x.device).split(PART):
            z = (y.view(-1, A.shape[1]) @ A[part].mT).view(len(x), S, CLASSES, len(part))
            chosen = z.gather(2, labels[part].expand(len(x), S, 1, -1)).squeeze(2)
            loss += (z.logsumexp(2) - chosen).sum(2) / len(A)
            right += (z.argmax(2) == labels[part]).sum(2) * (100.0 / len(A))
        out = {f"test_loss_{s + 1}": loss[:, s] for s in range(S)}
        out |= {f"test_accuracy_{s + 1}": right[:, s] for s in range(S)}
        out |= {"test_loss": loss.mean(1), "test_accuracy": right.mean(1)}
        weights = torch.sigmoid(x)
        means = {"wrong": torch.empty_like(loss), "right": torch.empty_like(loss)}
        for runs, sets in self.groups(x):
            for kind, mask in (("wrong", sets.wrong), ("right", 1.0 - sets.wrong)):
                means[kind][runs] = weights[runs] @ mask.mT / mask.sum(1)
        out |= {f"weight_{kind}_{s + 1}": mean[:, s] for kind, mean in means.items() for s in range(S)}
        return out


def _place(index: Int[Tensor, " r"], device: torch.device) -> Place:
    first = int(index[0])
    last = int(index[-1])
    apart = int(index[1]) - first if len(index) > 1 else 1
    if index.tolist() == list(range(first, last + 1, apart)):
        return slice(first, last + 1, apart)
    return index.to(device)


@lru_cache(maxsize=32)
def _labels(
    data: str, root: str, n: int, m: int, rates: tuple[float, ...], masks: str, seed: int, name: str
) -> Labels:
    base = load_images(data, root)
    order = generator(seed, problem=name, use="split").permutation(len(base.train))
    train = order[:n].copy()
    validation = order[n : n + m].copy()
    truth = base.train_labels.numpy()[train]
    labels = []
    wrong = []
    for s, p in enumerate(rates):
        rng = generator(seed, problem=name, use="corruption", task=0 if masks == "nested" else s)
        mask = rng.random(n) < p
        other = (truth + rng.integers(1, CLASSES, size=n)) % CLASSES  # never the right one
        labels.append(np.where(mask, other, truth))
        wrong.append(mask)
    tables = [np.stack(labels), np.stack(wrong).astype(np.int64)]
    digest = digest_of(train.astype(np.int64), validation.astype(np.int64), *tables)
    first, second, third, fourth = (torch.from_numpy(a) for a in (train, validation, *tables))
    return Labels(first, second, third, fourth, digest)


class _Linear(View):
    """Closed forms; runs of a seed share each product with its images."""

    def __init__(self, problem: HyperCleaning, x: Tensor, batch: Tensor | None) -> None:
        self.problem = problem
        self.x = x
        self.batch = batch
        self.S = len(problem.rates)
        self.d = problem.pixels
        self._last: tuple[Tensor, list[Tensor]] | None = None  # y, and its probabilities
        self._parts: list[tuple[Place, Tensor, Tensor, Tensor]] | None = None

    def _groups(self) -> list[tuple[Place, Tensor, Tensor, Tensor]]:
        """Runs, images A (b, d), one-hot labels (S, 10, b), sigmoid(x_j) / b (r, 1, 1, b)."""
        if self._parts is None:
            self._parts = []
            for runs, sets in self.problem.groups(self.x):
                x = self.x[runs]
                A = sets.train
                truth = sets.labels
                if self.batch is not None:
                    index = self.batch[runs][0]  # runs of a seed draw the same
                    x = x.index_select(1, index)
                    A = A.index_select(0, index)
                    truth = truth.index_select(0, index)
                share = torch.sigmoid(x) / len(A)
                self._parts.append((runs, A, truth.mT.view(self.S, CLASSES, len(A)), share[:, None, None]))
        return self._parts

    def _scores(self, v: Float[Tensor, "r S q"], A: Float[Tensor, "b d"]) -> Float[Tensor, "r S 10 b"]:
        return (v.reshape(-1, self.d) @ A.mT).view(len(v), self.S, CLASSES, len(A))

    def _probabilities(self, y: Float[Tensor, "R S q"]) -> list[Tensor]:
        if self._last is None or self._last[0] is not y:
            self._last = y, [self._scores(y[runs], A).softmax(2) for runs, A, _, _ in self._groups()]
        return self._last[1]

    def lower(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        out = self.problem.reg * y.square().sum(-1)
        for runs, A, truth, share in self._groups():
            z = self._scores(y[runs], A)
            out[runs] += ((z.logsumexp(2) - (z * truth).sum(2)) * share.squeeze(1)).sum(2)
        return out

    def lower_gradient(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B q"]:
        out = (2.0 * self.problem.reg) * y
        for (runs, A, truth, share), P in zip(self._groups(), self._probabilities(y), strict=True):
            out[runs] += (((P - truth) * share).view(-1, len(A)) @ A).view(len(P), self.S, -1)
        return out

    def lower_hvp(self, y: Float[Tensor, "R B q"], v: Float[Tensor, "R k q"]) -> Float[Tensor, "R k q"]:
        out = (2.0 * self.problem.reg) * v
        for (runs, A, _, share), P in zip(self._groups(), self._probabilities(y), strict=True):
            z = self._scores(v[runs], A).mul_(P)
            z = torch.addcmul(z, P, z.sum(2, keepdim=True), value=-1).mul_(share)
            out[runs] += (z.view(-1, len(A)) @ A).view(len(z), self.S, -1)
        return out

    def upper(self, y: Float[Tensor, "R B q"]) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S q"]]:
        F = y.new_empty(y.shape[:2])
        slopes = torch.empty_like(y)
        for runs, sets in self.problem.groups(y):
            truth = sets.truth.mT
            z = self._scores(y[runs], sets.validation)
            log = z.log_softmax(2)
            F[runs] = -(log * truth).sum((2, 3)) / len(sets.validation)
            E = (log.exp_() - truth).view(-1, len(sets.validation))
            slopes[runs] = (E @ sets.validation).view(len(z), self.S, -1) / len(sets.validation)
        return F, slopes

    def jacobian(self, y: Float[Tensor, "R B q"], steps: Sequence[Step]) -> Float[Tensor, "R S P"]:
        R, n = self.x.shape
        out = y.new_zeros(R, self.S, n)
        if not steps:
            return out
        for runs, sets in self.problem.groups(self.x):
            x = self.x[runs]
            weight = (torch.sigmoid(x) * torch.sigmoid(-x)).unsqueeze(1) / n
            total = y.new_zeros(len(x), self.S, n)
            for start in range(0, n, PART):
                A = sets.train[start : start + PART]
                truth = sets.labels[start : start + PART]
                truth = truth.mT.view(self.S, CLASSES, len(A))
                for y_t, v in steps:
                    E = self._scores(y_t[runs], A).softmax(2) - truth
                    total[..., start : start + PART] += (E * self._scores(v[runs], A)).sum(2)
            out[runs] = total.mul_(weight).neg_()
        return out

    def lower_x(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R P"]:
        n = self.x.shape[1]
        out = torch.empty_like(self.x)
        for runs, sets in self.problem.groups(self.x):
            x = self.x[runs]
            z = self._scores(y[runs], sets.train)
            losses = z.logsumexp(2) - (z * sets.labels.mT.view(self.S, CLASSES, n)).sum(2)
            out[runs] = losses.sum(1) * torch.sigmoid(x) * torch.sigmoid(-x) / n
        return out
