"""Perceptrons with one hidden layer for K parameter vectors at once, with gradients in closed form.

x -> W_1 x + b_1 -> ReLU or tanh -> W_2 h + b_2
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class OneHidden:
    """The shapes of a perceptron with one hidden layer.

    Fields: inputs D, hidden H, outputs C. A parameter vector is W_1 (H, D), b_1, W_2 (C, H), b_2, as PyTorch
    orders its modules: P = H (D + 1) + C (H + 1), 159,010 for 784-200-10.
    """

    inputs: int
    hidden: int = 200
    outputs: int = 10

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of weights and biases, in order."""
        return [(self.hidden, self.inputs), (self.hidden,), (self.outputs, self.hidden), (self.outputs,)]

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes)

    def initial(self, rng: np.random.Generator, kind: str = "default") -> Float[np.ndarray, " P"]:
        """A parameter vector: weights and biases U(-a, a), a = fan_in^(-1/2), as PyTorch's layers."""
        bounds = [self.inputs**-0.5] * 2 + [self.hidden**-0.5] * 2
        return np.concatenate(
            [rng.uniform(-a, a, math.prod(shape)) for a, shape in zip(bounds, self.shapes, strict=True)]
        )

    def split(self, theta: Float[Tensor, "K P"]) -> list[Tensor]:
        """Weights and biases (K, ...) as views of the parameter vectors."""
        parts = theta.split([math.prod(s) for s in self.shapes], dim=1)
        return [part.view(len(theta), *shape) for part, shape in zip(parts, self.shapes, strict=True)]


class MLP(OneHidden):
    """With ReLU; a classifier: its outputs are the scores of C classes."""

    batch_norm: ClassVar[bool] = False

    def narrow(self, theta: Float[Tensor, "*K P"], columns: Int[Tensor, " D2"]) -> Float[Tensor, "*K P2"]:
        """The parameters of the network of these inputs only, `MLP(D2, hidden, outputs)`."""
        first, rest = theta.tensor_split([self.hidden * self.inputs], dim=-1)
        seen = first.unflatten(-1, (self.hidden, self.inputs)).index_select(-1, columns)
        return torch.cat([seen.flatten(-2), rest], dim=-1)

    def widen(self, rows: Float[Tensor, "*K P2"], columns: Int[Tensor, " D2"]) -> Float[Tensor, "*K P"]:
        """Gradients of such a network as gradients of this one, 0 at the inputs that it lacks."""
        first, rest = rows.tensor_split([self.hidden * len(columns)], dim=-1)
        out = rows.new_zeros(*rows.shape[:-1], self.dim)
        seen = first.unflatten(-1, (self.hidden, len(columns)))
        out[..., : self.hidden * self.inputs].unflatten(-1, (self.hidden, self.inputs)).index_copy_(
            -1, columns, seen
        )
        out[..., self.hidden * self.inputs :] = rest
        return out

    def logits(
        self,
        theta: Float[Tensor, "K P"],
        x: Float[Tensor, "K B D2"],
        columns: Int[Tensor, " D2"] | None = None,
    ) -> Float[Tensor, "K B C"]:
        """Scores of each network for its inputs.

        `columns`: the inputs that `x` holds, where all others are 0.
        """
        W1, b1, W2, b2 = self.split(theta)
        used = W1 if columns is None else W1.index_select(2, columns)
        h = torch.relu(torch.baddbmm(b1.unsqueeze(1), x, used.mT))
        return _scores(h, W2, b2).mT

    def gradients(
        self,
        theta: Float[Tensor, "K P"],
        x: Float[Tensor, "K B D2"],
        labels: Int[Tensor, "K B"],
        weight: Float[Tensor, "K B"],
        columns: Int[Tensor, " D2"] | None = None,
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, "K P"]]:
        """f_k = sum_i weight_ki (-log softmax(z_ki)_(label_ki)) and grad f_k, both in closed form.

            E = weight (softmax(z) - onehot),   grad W_2 = E h,   H = (E'W_2) [h > 0],   grad W_1 = H'x

        `columns`: the inputs that `x` holds, where all others are 0: they add nothing to z, and their
        gradient is 0.
        """
        W1, b1, W2, b2 = self.split(theta)
        used = W1 if columns is None else W1.index_select(2, columns)
        h = torch.baddbmm(b1.unsqueeze(1), x, used.mT).relu_()
        loss, error = _errors(_scores(h, W2, b2), labels, weight)
        out = torch.zeros_like(theta) if columns is not None else torch.empty_like(theta)
        g1, c1, g2, c2 = self.split(out)
        torch.bmm(error, h, out=g2)
        torch.sum(error, 2, out=c2)
        back = torch.bmm(error.mT, W2)
        torch.ops.aten.threshold_backward(back, h, 0, grad_input=back)
        torch.sum(back, 1, out=c1)
        if columns is None:
            torch.bmm(back.mT, x, out=g1)
        else:
            g1.index_copy_(2, columns, torch.bmm(back.mT, x))
        return loss, out

    def descent(
        self,
        theta: Float[Tensor, "R P"],
        x: Float[Tensor, "R M B D"],
        gram: Float[Tensor, "R M B B"],
        labels: Int[Tensor, "R M B"],
        weight: Float[Tensor, "R M B"],
        steps: int,
        eta: float,
        change: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    ) -> tuple[list[Float[Tensor, "R M"]], Moves]:
        """`steps` of gradient descent of M networks from each theta_r: their losses, and their moves.

        W_1 moves by combinations of the B inputs, W_1 = W_1(0) - eta A'x with A the sum of all H so far, so
        what enters the hidden layer moves by

            Z <- Z - eta (x x' + 1) H,      Z(0) = x W_1(0)' + b_1(0),      gram = x x' + 1

        A step takes 2 B B H operations instead of 4 B D H and touches no W_1, which is made once, on request:
        less of both where B < 2 D. `change`: F -> fn(F), fn'(F) where it descends on fn of the losses, else
        F, None.
        """
        R, M, B, _ = x.shape
        K = R * M
        H = self.hidden
        W1, b1, first, bias = self.split(theta)
        Z = torch.baddbmm(b1.unsqueeze(1), x.flatten(1, 2), W1.mT).view(K, B, H)
        first, bias = (t.repeat_interleave(M, 0) for t in (first, bias))
        gram, labels, weight = (t.flatten(0, 1) for t in (gram, labels, weight))
        A = torch.zeros_like(Z)
        h = torch.empty_like(Z)
        back = torch.empty_like(Z)
        g2 = torch.zeros_like(first)
        c2 = torch.zeros_like(bias)
        W2 = first
        b2 = bias
        losses = []
        for step in range(steps):
            torch.clamp_min(Z, 0.0, out=h)
            F, error = _errors(_scores(h, W2, b2), labels, weight)
            F, factor = change(F.view(R, M))
            if factor is not None:
                error *= factor.reshape(K, 1, 1)
            losses.append(F)
            torch.bmm(error.mT, W2, out=back)
            A += torch.ops.aten.threshold_backward(back, h, 0, grad_input=back)
            g2.baddbmm_(error, h)
            c2 += error.sum(2)
            if step < steps - 1:
                W2 = torch.add(first, g2, alpha=-eta)
                b2 = torch.add(bias, c2, alpha=-eta)
                Z.baddbmm_(gram, back, alpha=-eta)
        return losses, Moves(self, x, *(t.unflatten(0, (R, M)) for t in (A, g2, c2)))


class TanhMLP(OneHidden):
    """With tanh; loss c depends on output c alone."""

    def forward(
        self, theta: Float[Tensor, "K P"], x: Float[Tensor, "K B D"]
    ) -> tuple[Float[Tensor, "K B C"], Float[Tensor, "K B H"]]:
        """Outputs z and the hidden layer h of each network for its inputs."""
        W1, b1, W2, b2 = self.split(theta)
        h = torch.baddbmm(b1.unsqueeze(1), x, W1.mT).tanh()
        return torch.baddbmm(b2.unsqueeze(1), h, W2.mT), h

    def jacobian(
        self,
        theta: Float[Tensor, "K P"],
        x: Float[Tensor, "K B D"],
        h: Float[Tensor, "K B H"],
        error: Float[Tensor, "K B C"],
    ) -> Float[Tensor, "K C P"]:
        """Gradients of C losses of which loss c depends on output c alone: error_bc = d loss_c / d z_bc.

            grad W_2[c] = sum_b error_bc h_b,    grad W_1 of loss c = W_2[c]_j sum_b error_bc (1 - h_bj^2)
                x_b,  row j

        All C first layers are one product of (C H, B) with (B, D); W_2 does not enter it, it scales the rows
        of the result.
        """
        K, B, C = error.shape
        H = self.hidden
        D = self.inputs
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


@dataclass(frozen=True)
class Moves:
    """(start - end) / eta of M networks of each of R, not multiplied out: their rows are (A'x, A'1, W, b)."""

    network: MLP
    x: Float[Tensor, "R M B D"]
    A: Float[Tensor, "R M B H"]
    W: Float[Tensor, "R M C H"]
    b: Float[Tensor, "R M C"]

    def jacobian(self, out: Float[Tensor, "R M P"]) -> None:
        """Writes all rows to `out`."""
        g1, c1, g2, c2 = self.network.split(out.flatten(0, 1))
        torch.bmm(self.A.flatten(0, 1).mT, self.x.flatten(0, 1), out=g1)
        torch.sum(self.A.flatten(0, 1), 1, out=c1)
        g2.copy_(self.W.flatten(0, 1))
        c2.copy_(self.b.flatten(0, 1))

    def vjp(self, w: Float[Tensor, "R M"], out: Float[Tensor, "R P"]) -> None:
        """sum_m w_m row_m in one product, without the rows, which take M times as much memory."""
        g1, c1, g2, c2 = self.network.split(out)
        weighted = (self.A * w[:, :, None, None]).flatten(1, 2)
        torch.bmm(weighted.mT, self.x.flatten(1, 2), out=g1)
        torch.sum(weighted, 1, out=c1)
        g2.copy_(torch.bmm(w.unsqueeze(1), self.W.flatten(2)).view_as(g2))
        c2.copy_(torch.bmm(w.unsqueeze(1), self.b).squeeze(1))


def _scores(
    h: Float[Tensor, "K B H"], W2: Float[Tensor, "K C H"], b2: Float[Tensor, "K C"]
) -> Float[Tensor, "K C B"]:
    """z, classes before inputs.

    Sums and products over ten numbers that lie side by side are many times slower.
    """
    return torch.baddbmm(b2.unsqueeze(2), W2, h.mT)


def _errors(
    z: Float[Tensor, "K C B"], labels: Int[Tensor, "K B"], weight: Float[Tensor, "K B"]
) -> tuple[Float[Tensor, " K"], Float[Tensor, "K C B"]]:
    """Losses f_k and E, their slopes in z."""
    log = torch.log_softmax(z, 1)
    chosen = labels.unsqueeze(1)
    loss = -(log.gather(1, chosen).squeeze(1) * weight).sum(1)
    error = log.exp_()
    error.scatter_add_(1, chosen, error.new_full((), -1.0).expand(chosen.shape))
    return loss, error.mul_(weight.unsqueeze(1))
