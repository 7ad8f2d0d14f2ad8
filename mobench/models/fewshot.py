"""The convolutional network of few-shot learning, with gradients of all tasks by one backward pass.

four times:  conv 3 x 3 -> batch normalisation -> ReLU -> max-pool 2,      features: the last map, flat
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError
from mobench.kernels.pooling import marked, maxima

BLOCKS = 4
SMALL = 16  # pixels of a map up to which weight gradients of all tasks are one product
# bytes of the first convolution's output in a chunk; larger tensors are new memory each time, and page faults
CHUNK = 24 << 20
# bytes of that output made at a time, one task at least: with few filters it stays in the cache
PIECE = 3 << 19


class ConvBlock(NamedTuple):
    """Channels in and out."""

    inner: int
    outer: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weight and bias of the convolution, weight and bias of the normalisation: PyTorch's order."""
        return [(self.outer, self.inner, 3, 3), (self.outer,), (self.outer,), (self.outer,)]


class TaskPatches(NamedTuple):
    """Images of s tasks as the first block takes them.

    They are the 3 x 3 patches (zeros around the images) of the four pixels of each 2 x 2 window that is
    pooled, with the mean m of all patches and a factor L of their covariance LL', task by task, from which
    the first normalisation follows.
    """

    patches: Float[Tensor, "s 4 n g v patch"]
    mean: Float[Tensor, "s 1 patch"]
    factor: Float[Tensor, "s patch patch"]

    @property
    def images(self) -> Float[Tensor, "s n C H W"]:
        """The middle of the patches."""
        s, _, n, g, v, _ = self.patches.shape
        pixels = self.patches[..., 4::9].view(s, 2, 2, n, g, v, -1)
        return pixels.permute(0, 3, 6, 4, 1, 5, 2).reshape(s, n, -1, 2 * g, 2 * v)


class Saved(NamedTuple):
    """Tensors of a block's backward pass, for s tasks of n images, pixels before channels in memory.

    x: its input (s n, C, h, w). z: centred output of the convolution, with weights times sign(gamma). Both
    are None in the first block. p: z after max-pooling, at: where the maxima lie (in the first block the
    numbers of `pooling`; None there without `keep`). out: its output. r: 1 / standard deviation of z
    (s, 1, C).
    """

    x: Tensor | None
    z: Tensor | None
    p: Tensor
    at: Tensor | None
    out: Tensor
    r: Tensor


class Weights(NamedTuple):
    """Parameters of one block: weights times sign(gamma), sign(gamma), |gamma|, beta."""

    weight: Tensor
    sign: Tensor
    gamma: Tensor
    beta: Tensor


Tape = list[list[Saved]]  # of each part, block by block


@dataclass(frozen=True)
class FewShotNet:
    """The network of Vinyals et al. (2016) and of MAML without its last layer, for S tasks that share it.

    Fields: channels, side of the (square) images; filters of each convolution. A parameter vector is weight
    and bias of the convolution, weight and bias of the normalisation, block after block.

    Batch normalisation always uses the statistics of the set that is passed, task by task; there are no
    running averages. Hence the bias of a convolution has no effect, and gradient 0.

    Both passes are written by hand. With m, r the mean and 1 / standard deviation of a channel of one task's
    set,
        out = relu(|gamma| r maxpool(z) + beta),   z = sign(gamma) (conv(x) - m)
    because max-pooling commutes with increasing functions, so all but the convolution and two sums works on a
    quarter of the pixels. Where e is the slope at the pooled maxima (0 where relu cuts), N pixels of a
    channel, a = |gamma| r:
        d beta = sum e,   d |gamma| = r sum e p,   dz = unpool(a e) - a d beta / N - z a r d|gamma| / N
    In the first block mean and variance follow from the moments of the images' patches, which do not change,
    and so do the last two terms of dz: there z is not stored, and the convolution is a product with patches,
    made once for each set of images. The other convolutions of all tasks (and the way back to x) are one;
    weight gradients are taken task by task.
    """

    eps: ClassVar[float] = 1e-5  # as PyTorch's layers

    channels: int = 3
    side: int = 32
    filters: int = 64

    def __post_init__(self) -> None:
        if self.side < 16 or self.side % 16:
            raise ConfigError(
                "The network halves its feature maps four times, so images must have 16, 32, 48, ... pixels "
                f"per side; these have {self.side}. Choose another problem.shrink."
            )
        if self.filters < 1:
            raise ConfigError(f"problem.filters={self.filters} must be at least 1.")

    @property
    def blocks(self) -> list[ConvBlock]:
        """All blocks in order."""
        return [ConvBlock(self.channels if k == 0 else self.filters, self.filters) for k in range(BLOCKS)]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all tensors, in order."""
        return [shape for block in self.blocks for shape in block.shapes]

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes)

    @property
    def features(self) -> int:
        """F."""
        return self.filters * (self.side // 16) ** 2

    def initial(self, rng: np.random.Generator) -> Float[np.ndarray, " P"]:
        """Convolutions U(-a, a), a = fan_in^(-1/2), weight and bias; normalisation ones and zeros:
        PyTorch's layers.
        """
        parts = []
        for block in self.blocks:
            bound = (9 * block.inner) ** -0.5
            weight, bias = (rng.uniform(-bound, bound, math.prod(s)) for s in block.shapes[:2])
            parts += [weight, bias, np.ones(block.outer), np.zeros(block.outer)]
        return np.concatenate(parts)

    def split(self, theta: Float[Tensor, " P"]) -> list[Tensor]:
        """All tensors as views of the parameter vector."""
        shapes = self.shapes
        parts = theta.split([math.prod(s) for s in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def parts(self, images: Float[Tensor, "S n C H W"]) -> list[TaskPatches]:
        """The images of some tasks at a time, as `forward` takes them; made once."""
        n = images.shape[1]
        size = max(1, CHUNK // (n * self.filters * self.side**2 * images.element_size()))
        moments = [_moments(task) for task in images]
        means, factors = (torch.stack(some) for some in zip(*moments, strict=True))
        return [
            TaskPatches(_patches(x), m, f)
            for x, m, f in zip(images.split(size), means.split(size), factors.split(size), strict=True)
        ]

    def held(self, parts: Sequence[TaskPatches]) -> int:
        """Bytes of the tape of a pass.

        Of the first block it has three pooled maps; of the others z, two pooled maps and indices.
        """
        images = sum(part.patches.shape[0] * part.patches.shape[2] for part in parts)
        size = parts[0].mean.element_size()
        windows = [(self.side >> k) ** 2 // 4 for k in range(BLOCKS)]
        return images * self.filters * (3 * size * windows[0] + (6 * size + 8) * sum(windows[1:]))

    def grouped(
        self, theta: Float[Tensor, "K P"], images: Float[Tensor, "K n C H W"]
    ) -> Float[Tensor, "K n F"]:
        """Features of the images of K networks by PyTorch's operations.

        Every convolution is one grouped convolution of all networks. Each network normalises with the
        statistics of its images.
        """
        K, n = images.shape[:2]
        shapes = self.shapes
        parts = theta.split([math.prod(s) for s in shapes], dim=1)
        tensors = [part.reshape(-1, *shape[1:]) for part, shape in zip(parts, shapes, strict=True)]
        h = images.transpose(0, 1).flatten(1, 2)
        for k in range(BLOCKS):
            weight, bias, gamma, beta = tensors[4 * k : 4 * k + 4]
            h = nn.conv2d(h, weight, bias, padding=1, groups=K)
            h = nn.batch_norm(h, None, None, gamma, beta, training=True, eps=self.eps)
            h = nn.max_pool2d(torch.relu(h), 2)
        return h.view(n, K, self.features).transpose(0, 1)

    def _weights(self, theta: Float[Tensor, " P"]) -> list[Weights]:
        tensors = self.split(theta)
        weights = []
        for k in range(BLOCKS):
            weight, _, gamma, beta = tensors[4 * k : 4 * k + 4]
            sign = torch.where(gamma < 0, -1.0, 1.0).to(gamma)
            weights.append(Weights(_pixels_first(weight * sign.view(-1, 1, 1, 1)), sign, gamma.abs(), beta))
        return weights

    def forward(
        self, theta: Float[Tensor, " P"], parts: Sequence[TaskPatches], keep: bool = False
    ) -> tuple[Float[Tensor, "S n F"], Tape | None]:
        """Features of all tasks' images; with `keep` also what `backward` needs."""
        weights = self._weights(theta)
        features = []
        tape = []
        for part in parts:
            s = part.patches.shape[0]
            n = part.patches.shape[2]
            blocks = [self._first(part, weights[0], keep)]
            for w in weights[1:]:
                blocks.append(self._block(blocks[-1].out, s, w))
                if not keep:
                    del blocks[0]
            features.append(blocks[-1].out.reshape(s, n, self.features))
            tape.append(blocks)
        return torch.cat(features), tape if keep else None

    def _first(self, part: TaskPatches, w: Weights, keep: bool) -> Saved:
        """The first block, some tasks at a time, see `PIECE`."""
        s, _, n, g, v, _ = part.patches.shape
        flat = w.weight.flatten(1)
        p = flat.new_empty(s, n * g * v, self.filters)
        at = torch.empty_like(p) if keep else None
        for here, z in self._pieces(part):
            torch.mm(part.patches[here].flatten(0, 4), flat.mT, out=z.flatten(0, 2))
            p[here] = maxima(z.unbind(1), None if at is None else at[here])
        p.sub_(part.mean @ flat.mT)
        r = ((flat @ part.factor).square().sum(2).unsqueeze(1) + self.eps).rsqrt_()
        out = torch.addcmul(w.beta, p, w.gamma * r).relu_()
        maps = p.view(s * n, g, v, -1).permute(0, 3, 1, 2)
        return Saved(None, None, maps, at, _maps(out, maps), r)

    def _pieces(self, part: TaskPatches) -> Iterator[tuple[slice, Float[Tensor, "t 4 ngv filters"]]]:
        """Some tasks, and memory for their z, the same again and again."""
        s, _, n, g, v, _ = part.patches.shape
        size = s
        if part.patches.device.type == "cpu":
            size = min(s, max(1, PIECE // (4 * n * g * v * self.filters * part.patches.element_size())))
        z = part.patches.new_empty(size, 4, n * g * v, self.filters)
        for start in range(0, s, size):
            yield slice(start, start + size), z[: s - start]

    def _block(self, x: Tensor, s: int, w: Weights) -> Saved:
        z = _pixels_first(nn.conv2d(x, w.weight, padding=1))
        Z = _rows(z, s)
        Z.sub_(Z.mean(1, keepdim=True))
        r = ((Z * Z).mean(1, keepdim=True) + self.eps).rsqrt_()
        p, at = nn.max_pool2d(z, 2, return_indices=True)
        out = torch.addcmul(w.beta, _rows(p, s), w.gamma * r).relu_()
        return Saved(x, z, p, at, _maps(out, p), r)

    def backward(
        self,
        theta: Float[Tensor, " P"],
        parts: Sequence[TaskPatches],
        tape: Tape,
        slopes: Float[Tensor, "S n F"],
    ) -> Float[Tensor, "S P"]:
        """Rows: gradient of <slopes_s, features_s> with respect to theta, for each task s."""
        weights = self._weights(theta)
        rows = []
        first = 0
        for part, blocks in zip(parts, tape, strict=True):
            s = len(part.patches)
            e = _pixels_first(slopes[first : first + s].reshape(blocks[-1].out.shape))
            first += s
            gradients: list[Tensor] = []
            for saved, w in zip(blocks[:0:-1], weights[:0:-1], strict=True):
                e, some = self._back(e, s, saved, w)
                gradients = some + gradients
            gradients = self._back_first(e, part, blocks[0], weights[0]) + gradients
            rows.append(torch.cat([g.reshape(s, -1) for g in gradients], dim=1))
        return torch.cat(rows)

    def _affine(self, e: Tensor, s: int, saved: Saved, w: Weights) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """e where relu does not cut, times a; a; d beta, d |gamma|."""
        E = _rows(torch.ops.aten.threshold_backward(e, saved.out, 0), s)
        a = w.gamma * saved.r
        dbeta = E.sum(1, keepdim=True)
        dgamma = (E * _rows(saved.p, s)).sum(1, keepdim=True) * saved.r
        return E.mul_(a), a, dbeta, dgamma

    def _back(self, e: Tensor, s: int, saved: Saved, w: Weights) -> tuple[Tensor, list[Tensor]]:
        """Slope with respect to x, and gradients (s, ...) of the block's four tensors."""
        x, z, p, at, _, r = saved
        assert x is not None
        assert z is not None
        assert at is not None
        E, a, dbeta, dgamma = self._affine(e, s, saved, w)
        unpool = torch.ops.aten.max_pool2d_with_indices_backward
        dz = _pixels_first(unpool(_maps(E, p), z, [2, 2], [2, 2], [0, 0], [1, 1], False, at))
        Z = _rows(z, s)
        _rows(dz, s).addcmul_(Z, dgamma * a * r / -Z.shape[1]).sub_(dbeta * a / Z.shape[1])
        dweight = _by_task(dz, x, w.weight, s) * w.sign.view(-1, 1, 1, 1)
        return _convolution_backward(dz, x, w.weight, 0), [
            dweight,
            torch.zeros_like(dbeta),
            dgamma * w.sign,
            dbeta,
        ]

    def _back_first(self, e: Tensor, part: TaskPatches, saved: Saved, w: Weights) -> list[Tensor]:
        """Gradients (s, ...) of the first block's four tensors."""
        E, a, dbeta, dgamma = self._affine(e, len(part.patches), saved, w)
        at = saved.at
        products = []
        assert at is not None
        for here, dz in self._pieces(part):
            marked(at[here], dz.unbind(1))
            dz.mul_(E[here].unsqueeze(1))
            products.append(dz.flatten(1, 2).mT @ part.patches[here].flatten(1, 4))
        # the rest of dz is not made: its products with the patches are moments
        flat = w.weight.flatten(1)
        curved = (dgamma * a * saved.r).mT * (flat @ part.factor @ part.factor.mT)
        dweight = torch.cat(products) - curved - (dbeta * a).mT * part.mean
        return [dweight * w.sign.view(-1, 1), torch.zeros_like(dbeta), dgamma * w.sign, dbeta]


def _patches(images: Float[Tensor, "s n C H W"]) -> Float[Tensor, "s 4 n g v patch"]:
    """Views of the four pixels of each 2 x 2 window, row by row."""
    around = nn.pad(images, (1, 1, 1, 1)).unfold(3, 3, 1).unfold(4, 3, 1)  # (s, n, C, H, W, 3, 3)
    corners = [around[:, :, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    return torch.stack([corner.permute(0, 1, 3, 4, 2, 5, 6).flatten(4) for corner in corners], dim=1)


def _moments(
    images: Float[Tensor, "n C H W"],
) -> tuple[Float[Tensor, "1 patch"], Float[Tensor, "patch patch"]]:
    """Mean and factor of the covariance of all 3 x 3 patches."""
    patches = nn.unfold(images.double(), 3, padding=1).transpose(1, 2).flatten(0, 1)
    mean = patches.mean(0, keepdim=True)
    values, vectors = torch.linalg.eigh((patches - mean).mT @ (patches - mean) / len(patches))
    return mean.to(images), (vectors * values.clamp_min(0.0).sqrt()).to(images)


def _pixels_first(x: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C h w"]:
    """The same numbers, pixels before channels in memory: there vector instructions work on channels."""
    N, C, h, w = x.shape
    # flat in between: with one channel, strides would be those of the other order, and convolutions follow
    # strides
    return x.permute(0, 2, 3, 1).contiguous().view(-1).view(N, h, w, C).permute(0, 3, 1, 2)


def _rows(x: Float[Tensor, "N C h w"], s: int) -> Float[Tensor, "s M C"]:
    """A view: all pixels of each of s tasks."""
    return x.permute(0, 2, 3, 1).view(s, -1, x.shape[1])


def _maps(rows: Float[Tensor, "s M C"], like: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C h w"]:
    """The inverse of `_rows`."""
    N, C, h, w = like.shape
    return rows.view(N, h, w, C).permute(0, 3, 1, 2)


def _convolution_backward(dz: Tensor, x: Tensor, weight: Tensor, which: int) -> Tensor:
    """Slope with respect to x (0) or to the weight (1)."""
    mask = [which == 0, which == 1, False]
    slope: Tensor = torch.ops.aten.convolution_backward(
        dz, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask
    )[which]
    return slope


def _by_task(dz: Tensor, x: Tensor, weight: Tensor, s: int) -> Float[Tensor, "s O I 3 3"]:
    """Slopes with respect to the weight for each task, one by one or, of small maps, as one product."""
    N, C, h, w = x.shape
    if h * w > SMALL:
        some = zip(dz.chunk(s), x.chunk(s), strict=True)
        return torch.stack([_convolution_backward(d, i, weight, 1) for d, i in some])
    wide = x.new_zeros(N, h + 2, w + 2, C)
    wide[:, 1:-1, 1:-1] = x.permute(0, 2, 3, 1)
    line = (w + 2) * C
    patches = wide.as_strided((N, h, w, 3, 3 * C), ((h + 2) * line, line, C, line, 1)).reshape(s, -1, 9 * C)
    return (_rows(dz, s).mT @ patches).view(s, -1, 3, 3, C).permute(0, 1, 4, 2, 3)
