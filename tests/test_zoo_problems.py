"""DTLZ1, 3, 4, UF and RE: values against other code or loops, slopes against differences, fronts."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from mobench.core import Problem, Runs
from mobench.core.preferences import spread
from mobench.errors import ConfigError
from mobench.oracles import Exact
from mobench.problems import DTLZ, RE, UF
from mobench.problems.re import DESIGNS
from tests.test_conventions import uf
from tests.test_problems import dominated, some

DTYPE = torch.float64
DTLZS = [DTLZ(which=which, M=M) for which in (1, 3, 4) for M in (2, 3, 5, 10)]
UFS = [UF(which=which, n=n) for which in (1, 2, 3, 4, 7) for n in (6, 7)]
RES = [RE(which=which) for which in DESIGNS]
ALL: list[Problem] = [*DTLZS, *UFS, *RES]
NAMES = [f"{p.name}-{p.n_objectives}-{p.dim}" for p in ALL]
# the suite's objectives at u = (0.3, 0.6, 0.45, 0.7, 0.2, 0.55, 0.35), from the formulas of the authors'
# public code
DESIGNED = {
    "RE21": (2080.85768929, 0.0194967698559),
    "RE22": (266.020320, 110.357158761),
    "RE23": (89689.3125083, 0.0),
    "RE24": (3625.55, 0.0),
    "RE25": (8.98882582111, 112257.891587),
    "RE31": (261.675041861, 1.55379541467, 261.575041861),
    "RE32": (32.3508502841, 0.00656617573049, 0.0),
    "RE33": (4.240897325, 2.476293162535231, 0.0),
    "RE34": (1682.6129017, 10.170979, 0.123286),
    "RE35": (3893.98899438, 1004.89336843, 1.27671052632),
    "RE36": (5.50854010695, 45.6, 0.294768447114),
    "RE37": (0.35431915, 0.5602885, 0.8477625),
}


def jacobian_of(p: Problem, x: Tensor) -> Tensor:
    prefs = spread(len(x), p.n_objectives)
    return Exact(p, Runs.product(prefs, [0])).at(x, {}, 0).jacobian()


@pytest.mark.parametrize("p", ALL, ids=NAMES)
def test_slopes_are_those_of_differences(p: Problem) -> None:
    x = 0.2 + 0.6 * some(p, 3)
    J = jacobian_of(p, x)
    h = 1e-6
    for i in range(p.dim):
        e = torch.zeros_like(x)
        e[:, i] = h
        slope = (p.values(x + e) - p.values(x - e)) / (2 * h)
        torch.testing.assert_close(J[:, :, i], slope, rtol=1e-4, atol=1e-5 * float(1 + slope.abs().max()))
    corner = torch.zeros(2, p.dim, dtype=DTYPE)
    corner[1] = 1.0
    assert jacobian_of(p, corner).isfinite().all()


@pytest.mark.parametrize("p", DTLZS, ids=lambda p: f"{p.name}-{p.M}")
def test_dtlz_is_pymoos(p: DTLZ) -> None:
    problems = pytest.importorskip("pymoo.problems")
    x = some(p, 5)
    theirs = problems.get_problem(p.name, n_var=p.dim, n_obj=p.M).evaluate(x.numpy())
    torch.testing.assert_close(p.values(x), torch.from_numpy(theirs), rtol=1e-9, atol=1e-9)
    F = p.front(200)
    assert F.shape == (200, p.M)
    assert not dominated(F, F, margin=1e-12).any()
    assert p.distance_to_front(F).max() < 1e-12
    best = x.clone()
    best[:, p.M - 1 :] = 0.5
    assert p.distance_to_front(p.values(best)).max() < 1e-9
    assert not dominated(F, p.values(x), margin=1e-12).any()
    assert p.distance_to_front(p.values(x)).min() > 1e-3


@pytest.mark.parametrize("p", UFS, ids=lambda p: f"{p.name}-{p.n}")
def test_uf_is_its_definition(p: UF) -> None:
    u = some(p, 4)
    reach = {3: None, 4: 2.0}.get(p.which, 1.0)
    x = u.clone()
    if reach is not None:
        x[:, 1:] = reach * (2 * u[:, 1:] - 1)
    by_hand = torch.from_numpy(uf(p.which, x.numpy()))
    torch.testing.assert_close(p.values(u), by_hand, rtol=1e-12, atol=1e-12)
    F = p.front(300)
    assert not dominated(F, F, margin=1e-12).any()
    assert not dominated(F, p.values(some(p, 2000)), margin=1e-12).any()
    y = p._errors(u[:, 0], u[:, 1:])
    best = u.clone()
    best[:, 1:] -= y / (1.0 if reach is None else 2.0 * reach)
    f = p.values(best)
    curve = {4: 1 - f[:, 0] ** 2, 7: 1 - f[:, 0]}.get(p.which, 1 - f[:, 0].sqrt())
    torch.testing.assert_close(f[:, 1], curve)


@pytest.mark.parametrize("p", RES, ids=lambda p: p.which)
def test_designs_have_the_suites_values_and_fronts(p: RE) -> None:
    u = torch.tensor([[0.3, 0.6, 0.45, 0.7, 0.2, 0.55, 0.35]], dtype=DTYPE)[:, : p.dim]
    ideal = torch.tensor(DESIGNS[p.which].ideal, dtype=DTYPE)
    nadir = torch.tensor(DESIGNS[p.which].nadir, dtype=DTYPE)
    values = p.values(u) * (nadir - ideal) + ideal
    expected = torch.tensor([DESIGNED[p.which]], dtype=DTYPE)
    torch.testing.assert_close(values, expected, rtol=1e-6, atol=1e-9)
    F = p.front(100)
    assert F.shape == (100, p.n_objectives)
    assert not dominated(F, F, margin=1e-12).any()
    assert F.min() >= -1e-9
    assert F.max() <= 1 + 1e-9
    assert F.min(0).values.max() < 0.05  # the first rows hold the ends
    random = p.values(some(p, 3000))
    better = dominated(F, random, margin=1e-3)
    assert not better.any()
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=DTYPE)] * p.dim)
    assert (torch.cat([random, p.values(corners)]) >= -1e-9).all()  # a minimum may lie in a corner


def test_what_is_unknown_is_refused() -> None:
    for bad in ({"which": 2}, {"M": 1}, {"n": 2}):
        with pytest.raises(ConfigError):
            dataclasses.replace(DTLZ(), **bad)
    with pytest.raises(ConfigError, match="RE21"):
        RE(which="RE38")
    with pytest.raises(ConfigError):
        UF(which=5)
    with pytest.raises(ConfigError):
        UF(n=2)
