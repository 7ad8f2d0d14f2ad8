"""Residual networks for small pictures, for K parameter vectors at once, each on its pictures.

conv 3x3 -> BN -> ReLU -> blocks -> mean over the map -> linear
block:  x -> ReLU(shortcut(x) + BN conv ReLU BN conv x)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError, choose

EXECUTIONS = ("grouped", "loop")
SHORTCUTS = ("pad", "conv")
STARTS = ("default",)


class ParameterBlock(NamedTuple):
    """One tensor of the parameters.

    It starts from U(-bound, bound), or as the constant `fill` (of batch normalisation).
    """

    name: str
    shape: tuple[int, ...]
    bound: float = 0.0
    fill: float = 0.0


class ResidualBlock(NamedTuple):
    """Channels in and out, stride of the first convolution; whether the shortcut has parameters."""

    name: str
    inner: int
    outer: int
    stride: int
    projects: bool


@dataclass(frozen=True)
class ResNet:
    """The residual networks of He et al. (2016) for CIFAR.

    A stem that keeps the size is followed by blocks of two 3 x 3 convolutions.

    Fields: channels, size of the (square) pictures; classes; widths, blocks: channels and number of blocks of
    each stage (all but the first halve the size); shortcut, where a block changes the shape:
        pad   every second pixel, zeros behind the channels: no parameters (option A of the paper)
        conv  a 1 x 1 convolution with batch normalisation (option B)

    A parameter vector is, in the order of PyTorch's modules, the weights of convolutions
    (which have no biases), weights and biases of batch normalisations, weight and bias of the linear layer.
    Batch normalisation uses the statistics of the batch of each network, always: there are no running
    averages, which would have no meaning for a weighted average of networks. Hence pictures of a batch
    influence each other's scores.

    execution:
        grouped  the convolutions of all networks as one grouped convolution
        loop     one network after the other
    """

    batch_norm: ClassVar[bool] = True
    eps: ClassVar[float] = 1e-5  # as PyTorch's layers

    channels: int = 3
    size: int = 32
    classes: int = 10
    widths: tuple[int, ...] = (16, 32, 64)
    blocks: tuple[int, ...] = (3, 3, 3)
    shortcut: str = "pad"

    def __post_init__(self) -> None:
        choose("shortcut", self.shortcut, SHORTCUTS)

    @property
    def side(self) -> int:
        """Height and width of the last map."""
        return math.ceil(self.size / 2 ** (len(self.widths) - 1))

    @property
    def structure(self) -> list[ResidualBlock]:
        """All blocks in order."""
        blocks = []
        inner = self.widths[0]
        for stage, (width, count) in enumerate(zip(self.widths, self.blocks, strict=True)):
            for k in range(count):
                stride = 2 if stage and not k else 1
                projects = self.shortcut == "conv" and (stride > 1 or inner != width)
                blocks.append(ResidualBlock(f"stage{stage + 1}.{k + 1}", inner, width, stride, projects))
                inner = width
        return blocks

    @property
    def entries(self) -> list[ParameterBlock]:
        """All tensors in the order of the parameters."""
        entries = [*_normalised("stem", self.channels, self.widths[0], 3)]
        for block in self.structure:
            entries += _normalised(f"{block.name}.first", block.inner, block.outer, 3)
            entries += _normalised(f"{block.name}.second", block.outer, block.outer, 3)
            entries += (
                _normalised(f"{block.name}.shortcut", block.inner, block.outer, 1) if block.projects else []
            )
        bound = self.widths[-1] ** -0.5
        shape = (self.classes, self.widths[-1])
        return [
            *entries,
            ParameterBlock("head.weight", shape, bound),
            ParameterBlock("head.bias", shape[:1], bound),
        ]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all tensors, in order."""
        return [entry.shape for entry in self.entries]

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes)

    def initial(self, rng: np.random.Generator, kind: str = "default") -> Float[np.ndarray, " P"]:
        """A parameter vector as PyTorch's layers begin.

        default: convolutions and linear layer U(-a, a), a = fan_in^(-1/2), batch normalisation ones and
        zeros.
        """
        choose("problem.start.kind", kind, STARTS)
        return np.concatenate(
            [
                rng.uniform(-entry.bound, entry.bound, n) if entry.bound else np.full(n, entry.fill)
                for entry in self.entries
                for n in [math.prod(entry.shape)]
            ]
        )

    def split(self, theta: Float[Tensor, "K P"]) -> list[Tensor]:
        """All tensors (K, ...) as views of the parameter vectors."""
        shapes = self.shapes
        parts = theta.split([math.prod(s) for s in shapes], dim=1)
        return [part.view(len(theta), *shape) for part, shape in zip(parts, shapes, strict=True)]

    def logits(
        self, theta: Float[Tensor, "K P"], pictures: Float[Tensor, "K B C H W"], execution: str
    ) -> Float[Tensor, "K B classes"]:
        """Scores of each network for its pictures.

        Raises ConfigError where a batch has no statistics.
        """
        choose("problem.execution", execution, EXECUTIONS)
        K, B = pictures.shape[:2]
        if B * self.side**2 < 2:
            raise ConfigError(
                f"Batch normalisation needs at least two values per channel, but the batch has {B} image(s) "
                f"with a last feature map of {self.side} x {self.side}. Use larger batches, or drop "
                "incomplete ones."
            )
        if execution == "loop" and K > 1:
            # unbind, not theta[k]: the backward of an index writes zeros for all networks, for each network
            return torch.cat(
                [
                    self.logits(row.unsqueeze(0), inputs.unsqueeze(0), "loop")
                    for row, inputs in zip(theta.unbind(0), pictures.unbind(0), strict=True)
                ]
            )
        parts = iter(self.split(theta))
        h = self._layer(pictures.transpose(0, 1).flatten(1, 2), parts, 1, K).relu_()
        for block in self.structure:
            out = self._layer(h, parts, block.stride, K).relu_()
            out = self._layer(out, parts, 1, K)
            if block.projects:
                h = self._layer(h, parts, block.stride, K)
            elif block.stride > 1 or block.inner != block.outer:
                thinned = h[:, :, :: block.stride, :: block.stride].unflatten(1, (K, block.inner))
                h = nn.pad(thinned, (0, 0, 0, 0, 0, block.outer - block.inner)).flatten(1, 2)
            h = (out + h).relu_()
        pooled = h.mean((2, 3)).view(B, K, self.widths[-1]).transpose(0, 1)
        W, b = parts
        return torch.baddbmm(b.unsqueeze(1), pooled, W.mT)

    def _layer(self, h: Float[Tensor, "B KI H W"], parts: Iterator[Tensor], stride: int, K: int) -> Tensor:
        """Convolution and batch normalisation of all networks; takes their parameters from `parts`."""
        W, scale, shift = (next(parts).flatten(0, 1) for _ in range(3))
        h = nn.conv2d(h, W, stride=stride, padding=W.shape[-1] // 2, groups=K)
        return nn.batch_norm(h, None, None, scale, shift, training=True, eps=self.eps)


def _normalised(name: str, inner: int, outer: int, side: int) -> list[ParameterBlock]:
    """A convolution and its batch normalisation."""
    return [
        ParameterBlock(f"{name}.conv", (outer, inner, side, side), (inner * side * side) ** -0.5),
        ParameterBlock(f"{name}.scale", (outer,), fill=1.0),
        ParameterBlock(f"{name}.shift", (outer,)),
    ]


MODELS = {
    "resnet20": ResNet(),
    "resnet18": ResNet(widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), shortcut="conv"),
    "resnet_tiny": ResNet(widths=(8, 16), blocks=(1, 2)),
}


def resnet(name: str, channels: int, size: int, classes: int = 10) -> ResNet:
    """The network of this name in `MODELS` for pictures (channels, size, size).

    On CIFAR-10 resnet20 (option A) has 269,722 parameters, resnet18 (CIFAR's stem, option B) 11,173,962,
    resnet_tiny (three blocks, option A) 9,778. Raises ConfigError for an unknown name and for pictures that
    are too small.
    """
    network = replace(
        MODELS[choose("problem.model", name, MODELS)], channels=channels, size=size, classes=classes
    )
    least = 2 ** (len(network.widths) - 1)
    if size < least:
        raise ConfigError(
            f"problem.model={name} needs images of at least {least} x {least} pixels, but these have {size} "
            f"x {size}."
        )
    return network
