"""The compiled path and that of array operations: same solutions, same certificates, same outcomes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from mobench.kernels import compiled
from mobench.subproblems import TOLERANCE, Solution, epo_lp, lp, min_norm, qp, qp_residual
from mobench.subproblems.dual import Dual, ferero_dual
from mobench.subproblems.lp import epo_data
from tests.conftest import REPOSITORY
from tests.subproblems.test_subproblem_lp import FAMILIES as LP_FAMILIES
from tests.subproblems.test_subproblem_lp import MODES, inputs
from tests.subproblems.test_subproblem_qp import FAMILIES, PROGRAMS, gram, jacobian, programs

pytestmark = pytest.mark.parametrize("path", ["compiled"], indirect=True)
QP = sys.modules["mobench.subproblems.qp"]


def on_arrays(solve: Callable[[], Solution]) -> Solution:
    """The solution on the path of array operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "module", lambda name: None)
        return solve()


def assert_alike(one: Solution, other: Solution, tolerance: float) -> None:
    """Outcomes are equal and residuals as good; x is equal up to `tolerance` of its largest entry."""
    assert torch.equal(one.failed, other.failed)
    assert torch.equal(one.residual.isnan(), other.residual.isnan())
    assert torch.equal(one.x.isnan(), other.x.isnan())
    size = other.x.nan_to_num().abs().amax(1, keepdim=True)
    assert ((one.x - other.x).nan_to_num().abs() <= tolerance * size).all()


def apart(one: Solution, other: Solution, G: torch.Tensor) -> torch.Tensor:
    """The length of J'(x_1 - x_2), relative to that of the longest gradient times the largest weight."""
    difference = (one.x - other.x).unsqueeze(2)
    length = (difference.mT @ G @ difference).flatten().clamp_min(0).sqrt()
    size = torch.maximum(one.x.abs(), other.x.abs()).amax(1)
    return length / (size * G.diagonal(dim1=1, dim2=2).amax(1).sqrt()).clamp_min(torch.finfo(G.dtype).tiny)


def assert_same_vector(
    one: Solution, other: Solution, G: torch.Tensor, rounding: torch.Tensor | float = 0.0
) -> None:
    """J'x is the same. x itself may be any of many where G is singular, if only up to rounding.

    rounding: what J'x differs by, run by run, if each entry of G moves by one rounding; then a difference of
    ten times as much is rounding, too.
    """
    assert (apart(one, other, G) <= torch.clamp_min(10 * torch.as_tensor(rounding), 1e-7)).all()


def rounded(G: torch.Tensor) -> torch.Tensor:
    """G with each entry moved by one rounding, up or down at random."""
    signs = torch.randint(0, 2, G.shape, generator=torch.Generator().manual_seed(0)).to(G) * 2 - 1
    return G * (1 + torch.finfo(G.dtype).eps * (signs.triu() + signs.triu(1).mT))


def assert_same_value(one: Solution, other: Solution, c: torch.Tensor) -> None:
    """The same programs are solved, to the same value; of several best vertices either may be the answer."""
    assert torch.equal(one.failed, other.failed)
    gap = (c * (one.x - other.x).nan_to_num()).sum(1).abs()
    assert (gap <= 1e-7 * c.abs().amax(1)).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_min_norm_of_every_rank_and_scale(family: str, n: int) -> None:
    J = jacobian(family, 40, n)
    for scale in (1e-12, 1.0, 1e12):
        G = gram(scale * J)
        one = min_norm(G)
        other = on_arrays(lambda G=G: min_norm(G))
        assert not one.failed.any()
        assert one.residual.max() <= max(2 * float(other.residual.max()), 1e-12)
        assert_same_vector(one, other, G)
        if family in ("random", "duplicated", "zero row", "opposed", "integer", "acute", "all zero"):
            assert_alike(one, other, 1e-9)
        alone = torch.cat([min_norm(g).x for g in G.split(1)])
        assert torch.equal(alone, one.x)
        active = jacobian("random", 40, n)[:, :, 0] > -0.3
        one = min_norm(G, active)
        assert not one.failed.any()
        assert (one.x[~active] == 0).all()
        assert_same_vector(one, on_arrays(lambda G=G, a=active: min_norm(G, a)), G)


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_every_shape_of_program(kind: str, n: int) -> None:
    for rank in (n + 2, max(1, n - 2)):
        p = programs(kind, 30, n, rank)
        one = qp(**p)
        other = on_arrays(lambda p=p: qp(**p))
        assert torch.equal(one.failed, other.failed)
        # the certificate of the kernel is that of everybody
        assert (one.residual - qp_residual(one.x, **p)).abs().max() < 1e-13
        if rank > n:
            assert_alike(one, other, 1e-9)
        first = {k: v[:1] if isinstance(v, torch.Tensor) and len(v) == 30 else v for k, v in p.items()}
        assert torch.equal(qp(**first).x, one.x[:1])


@pytest.mark.parametrize("family", LP_FAMILIES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("M", [3, 5, 10])
def test_linear_programs_of_every_rank_and_scale(family: str, mode: str, M: int) -> None:
    K, Ca, *rest = inputs(family, mode, 40, M)
    for scale in (1e-12, 1.0, 1e12):
        program = (scale * K, scale * Ca, *rest)
        one = epo_lp(*program)
        other = on_arrays(lambda p=program: epo_lp(*p))
        data = epo_data(torch, *program)
        assert_same_value(one, other, data[0])
        alone = epo_lp(*(t[3:4] for t in program[:4]), program[4])
        assert torch.equal(alone.x.nan_to_num(), one.x[3:4].nan_to_num())
        assert_same_value(lp(*data), on_arrays(lambda d=data: lp(*d)), data[0])


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("h", [1, 3])
@pytest.mark.parametrize("g", [0, 2])
@pytest.mark.parametrize("family", ["random", "low rank", "duplicated", "zero row", "scaled rows", "opposed"])
def test_dual_of_every_rank_and_scale(family: str, g: int, h: int, adaptive: bool) -> None:
    M = 5
    R = 30
    generator = torch.Generator().manual_seed(1)
    rows = torch.cat((torch.eye(M), torch.eye(M)[:g], torch.randn(h, M, generator=generator))).double()
    F = torch.rand(R, M, generator=generator, dtype=torch.float64) + 0.1
    bg = -torch.rand(R, g, generator=generator, dtype=torch.float64)
    program = Dual(rows.expand(R, -1, -1), bg, torch.zeros(R, h, dtype=torch.float64), 1.0, 1.0, adaptive)
    J = jacobian(family, R, M)
    for scale in (1e-4, 1.0, 1e4):
        K = gram(scale * J)
        one = ferero_dual(program, K, F)
        other = on_arrays(lambda K=K: ferero_dual(program, K, F))
        assert torch.equal(one.failed, other.failed)
        solved = ~one.failed
        assert (one.residual[solved] <= TOLERANCE).all()
        both = Solution(one.x[solved], one.residual[solved], one.failed[solved])
        if scale <= 1:  # beside large gradients w is what is left of multipliers of size 1: rounding, on both
            theirs = Solution(*(t[solved] for t in other))
            moved = on_arrays(lambda K=K: ferero_dual(program, rounded(K), F))
            effect = apart(Solution(*(t[solved] for t in moved)), theirs, K[solved])
            assert_same_vector(both, theirs, K[solved], effect)
        alone = ferero_dual(program.take(torch.tensor([3])), K[3:4], F[3:4])
        assert torch.equal(alone.x.nan_to_num(), one.x[3:4].nan_to_num())
    K[2, 1, 0] = K[2, 0, 1] = torch.nan
    assert ferero_dual(program, K, F).residual[2].isnan()


def test_a_diverged_run_and_a_hopeless_one() -> None:
    p = programs("weighted", 6, 4, 5)
    for where in ("Q", "b", "a", "r"):
        for bad in (torch.nan, torch.inf, -torch.inf):
            broken = {k: v.clone() for k, v in p.items()}
            broken[where][2] = bad
            one = qp(**broken)
            assert_alike(one, on_arrays(lambda p=broken: qp(**p)), 1e-12)
            assert one.residual[2].isnan()
            assert not one.failed.any()
    upper = torch.full((6, 4), 1.0, dtype=torch.float64)
    for high in (0.1, 1.0, torch.nan):
        upper[3] = high
        one = qp(p["Q"], None, torch.ones_like(upper), upper=upper)
        assert one.failed.tolist() == [i == 3 and high != 1.0 for i in range(6)]
        assert_alike(one, on_arrays(lambda u=upper: qp(p["Q"], None, torch.ones_like(u), upper=u)), 1e-12)


def test_a_kernel_that_stops_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No start looks infeasible to it, so it takes the first vertex for the solution."""
    limits = QP.LIMITS.copy()
    limits[6] = np.inf
    J = jacobian("random", 50, 4)
    J[:, 0] *= 0.2
    G = gram(J)
    right = min_norm(G)
    monkeypatch.setattr(QP, "LIMITS", limits)
    wrong = min_norm(G)
    vertices = (right.x > 0).sum(1) == 1
    assert 0 < int(vertices.sum()) < 50
    assert wrong.failed[~vertices].all()
    assert wrong.x[~vertices].isnan().all()
    assert not wrong.failed.all()


def test_the_kernel_knows_the_same_thresholds() -> None:
    from mobench.kernels.pivoting import Limits

    limits = Limits(*QP.LIMITS)
    assert limits.tolerance == TOLERANCE
    known = {**vars(QP), **vars(sys.modules["mobench.subproblems.pivoting"])}
    assert limits._asdict() == {name: known[name.upper()] for name in Limits._fields}


LATE = """
import sys, torch
from mobench.subproblems import min_norm, qp
import mobench.algorithms.mgda, mobench.algorithms.epo, mobench.algorithms.ferero
assert not min_norm(torch.eye(2)[None]).failed
assert "numba" not in sys.modules
assert not min_norm(torch.eye(3)[None]).failed
print("numba" in sys.modules)
"""


@pytest.mark.parametrize("folder", ["", "file/in/the/way", "cache"])
def test_imported_at_the_first_solve_and_kept_where_it_can_be(folder: str, tmp_path: Path) -> None:
    """A folder that cannot be written is no error; what is compiled is kept in mobench's cache, if any."""
    (tmp_path / "file").write_text("")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"} | ({"MOBENCH_CACHE": str(tmp_path / folder)} if folder else {})
    for turn in range(2 if folder == "cache" else 1):
        done = subprocess.run(
            [sys.executable, "-c", LATE],
            cwd=REPOSITORY,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "True\n"
        kept = list(tmp_path.rglob("*.nbc"))
        if folder == "cache":
            assert len(kept) == 1
            assert ("compiling small solvers" in done.stderr) == (turn == 0)
        else:
            assert kept == []


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_COMPILED", "0")
    assert compiled.module.__wrapped__("pivoting") is None
