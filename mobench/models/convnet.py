"""Small convolutional networks with one head per task, evaluated for R parameter vectors at once.

conv k_1 -> max-pool 2 -> ReLU -> conv k_2 -> max-pool 2 -> ReLU -> linear -> ReLU -> one linear head per task
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError, choose
from mobench.kernels import convnet as products

EXECUTIONS = ("products", "loop", "unfold")
Convolve = Callable[[Tensor, Tensor, int], Tensor]
"""Input, weights and number of groups to output."""


class Layer(NamedTuple):
    """Name, shape of the weight and shape of the bias of one layer; `fan_in` inputs of each unit."""

    name: str
    weight: tuple[int, ...]
    fan_in: int

    @property
    def bias(self) -> tuple[int, ...]:
        return self.weight[:1]


def for_device(execution: str, device: torch.device) -> str:
    """Resolves `auto`: on a CPU to `products`, on a GPU to `unfold`. The results do not depend on it."""
    if execution == "auto":
        return "products" if device.type == "cpu" else "unfold"
    return choose("problem.execution", execution, ("auto", *EXECUTIONS))


@dataclass(frozen=True)
class ConvNet:
    """The LeNet of Sener and Koltun (2018), which Pareto MTL, EPO and FERERO use, in three sizes.

    Fields: tasks; canvas: height and width of the (square, grey) pictures; shrink: side of the
    average-pooling before the first layer; channels, kernels of the two convolutions; hidden: width of the
    shared linear layer.

    A parameter vector is the weights and biases layer by layer, in the order of PyTorch's modules. ReLU and
    max-pooling commute; pooling first touches a quarter of the memory.

    execution:
        products  everything as matrix products on chunks of pictures, with derivatives in closed form
                  (`mobench.kernels.convnet`)
        unfold    the convolutions of all runs as one grouped convolution, with the gradients of the weights
                  as products with the patches of the inputs
        loop      one run after the other
    """

    tasks: int = 2
    canvas: int = 36
    shrink: int = 1
    channels: tuple[int, int] = (10, 20)
    kernels: tuple[int, int] = (9, 5)
    hidden: int = 50
    classes: int = 10

    @property
    def side(self) -> int:
        """Height and width of the maps before the shared linear layer."""
        first = (self.canvas // self.shrink - self.kernels[0] + 1) // 2
        return (first - self.kernels[1] + 1) // 2

    @property
    def layers(self) -> list[Layer]:
        """All layers in the order of their parameters."""
        c1, c2 = self.channels
        k1, k2 = self.kernels
        flat = c2 * self.side**2
        return [
            Layer("conv1", (c1, 1, k1, k1), k1 * k1),
            Layer("conv2", (c2, c1, k2, k2), c1 * k2 * k2),
            Layer("shared", (self.hidden, flat), flat),
            *(Layer(f"head{i + 1}", (self.classes, self.hidden), self.hidden) for i in range(self.tasks)),
        ]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of weights and biases, in order."""
        return [shape for layer in self.layers for shape in (layer.weight, layer.bias)]

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes)

    def initial(self, rng: np.random.Generator, kind: str = "default") -> Float[np.ndarray, " P"]:
        """A parameter vector.

        default: weights and biases U(-a, a), a = fan_in^(-1/2), as PyTorch's layers; xavier: weights
        U(-b, b), b = (6 / (fan_in + fan_out))^(1/2), as the public code of linear scalarization.
        """
        parts = []
        for layer in self.layers:
            bound = layer.fan_in**-0.5
            fan_out = layer.weight[0] * math.prod(layer.weight[2:])
            spread = bound if kind == "default" else math.sqrt(6.0 / (layer.fan_in + fan_out))
            parts += [
                rng.uniform(-spread, spread, math.prod(layer.weight)),
                rng.uniform(-bound, bound, layer.bias),
            ]
        return np.concatenate(parts)

    def split(self, theta: Float[Tensor, "R P"]) -> list[Tensor]:
        """Weights and biases (R, ...) as views of the parameter vectors."""
        parts = theta.split([math.prod(s) for s in self.shapes], dim=1)
        return [part.view(len(theta), *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def logits(
        self, theta: Float[Tensor, "R P"], pictures: Float[Tensor, "B H W"], execution: str
    ) -> Float[Tensor, "R T B C"]:
        """Scores of all runs for pictures that they share.

        `products` has no graph: where gradients are needed, runs go through PyTorch one by one.
        """
        graph = torch.is_grad_enabled() and theta.requires_grad
        if execution == "products" and not graph:
            z = products.scores(self, theta, pictures)
            return z.view(len(theta), self.tasks, self.classes, -1).transpose(2, 3)
        if execution != "unfold" and len(theta) > 1:
            # unbind, not theta[r]: the backward of an index writes zeros for all runs, for each run
            return torch.cat([self.logits(row.unsqueeze(0), pictures, execution) for row in theta.unbind(0)])
        W1, b1, W2, b2, W3, b3, *heads = self.split(theta)
        x = nn.avg_pool2d(pictures.unsqueeze(1), self.shrink) if self.shrink > 1 else pictures.unsqueeze(1)
        convolved = _by_patches if execution == "unfold" else _plain
        h = _second(_first(x, W1, b1, convolved), W2, b2, convolved)
        h = torch.relu(torch.baddbmm(b3.unsqueeze(1), h, W3.mT))
        scores = [
            torch.baddbmm(b.unsqueeze(1), h, W.mT) for W, b in zip(heads[::2], heads[1::2], strict=True)
        ]
        return torch.stack(scores, dim=1)


class _Convolution(torch.autograd.Function):
    """The grouped convolution of cuDNN with other derivatives; cuDNN's for W take four times as long (H200).

    dW   products of the slopes with the patches of each picture, summed over the pictures
    dx   the convolution of the slopes, padded with k - 1 zeros, with W turned by 180 degrees
    """

    @staticmethod
    def forward(x: Tensor, W: Tensor, groups: int) -> Tensor:
        return nn.conv2d(x, W, groups=groups)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, W, ctx.groups = inputs
        ctx.save_for_backward(x, W)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, W = ctx.saved_tensors
        G = ctx.groups
        B = len(x)
        k = W.shape[-1]
        dx = dW = None
        if ctx.needs_input_grad[0]:
            turned = W.view(G, -1, *W.shape[1:]).transpose(1, 2).flip(-1, -2).flatten(0, 1)
            dx = nn.conv2d(g, turned, padding=k - 1, groups=G)
        if ctx.needs_input_grad[1]:
            # all maps as channels of one picture: unfold launches a kernel for each picture
            patches = nn.unfold(x.reshape(1, -1, *x.shape[2:]), k).view(B * G, W[0].numel(), -1)
            slopes = g.reshape(B * G, len(W) // G, -1)
            dW = torch.bmm(slopes, patches.mT).view(B, *W.shape).sum(0)
        return dx, dW, None


def _first(x: Tensor, W: Tensor, b: Tensor, convolved: Convolve) -> Float[Tensor, "R B C h w"]:
    """The first layer: all runs see the same pictures."""
    R, C = W.shape[:2]
    # the bias after the pooling: the same numbers from a quarter of the memory
    h = torch.relu(nn.max_pool2d(convolved(x, W.flatten(0, 1), 1), 2) + b.reshape(-1, 1, 1))
    return h.view(len(x), R, C, *h.shape[-2:]).transpose(0, 1)


def _second(h: Tensor, W: Tensor, b: Tensor, convolved: Convolve) -> Float[Tensor, "R B D"]:
    """The second layer: each run has its maps."""
    R, B = h.shape[:2]
    out = convolved(h.transpose(0, 1).flatten(1, 2), W.flatten(0, 1), R)
    out = torch.relu(nn.max_pool2d(out, 2) + b.reshape(-1, 1, 1))
    return out.view(B, R, -1).transpose(0, 1)


def _plain(x: Tensor, W: Tensor, groups: int) -> Tensor:
    return nn.conv2d(x, W, groups=groups)


def _by_patches(x: Tensor, W: Tensor, groups: int) -> Tensor:
    out: Tensor = _Convolution.apply(x, W, groups)
    return out


MODELS = {
    "lenet": ConvNet(),
    "small": ConvNet(shrink=2, channels=(8, 16), kernels=(5, 3), hidden=32),
    "wide": ConvNet(channels=(20, 40), hidden=100),
}


def model(name: str, tasks: int, canvas: int) -> ConvNet:
    """The network of this name in `MODELS` for some tasks, and pictures of `canvas` x `canvas` pixels.

    Raises ConfigError for pictures too small.
    """
    preset = MODELS[choose("problem.model", name, MODELS)]
    network = ConvNet(tasks, canvas, preset.shrink, preset.channels, preset.kernels, preset.hidden)
    if network.side < 1:
        raise ConfigError(f"problem.model={name} needs images larger than {canvas} x {canvas} pixels.")
    return network
