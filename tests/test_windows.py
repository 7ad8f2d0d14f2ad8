"""LeNet's sweeps by kernels that Numba compiles and by array operations: the same numbers to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mobench.kernels import compiled, convnet
from mobench.kernels.convnet import CrossEntropies, RunPictures
from mobench.models.convnet import MODELS, ConvNet


def both(work: Callable[[], list[Tensor]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same by kernels and by array operations, -0 and 0 taken as equal."""
    by_kernels = work()
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "module", lambda name: None)
        plain = work()
    for a, b in zip(by_kernels, plain, strict=True):
        assert a.shape == b.shape
        assert bool(((a == b) | (a.isnan() & b.isnan())).all())


def some(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Few different numbers, so that windows have several maxima."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("apart", [True, False])
def test_pooling_and_its_adjoint(apart: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even and odd columns apart in memory or in turns; slopes of fewer pictures than there is memory for."""
    z = some((6, 3, 2, 5, 7), dtype) if apart else convnet.halves(some((6, 3, 10, 7), dtype))
    z[0, 0, 0, 0, 0] = torch.nan
    z[1, 1, 1, 1, 1] = torch.nan
    z[2, 2, 0, 2, 2] = torch.inf
    bias = some((3, 1, 1), dtype, 1)
    d = some((3, 2, 3, 5, 9), dtype, 2)[..., :7]

    def work() -> list[Tensor]:
        out = torch.empty(3, 3, 5, 7, dtype=dtype)
        at = torch.empty_like(out)
        alone = torch.empty_like(out)
        convnet.pool(z.clone(), bias, out, at)
        convnet.pool(z.clone(), bias, alone)
        up = torch.empty(6, 2, 3, 2, 5, 7, dtype=dtype)
        original = up.clone()
        slopes = d.clone()
        convnet.Unpooling(slopes, at, up)()
        convnet.Unpooling(slopes, at, original, out)()
        return [out, torch.where(out.isnan(), 0, at), alone, slopes]

    both(work, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_adjoint_is_where_the_maximum_was(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    z = some((4, 2, 2, 3, 5), dtype)
    d = some((2, 2, 2, 3, 5), dtype, 1)

    def work() -> list[Tensor]:
        out = torch.empty(2, 2, 3, 5, dtype=dtype)
        at = torch.empty_like(out)
        convnet.pool(z.clone(), torch.zeros(2, 1, 1, dtype=dtype), out, at)
        up = torch.empty(4, 2, 2, 2, 3, 5, dtype=dtype)
        slopes = d.clone()
        convnet.Unpooling(slopes, at, up, out)()
        reached = torch.where(out.unsqueeze(1) > 0, d, 0)
        assert torch.equal(slopes, reached)
        assert torch.equal(sum(convnet.corners(up.transpose(1, 2).flatten(1, 2))), up_sum(reached))
        return [up, slopes]

    both(work, monkeypatch)


def up_sum(d: Tensor) -> Tensor:
    """Slopes (g, S, C, v, n) with the channels before the slopes, in one axis."""
    return d.transpose(1, 2).flatten(1, 2)


def entropies(net: ConvNet, dtype: torch.dtype, pictures: int, keep: bool) -> CrossEntropies:
    generator = torch.Generator().manual_seed(5)
    theta = 0.2 * torch.randn(3, net.dim, generator=generator, dtype=dtype)
    x = torch.rand(pictures, 36, 36, generator=generator, dtype=dtype)
    labels = torch.randint(0, 10, (2, pictures), generator=generator)
    parts = [
        RunPictures(torch.tensor([0, 2]), x, labels),
        RunPictures(torch.tensor([1]), x.flip(0), labels.flip(1)),
    ]
    return CrossEntropies(net, theta, parts, keep)


@pytest.mark.parametrize(("name", "pictures"), [("lenet", 90), ("small", 70)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_and_derivatives(
    name: str, pictures: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two chunks, of which the second is smaller; whether a forward pass is kept or not."""
    net = MODELS[name]
    monkeypatch.setattr(convnet, "CACHED", 2_000_000 if name == "lenet" else 400_000)
    w = torch.tensor([[0.3, 0.7]], dtype=dtype).expand(3, 2)

    def work() -> list[Tensor]:
        keeping = entropies(net, dtype, pictures, keep=True)
        results = [keeping.values(True)]
        other = entropies(net, dtype, pictures, keep=False)  # in the same memory, while the first is kept
        results += [other.jacobian(), other.vjp(w), keeping.jacobian(), keeping.vjp(w)]
        results += [point.hvp(w, torch.ones_like(point.x)) for point in (keeping, other)]
        assert torch.equal(results[1], results[3])
        assert torch.equal(results[2], results[4])
        assert torch.equal(results[5], results[6])
        return results

    both(work, monkeypatch)
