"""A perceptron with one hidden layer, evaluated for K parameter vectors at once, with its gradient in closed form.

x -> W_1 x + b_1 -> ReLU -> W_2 h + b_2
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class MLP:
    """Fields: inputs D, hidden H, classes C. A parameter vector is W_1 (H, D), b_1, W_2 (C, H), b_2, as PyTorch orders
    its modules: P = H (D + 1) + C (H + 1), 159,010 for 784-200-10."""

    batch_norm: ClassVar[bool] = False

    inputs: int
    hidden: int = 200
    classes: int = 10

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of weights and biases, in order."""
        return [(self.hidden, self.inputs), (self.hidden,), (self.classes, self.hidden), (self.classes,)]

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes)

    def initial(self, rng: np.random.Generator, kind: str = "default") -> Float[np.ndarray, " P"]:
        """A parameter vector. default: weights and biases U(-a, a), a = fan_in^(-1/2), as PyTorch's layers."""
        bounds = [self.inputs**-0.5] * 2 + [self.hidden**-0.5] * 2
        return np.concatenate(
            [rng.uniform(-a, a, math.prod(shape)) for a, shape in zip(bounds, self.shapes, strict=True)]
        )

    def split(self, theta: Float[Tensor, "K P"]) -> list[Tensor]:
        """Weights and biases (K, ...) as views of the parameter vectors."""
        parts = theta.split([math.prod(s) for s in self.shapes], dim=1)
        return [part.view(len(theta), *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def narrow(self, theta: Float[Tensor, "*K P"], columns: Int[Tensor, " D2"]) -> Float[Tensor, "*K P2"]:
        """The parameters of the network that sees these inputs only, `MLP(D2, hidden, classes)`."""
        first, rest = theta.tensor_split([self.hidden * self.inputs], dim=-1)
        seen = first.unflatten(-1, (self.hidden, self.inputs)).index_select(-1, columns)
        return torch.cat([seen.flatten(-2), rest], dim=-1)

    def widen(self, rows: Float[Tensor, "*K P2"], columns: Int[Tensor, " D2"]) -> Float[Tensor, "*K P"]:
        """Gradients of such a network as gradients of this one: 0 at the inputs that it does not see."""
        first, rest = rows.tensor_split([self.hidden * len(columns)], dim=-1)
        out = rows.new_zeros(*rows.shape[:-1], self.dim)
        seen = first.unflatten(-1, (self.hidden, len(columns)))
        out[..., : self.hidden * self.inputs].unflatten(-1, (self.hidden, self.inputs)).index_copy_(-1, columns, seen)
        out[..., self.hidden * self.inputs :] = rest
        return out

    def logits(
        self, theta: Float[Tensor, "K P"], x: Float[Tensor, "K B D2"], columns: Int[Tensor, " D2"] | None = None
    ) -> Float[Tensor, "K B C"]:
        """Scores; each network has inputs of its own. `columns`: the inputs that `x` holds, where all others are 0."""
        W1, b1, W2, b2 = self.split(theta)
        used = W1 if columns is None else W1.index_select(2, columns)
        h = torch.relu(torch.baddbmm(b1.unsqueeze(1), x, used.mT))
        return torch.baddbmm(b2.unsqueeze(1), h, W2.mT)

    def gradients(
        self,
        theta: Float[Tensor, "K P"],
        x: Float[Tensor, "K B D2"],
        labels: Int[Tensor, "K B"],
        weight: Float[Tensor, "K B"],
        columns: Int[Tensor, " D2"] | None = None,
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, "K P"]]:
        """f_k = sum_i weight_ki (-log softmax(z_ki)_(label_ki)) and grad f_k, both in closed form.

            E = weight (softmax(z) - onehot),   grad W_2 = E'h,   H = (E W_2) [h > 0],   grad W_1 = H'x

        `columns`: the inputs that `x` holds, where all others are 0: they add nothing to z, and their gradient is 0.
        """
        W1, b1, W2, b2 = self.split(theta)
        used = W1 if columns is None else W1.index_select(2, columns)
        h = torch.baddbmm(b1.unsqueeze(1), x, used.mT).relu_()
        log = torch.log_softmax(torch.baddbmm(b2.unsqueeze(1), h, W2.mT), dim=-1)
        chosen = labels.unsqueeze(-1)
        loss = -(log.gather(-1, chosen).squeeze(-1) * weight).sum(-1)
        error = log.exp_()
        error.scatter_add_(-1, chosen, error.new_full((), -1.0).expand(chosen.shape))
        error *= weight.unsqueeze(-1)
        out = torch.zeros_like(theta) if columns is not None else torch.empty_like(theta)
        g1, c1, g2, c2 = self.split(out)
        g2.copy_(torch.bmm(error.mT, h))
        c2.copy_(error.sum(1))
        back = torch.bmm(error, W2)
        back = torch.ops.aten.threshold_backward(back, h, 0)
        c1.copy_(back.sum(1))
        first = torch.bmm(back.mT, x)
        if columns is None:
            g1.copy_(first)
        else:
            g1.index_copy_(2, columns, first)
        return loss, out
