"""Directions of gradients that depend on each other up to rounding: exact projections in rational numbers,
TorchJD's properties of aggregators, and the same answer for any order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from torch import Tensor

import mobench
from mobench.core import gram
from mobench.solvers import TOLERANCE
from mobench.solvers.nearest import nearest
from tests.solvers.test_subproblem_qp import eliminated

F32 = torch.float32
F64 = torch.float64
DTYPES = [F32, F64]
PROJECTIONS = ["upgrad", "dualproj"]
CANCELLING = [*PROJECTIONS, "cagrad", "nash_mtl", "fairgrad"]


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=F64)


def answer(name: str, J: Tensor, **options: float) -> tuple[Tensor, mobench.Info]:
    """-d in float64 and what `solve` says; nothing failed, and the residual is that of a solved program."""
    values = torch.ones(J.shape[:-1], dtype=F64)  # nobody sees them, and one step suffices
    w, info = mobench.solve(name, J, values, **options)
    assert info.direction is not None
    assert w is not None
    assert w.isfinite().all()
    assert not info.failed.any()
    assert info.kkt_residual is not None
    assert (info.kkt_residual <= TOLERANCE).all()
    return -info.direction.double(), info


# three rows, of which two are opposed up to rounding, against rational numbers


def opposed(P: int, seed: int, gap: float, dtype: torch.dtype) -> Tensor:
    """Rows (a, -c a + gap noise, h), rounded to the dtype."""
    g = torch.Generator().manual_seed(1000 * P + seed)
    a, h, noise = normal(g, 3, P).to(dtype)
    c = torch.rand((), generator=g, dtype=dtype) * 2 + 0.3
    b = -c * a
    return torch.stack([a, b + gap * noise if gap else b, h])


def projected(J: list[list[Fraction]], u: list[Fraction]) -> list[Fraction]:
    """The projection of J'u onto {v: Jv >= 0}, exactly: of all active sets the one that satisfies KKT."""
    M = len(J)
    G = [[sum((a * b for a, b in zip(p, q, strict=True)), Fraction()) for q in J] for p in J]
    pull = [sum(G[i][j] * u[j] for j in range(M)) for i in range(M)]
    for size in range(M + 1):
        for held in combinations(range(M), size):
            z = eliminated([[G[i][j] for j in held] for i in held], [-pull[i] for i in held])
            if z is None or any(v < 0 for v in z):
                continue
            w = list(u)
            for j, v in zip(held, z, strict=True):
                w[j] += v
            if all(sum(G[i][j] * w[j] for j in range(M)) >= 0 for i in range(M)):
                return [sum((w[j] * J[j][p] for j in range(M)), Fraction()) for p in range(len(J[0]))]
    raise AssertionError("every projection has an active set")


def exact(name: str, J: Tensor) -> Tensor:
    """UPGrad's and DualProj's directions in rational numbers, rounded once."""
    M = len(J)
    rational = [[Fraction(x) for x in row] for row in J.double().tolist()]
    units = [[Fraction(int(i == j)) for j in range(M)] for i in range(M)]
    mean = [Fraction(1, M)] * M
    parts = [projected(rational, u) for u in ([mean] if name == "dualproj" else units)]
    return torch.tensor([float(sum(p) / len(parts)) for p in zip(*parts, strict=True)], dtype=F64)


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("P", [2, 3, 20])
@pytest.mark.parametrize(
    ("dtype", "gap"), [(F32, 1e-4), (F32, 1e-5), (F64, 1e-5), (F64, 1e-6), (F64, 1e-7), (F64, 1e-8)]
)
def test_projections_are_those_of_rational_numbers(name: str, P: int, dtype: torch.dtype, gap: float) -> None:
    batch = torch.stack([opposed(P, seed, gap, dtype) for seed in range(8)])
    directions, _ = answer(name, batch)
    for d, J in zip(directions, batch.double(), strict=True):
        size = J.norm(dim=1).max()
        assert (d - exact(name, J)).norm() <= 1e-3 * size
        assert (J @ d).min() >= -(1e-4 if dtype == F32 else 1e-6) * size**2
        longest = J.mean(0).norm() if name == "dualproj" else J.norm(dim=1).mean()
        assert d.norm() <= longest * (1 + 1e-6)


def test_a_row_of_length_zero_keeps_its_weight() -> None:
    J = torch.cat([opposed(3, 0, 1e-7, F64), torch.zeros(1, 3, dtype=F64)])
    solution = nearest(J, torch.eye(4, dtype=F64))
    assert torch.equal(solution.x[:, 3], torch.eye(4, dtype=F64)[3])
    assert not solution.failed


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_opposed_up_to_the_last_digit_are_dependent(dtype: torch.dtype) -> None:
    """-c a is rounded: what is left beside a has no digits, and no weights are made of it."""
    for gap in (0.0, 1e-15, 1e-13, 1e-12) if dtype == F64 else (0.0, 1e-7, 3e-7):
        batch = torch.stack([opposed(20, seed, gap, dtype) for seed in range(8)])
        for name, c in (("upgrad", {}), ("dualproj", {}), ("cagrad", {"c": 1.0})):
            for d, J in zip(answer(name, batch, **c)[0], batch.double(), strict=True):
                size = J.norm(dim=1).max()
                assert (J @ d).min() >= -1e-6 * size**2
                assert d.norm() <= 2 * size / 3**0.5


@pytest.mark.parametrize("P", [2, 3, 100])
@pytest.mark.parametrize("gap", [0.0, 1e-5])
def test_cagrad_raises_nothing_in_a_ball_that_holds_0(P: int, gap: float) -> None:
    """With c = 1, 0 is in the ball: the worst objective does not rise; and no direction leaves the ball."""
    for dtype in DTYPES:
        batch = torch.stack([opposed(P, seed, gap, dtype) for seed in range(8)])
        for d, J in zip(answer("cagrad", batch, c=1.0)[0], batch.double(), strict=True):
            mean = J.mean(0)
            size = J.norm(dim=1).max()
            assert (J @ d).min() >= -1e-4 * size**2
            assert (d - mean).norm() <= mean.norm() * (1 + 1e-3)


@pytest.mark.parametrize("name", [*PROJECTIONS, "cagrad"])
@pytest.mark.parametrize("gap", [0.0, 1e-8, 1e-7, 1e-6])
def test_a_gram_matrix_alone_knows_no_such_angle(name: str, gap: float) -> None:
    """The weights are those of dependent gradients, and J'w is no longer than what is projected."""
    batch = torch.stack([opposed(20, seed, gap, F64) for seed in range(8)])
    weights, info = mobench.solve(name, gramian=batch @ batch.mT)
    assert weights is not None
    assert not info.failed.any()
    for w, J in zip(weights, batch, strict=True):
        d = w @ J
        size = J.norm(dim=1).max()
        if name == "cagrad":
            assert d.norm() <= 1.5 * J.mean(0).norm() * (1 + 1e-2)
        else:
            assert d.norm() <= size
            assert (J @ d).min() >= -1e-6 * size**2


# batches and products


def test_a_hard_run_does_not_touch_the_others() -> None:
    g = torch.Generator().manual_seed(0)
    plain = normal(g, 4, 3, 20).to(F32)
    hard = torch.stack([opposed(20, seed, 0.0, F32) for seed in range(4)])
    mixed = torch.stack([plain, hard], dim=1).flatten(0, 1)
    for name in (*PROJECTIONS, "cagrad"):
        together, _ = answer(name, mixed)
        alone, _ = answer(name, plain)
        other, _ = answer(name, hard)
        assert torch.equal(together[::2], alone)
        torch.testing.assert_close(together[1::2], other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [*CANCELLING, "imtl_g", "config", "aligned_mtl"])
def test_float32_rows_give_the_direction_of_the_same_numbers_in_float64(name: str) -> None:
    """Weights that cancel do not lose it in the product: rounding of it is relative to the direction."""
    for gap in (1e-3, 1e-4, 1e-5):
        J = torch.stack([opposed(20, seed, gap, F32) for seed in range(8)])
        one = answer(name, J)[0]
        other = answer(name, J.double())[0]
        assert ((one - other).norm(dim=1) <= 2e-3 * other.norm(dim=1)).all(), gap


@pytest.mark.parametrize(("block", "compiled"), [(gram.BLOCK, True), (24 * 7, False)])
def test_sums_that_cancel_are_found_and_formed_in_float64(
    block: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gram, "BLOCK", block)
    if not compiled:  # as on a GPU
        monkeypatch.setattr(gram, "_screens", [])
    g = torch.Generator().manual_seed(0)
    J = normal(g, 4, 3, 50).to(F32)
    J[2, 1] = -J[2, 0] * (1 + 1e-6)
    w = torch.ones(4, 3, dtype=F64)
    w[2, 2] = 0.0
    w[3] = 0.0
    assert gram.cancelled(w, J.double() @ J.double().mT, torch.finfo(F32).eps) == [2]
    expected = w[2] @ J[2].double()
    torch.testing.assert_close(gram.combination(J[2], w[2]).double(), expected, rtol=1e-6, atol=0)


# TorchJD's properties of aggregators (Quinton and Rey 2024), on matrices of the kinds that its tests use


def stationary(M: int, P: int, rank: int, w: Tensor, g: torch.Generator) -> Tensor:
    """A matrix of that rank with w'J = 0."""
    w = w / w.norm()
    left = normal(g, M, rank)
    left = torch.linalg.qr(left - w.unsqueeze(1) * (w @ left))[0]
    right = torch.linalg.qr(normal(g, P, rank))[0]
    return left @ torch.diag(normal(g, rank).abs() + 0.1) @ right.T


def matrix(kind: str, M: int, P: int, rank: int, g: torch.Generator) -> Tensor:
    """Random; w'J = 0 with w > 0 (strong), w >= 0 (weak), or w >= 0 and no w > 0 (strictly weak)."""
    if kind == "random":
        return normal(g, M, rank) @ normal(g, rank, P) / P**0.5
    w = normal(g, M).abs() + 0.05
    if kind == "strong":
        return stationary(M, P, rank, w, g)
    zeros = torch.randperm(M, generator=g)[: M // 2]
    if kind == "weak":
        w[zeros] = 0.0
        return stationary(M, P, rank, w, g)
    J = stationary(M, P, rank, torch.where(torch.zeros(M).index_fill(0, zeros, 1) > 0, 0.0, w), g)
    # those without weight go up along one direction, across which the others lie
    rest = [m for m in range(M) if m not in zeros.tolist()]
    up = torch.linalg.qr(normal(g, P, 1))[0][:, 0]
    J[rest] -= (J[rest] @ up).unsqueeze(1) * up
    J[zeros] += ((J[zeros] @ up).abs() + 0.1 - J[zeros] @ up).unsqueeze(1) * up
    return J


SHAPES = [(3, 7, 2), (9, 11, 5), (20, 10, 1), (20, 10, 9)]
SCALES = [1e-10, 1.0, 1e10]
KINDS = ["random", "strong", "weak", "strictly weak"]


def each(kind: str, dtype: torch.dtype) -> list[tuple[Tensor, float]]:
    """Matrices and their sizes (the longest row)."""
    batches = []
    for M, P, rank in SHAPES:
        for scale in SCALES if (M, rank) == (9, 5) else [1.0]:
            g = torch.Generator().manual_seed(100 * M + rank)
            J = (scale * matrix(kind, M, P, rank, g)).to(dtype)
            batches.append((J, float(J.double().norm(dim=1).max())))
    return batches


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*PROJECTIONS, "cagrad"])
def test_non_conflicting_and_permutation_invariant(name: str, kind: str, dtype: torch.dtype) -> None:
    for J, size in each(kind, dtype):
        d, _ = answer(name, J, **({"c": 1.0} if name == "cagrad" else {}))
        assert ((J.double() / size) @ (d / size)).min() >= -4e-5
        order = torch.randperm(len(J), generator=torch.Generator().manual_seed(1))
        other, _ = answer(name, J[order], **({"c": 1.0} if name == "cagrad" else {}))
        # the worst objective of CAGrad is what its program decides about where the maximum is flat
        if name == "cagrad":
            low = ((J.double() / size) @ (d / size)).min() - ((J.double() / size) @ (other / size)).min()
            assert abs(low) <= 1e-5
        else:
            assert (d - other).norm() <= 1e-4 * size
        if kind == "strong" and name != "cagrad":
            assert d.norm() <= 1e-3 * size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_upgrad_is_linear_under_scaling(kind: str, dtype: torch.dtype) -> None:
    """A(diag(c) J) is linear in c > 0: the cone stays, and what is projected is scaled."""
    for J, size in each(kind, dtype):
        g = torch.Generator().manual_seed(7)
        c, e = torch.rand(2, len(J), 1, generator=g, dtype=F64) + 0.1
        whole, one, other = (answer("upgrad", (s * J.double()).to(dtype))[0] for s in (2 * c + 3 * e, c, e))
        assert (whole - 2 * one - 3 * other).norm() <= 1e-3 * size


# the order of the rows


def collinear(M: int, P: int, g: torch.Generator) -> Tensor:
    """Half against half."""
    signs = torch.where(torch.arange(M) < M // 2, -1.0, 1.0)[torch.randperm(M, generator=g)]
    return (signs * 10 ** (0.5 * normal(g, M))).unsqueeze(1) * normal(g, P)


def crossed(M: int, P: int, g: torch.Generator) -> Tensor:
    """Two lines, on each of which gradients are opposed."""
    signs = torch.tensor([1.0, -1.0]).repeat(M)[:M]
    lines = normal(g, 2, P)[torch.arange(M) // 2 % 2]
    return (signs * 10 ** (0.5 * normal(g, M))).unsqueeze(1) * lines


def pairs(M: int, P: int, g: torch.Generator) -> Tensor:
    """Each gradient and its opposite of another length, and one more if M is odd."""
    J = normal(g, M, P)
    half = M // 2
    J[half : 2 * half] = -J[:half] * torch.rand(half, 1, generator=g, dtype=F64)
    return J


def repeated(M: int, P: int, g: torch.Generator) -> Tensor:
    """Copies, some of another length."""
    J = normal(g, M, P)[torch.randint(0, max(1, M // 2), (M,), generator=g)]
    return J * torch.where(torch.arange(M) % 2 == 0, 1.0, 3.7).unsqueeze(1)


def with_zeros(M: int, P: int, g: torch.Generator) -> Tensor:
    J = normal(g, M, P)
    J[torch.randint(0, M, (2,), generator=g)] = 0.0
    return J


def low_rank(M: int, P: int, g: torch.Generator) -> Tensor:
    return normal(g, M, max(1, M // 2)) @ normal(g, max(1, M // 2), P)


def balanced(M: int, P: int, g: torch.Generator) -> Tensor:
    """The gradients sum to 0."""
    J = normal(g, M, P)
    return J - J.mean(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*CANCELLING, "imtl_g", "config", "aligned_mtl"])
@pytest.mark.parametrize("rows", [collinear, crossed, pairs, repeated, with_zeros, low_rank, balanced])
def test_a_direction_does_not_depend_on_the_order_of_the_rows(
    rows: Callable[[int, int, torch.Generator], Tensor], name: str, dtype: torch.dtype
) -> None:
    for M in (2, 3, 4, 5, 8):
        for P in (2, 20):
            g = torch.Generator().manual_seed(10 * M + P)
            J = rows(M, P, g).to(dtype)
            orders = torch.stack([torch.arange(M), *[torch.randperm(M, generator=g) for _ in range(3)]])
            d, _ = answer(name, J[orders])
            size = J.double().norm(dim=1).max()
            apart = (d - d[:1]).norm(dim=1).max()
            assert apart <= (1e-3 if dtype == F32 else 1e-6) * size, (M, P)


def test_imtl_g_of_half_against_half_stays_where_it_is() -> None:
    """C^+ 1 = 0, as the page of the class says, whatever rounding leaves of it; also in two columns."""
    J = torch.tensor([[1, 2, 3], [-3, -6, -9], [0.1, 0.2, 0.3], [-0.7, -1.4, -2.1]], dtype=F64)
    for rows in (J, J[[1, 0, 2, 3]], J[:, :2], J[[3, 1, 0, 2], :2]):
        d, _ = answer("imtl_g", rows)
        assert (d == 0).all()
