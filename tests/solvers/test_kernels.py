"""The kernels: FERERO's dual against all multipliers at once; imported at the first solve, kept on disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mobench.errors import ConfigError
from mobench.kernels import compiled
from mobench.solvers import TOLERANCE, Solution, qp
from mobench.solvers.dual import Dual, ferero_dual
from tests.conftest import REPOSITORY, process
from tests.solvers.test_subproblem_qp import gram, jacobian


def over_all(*program: Tensor) -> Solution:
    """The exact solver under another name: it gets the free multipliers, too, which nothing eliminates."""
    return qp(*program)


def apart(one: Tensor, other: Tensor, G: Tensor) -> Tensor:
    """The length of J'(w_1 - w_2), relative to that of the longest gradient times the largest weight."""
    difference = (one - other).unsqueeze(2)
    length = (difference.mT @ G @ difference).flatten().clamp_min(0).sqrt()
    size = torch.maximum(one.abs(), other.abs()).amax(1)
    return length / (size * G.diagonal(dim1=1, dim2=2).amax(1).sqrt()).clamp_min(torch.finfo(G.dtype).tiny)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(("M", "h"), [(5, 0), (5, 1), (5, 3), (3, 1), (2, 1)])
@pytest.mark.parametrize("g", [0, 2])
@pytest.mark.parametrize("family", ["random", "low rank", "duplicated", "zero row", "scaled rows", "opposed"])
def test_dual_of_every_rank_and_scale(family: str, g: int, M: int, h: int, adaptive: bool) -> None:
    R = 30
    generator = torch.Generator().manual_seed(1)
    rows = torch.cat((torch.eye(M), torch.eye(M)[:g], torch.randn(h, M, generator=generator))).double()
    F = torch.rand(R, M, generator=generator, dtype=torch.float64) + 0.1
    bg = -torch.rand(R, g, generator=generator, dtype=torch.float64)
    bh = torch.zeros(R, h, dtype=torch.float64)
    program = Dual(rows.expand(R, -1, -1), bg, bh, 1.0, 1.0, adaptive)
    whole = Dual(rows.expand(R, -1, -1), bg, bh, 1.0, 1.0, adaptive, over_all)
    J = jacobian(family, R, M)
    for scale in (1e-4, 1.0, 1e4):
        K = gram(scale * J)
        one = ferero_dual(program, K, F)
        other = ferero_dual(whole, K, F)
        assert (one.residual[~one.failed] <= TOLERANCE).all()
        if family in ("random", "scaled rows"):
            assert not one.failed.any()
        if g == 0:  # dependent gradients can leave an inequality that no direction meets, up to rounding
            assert not (one.failed & ~other.failed).any()
        both = ~one.failed & ~other.failed
        if scale <= 1 and family != "low rank":
            assert (apart(one.x[both], other.x[both], K[both]) <= 1e-6).all()
        alone = ferero_dual(program.take(torch.tensor([3])), K[3:4], F[3:4])
        assert torch.equal(alone.x.nan_to_num(), one.x[3:4].nan_to_num())
    K[2, 1, 0] = K[2, 0, 1] = torch.nan
    assert ferero_dual(program, K, F).residual[2].isnan()


LATE = """
import sys, numpy, torch
from mobench.solvers import min_norm, qp
from mobench.solvers.alike import alike  # the one that is compiled soonest
import mobench.algorithms.mgda, mobench.algorithms.epo, mobench.algorithms.ferero
assert not min_norm(torch.eye(2)[None]).failed
assert "numba" not in sys.modules
assert (alike(numpy.eye(3)[None]).b == 1).all()
print("numba" in sys.modules)
"""


@pytest.mark.parametrize("folder", ["file/in/the/way", "cache"])
def test_imported_at_the_first_solve_and_kept_where_it_can_be(folder: str, tmp_path: Path) -> None:
    """A folder that cannot be written is no error; what is compiled is kept in mobench's cache."""
    (tmp_path / "file").write_text("")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "MOBENCH_CACHE": str(tmp_path / folder)}
    for turn in range(2 if folder == "cache" else 1):
        done = process([sys.executable, "-c", LATE], 300, cwd=REPOSITORY, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "True\n"
        cached = list(tmp_path.rglob("*.nbc"))
        if folder == "cache":
            assert len(cached) == 1
            assert ("compiling small solvers" in done.stderr) == (turn == 0)
        else:
            assert cached == []


def test_an_installation_without_numba_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba.core", None)
    monkeypatch.delitem(sys.modules, "numba.core.config", raising=False)
    with pytest.raises(ConfigError, match="pip install --upgrade numba"):
        compiled.module.__wrapped__("solvers.kernels.pivoting")
