"""Two overlapping pictures (Multi-MNIST):  f_m = mean cross-entropy of head m on training pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mobench.core.point import Linear
from mobench.core.preferences import Runs
from mobench.core.sampled import Batch, BatchGradients
from mobench.core.types import Real
from mobench.data.multi import MultiImages, multi_images, placement
from mobench.errors import ConfigError, check_batch_runs, choose
from mobench.kernels.convnet import CrossEntropies, RunPictures
from mobench.models.convnet import EXECUTIONS, ConvNet, for_device, model
from mobench.problems.dataset import TrainTest, chunk_means, network_starts

CHUNK = 2_000_000  # pixels of a forward pass without gradients, for each run


@dataclass(frozen=True, kw_only=True)
class MultiMNIST(TrainTest, BatchGradients):
    """Classification of the upper left and the lower right item of a picture by a network with two heads.

        f_m(theta) = (1/N) sum_i  -log softmax(z_m(theta; picture_i))_(label_im),   m = 1, 2

    theta (R, P) are the networks' parameter vectors (LeNet: P = 31,910). `values` of a batch are means over
    it; without one over all training pictures. History and final rows carry train_accuracy_m, test_loss_m,
    test_accuracy_m, all means over the whole split.
    Departure: FERERO's public code averages test losses of batches, the short last one with equal weight;
    `test_batch` does so.

    Fields:
        data: the base set of the upper left item, second: of the lower right one (null: the same). digits,
            digits_hard (embedded), mnist, fashion_mnist.
        data_root: folder of the official files; no part of a job's identity.
        shifts: where the two items lie. "diagonal" (the default of the configuration): as in the authors'
            files; [s1, s2]: shifted by up to so many pixels from their corners (`mobench.data.multi_images`).
        train_size, test_size: the first so many pictures of the fixed order (null: all).
        test_batch: null, or so many pictures: test losses are then means of the means of such batches.
        least_accuracy: a run ends at the first recorded step but 0 at which the test accuracy of a task is
            below it (0: none does). FERERO's public script starts such a run again.
        pixels: the value of white. 255: as the public code of Pareto MTL, EPO and FERERO has it, whose step
            sizes it fits; the first gradients are then hundreds of times larger than later ones.
        model: lenet | small | wide. tasks: the heads that exist, [0, 1]; [0] or [1] is single-task learning
            (M = 1).
        start: {kind: default} PyTorch's initialisation, {kind: xavier}: Xavier-uniform weights.
        execution: auto (by hardware) or one of products, loop, unfold; no part of a job's identity.
        max_batch_runs: so many networks at a time; the activations are then computed anew in the backward
            pass. No part of a job's identity.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {"default": (), "xavier": ()}
    execution_fields: ClassVar[tuple[str, ...]] = ("data_root", "execution", "max_batch_runs")
    added_fields: ClassVar[Mapping[str, Any]] = {
        "shifts": [0, 0],
        "test_batch": None,
        "least_accuracy": 0.0,
    }
    small: ClassVar[Mapping[str, Any]] = {"model": "small", "train_size": 256, "pixels": 1.0, "test_size": 16}
    citation: ClassVar[str] = "Sabour et al. 2017; Lin et al. 2019"

    data: str = "digits"
    second: str | None = None
    train_size: int | None = None
    test_size: int | None = None
    pixels: Real = 255.0
    model: str = "lenet"
    tasks: Sequence[int] = (0, 1)
    execution: str = "auto"
    max_batch_runs: int | None = None
    steps: int = 1000
    test_batch: int | None = None
    least_accuracy: Real = 0.0
    shifts: str | Sequence[int] = (0, 0)  # jobs from before this field have no shifts

    def __post_init__(self) -> None:
        super().__post_init__()
        placement(self.shifts)
        if list(self.tasks) not in ([0], [1], [0, 1]):
            raise ConfigError(
                f"problem.tasks={list(self.tasks)} must be [0, 1], or [0] or [1] for a single task."
            )
        if not 0 < self.pixels < float("inf"):
            raise ConfigError(f"problem.pixels={self.pixels} must be > 0; it is the value of a white pixel.")
        if self.test_batch is not None and not self.test_batch > 0:
            raise ConfigError(f"problem.test_batch={self.test_batch} must be at least 1, or null.")
        if not 0 <= self.least_accuracy < 1:
            raise ConfigError(f"problem.least_accuracy={self.least_accuracy} must be >= 0 and < 1.")
        check_batch_runs(self.max_batch_runs)
        choose("problem.execution", self.execution, ("auto", *EXECUTIONS))
        self.network  # noqa: B018  a wrong name is an error now

    @property
    def network(self) -> ConvNet:
        """The network, a function of stacked parameters."""
        return model(self.model, len(self.tasks), 36)

    @property
    def images(self) -> MultiImages:
        """The pictures; made once per process."""
        return multi_images(
            self.data,
            self.second or self.data,
            self.data_root,
            self.train_size,
            self.test_size,
            self.shifts,
        )

    @property
    def n_objectives(self) -> int:
        return len(self.tasks)

    @property
    def ref_point(self) -> tuple[float, ...]:
        """The cross entropy of a uniform guess, log 10, for every task (ours)."""
        return (math.log(10),) * self.n_objectives

    @property
    def dim(self) -> int:
        return self.network.dim

    @property
    def n_samples(self) -> int:
        return len(self.images.train)

    @property
    def data_set(self) -> MultiImages:
        return self.images

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        kind = self.start["kind"]
        return network_starts(self, runs, lambda rng: self.network.initial(rng, kind), model=self.model)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        data = self.images
        return super().facts(runs) | {"train_size": len(data.train), "test_size": len(data.test)}

    def strategy(self, device: torch.device) -> str:
        return for_device(self.execution, device)

    def part(self, split: str, like: Tensor) -> tuple[Tensor, Int[Tensor, "N T"]]:
        """Pictures (uint8) and labels of the tasks."""
        data = self.images
        pictures = data.train
        labels = data.train_labels
        if split != "train":
            pictures = data.test
            labels = data.test_labels
        return pictures.to(like.device), labels[:, list(self.tasks)].to(like.device)

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        """Mean losses.

        `batch`: a Batch of groups that share pictures, or indices (R, B), or None: all of `train`.
        """
        if batch is None:
            return self.evaluated("train", x)[0]
        pictures, labels = self.of_split("train", x)
        chosen, order, sizes = _groups(batch)
        parts = x[order].split(sizes) if len(sizes) > 1 else [x]
        losses = [
            self._losses(part, pictures[i], labels[i])
            for part, i in zip(parts, chosen, strict=True)
            if len(part)
        ]
        if len(sizes) == 1:
            return losses[0]
        return torch.cat(losses)[torch.argsort(order)]

    def linearize(self, x: Float[Tensor, "R P"], batch: Any = None) -> Linear | None:
        """With execution=products, of a batch: everything in closed form, see `CrossEntropies`."""
        if batch is None or self.strategy(x.device) != "products":
            return None
        pictures, labels = self.of_split("train", x)
        chosen, order, sizes = _groups(batch)
        parts = []
        for runs, i in zip(order.split(sizes), chosen, strict=True):
            seen = self._input(pictures[i], x), labels[i].T
            parts += [
                RunPictures(some, *seen)
                for some in runs.split(self.max_batch_runs or max(1, len(runs)))
                if len(some)
            ]
        return CrossEntropies(
            self.network, x, parts, keep=self.max_batch_runs is None or len(x) <= self.max_batch_runs
        )

    def _input(self, pictures: Tensor, x: Tensor) -> Float[Tensor, "B H W"]:
        grey = pictures.to(x.dtype)
        return grey if self.pixels == 255 else grey * (self.pixels / 255.0)

    def _losses(
        self, x: Float[Tensor, "R P"], pictures: Tensor, labels: Int[Tensor, "B T"]
    ) -> Float[Tensor, "R T"]:
        grey = self._input(pictures, x)
        how = self.strategy(x.device)

        def mean(some: Tensor) -> Tensor:
            return _cross_entropy(self.network.logits(some, grey, how), labels).mean(-1)

        if self.max_batch_runs is None or len(x) <= self.max_batch_runs:
            return mean(x)
        return torch.cat(
            [checkpoint(mean, part, use_reentrant=False) for part in x.split(self.max_batch_runs)]
        )

    def evaluate(self, split: str, x: Float[Tensor, "R P"]) -> tuple[Float[Tensor, "R T"], ...]:
        """Mean losses and accuracies."""
        pictures, labels = self.of_split(split, x)
        execution = self.strategy(x.device)
        size = max(1, CHUNK // pictures[0].numel() // (1 if x.device.type == "cpu" else 4))
        batch = self.test_batch if split == "test" else None
        if batch is not None:
            size = batch
        N = len(pictures)

        def sums(some: Tensor, part: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            z = self.network.logits(some, self._input(part, x), execution)
            right = z.argmax(-1) == targets.T
            losses = _cross_entropy(z, targets).double().sum(-1)
            if batch is not None:  # each batch counts alike, however many pictures it has
                losses *= N / (len(part) * math.ceil(N / batch))
            return losses, right.double().sum(-1)

        chunks = zip(pictures.split(size), labels.split(size), strict=True)
        return chunk_means(x, chunks, sums, self.max_batch_runs)

    @property
    def callback(self) -> None:
        """None: no function is called at recorded steps (`Watched`)."""

    @property
    def stop(self) -> Callable[[Any], Any] | None:
        """The rule by which runs end, None without `least_accuracy` (`Watched`)."""
        return self._inaccurate if self.least_accuracy else None

    def _inaccurate(self, rows: Any) -> Any:
        """Returns which runs are below `least_accuracy` at the last recorded step, or not finite."""
        names = [f"test_accuracy_{m + 1}" for m in range(len(self.tasks))]
        if not set(names) <= set(rows):
            raise ConfigError(
                f"problem.least_accuracy={self.least_accuracy} needs the test accuracy of recorded steps; "
                "set record.measures=true."
            )
        last = rows.groupby("run").last()
        return ((last["step"] > 0) & ~(last[names] >= self.least_accuracy).all(axis=1)).to_numpy()

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R M"]) -> dict[str, Tensor]:
        """train_accuracy_m, test_loss_m, test_accuracy_m."""
        accuracy = self.evaluated("train", x)[1]
        loss, tested = self.evaluated("test", x)
        measures = {"train_accuracy": accuracy, "test_loss": loss, "test_accuracy": tested}
        return {f"{name}_{m + 1}": v[:, m] for name, v in measures.items() for m in range(len(self.tasks))}


def _groups(batch: Batch | Int[Tensor, "R B"]) -> tuple[Int[Tensor, "S B"], Int[Tensor, " R"], list[int]]:
    """The pictures of each group, the runs group by group, and how many each group has.

    Indices: each run is a group.
    """
    if isinstance(batch, Tensor):
        batch = Batch(batch, torch.arange(len(batch), device=batch.device))
    sizes = batch.sizes or torch.bincount(batch.group, minlength=len(batch.chosen)).tolist()
    return batch.chosen, torch.argsort(batch.group, stable=True), list(sizes)


def _cross_entropy(z: Float[Tensor, "R T B C"], labels: Int[Tensor, "B T"]) -> Float[Tensor, "R T B"]:
    """-log softmax(z)_label of each picture."""
    R, T, B, C = z.shape
    wanted = labels.T.expand(R, T, B)
    return nn.cross_entropy(z.reshape(-1, C), wanted.reshape(-1), reduction="none").view(R, T, B)
