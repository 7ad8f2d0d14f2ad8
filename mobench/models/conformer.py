"""A conformer with two CTC heads and one for contrastive predictive coding, for R parameter vectors at once.

front:  convolutions 3 x 3 of stride 2 -> ReLU, then one linear layer: z                 (R, B, T', D)
block:  x + FF(x)/2 -> + attention -> + convolution -> + FF/2 -> layer norm
        (8 of them in the paper)
heads:  one linear layer for each language; K matrices that predict z_(t+1) .. z_(t+K)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.arrays import to_device

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Conformer:
    """Conformer of Gulati et al. (2020) as a function of stacked parameters.

    A clip's output depends on that clip alone.

    Fields: mels: bands of the input. channels, layers: of the front, which keeps every 2^layers-th frame.
    blocks, width D, heads, kernel, expansion (of the feed-forward layers). steps: K, frames ahead that are
    predicted. zh, en: units of the heads.

    Frames behind a clip's end are 0 before every convolution and take no part in attention. `past` lets a
    frame see itself and earlier frames, by the same parameters: attention to the past, convolutions shifted
    to it. Attention has relative positions (Dai et al. 2019) with sinusoids. Departures: layer norm in the
    place of the convolution module's batch norm, which would couple a clip to its batch and to the padding;
    no dropout.
    """

    norm: ClassVar[float] = 1e-5

    mels: int = 80
    channels: int = 512
    layers: int = 2
    blocks: int = 8
    width: int = 512
    heads: int = 8
    kernel: int = 31
    expansion: int = 4
    steps: int = 12
    zh: int = 5000
    en: int = 1000

    @property
    def stride(self) -> int:
        """Frames of the input for each of the output."""
        return 1 << self.layers

    @property
    def bands(self) -> int:
        """Frequencies that the front leaves of each channel."""
        return self.length(self.mels)

    def length(self, frames: int) -> int:
        """T' of T."""
        for _ in range(self.layers):
            frames = (frames + 1) // 2
        return frames

    def lengths(self, frames: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """T' of T, of tensors."""
        for _ in range(self.layers):
            frames = (frames + 1) // 2
        return frames

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes by name, in order; the two heads come last."""
        D = self.width
        H = self.width * self.expansion
        out: dict[str, Shape] = {}

        def linear(name: str, rows: int, columns: int, bias: bool = True) -> None:
            out[f"{name}.weight"] = (rows, columns)
            if bias:
                out[f"{name}.bias"] = (rows,)

        def scale(name: str) -> None:
            out[f"{name}.gain"] = (D,)
            out[f"{name}.bias"] = (D,)

        for k in range(self.layers):
            out[f"front{k}.weight"] = (self.channels, 1 if k == 0 else self.channels, 3, 3)
            out[f"front{k}.bias"] = (self.channels,)
        linear("front", D, self.channels * self.bands)
        for b in range(self.blocks):
            for half in ("first", "second"):
                scale(f"{b}.{half}.norm")
                linear(f"{b}.{half}.up", H, D)
                linear(f"{b}.{half}.down", D, H)
            scale(f"{b}.attention.norm")
            linear(f"{b}.attention.qkv", 3 * D, D)
            linear(f"{b}.attention.place", D, D, bias=False)
            out[f"{b}.attention.content_bias"] = out[f"{b}.attention.place_bias"] = (D,)
            linear(f"{b}.attention.out", D, D)
            scale(f"{b}.convolution.norm")
            linear(f"{b}.convolution.gate", 2 * D, D)
            out[f"{b}.convolution.depth.weight"] = (D, self.kernel)
            out[f"{b}.convolution.depth.bias"] = (D,)
            scale(f"{b}.convolution.inner")
            linear(f"{b}.convolution.out", D, D)
            scale(f"{b}.norm")
        linear("predict", self.steps * D, D, bias=False)
        linear("zh", self.zh, D)
        linear("en", self.en, D)
        return out

    @property
    def dim(self) -> int:
        """P."""
        return sum(math.prod(s) for s in self.shapes.values())

    @property
    def head_dim(self) -> int:
        """Parameters of the two heads, the last of the vector."""
        return (self.zh + self.en) * (self.width + 1)

    def initial(self, rng: np.random.Generator) -> Float[np.ndarray, " P"]:
        """A parameter vector as PyTorch's layers begin.

        Weights and biases U(-a, a), a = fan_in^(-1/2); norms 1 and 0, the attention's two biases 0.
        """
        parts = []
        fan = 1
        for name, shape in self.shapes.items():
            if name.endswith(".gain"):
                parts.append(np.ones(shape))
            elif "norm" in name or "inner" in name or name.endswith("_bias"):
                parts.append(np.zeros(shape))
            else:
                # a bias comes behind its weight
                fan = math.prod(shape[1:]) if name.endswith("weight") else fan
                parts.append(rng.uniform(-(fan**-0.5), fan**-0.5, math.prod(shape)))
        return np.concatenate([p.reshape(-1) for p in parts])

    def split(self, theta: Float[Tensor, "R P"]) -> dict[str, Tensor]:
        """Parameters (R, ...) by name, as views."""
        shapes = self.shapes
        parts = theta.split([math.prod(s) for s in shapes.values()], dim=1)
        return {name: part.view(len(theta), *shapes[name]) for name, part in zip(shapes, parts, strict=True)}

    def front(
        self, w: dict[str, Tensor], x: Float[Tensor, "R B T F"], frames: Int[Tensor, "R B"]
    ) -> tuple[Float[Tensor, "R B T2 D"], Int[Tensor, "R B"]]:
        """z and its lengths T'."""
        R, B = x.shape[:2]
        h = x.transpose(0, 1)  # runs are groups of channels
        for k in range(self.layers):
            keep = _inside(frames, h.shape[2]).transpose(0, 1).repeat_interleave(h.shape[1] // R, dim=1)
            h = torch.where(keep.unsqueeze(-1), h, 0.0)
            weight = w[f"front{k}.weight"].flatten(0, 1)
            bias = w[f"front{k}.bias"].flatten()
            h = torch.relu(nn.conv2d(h, weight, bias, stride=2, padding=1, groups=R))
            frames = (frames + 1) // 2
        h = h.view(B, R, self.channels, *h.shape[2:]).permute(1, 0, 3, 2, 4).flatten(3)
        return _linear(w, "front", h), frames

    def encode(
        self,
        w: dict[str, Tensor],
        z: Float[Tensor, "R B T D"],
        lengths: Int[Tensor, "R B"],
        past: bool = False,
    ) -> Float[Tensor, "R B T D"]:
        """All blocks."""
        T = z.shape[2]
        inside = _inside(lengths, T)
        seen = inside.unsqueeze(2).expand(-1, -1, T, -1)
        if past:
            seen = seen & torch.ones(T, T, dtype=torch.bool, device=z.device).tril()
        places = to_device(sinusoids(T, self.width).to(z.dtype), z.device)
        x = z
        for b in range(self.blocks):
            x = x + 0.5 * self._feed(w, f"{b}.first", x)
            x = x + self._attend(w, f"{b}.attention", x, places, seen)
            x = x + self._convolve(w, f"{b}.convolution", x, inside, past)
            x = x + 0.5 * self._feed(w, f"{b}.second", x)
            x = self._normal(w, f"{b}.norm", x)
        return x

    def scores(
        self, w: dict[str, Tensor], x: Float[Tensor, "R B T D"], head: str
    ) -> Float[Tensor, "R B T C"]:
        """Logits of `zh` or `en`."""
        return _linear(w, head, x)

    def predicted(self, w: dict[str, Tensor], x: Float[Tensor, "R B T D"]) -> Float[Tensor, "R B T K D"]:
        """Returns the predictions of z_(t+1) .. z_(t+K)."""
        return _linear(w, "predict", x).unflatten(3, (self.steps, self.width))

    # one block

    def _normal(self, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        shape = (len(x), 1, 1, -1)
        h = nn.layer_norm(x, x.shape[-1:], eps=self.norm)
        return torch.addcmul(w[f"{name}.bias"].view(shape), h, w[f"{name}.gain"].view(shape))

    def _feed(self, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        h = _linear(w, f"{name}.up", self._normal(w, f"{name}.norm", x))
        return _linear(w, f"{name}.down", nn.silu(h))

    def _attend(
        self, w: dict[str, Tensor], name: str, x: Tensor, places: Tensor, seen: Bool[Tensor, "R B T T"]
    ) -> Tensor:
        """softmax over seen j of ((q_i + u)'k_j + (q_i + v)'p_(i-j)) / sqrt(d), head by head."""
        R, _, T, D = x.shape
        d = D // self.heads
        q, k, v = _linear(w, f"{name}.qkv", self._normal(w, f"{name}.norm", x)).chunk(3, dim=3)
        u, s = (w[f"{name}.{kind}_bias"].view(R, 1, 1, D) for kind in ("content", "place"))

        def by_head(y: Tensor) -> Tensor:
            return y.unflatten(3, (self.heads, d)).transpose(2, 3)

        p = (
            (places @ w[f"{name}.place.weight"].mT)
            .view(R, 1, 2 * T - 1, self.heads, d)
            .permute(0, 1, 3, 4, 2)
        )
        logits = by_head(q + u) @ by_head(k).mT + shifted(by_head(q + s) @ p)
        logits = (logits * d**-0.5).masked_fill(~seen.unsqueeze(2), -math.inf)
        h = torch.softmax(logits, dim=-1) @ by_head(v)
        return _linear(w, f"{name}.out", h.transpose(2, 3).flatten(3))

    def _convolve(
        self, w: dict[str, Tensor], name: str, x: Tensor, inside: Bool[Tensor, "R B T"], past: bool
    ) -> Tensor:
        R, B, T, D = x.shape
        h = nn.glu(_linear(w, f"{name}.gate", self._normal(w, f"{name}.norm", x)), dim=3)
        h = torch.where(inside.unsqueeze(3), h, 0.0).permute(1, 0, 3, 2).reshape(B, R * D, T)
        before = self.kernel - 1 if past else self.kernel // 2
        h = nn.pad(h, (before, self.kernel - 1 - before))
        depth = w[f"{name}.depth.weight"].reshape(R * D, 1, self.kernel)
        h = nn.conv1d(h, depth, w[f"{name}.depth.bias"].flatten(), groups=R * D)
        h = self._normal(w, f"{name}.inner", h.view(B, R, D, T).permute(1, 0, 3, 2))
        return _linear(w, f"{name}.out", nn.silu(h))


def _linear(w: dict[str, Tensor], name: str, x: Float[Tensor, "R B T i"]) -> Float[Tensor, "R B T o"]:
    """W x + b of each run; without b where there is none."""
    W = w[f"{name}.weight"]
    b = w.get(f"{name}.bias")
    h = x.flatten(1, 2)
    out = torch.bmm(h, W.mT) if b is None else torch.baddbmm(b.unsqueeze(1), h, W.mT)
    return out.unflatten(1, x.shape[1:3])


def _inside(lengths: Int[Tensor, "R B"], T: int) -> Bool[Tensor, "R B T"]:
    """Frames before a clip's end."""
    return torch.arange(T, device=lengths.device) < lengths.unsqueeze(-1)


def sinusoids(T: int, width: int) -> Float[Tensor, "S D"]:
    """Sines and cosines of the S = 2 T - 1 distances i - j = T-1 .. -(T-1)."""
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = torch.arange(T - 1, -T, -1, dtype=torch.float64).unsqueeze(1) * rate
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :width]


def shifted(x: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T T"]:
    """out_ij = x_i,(T-1-i+j), with the distance i - j = T-1 in column 0 of x.

    It is computed by padding, and by reading the rows at another length.
    """
    T = x.shape[-2]
    flat = nn.pad(x, (1, 0)).flatten(-2)[..., T:]
    return flat.unflatten(-1, (T, 2 * T - 1))[..., :T]


MODELS = {
    "tiny": Conformer(
        mels=8, channels=2, layers=1, blocks=1, width=8, heads=2, kernel=3, expansion=1, steps=2
    ),
    "laptop": Conformer(
        mels=24, channels=6, layers=1, blocks=1, width=48, heads=2, kernel=7, expansion=2, steps=3
    ),
    "paper": Conformer(),
}


def conformer(name: str, zh: int, en: int) -> Conformer:
    """The conformer of this name in `MODELS`, with heads for `zh` and `en` units."""
    return replace(MODELS[name], zh=zh, en=en)
