"""A perceptron with one hidden layer of tanh, evaluated for K parameter vectors at once, with the gradient of each output's loss.

x -> W_1 x + b_1 -> tanh -> W_2 h + b_2
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class TanhMLP:
    """Fields: inputs D, hidden H, outputs C. A parameter vector is W_1 (H, D), b_1, W_2 (C, H), b_2, as PyTorch orders its
    modules: P = H (D + 1) + C (H + 1), 2,344 for 64-32-8."""

    inputs: int
    hidden: int
    outputs: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of weights and biases, in order."""
        return [(self.hidden, self.inputs), (self.hidden,), (self.outputs, self.hidden), (self.outputs,)]

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes)

    def initial(self, rng: np.random.Generator) -> Float[np.ndarray, " P"]:
        """A parameter vector: weights and biases U(-a, a), a = fan_in^(-1/2), as PyTorch's layers."""
        bounds = [self.inputs**-0.5] * 2 + [self.hidden**-0.5] * 2
        return np.concatenate(
            [rng.uniform(-a, a, math.prod(shape)) for a, shape in zip(bounds, self.shapes, strict=True)]
        )

    def split(self, theta: Float[Tensor, "K P"]) -> list[Tensor]:
        """Weights and biases (K, ...) as views of the parameter vectors."""
        parts = theta.split([math.prod(s) for s in self.shapes], dim=1)
        return [part.view(len(theta), *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(
        self, theta: Float[Tensor, "K P"], x: Float[Tensor, "K B D"]
    ) -> tuple[Float[Tensor, "K B C"], Float[Tensor, "K B H"]]:
        """Outputs z and the hidden layer h; each network has inputs of its own."""
        W1, b1, W2, b2 = self.split(theta)
        h = torch.baddbmm(b1.unsqueeze(1), x, W1.mT).tanh()
        return torch.baddbmm(b2.unsqueeze(1), h, W2.mT), h

    def rows(
        self,
        theta: Float[Tensor, "K P"],
        x: Float[Tensor, "K B D"],
        h: Float[Tensor, "K B H"],
        error: Float[Tensor, "K B C"],
    ) -> Float[Tensor, "K C P"]:
        """Gradients of C losses of which loss c depends on output c alone: error_bc = d loss_c / d z_bc.

            grad W_2[c] = sum_b error_bc h_b,    grad W_1 of loss c = W_2[c]_j sum_b error_bc (1 - h_bj^2) x_b,  row j

        All C first layers are one product of (C H, B) with (B, D); W_2 does not enter it, it scales the rows of the result.
        """
        K, B, C = error.shape
        H, D = self.hidden, self.inputs
        W2 = self.split(theta)[2]
        scaled = error.mT.unsqueeze(2) * (1.0 - h.square()).mT.unsqueeze(1)  # (K, C, H, B)
        out = theta.new_zeros(K, C, self.dim)
        first, bias, second, last = out.split([math.prod(s) for s in self.shapes], dim=2)
        product = torch.bmm(scaled.view(K, C * H, B), x).view(K, C, H, D)
        torch.mul(product, W2.unsqueeze(-1), out=first.unflatten(2, (H, D)))
        torch.mul(scaled.sum(3), W2, out=bias)
        # loss c depends on row c of W_2 and on entry c of b_2 alone: the rest stays 0
        second.unflatten(2, (C, H)).diagonal(dim1=1, dim2=2).copy_(torch.bmm(h.mT, error))
        last.diagonal(dim1=1, dim2=2).copy_(error.sum(1))
        return out
