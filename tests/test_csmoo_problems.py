"""Problems of expectations with constraints: closed forms against samples and printed numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.core import Runs
from mobench.core.preferences import resolve
from mobench.errors import ConfigError
from mobench.oracles import Exact, Minibatch
from mobench.problems import PLS, ConstrainedGaussian, LeastSquares

F64 = torch.float64


def runs_of(M: int, count: int = 3, seeds: tuple[int, ...] = (0, 1, 5)) -> Runs:
    return Runs.product(resolve(count, M), list(seeds))


def keys_of(R: int, first: int = 11) -> Tensor:
    return torch.arange(first, first + R)


def autodiff(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_(True)
    out = fn(leaf)
    rows = [torch.autograd.grad(out[:, k].sum(), leaf, retain_graph=True)[0] for k in range(out.shape[1])]
    return torch.stack(rows, 1)


# --- the noisy variable: values and samples -----------------------------------------------------------------


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


def test_values_by_hand(gaussian: ConstrainedGaussian) -> None:
    s = gaussian.variance
    b1, b2 = gaussian.bounds
    e = 0.3
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
    n = 200_000
    x = points()[2:7]
    e = gaussian.draw(keys_of(len(x)), "batch0", 3, n)
    assert e.shape == (len(x), n)
    torch.testing.assert_close(
        e.var(1), torch.full((len(x),), gaussian.variance, dtype=F64), rtol=0.02, atol=0
    )
    single = torch.stack(
        [gaussian.values(x[r : r + 1].expand(n, 1), e[r].unsqueeze(1)) for r in range(len(x))]
    )
    torch.testing.assert_close(single.mean(1), gaussian.values(x, e), rtol=1e-10, atol=1e-12)
    errors = (single.mean(1) - gaussian.values(x)).abs() / (single.std(1) / math.sqrt(n))
    assert errors.max() < 4.0
    J = gaussian.linearize(x, e)[1]()
    h = gaussian.linearize(x)[1]()
    torch.testing.assert_close(J, h, rtol=0.02, atol=0.05)


# --- the noisy variable: its truth --------------------------------------------------------------------------


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
    # both minimisers lie in F, one is no grid point
    inside = ConstrainedGaussian(bounds=(5.0, 5.0), grid=0.3)
    torch.testing.assert_close(inside.ideal_point, torch.tensor([0.25, 0.26], dtype=F64))
    oracle = Exact(p, runs_of(3))
    assert torch.equal(oracle.ideal, p.ideal_point)


# lambda_1, x* and V* for the feasible ideal point, x* and V* for the analytic one; derived from the closed
# form
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
        optimum, value = p.optimum(at)
        assert abs(optimum.item() - x) < 1e-6
        assert abs(value.item() - v) < 1e-6
        again, _ = ConstrainedGaussian(objectives=len(w)).optimum(at, p.ideal_point)
        assert torch.equal(again, optimum)


def test_optimum_beats_a_grid(gaussian: ConstrainedGaussian) -> None:
    M = gaussian.n_objectives
    w = torch.cat(
        [resolve(30, M), torch.full((1, M), 1.0 / M, dtype=F64), torch.eye(M, dtype=F64) * 0.998 + 1e-3]
    )
    low, high = gaussian.feasible_set
    grid = torch.linspace(low, high, 20001, dtype=F64)
    F = gaussian.values(grid.unsqueeze(1))[:, :M]
    rng = torch.Generator().manual_seed(0)
    for z in (
        gaussian.ideal_point,
        torch.zeros(M, dtype=F64),
        torch.rand(len(w), M, dtype=F64, generator=rng),
    ):
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
        torch.testing.assert_close(
            F[:, 1], ((F[:, 0] - gaussian.variance).sqrt() - 1) ** 2 + gaussian.variance
        )


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


# --- beamforming: samples -----------------------------------------------------------------------------------


BEAMS = {
    "paper": PLS(),
    "other": PLS(
        antennas=3, users=3, noise=0.5, noise_eavesdropper=2.0, power=20.0, error_user=0.2, channel_seed=4
    ),
    "one user": PLS(antennas=1, users=1, error_eavesdropper=0.4),
}


@pytest.fixture(params=list(BEAMS))
def beams(request: pytest.FixtureRequest) -> PLS:
    return BEAMS[request.param]


def beamformers(p: PLS, R: int = 5, seed: int = 0) -> Tensor:
    """Some inside the ball, some on its surface."""
    rng = torch.Generator().manual_seed(seed)
    return p.X.project(math.sqrt(p.power / p.dim) * torch.randn(R, p.dim, dtype=F64, generator=rng) * 1.2)


def matrices(p: PLS, x: Tensor) -> np.ndarray:
    """W (R, n, m), complex, from the layout that the docstring states."""
    n = p.antennas
    m = p.users
    v = x.numpy()
    columns = [v[:, i * n : (i + 1) * n] + 1j * v[:, (m + i) * n : (m + i + 1) * n] for i in range(m)]
    return np.stack(columns, -1)


def one_sample(p: PLS, W: np.ndarray, h: np.ndarray) -> list[float]:
    """f and g at channels h (m + 1, n), complex, from the definition."""
    m = p.users
    f = []
    g = []
    for i in range(m):
        signal = abs(np.vdot(h[i], W[:, i])) ** 2
        others = sum(abs(np.vdot(h[i], W[:, j])) ** 2 for j in range(m) if j != i)
        f.append(-np.log2(1 + signal / (p.noise + others)))
        g.append(np.log2(1 + abs(np.vdot(h[m], W[:, i])) ** 2 / p.noise_eavesdropper) - p.leakage)
    return f + g


def complex_channels(p: PLS, noise: np.ndarray) -> np.ndarray:
    """h (m + 1, n) from the estimate and 2 n (m + 1) standard normal numbers."""
    n = p.antennas
    hat = p.channels[0].numpy()
    e = noise.reshape(p.users + 1, 2 * n)
    delta = np.array([[p.error_user]] * p.users + [[p.error_eavesdropper]]) / np.sqrt(2)
    return (hat + delta * e)[:, :n] + 1j * (hat + delta * e)[:, n:]


def test_samples_are_those_of_the_definition(beams: PLS) -> None:
    x = beamformers(beams)
    batch = beams.draw(keys_of(5), "batch0", 2, 3)
    assert batch.shape == (5, 3, 2 * beams.antennas * (beams.users + 1))
    W = matrices(beams, x)
    expected = [
        np.mean([one_sample(beams, W[r], complex_channels(beams, batch[r, k].numpy())) for k in range(3)], 0)
        for r in range(5)
    ]
    torch.testing.assert_close(
        beams.values(x, batch), torch.from_numpy(np.stack(expected)), rtol=1e-12, atol=1e-13
    )
    power = np.linalg.norm(W, axis=(1, 2)) ** 2
    np.testing.assert_allclose(beams.columns(x, beams.values(x))["power"].numpy(), power)
    assert (power <= beams.power + 1e-12).all()
    assert torch.equal(beams.rates(beams.values(x)), -beams.values(x)[:, : beams.users])


def test_draws_are_standard_normal_and_keyed_by_run() -> None:
    p = BEAMS["paper"]
    e = p.draw(keys_of(3), "batch0", 5, 40_000)
    assert e.mean().abs() < 0.004
    assert (e.var() - 1).abs() < 0.004
    corner = torch.corrcoef(e[0].T) - torch.eye(12, dtype=F64)
    assert corner.abs().max() < 0.025
    assert torch.equal(e[1], p.draw(keys_of(3)[1:2], "batch0", 5, 40_000)[0])
    assert torch.equal(e[:, :7], p.draw(keys_of(3), "batch0", 5, 7))
    assert p.n_samples == math.inf


# --- beamforming: expectations ------------------------------------------------------------------------------


def product_rule(p: PLS, x: Tensor, nodes: int) -> Tensor:
    """Expectations by Gauss-Hermite in the 2n real coordinates of each channel's error."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    n = 2 * p.antennas
    Z = np.stack(np.meshgrid(*[z] * n, indexing="ij"), -1).reshape(-1, n)
    weight = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * n, indexing="ij"), -1).reshape(-1, n), 1)
    W = matrices(p, x)
    out = []
    for r in range(len(x)):
        each = [one_sample(p, W[r], complex_channels(p, np.tile(row, p.users + 1))) for row in Z]
        out.append(weight @ np.array(each))
    return torch.from_numpy(np.stack(out))


def test_expectations_equal_a_product_rule() -> None:
    p = BEAMS["paper"]
    x = beamformers(p, 3)
    fine = product_rule(p, x, 6)
    torch.testing.assert_close(p.values(x), fine, rtol=0, atol=1e-11)
    # the rule converges, and is not exact by accident
    assert 1e-10 < (product_rule(p, x, 4) - fine).abs().max() < 1e-8
    one = BEAMS["one user"]
    x = beamformers(one)
    # large errors: slow rule
    torch.testing.assert_close(one.values(x), product_rule(one, x, 40), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [{}, {"error_user": 1.0, "error_eavesdropper": 2.0}, {"power": 500.0}, {"power": 1e-3}, {"noise": 1e-3}],
    ids=str,
)
def test_the_integral_has_converged(beams: PLS, changes: dict[str, Any]) -> None:
    p = dataclasses.replace(beams, **changes)
    x = torch.cat([beamformers(p), torch.zeros(1, p.dim, dtype=F64)])
    torch.testing.assert_close(p.values(x), p._expected(x, 0.1), rtol=0, atol=1e-9)
    torch.testing.assert_close(p.values(x[-1:])[0, p.users :], torch.full((p.users,), -0.4, dtype=F64))


def test_expectations_lie_within_the_monte_carlo_error(beams: PLS) -> None:
    x = beamformers(beams, 4)
    mean, error = beams.monte_carlo(x)
    assert ((mean - beams.values(x)).abs() <= 4 * error).all()
    assert (error > 0).all()
    assert error.max() < 5e-3
    again, _ = beams.monte_carlo(x[1:2])
    torch.testing.assert_close(again[0], mean[1], rtol=1e-12, atol=1e-13)  # one held-out set for all runs
    one, other = (beams.monte_carlo(x, samples=1000, seed=seed)[0] for seed in (0, 1))
    assert not torch.allclose(one, other, rtol=0, atol=1e-6)


def test_standard_errors_by_hand() -> None:
    p = BEAMS["paper"]
    x = beamformers(p, 2)
    _, error = p.monte_carlo(x, samples=500)
    from mobench.problems import pls

    noise = pls._held_out(0, 500, 12)[0]
    single = torch.stack([p.values(x, noise[k].expand(2, 1, 12)) for k in range(500)])
    torch.testing.assert_close(error, single.std(0) / math.sqrt(500), rtol=1e-6, atol=0)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    p = BEAMS["paper"]
    x = beamformers(p, 2)
    whole = p.monte_carlo(x, samples=1000)
    monkeypatch.setattr("mobench.problems.pls.CHUNK", 1000)
    for a, b in zip(whole, p.monte_carlo(x, samples=1000), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)


def test_without_channel_errors_nothing_is_random() -> None:
    p = PLS(error_user=0.0, error_eavesdropper=0.0)
    x = beamformers(p)
    exact = [one_sample(p, W, complex_channels(p, np.zeros(12))) for W in matrices(p, x)]
    torch.testing.assert_close(p.values(x), torch.tensor(exact, dtype=F64), rtol=0, atol=1e-14)
    torch.testing.assert_close(
        p.values(x, p.draw(keys_of(5), "batch0", 0, 2)), p.values(x), rtol=0, atol=1e-14
    )
    mean, error = p.monte_carlo(x, samples=100)
    torch.testing.assert_close(mean, p.values(x), rtol=0, atol=1e-13)
    assert error.max() < 1e-7


# --- beamforming: instances ---------------------------------------------------------------------------------


def test_one_instance_is_shared_by_all_runs() -> None:
    runs = runs_of(2)
    p = PLS(channel_seed=3)
    assert p.bind(runs) is p
    assert p.ideal_point.shape == (2,)
    assert torch.equal(p.channels, PLS(channel_seed=3, power=1.0).channels)
    assert not torch.equal(p.channels, PLS(channel_seed=2).channels)
    users = p.channels[0, :2, :].numpy()
    bound = [-math.log2(1 + 5.0 * (users[i] ** 2).sum()) for i in range(2)]
    torch.testing.assert_close(p.ideal_point, torch.tensor(bound, dtype=F64))
    # the first users of more users are the same, and so is the eavesdropper
    three = PLS(channel_seed=3, users=3)
    assert torch.equal(three.channels[:, [0, 1, 3]], p.channels)
    assert PLS(ideal=[-1, -2.5]).ideal_point.tolist() == [-1.0, -2.5]
    x = p.initial(runs)
    assert p.values(x).ge(torch.cat([p.ideal_point, torch.full((2,), -p.leakage, dtype=F64)])).all()


def test_channels_have_unit_variance() -> None:
    h = torch.cat([PLS(channel_seed=s, antennas=8).channels for s in range(200)])
    assert abs(h.square().mean().item() - 0.5) < 0.02  # CN(0, 1): 1/2 for each part
    assert abs(h.mean().item()) < 0.02


def test_a_run_has_the_same_instance_alone_and_in_a_batch() -> None:
    runs = runs_of(2)
    p = PLS(channel_seed=None)
    together, alone = (Minibatch(p, r, batch_size=4) for r in (runs, runs.take([4])))
    x = p.X.project(p.initial(runs))
    a = together.at(x, {}, 7)
    b = alone.at(x[4:5], {}, 7)
    torch.testing.assert_close(a.jacobian()[4], b.jacobian()[0], rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(together.exact(x)[4], alone.exact(x[4:5])[0], rtol=1e-13, atol=0)
    z = together.ideal
    assert z is not None
    assert alone.ideal is not None
    assert z.shape == (9, 2)
    assert torch.equal(z[4], alone.ideal[0])
    assert torch.equal(z[1], z[4])  # the seed makes the instance, for every preference
    assert not torch.equal(z[0], z[1])
    shared = PLS(channel_seed=1)  # seed 1 is run 4's
    torch.testing.assert_close(shared.values(x[4:5])[0], together.exact(x)[4], rtol=1e-13, atol=0)
    torch.testing.assert_close(
        p.bind(runs).monte_carlo(x, samples=50)[0][4], shared.monte_carlo(x[4:5], samples=50)[0][0]
    )


def test_an_instance_per_run_must_be_bound() -> None:
    p = PLS(channel_seed=None)
    x = torch.zeros(2, 8, dtype=F64)
    with pytest.raises(ConfigError, match="call bind"):
        p.values(x)
    with pytest.raises(ConfigError, match="bound to 9 runs, but values of 2 were requested"):
        p.bind(runs_of(2)).values(x)
    with pytest.raises(ConfigError, match="expected"):
        p.with_channels(torch.zeros(1, 2, 4, dtype=F64))


# --- least squares with caps --------------------------------------------------------------------------------


CAPPED = LeastSquares(tasks=3, n=6, samples=40, caps=[None, 0.5, 0.9])


@pytest.mark.parametrize("size", [None, 5])
def test_caps_are_constraints_on_the_objectives(size: int | None) -> None:
    plain = LeastSquares(tasks=3, n=6, samples=40)
    x = torch.randn(4, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    batch = None if size is None else CAPPED.draw(keys_of(4), "batch0", 0, size)
    assert CAPPED.n_constraints == 2
    assert plain.n_constraints == 0
    F = plain.values(x, batch)
    expected = torch.cat([F, F[:, 1:] - torch.tensor([0.5, 0.9], dtype=F64)], 1)
    torch.testing.assert_close(CAPPED.values(x, batch), expected, rtol=0, atol=1e-15)
    V, rows = CAPPED.linearize(x, batch)
    torch.testing.assert_close(V, expected, rtol=0, atol=1e-15)
    torch.testing.assert_close(rows(), autodiff(lambda y: CAPPED.values(y, batch), x), rtol=1e-12, atol=1e-13)
    runs = Runs.product(resolve(2, 3), [0, 1])
    assert Exact(CAPPED, runs).at(x, {}, 0).G.shape == (4, 2)
    assert torch.equal(CAPPED.initial(runs), plain.initial(runs))
    assert CAPPED.ref_point == plain.ref_point
    assert LeastSquares(caps=[None, None]).n_constraints == 0


def test_the_front_under_caps_is_the_part_that_keeps_them() -> None:
    p = LeastSquares(caps=[0.1, None])
    plain = LeastSquares()
    F = p.front(2001)
    every = plain.front(2001)
    assert 0 < len(F) < len(every)
    assert (F[:, 0] <= 0.1).all()
    assert len(F) == (every[:, 0] <= 0.1).sum()
    # minimise f_2 subject to f_1 <= 0.1 with CVXPY: the end of the front
    d = p.data()
    x = cp.Variable(10)
    f = [cp.sum_squares(d.A[:, m].numpy() @ x - d.b[:, m].numpy()) / (2 * 256) for m in range(2)]
    best = cp.Problem(cp.Minimize(f[1]), [f[0] <= 0.1]).solve(solver=cp.CLARABEL)
    assert abs(F[:, 1].min().item() - best) < 2e-3
    assert F[:, 1].min() >= best - 1e-8


# --- refusals -----------------------------------------------------------------------------------------------

REFUSED: list[tuple[type[Any], dict[str, Any], str]] = [
    (ConstrainedGaussian, {"objectives": 4}, "2 or 3 objectives"),
    (ConstrainedGaussian, {"bounds": [1.0]}, "two numbers"),
    (
        ConstrainedGaussian,
        {"bounds": [0.2, 0.2]},
        r"holds on \[-0\.091036, 0\.091036\], the second on \[0\.908964, 1\.09104\]",
    ),
    (
        ConstrainedGaussian,
        {"bounds": [0.1, 2.0]},
        r"no solution \(bounds\[0\]=0\.1 is below 3 variance\^2=0\.1875\)",
    ),
    (ConstrainedGaussian, {"box": 0.1}, r"X is \[-0\.1, 0\.1\]"),
    (ConstrainedGaussian, {"ideal": "feasable"}, "Did you mean 'feasible'"),
    (ConstrainedGaussian, {"ideal": [0.1]}, "2 finite numbers"),
    (ConstrainedGaussian, {"ideal": [0.1, math.nan]}, "2 finite numbers"),
    (ConstrainedGaussian, {"grid": 0.9}, "choose a finer grid"),
    (PLS, {"leakage": -0.1}, "leaves no feasible point"),
    (PLS, {"ideal": "bounds"}, "Did you mean 'bound'"),
    (PLS, {"ideal": [1.0]}, "2 finite numbers"),
    (LeastSquares, {"caps": [0.1]}, "must contain problem.tasks=2 numbers"),
    (LeastSquares, {"caps": [0.1, math.nan]}, "must contain problem.tasks=2 numbers"),
    (
        LeastSquares,
        {"caps": [0.001, None]},
        r"caps\[0\]=0.001 leaves no feasible point: the smallest value of objective 1 is 0.005",
    ),
    (LeastSquares, {"caps": [None, -1]}, r"caps\[1\]=-1 leaves no feasible point"),
]


@pytest.mark.parametrize(("problem", "options", "message"), REFUSED)
def test_refusals(problem: type[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        problem(**options)
