"""The networks of `convnet` on a CPU: matrix products on chunks of pictures that stay in the cache, gradients in closed form.

With the pictures innermost, (row, channel, column, picture), k consecutive rows of a map are k C W n consecutive numbers. If
they hold k copies of each row, shifted by 0 .. k-1 columns, a row of a convolution is one product of its weights with an
overlapping view: nothing is copied k^2 times, and max-pooling, ReLU and sums over shifts are sweeps over consecutive numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.point import Linear

if TYPE_CHECKING:
    from mobench.models.convnet import ConvNet

CHUNK = 32  # pictures: the first layer's shifted rows (1.2 MB for 36 x 36 pixels in float32) stay in a cache of 2 MB


class Weights(NamedTuple):
    """Parameters in the order in which products take them; the heads of all tasks below each other."""

    first: Float[Tensor, "RC kk"]
    first_bias: Float[Tensor, "R 1 C 1 1"]
    second: Float[Tensor, "R C kkC"]
    second_bias: Float[Tensor, "R 1 C 1 1"]
    shared: Float[Tensor, "R H D"]
    shared_bias: Float[Tensor, "R H 1"]
    heads: Float[Tensor, "R TC H"]
    heads_bias: Float[Tensor, "R TC 1"]


class Maps(NamedTuple):
    """What one chunk leaves for its derivatives. at1, at2: 1 where a window of the pooling has its maximum, else 0."""

    x: Float[Tensor, "H W n"]
    at1: Float[Tensor, "R h C w n"]
    h1: Float[Tensor, "R g C v n"]
    at2: Float[Tensor, "R h C w n"]
    h2: Float[Tensor, "R g C v n"]
    h3: Float[Tensor, "R H n"]


def weights(net: ConvNet, theta: Float[Tensor, "R P"]) -> Weights:
    """Views and permuted copies of the parameter vectors."""
    W1, b1, W2, b2, W3, b3, *heads = net.split(theta)
    R, side = len(theta), net.side
    return Weights(
        W1.reshape(R * net.channels[0], -1),
        b1.view(R, 1, -1, 1, 1),
        W2.permute(0, 1, 3, 4, 2).reshape(R, net.channels[1], -1),
        b2.view(R, 1, -1, 1, 1),
        W3.view(R, net.hidden, net.channels[1], side, side).transpose(2, 3).reshape(R, net.hidden, -1),
        b3.unsqueeze(2),
        torch.cat(heads[::2], dim=1),
        torch.cat(heads[1::2], dim=1).unsqueeze(2),
    )


def vector(net: ConvNet, w: Weights) -> Float[Tensor, "R P"]:
    """The inverse of `weights`, for gradients."""
    R, (c1, c2), (_, k2), side = len(w.second), net.channels, net.kernels, net.side
    parts = [
        w.first.view(R, -1),
        w.first_bias.view(R, -1),
        w.second.view(R, c2, k2, k2, c1).permute(0, 1, 4, 2, 3).reshape(R, -1),
        w.second_bias.view(R, -1),
        w.shared.view(R, net.hidden, side, c2, side).transpose(2, 3).reshape(R, -1),
        w.shared_bias.view(R, -1),
    ]
    for weight, bias in zip(w.heads.split(net.classes, 1), w.heads_bias.split(net.classes, 1), strict=True):
        parts += [weight.reshape(R, -1), bias.reshape(R, -1)]
    return torch.cat(parts, dim=1)


def shifted(x: Tensor, k: int) -> Tensor:
    """(..., h, C, W, n) -> (..., h, kC, W-k+1, n): each row k times, shifted by 0 .. k-1 columns."""
    *lead, h, C, W, n = x.shape
    out = x.new_empty(*lead, h, k, C, W - k + 1, n)
    out.copy_(x.unfold(-2, W - k + 1, 1).movedim(-3, -4).transpose(-1, -2))
    return out.view(*lead, h, k * C, W - k + 1, n)


def windows(x: Float[Tensor, "... h kC w n"], k: int) -> Float[Tensor, "... g kkC wn"]:
    """k consecutive rows at a time, one below the other: an overlapping view."""
    *lead, h, rows, w, n = x.shape
    step = rows * w * n
    return x.as_strided((*lead, h - k + 1, k * rows, w * n), (*x.stride()[:-4], step, w * n, 1))


def corners(x: Float[Tensor, "... h C w n"]) -> list[Tensor]:
    """The four entries of each 2 x 2 window, row by row; a last odd row or column has none."""
    h, w = x.shape[-4] // 2 * 2, x.shape[-2] // 2 * 2
    return [x[..., i:h:2, :, j:w:2, :] for i in (0, 1) for j in (0, 1)]


def pooled(x: Float[Tensor, "R h C w n"], bias: Float[Tensor, "R 1 C 1 1"], keep: bool) -> Float[Tensor, "R g C v n"]:
    """ReLU of the maxima of 2 x 2 windows plus the bias. With `keep` x becomes 1 at the maximum of each window (the first
    of equal ones, as PyTorch's max-pooling), 0 elsewhere."""
    a, b, c, d = corners(x)
    upper, lower = torch.maximum(a, b), torch.maximum(c, d)
    out = torch.maximum(upper, lower)
    if keep:
        above = upper.ge_(lower)
        torch.sub(above, a.ge_(b).mul_(above), out=b)
        below = 1.0 - above
        torch.sub(below, c.ge_(d).mul_(below), out=d)
        if x.shape[1] % 2:
            x[:, -1].zero_()
        if x.shape[3] % 2:
            x[:, :, :, -1].zero_()
    return out.add_(bias).relu_()


def spread(g: Float[Tensor, "R g C v n"], at: Float[Tensor, "R h C w n"], out: Float[Tensor, "R h C w n"]) -> None:
    """The adjoint of the pooling: each entry of g at the maximum of its window, 0 elsewhere."""
    if at.shape[1] % 2 or at.shape[3] % 2:
        out.zero_()
    for mark, part in zip(corners(at), corners(out), strict=True):
        torch.mul(mark, g, out=part)


def gathered(z: Float[Tensor, "R h C w n"], at: Float[Tensor, "R h C w n"]) -> Float[Tensor, "R g C v n"]:
    """The entries of z at the maxima."""
    first, *others = zip(corners(at), corners(z), strict=True)
    found = first[0] * first[1]
    for mark, part in others:
        found.addcmul_(mark, part)
    return found


def alive(g: Tensor, h: Tensor) -> Tensor:
    """g where the ReLU h is above 0, else 0."""
    return torch.ops.aten.threshold_backward(g, h, 0)


def forward(
    net: ConvNet, w: Weights, pictures: Float[Tensor, "B H W"], keep: bool
) -> tuple[Float[Tensor, "R TC B"], list[Maps]]:
    """Scores of all runs; with `keep` what their derivatives need."""
    scores, kept = [], []
    for part in pictures.split(CHUNK):
        x = nn.avg_pool2d(part.unsqueeze(1), net.shrink).squeeze(1) if net.shrink > 1 else part
        z, maps = _forward(net, w, x.permute(1, 2, 0).contiguous(), keep)
        scores.append(z)
        if keep:
            kept.append(maps)
    return torch.cat(scores, dim=2), kept


def _first(net: ConvNet, weight: Tensor, x: Float[Tensor, "H W n"]) -> Float[Tensor, "R h C w n"]:
    """The first convolution of all runs."""
    rows = windows(shifted(x.unsqueeze(1), net.kernels[0]), net.kernels[0])
    h, n = len(rows), x.shape[2]
    return torch.bmm(weight.expand(h, -1, -1), rows).view(h, -1, net.channels[0], h, n).transpose(0, 1)


def _second(net: ConvNet, terms: list[tuple[Tensor, Tensor]]) -> Float[Tensor, "R h C w n"]:
    """Sum of second convolutions: of weights (R, C, kkC) and the windows (R, h, kkC, wn) of a map."""
    R, h, _, wide = terms[0][1].shape
    out = terms[0][1].new_empty(R, h, net.channels[1], wide)
    for r in range(R):
        for k, (weight, rows) in enumerate(terms):
            if k:
                out[r].baddbmm_(weight[r].expand(h, -1, -1), rows[r])
            else:
                torch.bmm(weight[r].expand(h, -1, -1), rows[r], out=out[r])
    return out.view(R, h, net.channels[1], h, wide // h)


def _forward(net: ConvNet, w: Weights, x: Float[Tensor, "H W n"], keep: bool) -> tuple[Tensor, Maps]:
    k = net.kernels[1]
    z1 = _first(net, w.first, x)
    h1 = pooled(z1, w.first_bias, keep)
    z2 = _second(net, [(w.second, windows(shifted(h1, k), k))])
    h2 = pooled(z2, w.second_bias, keep)
    h3 = torch.baddbmm(w.shared_bias, w.shared, h2.view(len(h2), -1, x.shape[2])).relu_()
    return torch.baddbmm(w.heads_bias, w.heads, h3), Maps(x, z1, h1, z2, h2, h3)


def backward(net: ConvNet, w: Weights, kept: list[Maps], slopes: Sequence[Float[Tensor, "R TC B"]]) -> list[Weights]:
    """For each of `slopes`: sum over pictures and scores of the slope times the gradient of the score, for each run."""
    totals = [_zeros(w) for _ in slopes]
    parts = [part.split(CHUNK, dim=2) for part in slopes]
    for k, maps in enumerate(kept):
        _backward(net, w, maps, [part[k].contiguous() for part in parts], totals)
    return totals


def _zeros(w: Weights) -> Weights:
    return Weights(*(torch.zeros(part.shape, dtype=part.dtype, device=part.device) for part in w))


def _backward(net: ConvNet, w: Weights, maps: Maps, slopes: list[Tensor], totals: list[Weights]) -> None:
    x, at1, h1, at2, h2, h3 = maps
    R, h, C, _, n = at2.shape
    f, S = h2.view(R, -1, n), len(slopes)
    up = at2.new_empty(R, h, S, C, h, n)
    for s, (dz, total) in enumerate(zip(slopes, totals, strict=True)):
        d = alive(torch.bmm(w.heads.mT, dz), h3)
        _affine(total.heads, total.heads_bias, dz, h3)
        _affine(total.shared, total.shared_bias, d, f)
        d = alive(torch.bmm(w.shared.mT, d).view_as(h2), h2)
        total.second_bias.add_(d.sum((1, 3, 4), keepdim=True))
        spread(d, at2, up[:, :, s])
    weight = _second_weight(up, shifted(h1, net.kernels[1]), net)
    onto = at1.new_empty(at1.shape[1], S, R, *at1.shape[2:])
    for s, total in enumerate(totals):
        total.second.add_(weight[:, s * C : (s + 1) * C])
        d = alive(_second_input([(w.second, up[:, :, s])], net), h1)
        total.first_bias.add_(d.sum((1, 3, 4), keepdim=True))
        spread(d, at1, onto[:, s].transpose(0, 1))
    for total, part in zip(totals, _first_weight(onto, x, net).view(S, *w.first.shape), strict=True):
        total.first.add_(part)


def _affine(weight: Tensor, bias: Tensor, d: Float[Tensor, "R a n"], h: Float[Tensor, "R b n"]) -> None:
    """Adds the gradients of weights and biases of a linear layer with input h."""
    weight.baddbmm_(d, h.mT)
    bias.add_(d.sum(2, keepdim=True))


def _first_weight(onto: Float[Tensor, "h *RC w n"], x: Float[Tensor, "H W n"], net: ConvNet) -> Float[Tensor, "SRC kk"]:
    h, n, k = len(onto), x.shape[2], net.kernels[0]
    return torch.bmm(onto.view(h, -1, h * n), windows(shifted(x.unsqueeze(1), k), k).mT).sum(0)


def _second_weight(
    up: Float[Tensor, "R h S C w n"], rows: Float[Tensor, "R H kC w n"], net: ConvNet
) -> Float[Tensor, "R SC kkC"]:
    R, h = up.shape[:2]
    flat, seen = up.view(R, h, -1, up.shape[4] * up.shape[5]), windows(rows, net.kernels[1])
    return torch.stack([torch.bmm(flat[r], seen[r].mT).sum(0) for r in range(R)])


def _second_input(terms: list[tuple[Tensor, Tensor]], net: ConvNet) -> Float[Tensor, "R H C W n"]:
    """Sum of adjoints of second convolutions in their input: of weights (R, C2, kkC) and slopes (R, h, C2, w, n)."""
    (R, h, _, w, n), k, C = terms[0][1].shape, net.kernels[1], net.channels[0]
    rows = terms[0][1].new_zeros(R, (h + k - 1) * k * C, w * n)
    for r in range(R):
        for weight, up in terms:
            for y in range(h):  # k consecutive rows of the map, k shifts of each
                rows[r, y * k * C : (y + k) * k * C].addmm_(weight[r].mT, up[r, y].reshape(-1, w * n))
    shifts = rows.view(R, h + k - 1, k, C, w, n)
    out = shifts.new_zeros(R, h + k - 1, C, w + k - 1, n)
    for j in range(k):
        out[..., j : j + w, :].add_(shifts[:, :, j])
    return out


def curvature(
    net: ConvNet,
    w: Weights,
    kept: list[Maps],
    v: Weights,
    slopes: Float[Tensor, "R TC B"],
    bent: Callable[..., Tensor],
) -> Weights:
    """Hessian product of a function of the scores (Pearlmutter 1994): the change along v of `backward` with slopes that
    change with the scores. bent(dz, here=slice): change of the slopes of some pictures when their scores change by dz, both
    (R, TC, n).

    Pooling and ReLU are linear where they stand, as in automatic differentiation.
    """
    total = _zeros(w)
    for k, maps in enumerate(kept):
        here = slice(k * CHUNK, k * CHUNK + maps.x.shape[2])
        _curvature(net, w, maps, v, slopes[..., here].contiguous(), partial(bent, here=here), total)
    return total


def _curvature(
    net: ConvNet, w: Weights, maps: Maps, v: Weights, dz: Tensor, bent: Callable[[Tensor], Tensor], total: Weights
) -> None:
    x, at1, h1, at2, h2, h3 = maps
    R, n, k = len(h1), x.shape[2], net.kernels[1]
    f = h2.view(R, -1, n)
    # changes along v, layer by layer
    t1 = alive(gathered(_first(net, v.first, x), at1).add_(v.first_bias), h1)
    seen, moved = shifted(h1, k), shifted(t1, k)
    z2 = _second(net, [(v.second, windows(seen, k)), (w.second, windows(moved, k))])
    t2 = alive(gathered(z2, at2).add_(v.second_bias), h2).view(R, -1, n)
    t3 = alive(torch.baddbmm(v.shared_bias, v.shared, f).baddbmm_(w.shared, t2), h3)
    turned = bent(torch.baddbmm(v.heads_bias, v.heads, h3).baddbmm_(w.heads, t3))
    # slopes d and their changes e, back again
    _affine(total.heads, total.heads_bias, turned, h3)
    total.heads.baddbmm_(dz, t3.mT)
    d, e = alive(torch.bmm(w.heads.mT, dz), h3), alive(torch.bmm(v.heads.mT, dz).baddbmm_(w.heads.mT, turned), h3)
    _affine(total.shared, total.shared_bias, e, f)
    total.shared.baddbmm_(d, t2.mT)
    e = alive(torch.bmm(v.shared.mT, d).baddbmm_(w.shared.mT, e).view_as(h2), h2)
    d = alive(torch.bmm(w.shared.mT, d).view_as(h2), h2)
    total.second_bias.add_(e.sum((1, 3, 4), keepdim=True))
    up, turned = torch.empty_like(at2), torch.empty_like(at2)
    spread(d, at2, up)
    spread(e, at2, turned)
    total.second.add_(_second_weight(turned.unsqueeze(2), seen, net)).add_(_second_weight(up.unsqueeze(2), moved, net))
    e = alive(_second_input([(v.second, up), (w.second, turned)], net), h1)
    total.first_bias.add_(e.sum((1, 3, 4), keepdim=True))
    onto = at1.new_empty(at1.shape[1], R, *at1.shape[2:])
    spread(e, at1, onto.transpose(0, 1))
    total.first.add_(_first_weight(onto, x, net))


class Part(NamedTuple):
    """Runs (their places among all) that share pictures, the labels of each task with them."""

    runs: Int[Tensor, " r"]
    pictures: Float[Tensor, "B H W"]
    labels: Int[Tensor, "T B"]


class _Pass(NamedTuple):
    """A forward pass of a part: weights, maps, losses, probabilities and slopes (p - label) / B of the scores."""

    w: Weights
    maps: list[Maps]
    losses: Float[Tensor, "r T"]
    p: Float[Tensor, "r T C B"]
    slopes: Float[Tensor, "r T C B"]


class CrossEntropies(Linear):
    """f_m = (1/B) sum_i -log softmax(z_m(theta; picture_i))_(label_im) of R networks, and its derivatives.

    `keep`: one forward pass serves all answers; else each answer makes its own, part by part, and memory holds one part.
    """

    def __init__(self, net: ConvNet, x: Float[Tensor, "R P"], parts: Sequence[Part], keep: bool) -> None:
        self.net, self.x, self.parts, self.keep = net, x.detach(), parts, keep
        self._passes: list[_Pass | None] = [None] * len(parts)
        self._values: Tensor | None = None

    def _pass(self, k: int, keep: bool = True) -> _Pass:
        found = self._passes[k]
        if found is None:
            part = self.parts[k]
            w = weights(self.net, self.x[part.runs])
            z, maps = forward(self.net, w, part.pictures, keep)
            log_p = nn.log_softmax(z.view(len(part.runs), self.net.tasks, self.net.classes, -1), dim=2)
            wanted = part.labels.expand(len(z), *part.labels.shape).unsqueeze(2)
            losses = -log_p.gather(2, wanted).squeeze(2).mean(2)
            p = log_p.exp_()
            slopes = p.scatter_add(2, wanted, p.new_full((), -1.0).expand(wanted.shape)) / p.shape[3]
            found = _Pass(w, maps, losses, p, slopes)
            if keep and self.keep:
                self._passes[k] = found
        return found

    def values(self, keep: bool) -> Float[Tensor, "R M"]:
        if self._values is None:
            out = self.x.new_empty(len(self.x), self.net.tasks)
            with torch.no_grad():
                for k, part in enumerate(self.parts):
                    out[part.runs] = self._pass(k, keep and self.keep).losses
            self._values = out
        return self._values

    def rows(self) -> Float[Tensor, "R M P"]:
        T = self.net.tasks
        units = torch.eye(T, dtype=self.x.dtype, device=self.x.device)
        return torch.stack(self._pulled([units[m].expand(len(self.x), T) for m in range(T)]), dim=1)

    def pull(self, w: Float[Tensor, "R M"]) -> Float[Tensor, "R P"]:
        return self._pulled([w])[0]

    @torch.no_grad()
    def _pulled(self, weightings: Sequence[Float[Tensor, "R M"]]) -> list[Float[Tensor, "R P"]]:
        """J^T w for each of some w."""
        out = [torch.empty_like(self.x) for _ in weightings]
        for k, part in enumerate(self.parts):
            own = self._pass(k)
            slopes = [(own.slopes * w[part.runs, :, None, None]).flatten(1, 2) for w in weightings]
            for target, found in zip(out, backward(self.net, own.w, own.maps, slopes), strict=True):
                target[part.runs] = vector(self.net, found)
        return out

    @torch.no_grad()
    def hvp(self, w: Float[Tensor, "R M"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        out = torch.empty_like(self.x)
        for k, part in enumerate(self.parts):
            own, some = self._pass(k), w[part.runs, :, None, None]

            def bent(dz: Tensor, here: slice, own: _Pass = own, some: Tensor = some) -> Tensor:
                p = own.p[..., here]
                moved = p * dz.view_as(p)
                moved -= p * moved.sum(2, keepdim=True)
                return (moved * (some / own.p.shape[3])).flatten(1, 2)

            slopes = (own.slopes * some).flatten(1, 2)
            along = weights(self.net, v[part.runs])
            out[part.runs] = vector(self.net, curvature(self.net, own.w, own.maps, along, slopes, bent))
        return out
