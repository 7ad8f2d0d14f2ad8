"""Binary attributes of pictures (CelebA):  f_m = mean binary cross-entropy of head m in training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as nn
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mobench.core.preferences import Runs
from mobench.core.sampled import Batch, BatchGradients
from mobench.data.celeba import LABELS, SIZES, Faces, faces, names_of
from mobench.errors import ConfigError, check_batch_runs, choose, suggest
from mobench.models.mlp import TanhMLP
from mobench.models.resnet import ResNet, resnet
from mobench.problems.dataset import TrainTest, chunk_means, network_starts

MODELS = ("small", "resnet18")
EVALUATED = 100  # pictures of a batch whose statistics batch normalisation uses in evaluation
CHUNK = 2_000_000  # numbers of a forward pass of the small network without gradients, for each run


@dataclass(frozen=True, kw_only=True)
class FaceAttributes(TrainTest, BatchGradients):
    """M attributes of a picture by one network with M outputs, z_m > 0: it has the attribute.

        f_m(theta) = (1/N) sum_i  log(1 + exp(z_m(theta; picture_i))) - label_im z_m(theta; picture_i),
            m = 1..M

    theta (R, P) are the networks' parameter vectors. A network sees picture / 127.5 - 1. `values` of a batch
    are means over it; without one over all training pictures. With `small` rows are closed forms.
    History and final rows carry test_loss_mean (of the M mean losses), test_error_m, the share of wrong
    answers of head m, and test_error_mean.

    Fields:
        data: celeba_synth (embedded, made up) | celeba (a folder that you provide). data_root: where it lies;
            no part of a job's identity.
        train_size, test_size: the first so many pictures of either part (null: all).
        attributes: M of the 40, as names or as numbers 0..39, in the order of the objectives (null: all).
        model: small, a perceptron with one layer of tanh | resnet18, the residual network of the project with
            its last layer replaced by one linear head for each attribute. Its batch normalisation uses the
            statistics of the batch, in evaluation of batches of up to 100: a picture's score depends on the
            others of its batch.
        hidden: width of `small`.
        max_batch_runs: so many residual networks at a time; the activations of the others are computed anew
            in the backward pass. No part of a job's identity.
        start: {kind: default} PyTorch's initialisation.

    Source: MLM-CMOO paper, Section 5. Departures: pictures of 64 x 64 (the paper does not say); the residual
    network's stem keeps their size (3 x 3 convolution of stride 1, no pooling).
    """

    execution_fields: ClassVar[tuple[str, ...]] = ("data_root", "max_batch_runs")
    small: ClassVar[Mapping[str, Any]] = {
        "hidden": 4,
        "train_size": 256,
        "test_size": 32,
        "attributes": [0, 1, 2, 3],
    }
    citation: ClassVar[str] = "Liu et al. 2015 (CelebA); MLM-CMOO paper"

    data: str = "celeba_synth"
    train_size: int | None = None
    test_size: int | None = None
    attributes: Sequence[str | int] | None = None
    model: str = "small"
    hidden: int = 64
    max_batch_runs: int | None = None
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.data", self.data, LABELS)
        choose("problem.model", self.model, MODELS)
        if self.hidden < 1:
            raise ConfigError(
                f"problem.hidden={self.hidden} must be at least 1; it is the width of the hidden layer."
            )
        check_batch_runs(self.max_batch_runs)
        self.chosen  # noqa: B018  a wrong name is an error now

    # what there is

    @property
    def faces(self) -> Faces:
        """Labels and pictures; made once per process."""
        return faces(self.data, self.data_root, self.train_size, self.test_size)

    @property
    def chosen(self) -> list[int]:
        """Columns of the labels, one for each objective."""
        names = names_of(self.data)
        if self.attributes is None:
            return list(range(len(names)))
        if isinstance(self.attributes, str):
            raise ConfigError(
                f"problem.attributes={self.attributes} must be a list: "
                f"problem.attributes=[{self.attributes}]."
            )
        columns: list[int] = []
        for a in self.attributes:
            k = names.index(a) if a in names else a
            if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < len(names):
                near = suggest(str(a), names)
                raise ConfigError(
                    f"problem.attributes contains {a!r}, but {LABELS[self.data]} has {names[0]} .. "
                    f"{names[-1]}, or numbers 0..{len(names) - 1}.{near}"
                )
            columns.append(k)
        if not columns or len(set(columns)) != len(columns):
            raise ConfigError(
                f"problem.attributes={list(self.attributes)} must name one or more attributes, "
                "each only once (null means all)."
            )
        return columns

    @property
    def network(self) -> TanhMLP | ResNet:
        """The network, a function of stacked parameters."""
        side = SIZES[self.data]
        if self.model == "small":
            return TanhMLP(3 * side * side, self.hidden, self.n_objectives)
        return resnet(self.model, 3, side, self.n_objectives)

    @property
    def n_objectives(self) -> int:
        return len(self.chosen)

    @property
    def dim(self) -> int:
        return self.network.dim

    @property
    def n_samples(self) -> int:
        return len(self.faces.train_labels)

    @property
    def data_set(self) -> Faces:
        return self.faces

    @property
    def constant_losses(self) -> Float[Tensor, " M"]:
        """Entropy of each attribute's rate among the training pictures; 0 where all or none have it."""
        rate = self.faces.train_labels[:, self.chosen].double().mean(0)
        return -(torch.xlogy(rate, rate) + torch.xlogy(1.0 - rate, 1.0 - rate))

    @property
    def head_variables(self) -> int:
        return 2 * self.n_objectives

    def with_heads(self, theta: Float[Tensor, "R P"], a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        M = self.n_objectives
        # both networks end in a linear layer: its weights (M, width), then its biases
        *_, weight, _ = self.network.shapes
        trunk, heads, biases = theta.split([self.dim - M * (weight[1] + 1), M * weight[1], M], dim=1)
        shift, scale = a.to(theta).split(M, dim=1)
        heads = (heads.unflatten(1, (M, weight[1])) * scale.exp().unsqueeze(2)).flatten(1)
        return torch.cat([trunk, heads, biases + shift], dim=1)

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return network_starts(self, runs, self.network.initial, model=self.model)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        data = self.faces
        return super().facts(runs) | {
            "attributes": [data.attributes[k] for k in self.chosen],
            "train_size": len(data.train_labels),
            "test_size": len(data.test_labels),
        }

    def strategy(self, device: torch.device) -> str:
        return "stacked" if self.model == "small" else "loop"

    # on the device

    def part(self, split: str, like: Tensor) -> tuple[Tensor, Float[Tensor, "N M"]]:
        """Pictures (uint8) and labels of the chosen attributes."""
        data = self.faces
        labels = data.train_labels if split == "train" else data.test_labels
        return data.pictures(split).to(like.device), labels[:, self.chosen].to(like.device, like.dtype)

    def _input(self, pictures: Tensor, x: Tensor) -> Tensor:
        """Numbers in [-1, 1]; flat for the perceptron."""
        inputs = pictures.to(x.dtype) / 127.5 - 1.0
        return inputs.flatten(-3) if self.model == "small" else inputs

    def _of(
        self, batch: Batch | Tensor, x: Float[Tensor, "R P"]
    ) -> tuple[Float[Tensor, "R B ..."], Float[Tensor, "R B M"]]:
        """Pictures and labels of each run: of a Batch of groups that share them, or of indices (R, B)."""
        pictures, labels = self.of_split("train", x)
        if isinstance(batch, Tensor):
            return self._input(pictures[batch], x), labels[batch]
        # those of a group once
        inputs = self._input(pictures[batch.chosen], x)
        targets = labels[batch.chosen]
        if len(batch.chosen) == 1:
            return inputs.expand(len(x), *inputs.shape[1:]), targets.expand(len(x), -1, -1)
        return inputs[batch.group], targets[batch.group]

    def _scores(self, x: Float[Tensor, "R P"], inputs: Float[Tensor, "R B ..."]) -> Float[Tensor, "R B M"]:
        network = self.network
        if isinstance(network, TanhMLP):
            return network.forward(x, inputs)[0]
        return network.logits(x, inputs, "loop")

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        """Mean losses.

        `batch`: a Batch of groups that share pictures, or indices (R, B), or None: all of `train`.
        """
        if batch is None:
            return self.evaluated("train", x)[0]
        inputs, labels = self._of(batch, x)

        def mean(x: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
            return _losses(self._scores(x, inputs), labels).mean(1)

        size = self.max_batch_runs
        if size is None or len(x) <= size or self.model == "small":
            return mean(x, inputs, labels)
        parts = zip(x.split(size), inputs.split(size), labels.split(size), strict=True)
        return torch.cat([checkpoint(mean, *part, use_reentrant=False) for part in parts])

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Any = None
    ) -> tuple[Float[Tensor, "R M"], Callable[[], Tensor]] | None:
        """Returns the losses of `small`, and the rows on demand with error_im = (sigmoid(z) - label)_im / B,
        see `TanhMLP.jacobian`.
        """
        network = self.network
        if batch is None or not isinstance(network, TanhMLP):
            return None
        inputs, labels = self._of(batch, x)
        with torch.no_grad():
            z, h = network.forward(x, inputs)

        def rows() -> Float[Tensor, "R M P"]:
            with torch.no_grad():
                return network.jacobian(x, inputs, h, (torch.sigmoid(z) - labels) / z.shape[1])

        return _losses(z, labels).mean(1), rows

    # evaluation

    def evaluate(self, split: str, x: Float[Tensor, "R P"]) -> tuple[Float[Tensor, "R M"], ...]:
        """Mean losses and shares of wrong answers."""
        pictures, labels = self.of_split(split, x)
        # of nearly equal size: a rest of one picture would have no statistics
        size = EVALUATED if self.model != "small" else CHUNK // pictures[0].numel()
        parts = -(-len(pictures) // size)

        def sums(some: Tensor, part: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            inputs = self._input(part, x)
            z = self._scores(some, inputs.expand(len(some), *inputs.shape))
            wrong = (z > 0) != (targets > 0.5)
            return _losses(z, targets).double().sum(1), wrong.double().sum(1)

        chunks = zip(pictures.tensor_split(parts), labels.tensor_split(parts), strict=True)
        return chunk_means(x, chunks, sums, self.max_batch_runs)

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R M"]) -> dict[str, Tensor]:
        """test_loss_mean, test_error_mean, test_error_m."""
        loss, wrong = self.evaluated("test", x)
        errors = {f"test_error_{m + 1}": wrong[:, m] for m in range(self.n_objectives)}
        return {"test_loss_mean": loss.mean(1), "test_error_mean": wrong.mean(1)} | errors


def _losses(z: Float[Tensor, "R B M"], labels: Float[Tensor, "*R B M"]) -> Float[Tensor, "R B M"]:
    """log(1 + exp(z)) - label z."""
    return nn.softplus(z) - labels * z
