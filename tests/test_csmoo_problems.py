"""Problems of expectations with constraints: closed forms against samples, differences and printed numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from mobench.core import Problem, Runs
from mobench.core.preferences import resolve
from mobench.errors import ConfigError
from mobench.oracles import Exact, Minibatch
from mobench.problems import ConstrainedGaussian

CONF = Path(__file__).parents[1] / "conf" / "problem"
F64 = torch.float64


def runs_of(M: int, count: int = 3, seeds: tuple[int, ...] = (0, 1, 5)) -> Runs:
    return Runs.product(resolve(count, M), list(seeds))


def keys_of(R: int, first: int = 11) -> Tensor:
    return torch.arange(first, first + R)


def differences(fn: Callable[[Tensor], Tensor], x: Tensor, h: float = 1e-6) -> Tensor:
    """Central differences of (R, P) -> (R, K): (R, K, P)."""
    out = []
    for i in range(x.shape[1]):
        e = torch.zeros_like(x)
        e[:, i] = h
        out.append((fn(x + e) - fn(x - e)) / (2 * h))
    return torch.stack(out, -1)


def autodiff(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_(True)
    out = fn(leaf)
    rows = [torch.autograd.grad(out[:, k].sum(), leaf, retain_graph=True)[0] for k in range(out.shape[1])]
    return torch.stack(rows, 1)


def build(name: str) -> tuple[Any, Any]:
    config = OmegaConf.load(CONF / f"{name}.yaml")
    return config, instantiate(config)


# --- the noisy variable: values and samples --------------------------------------------------------------------------


GAUSSIANS = {
    "two": ConstrainedGaussian(),
    "three": ConstrainedGaussian(objectives=3),
    "other": ConstrainedGaussian(objectives=3, variance=0.1, bounds=(0.5, 3.0), box=2.0),
}


@pytest.fixture(params=list(GAUSSIANS))
def gaussian(request: pytest.FixtureRequest) -> ConstrainedGaussian:
    return GAUSSIANS[request.param]


def points() -> Tensor:
    return torch.linspace(-2.0, 2.0, 9, dtype=F64).unsqueeze(1)


def test_expectations_are_integrals_of_the_sample(gaussian: ConstrainedGaussian) -> None:
    """Gauss-Hermite with 8 nodes is exact for polynomials of degree 15; the mean over the nodes is a weighted batch."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    x = points()
    total = torch.zeros(len(x), gaussian.n_objectives + 2, dtype=F64)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        e = torch.full((len(x), 1), math.sqrt(gaussian.variance) * node, dtype=F64)
        total += weight * gaussian.values(x, e)
    torch.testing.assert_close(gaussian.values(x), total, rtol=1e-12, atol=1e-12)


def test_values_by_hand(gaussian: ConstrainedGaussian) -> None:
    s, (b1, b2), e = gaussian.variance, gaussian.bounds, 0.3
    for x in (-0.7, 0.4):
        f = [(x - c) ** 2 + s for c in (0, 1, -0.5)[: gaussian.objectives]]
        g = [u**4 + 6 * s * u**2 + 3 * s**2 - b for u, b in ((x, b1), (x - 1, b2))]
        at = torch.tensor([[x]], dtype=F64)
        torch.testing.assert_close(gaussian.values(at), torch.tensor([f + g], dtype=F64))
        f = [(x + e - c) ** 2 for c in (0, 1, -0.5)[: gaussian.objectives]]
        g = [(x + e) ** 4 - b1, (x + e - 1) ** 4 - b2]
        torch.testing.assert_close(
            gaussian.values(at, torch.tensor([[e]], dtype=F64)), torch.tensor([f + g], dtype=F64)
        )


def test_samples_are_unbiased_and_have_the_variance(gaussian: ConstrainedGaussian) -> None:
    n, x = 200_000, points()[2:7]
    e = gaussian.draw(keys_of(len(x)), "batch0", 3, n)
    assert e.shape == (len(x), n)
    torch.testing.assert_close(e.var(1), torch.full((len(x),), gaussian.variance, dtype=F64), rtol=0.02, atol=0)
    single = torch.stack([gaussian.values(x[r : r + 1].expand(n, 1), e[r].unsqueeze(1)) for r in range(len(x))])
    torch.testing.assert_close(single.mean(1), gaussian.values(x, e), rtol=1e-10, atol=1e-12)
    errors = (single.mean(1) - gaussian.values(x)).abs() / (single.std(1) / math.sqrt(n))
    assert errors.max() < 4.0
    J, h = gaussian.linearize(x, e)[1](), gaussian.linearize(x)[1]()
    torch.testing.assert_close(J, h, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("size", [None, 1, 7])
def test_rows_of_expectation_and_sample(gaussian: ConstrainedGaussian, size: int | None) -> None:
    x = points()
    batch = None if size is None else gaussian.draw(keys_of(len(x)), "batch0", 0, size)
    V, rows = gaussian.linearize(x, batch)
    torch.testing.assert_close(V, gaussian.values(x, batch), rtol=0, atol=1e-15)
    torch.testing.assert_close(rows(), autodiff(lambda y: gaussian.values(y, batch), x), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(rows(), differences(lambda y: gaussian.values(y, batch), x), rtol=1e-7, atol=1e-6)


def test_gaussian_in_float32() -> None:
    p, x = GAUSSIANS["two"], points()
    batch = p.draw(keys_of(len(x)), "batch0", 0, 4)
    for b in (None, batch):
        V, rows = p.linearize(x.float(), b)
        assert V.dtype == rows().dtype == p.values(x.float(), b).dtype == torch.float32
        torch.testing.assert_close(V.double(), p.values(x, b), rtol=1e-5, atol=1e-5)


def test_gaussian_samples_are_the_same_alone_and_in_a_batch(gaussian: ConstrainedGaussian) -> None:
    runs = runs_of(gaussian.n_objectives)
    together, alone = (Minibatch(gaussian, r, batch_size=3) for r in (runs, runs.take([4])))
    x = gaussian.initial(runs)
    assert (x == 1.0).all()
    a, b = together.at(x, {}, 7), alone.at(x[4:5], {}, 7)
    torch.testing.assert_close(a.rows()[4], b.rows()[0], rtol=1e-14, atol=0)
    assert torch.equal(a.values()[1], a.values()[4])  # all preferences of a seed see the same samples
    assert not torch.equal(a.values()[0], a.values()[1])
    assert not torch.equal(a.values(), together.at(x, {}, 8).values())
    assert a.G.shape == (9, 2)
    assert gaussian.n_samples == math.inf


# --- the noisy variable: its truth -----------------------------------------------------------------------------------


def test_feasible_interval_of_the_specification() -> None:
    low, high = GAUSSIANS["two"].feasible_set
    assert abs(low - 0.110560007) < 5e-10
    assert abs(high - 0.650079949) < 5e-10


def test_constraints_vanish_at_the_ends_of_the_feasible_set(gaussian: ConstrainedGaussian) -> None:
    low, high = gaussian.feasible_set
    grid = torch.linspace(-2, 2, 4001, dtype=F64).unsqueeze(1)
    feasible = (gaussian.values(grid)[:, -2:] <= 0).all(1)
    assert torch.equal(feasible, ((grid >= low) & (grid <= high)).squeeze(1))
    ends = gaussian.values(torch.tensor([[low], [high]], dtype=F64))[:, -2:]
    torch.testing.assert_close(ends.amax(1), torch.zeros(2, dtype=F64), rtol=0, atol=1e-12)
    narrow = ConstrainedGaussian(box=0.3)
    assert narrow.feasible_set == (GAUSSIANS["two"].feasible_set[0], 0.3)


def test_ideal_points() -> None:
    three = GAUSSIANS["three"].ideal_point
    torch.testing.assert_close(
        three, torch.tensor([0.262223515, 0.372444042, 0.622783522], dtype=F64), rtol=0, atol=1e-9
    )
    assert torch.equal(GAUSSIANS["two"].ideal_point, three[:2])
    assert ConstrainedGaussian(ideal="analytic").ideal_point.tolist() == [0.25, 0.25]
    assert ConstrainedGaussian(ideal=[0.1, 0.2]).ideal_point.tolist() == [0.1, 0.2]
    p = ConstrainedGaussian(objectives=3, grid=1e-4)
    x = torch.arange(-50000, 50001, dtype=F64).unsqueeze(1) * 1e-4
    V = p.values(x)
    grid = V[(V[:, 3:] <= 0).all(1), :3].amin(0)
    torch.testing.assert_close(p.ideal_point, grid, rtol=0, atol=1e-15)
    assert (three <= grid).all()
    assert (grid - three).max() < 1e-4
    inside = ConstrainedGaussian(bounds=(5.0, 5.0), grid=0.3)  # both minimisers lie in F, one is no grid point
    torch.testing.assert_close(inside.ideal_point, torch.tensor([0.25, 0.26], dtype=F64))
    oracle = Exact(p, runs_of(3))
    assert torch.equal(oracle.ideal, p.ideal_point)


# lambda_1, x* and V* for the feasible ideal point, x* and V* for the analytic one; derived from the closed form
OPTIMA = [
    ([0.1, 0.9], 0.598838, 0.034638, 0.650080, 0.110200),
    ([0.3, 0.7], 0.518087, 0.076857, 0.604356, 0.109574),
    ([0.5, 0.5], 0.444890, 0.092852, 0.5, 0.125),
    ([0.7, 0.3], 0.364477, 0.084434, 0.395644, 0.109574),
    ([0.9, 0.1], 0.247922, 0.044318, 0.25, 0.05625),
    ([0.4, 0.35, 0.25], 0.370035, 0.096044, 0.312940, 0.165218),
]


@pytest.mark.parametrize(("w", "x1", "v1", "x2", "v2"), OPTIMA)
def test_optima_of_the_specification(w: list[float], x1: float, v1: float, x2: float, v2: float) -> None:
    at = torch.tensor([w], dtype=F64)
    for ideal, x, v in (("feasible", x1, v1), ("analytic", x2, v2)):
        p = ConstrainedGaussian(objectives=len(w), ideal=ideal)
        found, value = p.optimum(at)
        assert abs(found.item() - x) < 1e-6
        assert abs(value.item() - v) < 1e-6
        again, _ = ConstrainedGaussian(objectives=len(w)).optimum(at, p.ideal_point)
        assert torch.equal(again, found)


def test_optimum_beats_a_grid(gaussian: ConstrainedGaussian) -> None:
    M = gaussian.n_objectives
    w = torch.cat([resolve(30, M), torch.full((1, M), 1.0 / M, dtype=F64), torch.eye(M, dtype=F64) * 0.998 + 1e-3])
    low, high = gaussian.feasible_set
    grid = torch.linspace(low, high, 20001, dtype=F64)
    F = gaussian.values(grid.unsqueeze(1))[:, :M]
    rng = torch.Generator().manual_seed(0)
    for z in (gaussian.ideal_point, torch.zeros(M, dtype=F64), torch.rand(len(w), M, dtype=F64, generator=rng)):
        x, V = gaussian.optimum(w, z)
        assert ((low <= x) & (x <= high)).all()
        truth = (w * (gaussian.values(x.unsqueeze(1))[:, :M] - z)).amax(1)
        torch.testing.assert_close(V, truth, rtol=0, atol=1e-15)
        best = (w.unsqueeze(1) * (F - z.expand_as(w).unsqueeze(1))).amax(-1)
        assert (best.amin(1) + 1e-14 >= V).all()
        assert (best.amin(1) - V).max() < 2e-4
        assert (grid[best.argmin(1)] - x).abs().max() < 1e-3
        for r in (0, 5):
            alone = gaussian.optimum(w[r : r + 1], z if z.ndim == 1 else z[r : r + 1])
            assert torch.equal(alone[0][0], x[r])


def test_gaussian_front(gaussian: ConstrainedGaussian) -> None:
    M = gaussian.n_objectives
    F = gaussian.front(301)
    assert F.shape == (301, M)
    low, high = gaussian.feasible_set
    x = torch.linspace(low, high, 5001, dtype=F64).unsqueeze(1)
    V = gaussian.values(x)[:, :M]
    weakly = (V.unsqueeze(1) <= F).all(-1) & (V.unsqueeze(1) < F - 1e-12).any(-1)
    assert not weakly.any()  # no feasible point dominates
    every = (F.unsqueeze(1) <= F).all(-1) & (F.unsqueeze(1) < F - 1e-12).any(-1)
    assert not every.any()
    assert gaussian.distance_to_front(F).max() < 1e-12
    gaps = (F[1:] - F[:-1]).norm(dim=1)
    assert gaps.max() < 1.01 * gaps.min()
    assert F.le(torch.tensor(gaussian.ref_point, dtype=F64)).all()
    if M == 2:
        torch.testing.assert_close(F[:, 1], ((F[:, 0] - gaussian.variance).sqrt() - 1) ** 2 + gaussian.variance)


def test_distance_to_the_front_is_that_to_a_fine_front(gaussian: ConstrainedGaussian) -> None:
    M = gaussian.n_objectives
    rng = torch.Generator().manual_seed(1)
    F = 3.0 * torch.rand(200, M, dtype=F64, generator=rng) - 0.5
    fine = gaussian.front(20001)
    sampled = torch.cdist(F, fine).amin(1)
    exact = gaussian.distance_to_front(F)
    assert (exact <= sampled + 1e-12).all()
    assert (sampled - exact).max() < 1e-6
    assert gaussian.distance_to_front(F[:3].float()).dtype == torch.float32


def test_the_front_ends_at_a_feasible_minimiser() -> None:
    p = ConstrainedGaussian(variance=0.01, bounds=(1e4, 0.2))
    low, high = p.feasible_set
    assert 0 < low < 1 < high
    assert p.front(3)[-1, 1].item() == 0.01
    assert (
        p.optimum(torch.tensor([[0.001, 0.999]], dtype=F64), torch.zeros(2, dtype=F64))[0].item() == 1.0
    )  # a vertex, no crossing


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objectives": 4}, "2 or 3 objectives"),
        ({"variance": 0.0}, "must be > 0"),
        ({"variance": -1}, "must be > 0"),
        ({"box": 0.0}, "half width"),
        ({"bounds": [1.0]}, "two numbers"),
        ({"bounds": [0.2, 0.2]}, r"holds on \[-0\.091036, 0\.091036\], the second on \[0\.908964, 1\.09104\]"),
        ({"bounds": [0.1, 2.0]}, r"no solution \(bounds\[0\]=0\.1 is below 3 variance\^2=0\.1875\)"),
        ({"box": 0.1}, r"X is \[-0\.1, 0\.1\]"),
        ({"ideal": "feasable"}, "Did you mean 'feasible'"),
        ({"ideal": [0.1]}, "2 finite numbers"),
        ({"ideal": [0.1, math.nan]}, "2 finite numbers"),
        ({"grid": 0.0}, "must be > 0"),
        ({"grid": 0.9}, "choose a finer grid"),
    ],
)
def test_gaussian_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConstrainedGaussian(**options)


# --- configuration files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["constrained_gaussian"])
def test_the_yaml_file_states_the_class_defaults(name: str) -> None:
    config, built = build(name)
    default = type(built)()
    fields = {f.name for f in dataclasses.fields(default) if f.init}
    assert set(config) - {"_target_"} == fields
    for key in fields - {"start"}:
        assert getattr(built, key) == getattr(default, key), key
    start = {k: v for k, v in dict(built.start).items() if k != "per_preference"}
    assert start == dict(default.start)
    assert built.citation
    assert isinstance(built, Problem)
