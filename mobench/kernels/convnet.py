"""The networks of `convnet` on a CPU, by matrix products on chunks of pictures that stay in the cache.

Gradients are in closed form.

With the pictures innermost, (row, channel, column, picture), k consecutive rows of a map are k C W n
consecutive numbers. If they hold k copies of each row, shifted by 0 .. k-1 columns, a row of a convolution is
one product of its weights with an overlapping view: nothing is copied k^2 times, and max-pooling, ReLU and
sums over shifts are sweeps over consecutive numbers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.point import Linear
from mobench.kernels.compiled import on_cpu
from mobench.kernels.pooling import marked, maxima

if TYPE_CHECKING:
    from mobench.models.convnet import ConvNet

# bytes of the first layer's shifted rows in a chunk: 64 pictures of LeNet in float32, the fastest with 2 MB
# of cache a core
CACHED = 2_400_000
# bytes of rows of the first layer of all runs that are pooled at a time
BLOCK = 500_000
# maps of the first layer of all runs that are computed together
STACKED = 64


class Room(threading.local):
    """Memory of this thread that chunks use one after the other.

    In fresh memory a page costs more than the numbers that are written to it. The room is as large as the
    largest chunk so far, 15 MB for a LeNet.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """Memory of that name, with arbitrary numbers."""
        size = math.prod(shape)
        key = name, like.dtype, like.device
        part = self._parts.get(key)
        if part is None or part.numel() < size:
            with torch.inference_mode(False):  # out of that mode, too, it may be written to
                part = self._parts[key] = torch.empty(size, dtype=like.dtype, device=like.device)
        return part[:size].view(*shape)


def fresh(name: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """New memory."""
    return like.new_empty(*shape)


Take = Callable[[str, Sequence[int], Tensor], Tensor]
ROOM = Room()


class Weights(NamedTuple):
    """Parameters in the order in which products take them; the heads of all tasks below each other."""

    first: Float[Tensor, "RC kk"]
    first_bias: Float[Tensor, "RC 1 1"]
    second: Float[Tensor, "R C kkC"]
    second_bias: Float[Tensor, "R C 1 1"]
    shared: Float[Tensor, "R H D"]
    shared_bias: Float[Tensor, "R H 1"]
    heads: Float[Tensor, "R TC H"]
    heads_bias: Float[Tensor, "R TC 1"]


class Maps(NamedTuple):
    """Arrays for the derivatives of a chunk.

    at1, at2: which corner of each window of the pooling is its maximum, in the numbering of `pooling`.
    Columns of the first layer are split into even and odd ones.
    """

    rows: Float[Tensor, "h kk wn"]
    at1: Float[Tensor, "g RC v n"]
    h1: Float[Tensor, "g RC v n"]
    at2: Float[Tensor, "R g C v n"]
    h2: Float[Tensor, "R D n"]
    h3: Float[Tensor, "R H n"]
    second: _Second | None = None
    """The second convolution with its input, of a run alone and until the next chunk; None elsewhere."""


def weights(net: ConvNet, theta: Float[Tensor, "R P"]) -> Weights:
    """Views and permuted copies of the parameter vectors."""
    W1, b1, W2, b2, W3, b3, *heads = net.split(theta)
    R = len(theta)
    side = net.side
    return Weights(
        W1.reshape(R * net.channels[0], -1),
        b1.reshape(-1, 1, 1),
        W2.permute(0, 1, 3, 4, 2).reshape(R, net.channels[1], -1),
        b2.view(R, -1, 1, 1),
        W3.view(R, net.hidden, net.channels[1], side, side).transpose(2, 3).reshape(R, net.hidden, -1),
        b3.unsqueeze(2),
        torch.cat(heads[::2], dim=1),
        torch.cat(heads[1::2], dim=1).unsqueeze(2),
    )


def vector(net: ConvNet, w: Weights) -> Float[Tensor, "R P"]:
    """The inverse of `weights`, for gradients."""
    R = len(w.second)
    c1, c2 = net.channels
    _, k2 = net.kernels
    side = net.side
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


def shifted(x: Float[Tensor, "H W n"], k: int, take: Take = fresh) -> Float[Tensor, "H k w n"]:
    """Each row k times, shifted by 0 .. k-1 columns, with even columns before odd ones.

    The number of columns is the largest even w <= W - k + 1: the pooling uses no others.
    """
    H, W, n = x.shape
    v = (W - k + 1) // 2
    out = take("rows", (H, k, 2 * v, n), x)
    kernel = on_cpu("kernels.windows", x)
    if kernel is not None:
        kernel.shift(x.numpy(), out.numpy())
        return out
    for odd in (0, 1):
        taken = x[:, odd:].unfold(1, 2 * v - 1, 1)[:, :k, :, ::2]  # (H, k, n, v)
        out[:, :, odd * v : (odd + 1) * v].copy_(taken.permute(0, 1, 3, 2))
    return out


def windows(x: Float[Tensor, "H kC w n"], k: int) -> Float[Tensor, "h kkC wn"]:
    """k consecutive rows at a time, one below the other: an overlapping view.

    An even number h <= H - k + 1 of them.
    """
    H, rows, w, n = x.shape
    step = rows * w * n
    return x.as_strided(((H - k + 1) // 2 * 2, k * rows, w * n), (step, w * n, 1))


def halves(x: Float[Tensor, "*h C w n"]) -> Float[Tensor, "*h C 2 v n"]:
    """Even and odd columns: a view."""
    return x.unflatten(-2, (-1, 2)).transpose(-3, -2)


def corners(x: Float[Tensor, "h C 2 v n"]) -> list[Float[Tensor, "g C v n"]]:
    """The four entries of each 2 x 2 window, row by row."""
    return [x[i::2, :, j] for i in (0, 1) for j in (0, 1)]


def pooled(
    z: Sequence[Float[Tensor, "g C v n"]],
    bias: Float[Tensor, "C 1 1"],
    out: Float[Tensor, "g C v n"],
    at: Float[Tensor, "g C v n"] | None = None,
) -> None:
    """out: ReLU of the maxima of windows z, a tensor for each corner, plus the bias; z is used up.

    at: see `maxima`.
    """
    torch.add(maxima(z, at), bias, out=out).relu_()


def gathered(
    z: Sequence[Float[Tensor, "g C v n"]],
    marks: Sequence[Float[Tensor, "g C v n"]],
    bias: Float[Tensor, "C 1 1"],
) -> Float[Tensor, "g C v n"]:
    """The entries of windows z at the marked corners, plus the bias."""
    out = bias
    for mark, corner in zip(marks, z, strict=True):
        out = torch.addcmul(out, mark, corner)
    return out


def spread(
    d: Float[Tensor, "g S C v n"], marks: Float[Tensor, "h C 2 v n"], out: Float[Tensor, "h S C 2 v n"]
) -> None:
    """The adjoint of the pooling along S slopes: each entry of d at its window's maximum, 0 elsewhere."""
    torch.mul(
        marks.unflatten(0, (-1, 2)).unsqueeze(2), d.unsqueeze(1).unsqueeze(4), out=out.unflatten(0, (-1, 2))
    )


def add_product(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Adds the product of two matrices, or of two batches of them, to c in place."""
    return c.addmm_(a, b) if c.ndim == 2 else c.baddbmm_(a, b)


def alive(g: Tensor, h: Tensor, out: Tensor | None = None) -> Tensor:
    """g where the ReLU h is above 0, else 0."""
    result: Tensor = (
        torch.ops.aten.threshold_backward(g, h, 0)
        if out is None
        else torch.ops.aten.threshold_backward(g, h, 0, grad_input=out)
    )
    return result


def memory(x: Tensor) -> Any:
    """The numbers from the first of x to its last, as an array."""
    if x.is_contiguous():
        return x.view(-1).numpy()
    last = sum((n - 1) * apart for n, apart in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((last + 1,), (1,)).numpy()


def pool(
    z: Float[Tensor, "h C 2 v n"],
    bias: Float[Tensor, "C 1 1"],
    out: Float[Tensor, "g C v n"],
    at: Float[Tensor, "g C v n"] | None = None,
) -> None:
    """out: ReLU of the maxima of windows plus the bias. at: see `maxima`. z may be used up."""
    kernel = on_cpu("kernels.windows", z)
    if kernel is None:
        pooled(corners(z), bias, out, at)
        return
    zs = z.stride()
    os = out.stride()
    places = out if at is None else at
    assert zs[-1] == os[-1] == 1
    assert places.stride() == os
    assert bias.is_contiguous()
    G, C, V, n = out.shape
    if zs[3] == os[2] == n:  # columns follow each other
        n *= V
        V = 1
    kernel.pool(
        memory(z), zs[:4], memory(bias), memory(out), memory(places), os[:3], (G, C, V, n), at is not None
    )


class Unpooling:
    """The adjoint of the pooling along S slopes: each entry of d at the maximum of its window, 0 elsewhere.

    out: where it is written, some rows of windows at a time. h: the adjoint of the ReLU before it; d is 0
    then where h is.
    """

    def __init__(
        self,
        d: Float[Tensor, "G S C v n"],
        at: Float[Tensor, "G C v n"],
        out: Float[Tensor, "h S C 2 v n"],
        h: Float[Tensor, "G C v n"] | None = None,
    ) -> None:
        self._kernel = on_cpu("kernels.windows", d)
        self._rows = len(out) // 2
        self._arguments = (d, at, out, h)
        if self._kernel is None:
            marks = at.new_empty(len(out), at.shape[1], 2, *at.shape[2:])
            self._marks = marks
            self._corners = corners(marks)
            return
        ds = d.stride()
        hs = at.stride()
        os = out.stride()
        reached = at if h is None else h
        assert ds[-1] == hs[-1] == os[-1] == 1
        assert reached.stride() == hs
        _, S, C, V, n = d.shape
        if ds[3] == hs[2] == os[4] == n:  # columns follow each other
            n *= V
            V = 1
        self._call = (memory(d), ds[:4], memory(reached), memory(at), hs[:3], memory(out), os[:5])
        self._sizes = (self._rows, S, C, V, n)

    def __call__(self, first: int = 0) -> None:
        """Writes the adjoint of the rows of windows from `first` on."""
        d, at, out, h = self._arguments
        if self._kernel is not None:
            self._kernel.spread(*self._call, self._sizes, h is not None, first)
            return
        here = slice(first, first + self._rows)
        if h is not None:
            alive(d[here], h[here].unsqueeze(1).expand(d[here].shape), out=d[here])
        marked(at[here], self._corners)
        spread(d[here], self._marks, out)


def chunk(net: ConvNet, pictures: Float[Tensor, "B H W"]) -> int:
    """Pictures of a chunk, a multiple of 16 (whole vectors), for chunks of nearly equal size <= `CACHED`."""
    side = pictures.shape[2] // net.shrink
    k = net.kernels[0]
    most = max(16, CACHED // (side * k * (side - k + 1) * pictures.element_size()) // 16 * 16)
    chunks = -(-len(pictures) // most)
    return -(-len(pictures) // chunks // 16) * 16


def forward(
    net: ConvNet, w: Weights, pictures: Float[Tensor, "B H W"], keep: bool, lasting: bool = False
) -> Iterator[tuple[Float[Tensor, "R TC n"], Maps | None]]:
    """Scores of all runs, chunk after chunk, and with `keep` the arrays for their derivatives.

    These are valid until the next chunk or, if `lasting`, for good.
    """
    take = fresh if lasting else ROOM.take
    for part in pictures.split(chunk(net, pictures)):
        x = nn.avg_pool2d(part.unsqueeze(1), net.shrink).squeeze(1) if net.shrink > 1 else part
        x = take("pictures", (*x.shape[1:], len(x)), x).copy_(x.permute(1, 2, 0))
        maps = _maps(net, w, shifted(x, net.kernels[0], take), keep, take)
        yield torch.baddbmm(w.heads_bias, w.heads, maps.h3), maps if keep else None


def stacked(net: ConvNet, count: int) -> int:
    """Into how many groups so many runs are divided."""
    return max(1, -(-count // max(1, STACKED // net.channels[0])))


def scores(
    net: ConvNet, theta: Float[Tensor, "R P"], pictures: Float[Tensor, "B H W"]
) -> Float[Tensor, "R TC B"]:
    """Returns the scores of all runs, without derivatives."""
    groups = []
    with torch.inference_mode():
        for some in theta.tensor_split(stacked(net, len(theta))):
            chunks = forward(net, weights(net, some), pictures, keep=False)
            groups.append(torch.cat([z for z, _ in chunks], dim=2))
    return torch.cat(groups)  # out of that mode: may be changed


def _blocks(
    weight: Float[Tensor, "RC kk"], rows: Float[Tensor, "h kk wn"], take: Take = fresh
) -> Iterator[tuple[slice, Float[Tensor, "b RC 2 v n"]]]:
    """The first convolution of all runs, some rows of windows (the slice) at a time, in the same memory."""
    h, _, wn = rows.shape
    RC = len(weight)
    step = 2 * min(h // 2, max(1, BLOCK // (2 * RC * wn * rows.element_size())))
    memory = take("z1", (step, RC, wn), rows)
    for y, some in zip(range(0, h, step), rows.split(step), strict=True):
        z = memory[: len(some)]
        torch.bmm(weight.expand(len(z), -1, -1), some, out=z)
        yield slice(y // 2, (y + len(z)) // 2), z.view(len(z), RC, 2, h // 2, -1)


class _Second:
    """The second convolution of one run after the other, in the same memory."""

    def __init__(self, net: ConvNet, h1: Float[Tensor, "g RC v n"], take: Take = fresh) -> None:
        H, _, _, n = h1.shape
        C = net.channels[0]
        k = net.kernels[1]
        self.even = even = (H - k + 1) // 2 * 2
        self._shifts = take("shifts", (H, k, C, even, n), h1)
        space = self._shifts.view(H, k * C, even, n)
        self.seen: Float[Tensor, "h kkC wn"] = windows(space, k)
        rows = space.view(H * k * C, even * n)
        self._rows = [rows[y * k * C : (y + k) * k * C] for y in range(even)]
        self._fresh = range(0, even // k * k, k)  # a k-th row is the first one to arrive where it does
        self._later = [y for y in range(even) if y not in self._fresh]
        self._rest = rows[len(self._fresh) * k * k * C :]

    def see(self, h1: Float[Tensor, "H C v n"]) -> Float[Tensor, "h kkC wn"]:
        """Returns its view of the maps of a run: k shifts of each row, k rows at a time."""
        H, k, C, w, n = self._shifts.shape
        apart, across, _, _ = h1.stride()
        taken = h1.as_strided((H, k, C, w * n), (apart, n, across, 1))
        self._shifts.flatten(3).copy_(taken)
        return self.seen

    def back(
        self, weight: Float[Tensor, "kkC K"], up: Float[Tensor, "h K wn"], out: Float[Tensor, "H C v n"]
    ) -> None:
        """out: the adjoint in its input, of slopes `up`, in the columns that it reaches.

        The view that `see` returned is overwritten.
        """
        above = up.unbind()
        self._rest.zero_()
        for y in self._fresh:
            torch.mm(weight, above[y], out=self._rows[y])
        for y in self._later:
            add_product(self._rows[y], weight, above[y])
        _, k, _, w, _ = self._shifts.shape
        kernel = on_cpu("kernels.windows", out)
        if kernel is not None:
            kernel.gather(self._shifts.numpy(), memory(out), out.stride()[:3])
            return
        out[:, :, w : w + k - 1].zero_()
        first, *others = self._shifts.unbind(1)
        out[:, :, :w].copy_(first)
        for j, moved in enumerate(others, start=1):
            out[:, :, j : j + w].add_(moved)


def _maps(net: ConvNet, w: Weights, x: Float[Tensor, "H k w n"], keep: bool, take: Take) -> Maps:
    """The maps of a chunk (its shifted rows), up to the last layer but one.

    Without `keep` the places of the maxima are arbitrary.
    """
    C1, C2 = net.channels
    R = len(w.second)
    n = x.shape[3]
    rows = windows(x, net.kernels[0])  # in `Maps` nothing else is left of the pictures
    g = len(rows) // 2
    h1 = take("h1", (g, R * C1, g, n), x)
    at1 = take("at1", h1.shape, x)
    for here, z1 in _blocks(w.first, rows, take):
        pool(z1, w.first_bias, h1[here], at1[here] if keep else None)
    second = _Second(net, h1, ROOM.take)
    h = second.even
    v = second.even // 2
    h2 = take("h2", (R, v, C2, v, n), x)
    at2 = take("at2", h2.shape, x)
    z2 = ROOM.take("z2", (h, C2, h, n), x)
    apart = halves(z2)
    for r, maps in enumerate(h1.split(C1, dim=1)):
        torch.bmm(w.second[r].expand(h, -1, -1), second.see(maps), out=z2.flatten(2))
        pool(apart, w.second_bias[r], h2[r], at2[r] if keep else None)
    h2 = h2.flatten(1, 3)
    h3 = torch.baddbmm(w.shared_bias, w.shared, h2).relu_()
    return Maps(rows, at1, h1, at2, h2, h3, second if R == 1 and take is not fresh else None)


class Sums(NamedTuple):
    """Gradients along S slopes, summed over chunks, in the shapes in which products add to them."""

    first: Float[Tensor, "2SRC kk+k"]
    first_bias: Float[Tensor, " SRC"]
    second: Float[Tensor, "R h kkC SC"]
    second_bias: Float[Tensor, "S R C 1 1"]
    shared: Float[Tensor, "S R H D"]
    shared_bias: Float[Tensor, "S R H 1"]
    heads: Float[Tensor, "S R TC H"]
    heads_bias: Float[Tensor, "S R TC 1"]
    below: Float[Tensor, "g S RC g n"]
    """No sum: memory for slopes of the first maps, 0 where no window of the second convolution reaches."""

    @classmethod
    def zero(cls, net: ConvNet, w: Weights, S: int, pictures: Float[Tensor, "B H W"]) -> Sums:
        R = len(w.second)
        C1, C2 = net.channels
        k1, k = net.kernels
        new = w.second.new_zeros
        g = (pictures.shape[2] // net.shrink - k1 + 1) // 2
        second_bias, shared, shared_bias, heads, heads_bias = (new(S, *part.shape) for part in w[3:])
        return cls(
            new(2 * S * R * C1, k1 * k1 + k1),
            new(S * R * C1),
            new(R, 2 * net.side, k * k * C1, S * C2),
            second_bias,
            shared,
            shared_bias,
            heads,
            heads_bias,
            new(g, S, R * C1, g, chunk(net, pictures)),
        )

    def gradients(self, net: ConvNet, S: int) -> list[Weights]:
        """Along each slope."""
        k = net.kernels[0]
        upper, lower = self.first.chunk(2)
        first = (upper[:, : k * k] + lower[:, k:]).chunk(S)
        first_bias = self.first_bias.view(-1, 1, 1).chunk(S)
        second = self.second.sum(1).mT.chunk(S, dim=1)
        return [
            Weights(first[s], first_bias[s], second[s], *(part[s] for part in self[3:8])) for s in range(S)
        ]

    def affine(self, s: int, maps: Maps, d3: Float[Tensor, "R H n"], dz: Float[Tensor, "R TC n"]) -> None:
        """Adds the gradients of the last two layers."""
        add_product(self.heads[s], dz, maps.h3.mT)
        self.heads_bias[s].add_(dz.sum(2, keepdim=True))
        add_product(self.shared[s], d3, maps.h2.mT)
        self.shared_bias[s].add_(d3.sum(2, keepdim=True))


def backward(
    net: ConvNet, w: Weights, maps: Maps, slopes: Sequence[Float[Tensor, "R TC n"]], sums: Sums
) -> None:
    """Adds, for each of `slopes`, the sum over pictures and scores of slope times gradient of the score."""
    _, _, h1, at2, h2, h3, seen = maps
    R, v, C2, _, n = at2.shape
    C = net.channels[0]
    S = len(slopes)
    d2 = ROOM.take("d2", (S, R, v, C2, v, n), h2)
    for s, dz in enumerate(slopes):
        d3 = alive(torch.bmm(w.heads.mT, dz), h3)
        sums.affine(s, maps, d3, dz)
        alive(torch.bmm(w.shared.mT, d3), h2, out=d2[s].view_as(h2))
    sums.second_bias.add_(d2.sum((2, 4, 5))[..., None, None])
    second = seen or _Second(net, h1, ROOM.take)
    up = ROOM.take("up", (2 * v, S, C2, 2 * v, n), h1)
    into = halves(up)
    joint = up.flatten(1, 2).flatten(2).mT
    each = up.flatten(3).unbind(1)
    for r, (maps_of_run, below) in enumerate(
        zip(h1.split(C, dim=1), sums.below[..., :n].split(C, dim=2), strict=True)
    ):
        Unpooling(d2[:, r].transpose(0, 1), at2[r], into)()
        add_product(sums.second[r], second.seen if seen else second.see(maps_of_run), joint)
        weight = w.second[r].mT
        for s in range(S):
            second.back(weight, each[s], below[:, s])
    _first_backward(net, maps, sums)


def _first_backward(net: ConvNet, maps: Maps, sums: Sums) -> None:
    """The first layer's gradients, two rows at a time while they are in the cache.

    Slopes go back through ReLU and pooling, and are multiplied by all rows that are inputs of either row, of
    which the last k are not the upper one's and the first k not the lower one's.
    """
    rows = maps.rows
    h1 = maps.h1
    h, kk, wn = rows.shape
    k = net.kernels[0]
    pairs = rows.as_strided((h // 2, wn, kk + k), (2 * k * wn, 1, wn))
    below = sums.below[..., : h1.shape[3]]
    _, S, RC, v, n = below.shape
    onto = ROOM.take("onto", (2, S, RC, 2, v, n), below)
    flat = onto.view(2 * S * RC, wn)
    unpool = Unpooling(below, maps.at1, onto, h1)
    for y, pair in enumerate(pairs):
        unpool(y)
        add_product(sums.first, flat, pair)
    sums.first_bias.add_(below.sum((0, 3, 4)).flatten())


def curvature(
    net: ConvNet,
    w: Weights,
    maps: Maps,
    v: Weights,
    dz: Float[Tensor, "R TC n"],
    bent: Callable[[Tensor], Tensor],
    sums: Sums,
) -> None:
    """Adds one chunk's part of the Hessian product of a function of the scores (Pearlmutter 1994).

    It is the change along v of `backward` with slopes dz that change with the scores. bent(change of scores):
    change of dz. Pooling and ReLU are linear where they stand, as in automatic differentiation.
    """
    rows, at1, h1, at2, h2, h3, _ = maps
    R, half, C2, _, n = at2.shape
    C = net.channels[0]
    second = _Second(net, h1)
    change = _Second(net, h1)
    h = 2 * half
    # changes along v, layer by layer
    t1 = torch.empty_like(h1)
    for here, z1 in _blocks(v.first, rows):
        seen = corners(z1)
        marks1 = [torch.empty_like(corner) for corner in seen]
        marked(at1[here], marks1)
        alive(gathered(seen, marks1, v.first_bias), h1[here], out=t1[here])
    maps_of_run, moved, below = (
        x.split(C, dim=dim) for x, dim in ((h1, 1), (t1, 1), (sums.below[:, 0, ..., :n], 1))
    )
    t2 = h2.new_empty(R, half, C2, half, n)
    z2 = h1.new_empty(h, C2, h, n)
    marks = halves(h1.new_empty(h, C2, h, n))
    corners2 = corners(halves(z2))
    flat = z2.flatten(2)
    parts = corners(marks)
    for r in range(R):
        torch.bmm(v.second[r].expand(h, -1, -1), second.see(maps_of_run[r]), out=flat)
        add_product(flat, w.second[r].expand(h, -1, -1), change.see(moved[r]))
        marked(at2[r], parts)
        t2[r] = gathered(corners2, parts, v.second_bias[r])
    t2 = alive(t2.view_as(h2), h2)
    t3 = alive(add_product(torch.baddbmm(v.shared_bias, v.shared, h2), w.shared, t2), h3)
    ez = bent(add_product(torch.baddbmm(v.heads_bias, v.heads, h3), w.heads, t3))
    # slopes d and their changes e, back again
    d3 = alive(torch.bmm(w.heads.mT, dz), h3)
    e3 = alive(add_product(torch.bmm(v.heads.mT, dz), w.heads.mT, ez), h3)
    sums.affine(0, maps, e3, ez)
    add_product(sums.heads[0], dz, t3.mT)
    add_product(sums.shared[0], d3, t2.mT)
    both = h2.new_empty(2, R, half, C2, half, n)
    alive(torch.bmm(w.shared.mT, d3), h2, out=both[0].view_as(h2))
    alive(add_product(torch.bmm(v.shared.mT, d3), w.shared.mT, e3), h2, out=both[1].view_as(h2))
    sums.second_bias.add_(both[1:].sum((2, 4, 5))[..., None, None])
    up = h1.new_empty(h, 2, C2, h, n)
    d, e = up.flatten(3).unbind(1)
    into = halves(up)
    joint = up.flatten(1, 2).flatten(2)
    for r in range(R):
        Unpooling(both[:, r].transpose(0, 1), at2[r], into)()
        add_product(sums.second[r], second.see(maps_of_run[r]), e.mT)
        add_product(sums.second[r], change.see(moved[r]), d.mT)
        second.back(torch.cat([v.second[r], w.second[r]]).mT, joint, below[r])
    _first_backward(net, maps, sums)


class RunPictures(NamedTuple):
    """Runs (their indices among all) that share pictures, with the labels of each task."""

    runs: Int[Tensor, " r"]
    pictures: Float[Tensor, "B H W"]
    labels: Int[Tensor, "T B"]


class _Seen(NamedTuple):
    """A chunk of a part: maps, probabilities and slopes (p - label) / B of the scores."""

    maps: Maps
    p: Float[Tensor, "r T C n"]
    slopes: Float[Tensor, "r T C n"]


class CrossEntropies(Linear):
    """f_m = (1/B) sum_i -log softmax(z_m(theta; picture_i))_(label_im) of R networks, and its derivatives.

    With `keep`, a forward pass by `values(keep=True)` or by a Hessian product is stored and serves all
    further requests. Until then each gradient runs a forward pass, chunk after chunk, which costs less for a
    single gradient. (Inference mode: each small call takes one or two tenths less.)
    """

    def __init__(
        self, net: ConvNet, x: Float[Tensor, "R P"], parts: Sequence[RunPictures], keep: bool
    ) -> None:
        self.net = net
        self.x = x.detach()
        self.keep = keep
        self.count = net.tasks
        self.parts = [
            RunPictures(runs, part.pictures, part.labels)
            for part in parts
            for runs in part.runs.tensor_split(stacked(net, len(part.runs)))
        ]
        self._forward_pass: list[tuple[Weights, list[_Seen]]] | None = None
        self._values: Tensor | None = None

    def _chunks(
        self, w: Weights, part: RunPictures, losses: Float[Tensor, "R T"], derive: bool, lasting: bool
    ) -> Iterator[_Seen]:
        """A forward pass of a part, which adds to its losses. lasting: see `forward`."""
        runs, pictures, labels = part
        net = self.net
        end = 0
        for z, maps in forward(net, w, pictures, keep=derive, lasting=lasting):
            log_p = nn.log_softmax(z.view(len(runs), net.tasks, net.classes, -1), dim=2)
            start = end
            end = end + log_p.shape[3]
            target = labels[:, start:end].expand(len(runs), -1, -1).unsqueeze(2)
            losses[runs] -= log_p.gather(2, target).sum((2, 3)) / len(pictures)
            if maps is not None:
                p = log_p.exp_()
                slopes = p.scatter_add(2, target, p.new_full((), -1.0).expand(target.shape)) / len(pictures)
                yield _Seen(maps, p, slopes)

    def _passes(
        self, keep: bool, derive: bool = True
    ) -> Iterator[tuple[RunPictures, Weights, Iterable[_Seen]]]:
        """Part after part, stored or by a forward pass; after the last part the losses are stored."""
        if self._forward_pass is not None:
            for part, (w, stored) in zip(self.parts, self._forward_pass, strict=True):
                yield part, w, stored
            return
        with torch.inference_mode(False):  # losses are returned, and may be changed and differentiated
            losses = self.x.new_zeros(len(self.x), self.count)
            forward_pass = []
        for part in self.parts:
            w = weights(self.net, self.x[part.runs])
            chunks: Iterable[_Seen] = self._chunks(w, part, losses, derive, lasting=keep)
            if keep:
                forward_pass.append((w, chunks := list(chunks)))
            yield part, w, chunks
        self._values = losses
        if keep:
            self._forward_pass = forward_pass

    def values(self, keep: bool) -> Float[Tensor, "R M"]:
        if self._values is None:
            derive = keep and self.keep
            with torch.inference_mode():
                for _, _, chunks in self._passes(derive, derive=derive):
                    for _ in chunks:
                        pass
        assert self._values is not None
        return self._values

    def jacobian(self) -> Float[Tensor, "R M P"]:
        units = torch.eye(self.count, dtype=self.x.dtype, device=self.x.device)
        return torch.stack(self._pulled([unit.expand(len(self.x), -1) for unit in units]), dim=1)

    def vjp(self, w: Float[Tensor, "R M"]) -> Float[Tensor, "R P"]:
        return self._pulled([w])[0]

    def _pulled(self, weightings: Sequence[Float[Tensor, "R M"]]) -> list[Float[Tensor, "R P"]]:
        """J^T w for each of some w."""
        out = [torch.empty_like(self.x) for _ in weightings]
        S = len(weightings)
        with torch.inference_mode():
            for part, w, chunks in self._passes(keep=False):
                sums = Sums.zero(self.net, w, S, part.pictures)
                for maps, _, slopes in chunks:
                    backward(
                        self.net, w, maps, [_weighted(slopes, some[part.runs]) for some in weightings], sums
                    )
                for target, gradient in zip(out, sums.gradients(self.net, S), strict=True):
                    target[part.runs] = vector(self.net, gradient)
        return out

    def hvp(self, w: Float[Tensor, "R M"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        out = torch.empty_like(self.x)
        with torch.inference_mode():
            for part, at, chunks in self._passes(self.keep):
                sums = Sums.zero(self.net, at, 1, part.pictures)
                along = weights(self.net, v[part.runs])
                some = w[part.runs]
                mean = w[part.runs] / len(part.pictures)
                for maps, p, slopes in chunks:

                    def bent(dz: Tensor, p: Tensor = p, mean: Tensor = mean) -> Tensor:
                        moved = p * dz.view_as(p)
                        return _weighted(moved.sub_(p * moved.sum(2, keepdim=True)), mean)

                    curvature(self.net, at, maps, along, _weighted(slopes, some), bent, sums)
                out[part.runs] = vector(self.net, sums.gradients(self.net, 1)[0])
        return out


def _weighted(slopes: Float[Tensor, "r T C n"], w: Float[Tensor, "r T"]) -> Float[Tensor, "r TC n"]:
    """Slopes of a weighted sum of the losses."""
    return (slopes * w[..., None, None]).flatten(1, 2)
