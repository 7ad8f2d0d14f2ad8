"""Two objectives: compiled functions give the bits of the formulas in arrays; when they are loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mobench.kernels import native
from mobench.solvers import Solution, epo_lp, min_norm, plane, qp
from mobench.solvers.dual import Dual, ferero_dual
from mobench.solvers.sector import sector_min_norm
from tests.conftest import REPOSITORY, process

F64 = torch.float64
R = 700
KINDS = [
    "random", "rank one", "equal", "zero", "one zero", "opposed", "nearly opposed", "scaled", "whole numbers",
]  # fmt: skip


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def gram(kind: str, R: int) -> Tensor:
    J = numbers(R, 2, 5, seed=1)
    if kind == "rank one":
        J = numbers(R, 2, 1, seed=2) * J[:, :1]
    elif kind == "equal":
        J[:, 1] = J[:, 0]
    elif kind == "zero":
        J *= 0
    elif kind == "one zero":
        J[:, 1] *= 0
    elif kind == "opposed":
        J[:, 1] = -0.5 * J[:, 0]
    elif kind == "nearly opposed":
        J[:, 1] = -0.7 * J[:, 0] + 1e-9 * J[:, 1]
    elif kind == "scaled":
        J *= 10 ** (60 * numbers(R, 2, 1, seed=3))
    elif kind == "whole numbers":  # ties, and zeros of both signs
        J = J.round()
    return J @ J.mT


def with_lost(*tensors: Tensor) -> None:
    """Runs 3 to 5 are not finite."""
    for k, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        tensors[k % len(tensors)].flatten(1)[3 + k, 0] = value


def both(monkeypatch: pytest.MonkeyPatch, solve: Callable[[], Solution]) -> tuple[Solution, Solution]:
    """Answers of the formulas, and of the compiled functions."""
    calls = native.load(plane.FILE)
    assert calls is not None
    loaded = []
    monkeypatch.setattr(plane, "native", lambda name: loaded.append(name))
    formula = solve()
    monkeypatch.setattr(plane, "native", lambda name: calls)
    compiled = solve()
    assert loaded == [plane.FILE]
    return formula, compiled


def same(one: Solution, other: Solution) -> None:
    assert torch.equal(one.failed, other.failed)
    for a, b in ((one.x, other.x), (one.residual, other.residual)):
        assert a.dtype == b.dtype
        assert torch.equal(a.isnan(), b.isnan())
        assert torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.fixture(params=KINDS)
def G(request: pytest.FixtureRequest) -> Tensor:
    return gram(request.param, R)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_min_norm(G: Tensor, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    with_lost(G)
    G = G.to(dtype)
    same(*both(monkeypatch, lambda: min_norm(G)))
    same(*both(monkeypatch, lambda: min_norm(G[8:9])))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_qp(G: Tensor, linear: bool, share: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    a = numbers(R, 2, seed=4).clamp_min(0)
    r = a.sum(1) if share else None
    b = numbers(R, 2, seed=5) * (numbers(R, 1, seed=6) > 0) if linear else None
    with_lost(*(t for t in (G, a, b) if t is not None))
    same(*both(monkeypatch, lambda: qp(G, b, a, r)))


@pytest.mark.parametrize("restricted", [False, True])
def test_epo(G: Tensor, restricted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    a = numbers(R, 2, seed=4)
    Ca = torch.where(a[:, :1] > 1, a, (G @ a.unsqueeze(2)).squeeze(2))
    balance = numbers(R, seed=5) > 0
    jstar = (numbers(R, seed=6) > 0).long()
    with_lost(G, Ca)
    same(*both(monkeypatch, lambda: epo_lp(G, Ca, balance, jstar, restricted)))


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("own_cone", [False, True])
def test_ferero(G: Tensor, adaptive: bool, own_cone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.cat((torch.eye(2, dtype=F64).expand(R, -1, -1), numbers(R, 1, 2, seed=4)), 1)
    if own_cone:
        rows[:, :2] = numbers(R, 2, 2, seed=5).abs().round(decimals=1)
    F = numbers(R, 2, seed=6).abs()
    bh = numbers(R, 1, seed=7).round()
    with_lost(G, F)
    program = Dual(rows, torch.zeros(R, 0, dtype=F64), bh, 1.0, 0.7, adaptive)
    same(*both(monkeypatch, lambda: ferero_dual(program, G, F)))


def test_ferero_where_the_equality_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """b' K b falls through the share of the trace of K below which both ways drop the row b."""
    share = torch.linspace(0.5e-26, 3e-26, R, dtype=F64)
    rows = torch.eye(2, dtype=F64).repeat(R, 2, 1)[:, :3]
    rows[:, 2, 0] = (2.0 * share).sqrt()
    G = torch.eye(2, dtype=F64).repeat(R, 1, 1)
    F = numbers(R, 2, seed=6).abs()
    program = Dual(rows, torch.zeros(R, 0, dtype=F64), torch.ones(R, 1, dtype=F64), 1.0, 0.7, True)
    formula, compiled = both(monkeypatch, lambda: ferero_dual(program, G, F))
    same(formula, compiled)
    assert torch.equal(formula.failed, share <= 1e-26)  # only what is kept can be met


@pytest.mark.parametrize("L", [1, 2, 9])
@pytest.mark.parametrize("objectives", [False, True])
def test_sector(G: Tensor, L: int, objectives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    U = numbers(L, 2, seed=4).abs()
    U = U / U.norm(dim=1, keepdim=True)
    v = U[torch.arange(R) % L]
    F = numbers(R, 2, seed=5).abs()
    with_lost(G, F)
    same(*both(monkeypatch, lambda: sector_min_norm(U, v, G, F, objectives)))


def test_a_gpu_has_the_formulas() -> None:
    assert plane._compiled("min_norm", torch.empty(1, 2, 2, device="meta")) is None


PATIENT = """
import sys, torch
from mobench.kernels import native
from mobench.solvers import min_norm
G = torch.eye(2, dtype=torch.float64)[None]
first = min_norm(G)
for _ in range(native.PATIENCE - 1):
    min_norm(G)
assert "llvmlite" not in sys.modules
assert (min_norm(G).x == first.x).all()
print("llvmlite" in sys.modules, "numba" in sys.modules)
"""


@pytest.mark.parametrize("folder", ["file/in/the/way", "cache"])
def test_loaded_when_it_pays_and_kept_where_it_can_be(folder: str, tmp_path: Path) -> None:
    """Numba is imported once on a machine, and again for a damaged file; a read-only folder is no error."""
    (tmp_path / "file").write_text("")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env["MOBENCH_CACHE"] = str(tmp_path / folder)
    for turn in ("first", "kept", "damaged") if folder == "cache" else ("first",):
        for file in tmp_path.rglob("*.o") if turn == "damaged" else ():
            file.write_bytes(file.read_bytes()[:3000])
        done = process([sys.executable, "-c", PATIENT], 300, cwd=REPOSITORY, env=env)
        assert done.returncode == 0, done.stderr
        new = turn != "kept"
        assert done.stdout == f"True {new}\n"
        assert ("compiled small solvers" in done.stderr) == new
        assert len(list(tmp_path.rglob("*.o"))) == (folder == "cache")


def test_without_numba_the_formulas_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert native.load.__wrapped__(plane.FILE) is None
    assert "not compiled" in capsys.readouterr().err
