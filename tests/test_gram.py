"""Gram matrices of float32 rows: as accurate as in float64, by the kernel and by blocks, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mobench.core import TablePoint, gram
from mobench.core.sets import Free
from mobench.kernels import rows

Way = Callable[[Tensor], Tensor]


def by_kernel(J: Tensor) -> Tensor:
    product = rows.gram(J)
    assert product is not None
    return product


@pytest.fixture(params=["kernel", "blocks", "whole"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    """Each way to compute them, blocks and thresholds small so that all of their branches are met."""
    monkeypatch.setattr(rows, "NUMBERS", 0)
    monkeypatch.setattr(rows, "COLUMNS", 0)
    if request.param == "blocks":
        monkeypatch.setattr(gram, "BLOCK", 20_000)
    return by_kernel if request.param == "kernel" else gram.blocked


def exact(J: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """J J^T and |J| |J|^T with the 64 bits of a long double."""
    wide = J.numpy().astype(np.longdouble)
    return wide @ wide.transpose(0, 2, 1), abs(wide) @ abs(wide).transpose(0, 2, 1)


@pytest.mark.parametrize(
    "shape", [(1, 1, 700), (3, 2, 256), (2, 5, 1025), (4, 3, 40), (2, 10, 3001), (1, 7, 999)]
)
@pytest.mark.parametrize("kind", ["plain", "scaled", "deficient", "cancelling"])
def test_the_accuracy_of_float64(way: Way, shape: tuple[int, int, int], kind: str) -> None:
    """Each entry is off by the rounding of sums of P numbers at most: |J| |J|^T P 2^-53."""
    J = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    if kind == "scaled":
        J *= torch.logspace(-18, 18, shape[1])[:, None]
    elif kind == "deficient":
        J = J[:, :1] * torch.linspace(-1, 2, shape[1])[:, None]
    elif kind == "cancelling":
        J[:, :, 1::2] = J[:, :, : shape[2] // 2 * 2 : 2][:, :, : J[:, :, 1::2].shape[2]]
        J[:, -1, 1::2] *= -1.0
    product = way(J)
    truth, size = exact(J)
    assert product.dtype == torch.float64
    assert bool((abs(product.numpy() - truth) <= shape[2] * 2.0**-53 * size).all())
    assert torch.equal(product, product.mT)
    if kind == "deficient":
        least = torch.linalg.eigvalsh(product)[:, 0]
        assert bool((least >= -1e-13 * product.diagonal(dim1=1, dim2=2).sum(1)).all())


def test_a_run_is_the_same_alone_and_among_others(way: Way) -> None:
    """To the bit by the kernel; the rows may be those of the objectives among all."""
    J = torch.randn(5, 7, 1300, generator=torch.Generator().manual_seed(0))[:, 1:5]
    together = way(J)
    for r in range(5):
        alone = way(J[r : r + 1].contiguous())
        torch.testing.assert_close(together[r : r + 1], alone, rtol=0, atol=0 if way is by_kernel else 1e-11)


def test_what_is_no_number_stays_in_its_run(way: Way) -> None:
    J = torch.ones(3, 3, 600)
    J[1, 2, 300] = torch.nan
    J[2, 0, 1] = torch.inf
    product = way(J)
    assert bool(torch.isfinite(product[0]).all())
    assert product[1].isnan().tolist() == [[False, False, True], [False, False, True], [True, True, True]]
    assert bool((product[2, 0] == torch.inf).all())
    assert bool(torch.isfinite(product[2, 1:, 1:]).all())


class Largest(TorchDispatchMode):
    """Bytes of the largest float64 tensor that any operation returns."""

    bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype == torch.float64:
            self.bytes = max(self.bytes, out.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("compiled_too", [False, True])
@pytest.mark.parametrize("shape", [(1, 3, 200_000), (300, 3, 700), (2, 40, 10_000)])
def test_rows_are_never_copied_whole(
    shape: tuple[int, int, int], compiled_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float64 memory beside the rows: a block of 1 MiB and the matrices."""
    if not compiled_too:
        monkeypatch.setattr(gram, "_kernels", [])
    J = torch.ones(shape)
    point = TablePoint(torch.zeros(shape[0], shape[2]), Free(), shape[1], {}, torch.zeros(shape[:2]), J)
    with Largest() as seen:
        product = point.gramian()
    assert bool((product == shape[2]).all())
    assert 8 * J.numel() > 3 * seen.bytes
    assert seen.bytes <= max(1 << 20, 8 * product.numel())


def test_float64_rows_are_multiplied_as_they_are() -> None:
    J = torch.randn(3, 4, 5000, dtype=torch.float64)
    assert torch.equal(gram.gram(J), torch.bmm(J, J.mT))


def test_the_kernel_serves_points_of_oracles() -> None:
    """Large float32 rows take it; small ones, and rows in another layout, do not."""
    import mobench.oracles  # noqa: F401

    assert rows.gram in gram._kernels
    assert rows.gram(torch.ones(1, 2, 300)) is None
    assert rows.gram(torch.ones(1, 40_000, 2).mT) is None
    assert rows.gram(torch.ones(1, 2, 40_000)) is not None
