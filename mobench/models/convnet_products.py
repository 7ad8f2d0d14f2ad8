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

# bytes of the first layer's shifted rows in a chunk, which stay in a cache of 2 MB: 32 pictures of LeNet in float32
CACHED = 1_200_000


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
    """What one chunk leaves for its derivatives. at1, at2: 1 where a window of the pooling has its maximum, else 0. Columns
    are split into even and odd ones, so that the four corners of all windows of a row lie side by side."""

    rows: Float[Tensor, "h kk wn"]
    at1: Float[Tensor, "R h C 2 v n"]
    h1: Float[Tensor, "R g C v n"]
    at2: Float[Tensor, "R h C 2 v n"]
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


def shifted(x: Float[Tensor, "H C W n"], k: int, split: bool = False) -> Float[Tensor, "H kC w n"]:
    """Each row k times, shifted by 0 .. k-1 columns, of which an even number w <= W - k + 1 is kept: the pooling sees no
    other. `split`: even columns before odd ones."""
    H, C, W, n = x.shape
    v = (W - k + 1) // 2
    out = x.new_empty(H, k, C, 2 * v, n)
    if split:
        for odd in (0, 1):
            taken = x[:, :, odd:].unfold(2, 2 * v - 1, 1)[:, :, :k, :, ::2]  # (H, C, k, n, v)
            out[..., odd * v : (odd + 1) * v, :].copy_(taken.permute(0, 2, 1, 4, 3))
    else:
        out.copy_(x.unfold(2, 2 * v, 1)[:, :, :k].permute(0, 2, 1, 4, 3))
    return out.view(H, k * C, 2 * v, n)


def windows(x: Float[Tensor, "H kC w n"], k: int) -> Float[Tensor, "h kkC wn"]:
    """k consecutive rows at a time, one below the other: an overlapping view. An even number h <= H - k + 1 of them."""
    H, rows, w, n = x.shape
    step = rows * w * n
    return x.as_strided(((H - k + 1) // 2 * 2, k * rows, w * n), (step, w * n, 1))


def halves(x: Float[Tensor, "R h C w n"]) -> Float[Tensor, "R h C 2 v n"]:
    """Even and odd columns: a view."""
    return x.unflatten(3, (-1, 2)).transpose(3, 4)


def corners(x: Float[Tensor, "R h C 2 v n"]) -> list[Float[Tensor, "R g C v n"]]:
    """The four entries of each 2 x 2 window, row by row."""
    return [x[:, i::2, :, j] for i in (0, 1) for j in (0, 1)]


def pooled(z: Float[Tensor, "R h C 2 v n"], bias: Float[Tensor, "R 1 C 1 1"], keep: bool) -> Float[Tensor, "R g C v n"]:
    """ReLU of the maxima of 2 x 2 windows plus the bias. With `keep` z becomes 1 at the maximum of each window (the first
    of equal ones, as PyTorch's max-pooling), 0 elsewhere."""
    a, b, c, d = corners(z)
    R, g, C, v, n = a.shape
    upper, lower, out = z.new_empty(3, R, g, C, v, n)
    torch.maximum(a, b, out=upper)
    torch.maximum(c, d, out=lower)
    torch.maximum(upper, lower, out=out)
    if keep:
        above = upper.ge_(lower)
        torch.sub(above, a.ge_(b).mul_(above), out=b)
        below = torch.sub(1.0, above, out=lower)
        torch.sub(below, c.ge_(d).mul_(below), out=d)
    return out.add_(bias).relu_()


def spread(g: Float[Tensor, "R g C v n"], at: Float[Tensor, "R h C 2 v n"], out: Float[Tensor, "R h C 2 v n"]) -> None:
    """The adjoint of the pooling: each entry of g at the maximum of its window, 0 elsewhere."""
    for mark, part in zip(corners(at), corners(out), strict=True):
        torch.mul(mark, g, out=part)


def gathered(z: Float[Tensor, "R h C 2 v n"], at: Float[Tensor, "R h C 2 v n"]) -> Float[Tensor, "R g C v n"]:
    """The entries of z at the maxima."""
    first, *others = zip(corners(at), corners(z), strict=True)
    found = first[0] * first[1]
    for mark, part in others:
        found.addcmul_(mark, part)
    return found


def alive(g: Tensor, h: Tensor) -> Tensor:
    """g where the ReLU h is above 0, else 0."""
    found: Tensor = torch.ops.aten.threshold_backward(g, h, 0)
    return found


def chunk(net: ConvNet, pictures: Float[Tensor, "B H W"]) -> int:
    """Pictures of a chunk: as many as `CACHED` allows, in chunks of nearly equal size, a multiple of 16 (whole vectors)."""
    side, k = pictures.shape[2] // net.shrink, net.kernels[0]
    most = max(16, CACHED // (side * k * (side - k + 1) * pictures.element_size()) // 16 * 16)
    chunks = -(-len(pictures) // most)
    return -(-len(pictures) // chunks // 16) * 16


def forward(
    net: ConvNet, w: Weights, pictures: Float[Tensor, "B H W"], keep: bool
) -> tuple[Float[Tensor, "R TC B"], list[Maps]]:
    """Scores of all runs; with `keep` what their derivatives need."""
    scores, kept = [], []
    for part in pictures.split(chunk(net, pictures)):
        x = nn.avg_pool2d(part.unsqueeze(1), net.shrink).squeeze(1) if net.shrink > 1 else part
        z, maps = _forward(net, w, x.permute(1, 2, 0).contiguous(), keep)
        scores.append(z)
        if keep:
            kept.append(maps)
    return torch.cat(scores, dim=2), kept


def _first(
    net: ConvNet, weight: Float[Tensor, "RC kk"], rows: Float[Tensor, "h kk wn"]
) -> Float[Tensor, "R h C 2 v n"]:
    """The first convolution of all runs."""
    h = len(rows)
    return (
        torch.bmm(weight.expand(h, -1, -1), rows)
        .view(h, -1, net.channels[0], 2, h // 2, rows.shape[2] // h)
        .transpose(0, 1)
    )


def _second(terms: list[tuple[Tensor, Tensor]], out: Float[Tensor, "h C w n"]) -> None:
    """out: sum of second convolutions of one run, of weights (C, kkC) and windows (h, kkC, wn) of a map."""
    flat = out.flatten(2)
    for k, (weight, rows) in enumerate(terms):
        if k:
            flat.baddbmm_(weight.expand(len(rows), -1, -1), rows)
        else:
            torch.bmm(weight.expand(len(rows), -1, -1), rows, out=flat)


def _second_maps(net: ConvNet, h1: Float[Tensor, "R H C1 W n"]) -> Float[Tensor, "R h C w n"]:
    """Memory for the results of second convolutions."""
    even = (h1.shape[1] - net.kernels[1] + 1) // 2 * 2
    return h1.new_empty(len(h1), even, net.channels[1], even, h1.shape[4])


def _forward(net: ConvNet, w: Weights, x: Float[Tensor, "H W n"], keep: bool) -> tuple[Tensor, Maps]:
    k1, k = net.kernels
    rows = windows(shifted(x.unsqueeze(1), k1, split=True), k1)  # the pictures' only trace in `Maps`
    z1 = _first(net, w.first, rows)
    h1 = pooled(z1, w.first_bias, keep)
    z2 = _second_maps(net, h1)
    for r, seen in enumerate(h1):
        _second([(w.second[r], windows(shifted(seen, k), k))], z2[r])
    h2 = pooled(halves(z2), w.second_bias, keep)
    h3 = torch.baddbmm(w.shared_bias, w.shared, h2.flatten(1, 3)).relu_()
    return torch.baddbmm(w.heads_bias, w.heads, h3), Maps(rows, z1, h1, halves(z2), h2, h3)


def backward(net: ConvNet, w: Weights, kept: list[Maps], slopes: Sequence[Float[Tensor, "R TC B"]]) -> list[Weights]:
    """For each of `slopes`: sum over pictures and scores of the slope times the gradient of the score, for each run."""
    totals = [_zeros(w) for _ in slopes]
    parts = [part.split([maps.h3.shape[2] for maps in kept], dim=2) for part in slopes]
    for k, maps in enumerate(kept):
        _backward(net, w, maps, [part[k].contiguous() for part in parts], totals)
    return totals


def _zeros(w: Weights) -> Weights:
    return Weights(*(torch.zeros(part.shape, dtype=part.dtype, device=part.device) for part in w))


def _backward(net: ConvNet, w: Weights, maps: Maps, slopes: list[Tensor], totals: list[Weights]) -> None:
    rows, at1, h1, at2, h2, h3 = maps
    R, h, C, _, v, n = at2.shape
    f, S = h2.flatten(1, 3), len(slopes)
    up = at2.new_empty(R, h, S, C, 2 * v, n)
    for s, (dz, total) in enumerate(zip(slopes, totals, strict=True)):
        d = alive(torch.bmm(w.heads.mT, dz), h3)
        _affine(total.heads, total.heads_bias, dz, h3)
        _affine(total.shared, total.shared_bias, d, f)
        d = alive(torch.bmm(w.shared.mT, d).view_as(h2), h2)
        total.second_bias.add_(d.sum((1, 3, 4), keepdim=True))
        spread(d, at2, halves(up[:, :, s]))
    for r, seen in enumerate(h1):
        weight = _second_weight(up[r].flatten(1, 2), windows(shifted(seen, net.kernels[1]), net.kernels[1]))
        for total, part in zip(totals, weight.split(C), strict=True):
            total.second[r].add_(part)
    below = []
    for s, total in enumerate(totals):
        d = torch.empty_like(h1)
        for r in range(R):
            _second_input(net, [(w.second[r], up[r, :, s])], d[r])
        below.append(alive(d, h1))
        total.first_bias.add_(below[s].sum((1, 3, 4), keepdim=True))
    for total, part in zip(totals, _first_weight(below, at1, rows).split(len(w.first)), strict=True):
        total.first.add_(part)


def _affine(weight: Tensor, bias: Tensor, d: Float[Tensor, "R a n"], h: Float[Tensor, "R b n"]) -> None:
    """Adds the gradients of weights and biases of a linear layer with input h."""
    weight.baddbmm_(d, h.mT)
    bias.add_(d.sum(2, keepdim=True))


def _first_weight(
    slopes: list[Float[Tensor, "R g C v n"]], at: Float[Tensor, "R h C 2 v n"], rows: Float[Tensor, "h kk wn"]
) -> Float[Tensor, "SRC kk"]:
    """Two rows at a time, `spread` and the product with it, while what is spread is in the cache."""
    marks, pairs = at.transpose(0, 1).unflatten(0, (-1, 2)), rows.mT.unflatten(0, (-1, 2))
    R, _, C, v, n = slopes[0].shape
    onto = rows.new_empty(2, len(slopes), R, C, 2, v, n)
    out = rows.new_zeros(2, len(slopes) * R * C, rows.shape[1])
    for y in range(len(marks)):
        for s, d in enumerate(slopes):
            torch.mul(marks[y], d[:, y].unsqueeze(2), out=onto[:, s])
        out.baddbmm_(onto.flatten(1, 3).flatten(2), pairs[y])
    return out.sum(0)


def _second_weight(up: Float[Tensor, "h SC w n"], rows: Float[Tensor, "h kkC wn"]) -> Float[Tensor, "SC kkC"]:
    return torch.bmm(rows, up.flatten(2).mT).sum(0).mT


def _second_input(net: ConvNet, terms: list[tuple[Tensor, Tensor]], out: Float[Tensor, "H C W n"]) -> None:
    """out: sum of adjoints of second convolutions of one run in their input, of weights (C2, kkC) and slopes (h, C2, w, n)."""
    (h, _, w, n), k, C = terms[0][1].shape, net.kernels[1], net.channels[0]
    rows = out.new_zeros((h + k - 1) * k * C, w * n)
    for weight, up in terms:
        for y in range(h):  # k consecutive rows of the map, k shifts of each
            rows[y * k * C : (y + k) * k * C].addmm_(weight.mT, up[y].flatten(1))
    shifts = rows.view(h + k - 1, k, C, w, n)
    out[:, :, w:].zero_()
    out[h + k - 1 :].zero_()
    out[: h + k - 1, :, :w] = shifts[:, 0]
    for j in range(1, k):
        out[: h + k - 1, :, j : j + w].add_(shifts[:, j])


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
    end = 0
    for maps in kept:
        here = slice(end, end := end + maps.h3.shape[2])
        _curvature(net, w, maps, v, slopes[..., here].contiguous(), partial(bent, here=here), total)
    return total


def _curvature(
    net: ConvNet, w: Weights, maps: Maps, v: Weights, dz: Tensor, bent: Callable[[Tensor], Tensor], total: Weights
) -> None:
    rows, at1, h1, at2, h2, h3 = maps
    R, k, f = len(h1), net.kernels[1], h2.flatten(1, 3)
    # changes along v, layer by layer
    t1 = alive(gathered(_first(net, v.first, rows), at1).add_(v.first_bias), h1)
    z2 = _second_maps(net, h1)
    for r in range(R):
        seen, moved = windows(shifted(h1[r], k), k), windows(shifted(t1[r], k), k)
        _second([(v.second[r], seen), (w.second[r], moved)], z2[r])
    t2 = alive(gathered(halves(z2), at2).add_(v.second_bias), h2).flatten(1, 3)
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
    up, turned, back = _second_maps(net, h1), _second_maps(net, h1), torch.empty_like(h1)
    spread(d, at2, halves(up))
    spread(e, at2, halves(turned))
    for r in range(R):
        seen, moved = windows(shifted(h1[r], k), k), windows(shifted(t1[r], k), k)
        total.second[r].add_(_second_weight(turned[r], seen)).add_(_second_weight(up[r], moved))
        _second_input(net, [(v.second[r], up[r]), (w.second[r], turned[r])], back[r])
    e = alive(back, h1)
    total.first_bias.add_(e.sum((1, 3, 4), keepdim=True))
    total.first.add_(_first_weight([e], at1, rows))


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
