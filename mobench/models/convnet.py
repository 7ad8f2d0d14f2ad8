"""Small convolutional networks with one head per task, evaluated for R parameter vectors at once.

conv k_1 -> max-pool 2 -> ReLU -> conv k_2 -> max-pool 2 -> ReLU -> linear -> ReLU -> one linear head per task
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float
from torch import Tensor

from mobench.core import precision
from mobench.errors import ConfigError, choose
from mobench.kernels import convnet as products
from mobench.system.fastest import fastest

EXECUTIONS = ("products", "grouped", "loop", "unfold")
TRIED = (5, 256)
"""Runs and pictures with which a GPU is asked how it computes fastest."""


class Layer(NamedTuple):
    """Name, shape of the weight and shape of the bias of one layer; `fan_in` inputs of each unit."""

    name: str
    weight: tuple[int, ...]
    fan_in: int

    @property
    def bias(self) -> tuple[int, ...]:
        return self.weight[:1]


def for_device(execution: str, device: torch.device, network: ConvNet) -> str:
    """`auto` by hardware: on a CPU `products`, on a GPU the faster one of `grouped` and `unfold`, which is
    measured once (`mobench.system.fastest`). The results do not depend on it.
    """
    if execution == "auto":
        return "products" if device.type == "cpu" else _faster(network, device)
    return choose("problem.execution", execution, ("auto", *EXECUTIONS))


@functools.lru_cache(maxsize=64)
def _faster(network: ConvNet, device: torch.device) -> str:
    """The faster implementation on this GPU: the gradients of some runs in float32."""
    R, B = TRIED
    theta = torch.full((R, network.dim), 0.01, device=device)
    pictures = torch.ones(B, network.canvas, network.canvas, device=device)

    def gradients(way: str) -> Tensor:
        with torch.enable_grad():
            leaf = theta.clone().requires_grad_(True)
            return torch.autograd.grad(network.logits(leaf, pictures, way).sum(), leaf)[0]

    ways = {way: functools.partial(gradients, way) for way in ("grouped", "unfold")}
    products = torch.backends.cuda.matmul.fp32_precision
    return fastest(f"gradients of {network} by patches, runs and pictures {TRIED}, {products}", ways, device)


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
        grouped   the convolutions of all runs as one grouped convolution
        unfold    the convolutions as batched products of the weights with the patches of their inputs
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
        """Height and width of what the shared linear layer sees."""
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
        """A parameter vector. default: weights and biases U(-a, a), a = fan_in^(-1/2), as PyTorch's layers;
        xavier: weights U(-b, b), b = (6 / (fan_in + fan_out))^(1/2), as the public code of linear
        scalarization.
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

        `products` knows no graph: where one is asked for, run by run.
        """
        graph = torch.is_grad_enabled() and theta.requires_grad
        if execution == "products" and not graph:
            z = products.scores(self, theta, pictures)
            return z.view(len(theta), self.tasks, self.classes, -1).transpose(2, 3)
        if execution not in ("grouped", "unfold") and len(theta) > 1:
            # unbind, not theta[r]: the backward of an index writes zeros for all runs, for each run
            return torch.cat([self.logits(row.unsqueeze(0), pictures, execution) for row in theta.unbind(0)])
        W1, b1, W2, b2, W3, b3, *heads = self.split(theta)
        x = nn.avg_pool2d(pictures.unsqueeze(1), self.shrink) if self.shrink > 1 else pictures.unsqueeze(1)
        if execution == "unfold":
            h = _second_unfolded(_first_unfolded(x, W1, b1), W2, b2)
        else:
            h = _second_grouped(_first_grouped(x, W1, b1), W2, b2)
        h = torch.relu(precision.baddbmm(b3.unsqueeze(1), h, W3.mT))
        scores = [
            precision.baddbmm(b.unsqueeze(1), h, W.mT) for W, b in zip(heads[::2], heads[1::2], strict=True)
        ]
        return torch.stack(scores, dim=1)


def _first_grouped(x: Tensor, W: Tensor, b: Tensor) -> Float[Tensor, "R B C h w"]:
    R, C = W.shape[:2]
    h = torch.relu(nn.max_pool2d(precision.conv2d(x, W.flatten(0, 1), b.flatten()), 2))
    return h.view(len(x), R, C, *h.shape[-2:]).transpose(0, 1)


def _second_grouped(h: Tensor, W: Tensor, b: Tensor) -> Float[Tensor, "R B D"]:
    R, B = h.shape[:2]
    out = precision.conv2d(h.transpose(0, 1).flatten(1, 2), W.flatten(0, 1), b.flatten(), groups=R)
    out = torch.relu(nn.max_pool2d(out, 2))
    return out.view(B, R, -1).transpose(0, 1)


class _Patches(torch.autograd.Function):
    """The k x k patches of maps, one below the other: (N, C, H, W) -> (N, C k^2, h w). One copy of a strided
    view; `torch.nn.functional.unfold` takes a launch for each picture, and the adjoint of the view some.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: int) -> Tensor:
        views = x.unfold(2, k, 1).unfold(3, k, 1)  # (N, C, h, w, k, k)
        return views.permute(0, 1, 4, 5, 2, 3).reshape(len(x), x.shape[1] * k * k, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.k = inputs
        ctx.size = x.shape[2:]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _Folded.apply(g, ctx.size, ctx.k), None

    @staticmethod
    def jvp(ctx: Any, x: Tensor, k: None) -> Tensor:
        found: Tensor = _Patches.apply(x, ctx.k)
        return found


class _Folded(torch.autograd.Function):
    """The adjoint of `_Patches`: each entry of a map is the sum of its places in the patches."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, size: torch.Size, k: int) -> Tensor:
        return nn.fold(x, size, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.size, ctx.k = inputs

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return _Patches.apply(g, ctx.k), None, None

    @staticmethod
    def jvp(ctx: Any, x: Tensor, size: None, k: None) -> Tensor:
        found: Tensor = _Folded.apply(x, ctx.size, ctx.k)
        return found


def _first_unfolded(x: Tensor, W: Tensor, b: Tensor) -> Float[Tensor, "R B C h w"]:
    """For each picture a product of all weights with its patches, which all runs share."""
    R, C = W.shape[:2]
    k = W.shape[-1]
    side = x.shape[-1] - k + 1
    weights = W.reshape(1, R * C, -1).expand(len(x), -1, -1)
    out = precision.bmm(weights, _Patches.apply(x, k)).view(len(x), R * C, side, side)
    # the bias after the pooling: the same numbers, a quarter of the memory
    h = torch.relu(nn.max_pool2d(out, 2) + b.reshape(1, -1, 1, 1))
    return h.view(len(x), R, C, *h.shape[-2:]).transpose(0, 1)


def _second_unfolded(h: Tensor, W: Tensor, b: Tensor) -> Float[Tensor, "R B D"]:
    """For each picture and run a product of the run's weights with its patches."""
    R, B = h.shape[:2]
    C = W.shape[1]
    k = W.shape[-1]
    side = h.shape[-1] - k + 1
    weights = W.reshape(1, R, C, -1).expand(B, -1, -1, -1).flatten(0, 1)
    out = precision.bmm(weights, _Patches.apply(h.transpose(0, 1).flatten(0, 1), k))
    out = nn.max_pool2d(out.view(B, R * C, side, side), 2) + b.reshape(1, -1, 1, 1)
    return torch.relu(out).view(B, R, -1).transpose(0, 1)


MODELS = {
    "lenet": ConvNet(),
    "small": ConvNet(shrink=2, channels=(8, 16), kernels=(5, 3), hidden=32),
    "wide": ConvNet(channels=(20, 40), hidden=100),
}


def model(name: str, tasks: int, canvas: int) -> ConvNet:
    """The named network for so many tasks and pictures of that size.

    Raises ConfigError for pictures too small.
    """
    chosen = MODELS[choose("problem.model", name, MODELS)]
    found = ConvNet(tasks, canvas, chosen.shrink, chosen.channels, chosen.kernels, chosen.hidden)
    if found.side < 1:
        raise ConfigError(f"problem.model={name} needs images larger than {canvas} x {canvas} pixels.")
    return found
