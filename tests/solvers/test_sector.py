"""Min-norm points of sectors with many rays, against programs with all rows."""

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.solvers import sector
from mobench.solvers.sector import outside, sector_min_norm
from tests.reference import common

F64 = torch.float64


def rays(L: int, M: int, seed: int) -> Tensor:
    U = torch.rand(L, M, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return U / U.norm(dim=1, keepdim=True)


def gradients(kind: str, R: int, M: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    J = torch.randn(R, M, 7, generator=g, dtype=F64)
    if kind == "rank one":
        J = torch.randn(R, M, 1, generator=g, dtype=F64) * J[:, :1]
    elif kind == "nearly stationary":  # opposed gradients
        J[:, 1] = -J[:, 0] * 0.7 + 1e-9 * J[:, 1]
    elif kind == "scaled":
        J[:, 0] *= 1e6
    return J


def rows_of(U: Tensor, v: Tensor, F: Tensor, objectives: bool) -> np.ndarray:
    rows = (U - v).numpy()
    rows = rows[(abs(rows).max(1) > 1e-9) & (rows @ F.numpy() > 0)]
    return np.vstack([np.eye(len(F)), rows]) if objectives else rows


@pytest.mark.parametrize("objectives", [False, True])
@pytest.mark.parametrize("kind", ["random", "rank one", "nearly stationary", "scaled"])
@pytest.mark.parametrize(("M", "L"), [(2, 1), (2, 7), (2, 90), (3, 90), (5, 70)])
def test_shortest_direction(M: int, L: int, kind: str, objectives: bool) -> None:
    """|J'w| is the least over all active rows, by an active-set method in NumPy; no row is nearer to 0."""
    R = 20
    U = rays(L, M, 1)
    v = U[torch.arange(R) % L] if L > 1 else rays(R, M, 2)
    J = gradients(kind, R, M, 3)
    F = torch.rand(R, M, generator=torch.Generator().manual_seed(4), dtype=F64)
    w, residual, failed = sector_min_norm(U, v, J @ J.mT, F, objectives)
    assert not failed.any()
    assert residual.max() <= 1e-9
    some = [len(rows_of(U, v[r], F[r], False)) > 0 for r in range(R)]
    assert outside(U, v, F).tolist() == some
    for r in range(R):
        p = rows_of(U, v[r], F[r], objectives)
        if len(p) == 0:
            assert not w[r].any()
            continue
        A = p @ J[r].numpy()
        d = w[r].numpy() @ J[r].numpy()
        square = (A * A).sum(1).max()
        assert (A @ d).min() >= d @ d - 1e-9 * square
        if kind == "random":
            best = common.min_norm(A) @ A
            np.testing.assert_allclose(d @ d, best @ best, rtol=0, atol=1e-10 * square)


@pytest.mark.parametrize("M", [2, 3])
def test_parts_of_the_runs_are_the_runs(M: int, monkeypatch: pytest.MonkeyPatch) -> None:
    U = rays(80, M, 5)
    J = gradients("random", 30, M, 6)
    F = torch.rand(30, M, generator=torch.Generator().manual_seed(7), dtype=F64)
    whole = sector_min_norm(U, U[:30], J @ J.mT, F, True)
    monkeypatch.setattr(sector, "PLANE_ROOM", 7 * U.numel())
    monkeypatch.setattr(sector, "ROOM", 7 * U.numel())
    parts = sector_min_norm(U, U[:30], J @ J.mT, F, True)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_a_lost_run_is_lost_alone() -> None:
    for M in (2, 3):
        U = rays(80, M, 8)
        J = gradients("random", 4, M, 9)
        F = torch.rand(4, M, generator=torch.Generator().manual_seed(10), dtype=F64)
        G = J @ J.mT
        whole = sector_min_norm(U, U[:4], G, F, True)
        G[1] = torch.nan
        F[2, 0] = torch.inf
        lost = sector_min_norm(U, U[:4], G, F, True)
        assert lost.x[1].isnan().all()
        for k in (0, 3):
            torch.testing.assert_close(lost.x[k], whole.x[k], rtol=0, atol=1e-14)
