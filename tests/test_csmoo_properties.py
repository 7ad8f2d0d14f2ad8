"""Properties of CSMOO, its averaged oracles and its problems: averages, fixed points, symmetries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.csmoo import CSMOO1, CSMOOBasic, conditions
from mobench.algorithms.csmoo2 import CSMOO2
from mobench.algorithms.penalty_sgd import PenaltySGD
from mobench.core import Algorithm, Oracle, Point, Runs, Spec, TablePoint, loop
from mobench.core.random import generator
from mobench.core.sets import Box
from mobench.errors import ConfigError
from mobench.jobs import extremes
from mobench.oracles import EMA, Exact, Minibatch
from mobench.oracles.exact import problem_spec
from mobench.problems import PLS, ConstrainedGaussian, LeastSquares, pls
from tests.test_csmoo import F64, LAST, follow, runs_of

GAUSSIAN = ConstrainedGaussian()
METHODS: list[Any] = [CSMOOBasic(), CSMOO1(), CSMOO2()]
NAMES = ["basic", "csmoo1", "csmoo2"]


def grid(
    starts: tuple[float, ...], firsts: tuple[float, ...], seeds: tuple[int, ...] = (0,)
) -> tuple[Runs, Tensor]:
    """Runs of the noisy variable: every start with every first weight and every seed."""
    rows = [(x, a, s) for x in starts for a in firsts for s in seeds]
    runs = runs_of([[a, 1.0 - a] for _, a, _ in rows], [s for _, _, s in rows])
    return runs, torch.tensor([[x] for x, _, _ in rows], dtype=F64)


def noisy(runs: Runs, problem: Any = GAUSSIAN, batch: int = 1, **options: Any) -> EMA:
    return EMA(problem, runs, Minibatch(problem, runs, batch_size=batch), **options)


def noise_free(runs: Runs, problem: Any = GAUSSIAN, **options: Any) -> EMA:
    return EMA(problem, runs, Exact(problem, runs), **options)


def value(runs: Runs, theta: Tensor, problem: Any = GAUSSIAN, z: Tensor | None = None) -> Tensor:
    """V = max_m w_m (f_m - z_m)."""
    z = problem.ideal_point if z is None else z
    return (runs.weights * (problem.values(theta)[:, : problem.n_objectives] - z)).amax(1)


# averages


class Scripted(Oracle):
    """Samples from tables: values (T, R, K) and rows (T, R, K, P)."""

    def __init__(self, runs: Runs, values: Tensor, rows: Tensor) -> None:
        self.values = values
        self.rows = rows
        problem = LeastSquares(n=rows.shape[3], tasks=rows.shape[2])
        self.spec = problem_spec(problem, len(runs), samples=1)

    def at(self, theta: Tensor, state: dict[str, Tensor], t: int, k: int = 0) -> Point:
        return TablePoint(theta, self.spec.X, self.spec.M, {}, self.values[t], self.rows[t])

    def exact(self, theta: Tensor) -> Tensor:
        raise NotImplementedError


def averages(values: Tensor, rows: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Estimates after each step, (T, R, K) and (T, R, K, P)."""
    T, R, K, P = rows.shape
    runs = runs_of([[1.0 / K] * K] * R, list(range(R)))
    oracle = EMA(LeastSquares(n=P, tasks=K), runs, Scripted(runs, values, rows), **options)
    theta = torch.zeros(R, P, dtype=F64)
    state = oracle.init(theta)
    estimates = []
    for t in range(T):
        point = oracle.at(theta, state, t)
        estimates.append((point.values(), point.jacobian()))
        state = point.state
    return torch.stack([v for v, _ in estimates]), torch.stack([J for _, J in estimates])


def tables(seed: int, T: int = 12, R: int = 3, K: int = 2, P: int = 5) -> tuple[Tensor, Tensor]:
    rng = generator(seed, test="csmoo averages")
    return torch.from_numpy(rng.normal(size=(T, R, K))), torch.from_numpy(rng.normal(size=(T, R, K, P)))


BLOCKWISE: list[dict[str, Any]] = [
    {},
    {"blocks": 3},
    {"blocks": 2, "block_rule": "random", "block_rho": "per_block", "block_move": "all"},
]


@pytest.mark.parametrize("options", BLOCKWISE)
def test_averages_are_linear_and_start_with_the_first_sample(options: dict[str, Any]) -> None:
    """f1."""
    a, A = tables(0)
    b, B = tables(1)
    ea, EA = averages(a, A, **options)
    eb, EB = averages(b, B, **options)
    ec, EC = averages(2.0 * a - 3.0 * b, 2.0 * A - 3.0 * B, **options)
    torch.testing.assert_close(ec, 2.0 * ea - 3.0 * eb, rtol=0, atol=1e-13)
    torch.testing.assert_close(EC, 2.0 * EA - 3.0 * EB, rtol=0, atol=1e-13)
    assert torch.equal(ea[0], a[0])
    seen = EA[0] != 0
    torch.testing.assert_close(EA[0][seen], A[0][seen], rtol=0, atol=0)
    assert (
        int(seen.sum()) == 3 * 2 * {0: 5, 3: 2}.get(options.get("blocks", 0), 0) or options.get("blocks") == 2
    )
    constant, Constant = (t[:1].expand_as(t).contiguous() for t in (a, A))
    ec, EC = averages(constant, Constant, **options)
    torch.testing.assert_close(ec, constant, rtol=0, atol=1e-14)
    if options.get("block_rho") == "per_block" or not options:
        filled = EC != 0
        torch.testing.assert_close(EC[filled], Constant[filled], rtol=0, atol=1e-14)


def test_weights_of_the_samples() -> None:
    """fh_T = sum_s rho_s prod_{r > s} (1 - rho_r) f_s, with rho capped at 1."""
    a, A = tables(2)
    for schedule in (
        {},
        {"decay": 0.5, "scale": 4.0, "offset": 16.0},
        {"decay": 0.6, "scale": 3.0, "offset": 2.0},
    ):
        decay = schedule.get("decay", 0.8)
        scale = schedule.get("scale", 1.0)
        offset = schedule.get("offset", 1.0)
        rho = np.minimum(1.0, scale / (np.arange(12) + offset) ** decay)
        weight = [rho[s] * np.prod(1.0 - rho[s + 1 :]) for s in range(12)]
        values, Found = averages(a, A, **schedule)
        np.testing.assert_allclose(values[-1], np.einsum("t,trk->rk", weight, a), rtol=0, atol=1e-13)
        np.testing.assert_allclose(Found[-1], np.einsum("t,trkp->rkp", weight, A), rtol=0, atol=1e-13)


# noise-free limits


def test_without_noise_the_optimum_is_reached() -> None:
    """f2: V_T - V* <= 1e-3, and the averages catch up with the values."""
    algorithm = CSMOO2(step_size=0.8)
    runs, theta = grid((0.0, 1.0), (0.1, 0.5, 0.9))
    oracle = noise_free(runs)
    gaps = []

    def see(t: int, s: dict[str, Any], point: Point) -> None:
        gaps.append(float((point.values() - oracle.exact(point.x)).abs().max()))

    state = loop.start(oracle, algorithm, LAST, theta, runs, 500)
    state = loop.advance(oracle, algorithm, LAST, state, 500, see)
    x, V = GAUSSIAN.optimum(runs.weights)
    assert (value(runs, state["theta"]) - V).abs().max() < 1e-3
    assert (GAUSSIAN.values(state["theta"])[:, 2:] <= 1e-9).all()
    assert (state["theta"][:, 0] - x).abs().max() < 0.01
    assert max(gaps[-50:]) < 0.01
    assert max(gaps[-50:]) < 0.3 * max(gaps[100:150]) < 0.1 * max(gaps[:20])


# where iterates may be


@pytest.mark.parametrize("algorithm", [*METHODS, PenaltySGD(variant="prox"), PenaltySGD()])
def test_iterates_stay_in_the_box(algorithm: Algorithm) -> None:
    """f7, with whole steps."""
    runs, theta = grid((-5.0, 0.3, 5.0), (0.5,), (0, 1))
    path = follow(noisy(runs), replace(algorithm, step_size=1.0), theta, runs, 12)
    assert np.abs(path.x).max() <= 5.0
    assert np.isfinite(path.y).all()
    if isinstance(algorithm, CSMOO2):
        assert path.y[..., 1].min() >= -1e-15


BEAM_METHODS: list[Any] = [CSMOOBasic(tau=0.055), CSMOO1(tau=0.055), CSMOO2(tau=0.055, beta=10.0)]


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(
    "algorithm", [*BEAM_METHODS, PenaltySGD(beta=10.0), PenaltySGD(variant="prox", tau=0.055)]
)
def test_power_stays_within_the_budget(algorithm: Algorithm, blocks: int) -> None:
    """f7, with whole steps; under blocks nothing but the block moves, whatever the projection does."""
    problem = PLS()
    runs = runs_of([[0.5, 0.5], [0.1, 0.9]], [0, 1])
    oracle = noisy(runs, problem, batch=4, blocks=blocks, block_rho="per_block")
    path = follow(oracle, replace(algorithm, step_size=1.0, step_decay=0.6), problem.initial(runs), runs, 24)
    power = (path.x**2).sum(-1)
    assert power.max() <= 5.0 * (1 + 1e-14)
    assert power.max() > 4.9
    if blocks == 2:
        for t in range(24):
            still = (oracle.block_of != t % 2).numpy()
            np.testing.assert_array_equal(path.x[:, t + 1, still], path.x[:, t, still])
    if isinstance(algorithm, CSMOO2):
        assert path.y[..., 1].min() >= -1e-15


# relations between the methods


def test_csmoo1_is_the_basic_form_while_surrogates_are_feasible() -> None:
    """f8, first half: until the first infeasible one."""
    runs, theta = grid((0.0, 0.4, 1.0), (0.3, 0.7), (0, 1, 3))
    a, b = (follow(noisy(runs), algorithm, theta, runs, 40) for algorithm in (CSMOOBasic(), CSMOO1()))
    np.testing.assert_array_equal(a.infeasible.any(1), b.infeasible.any(1))
    never = ~a.infeasible.any(1)
    assert 0 < never.sum() < len(runs)
    np.testing.assert_allclose(a.x[never], b.x[never], rtol=0, atol=1e-12)
    np.testing.assert_allclose(a.y[never], b.y[never], rtol=0, atol=1e-12)
    for r in np.flatnonzero(~never):
        first = int(a.infeasible[r].argmax())
        np.testing.assert_allclose(a.x[r, : first + 1], b.x[r, : first + 1], rtol=0, atol=1e-12)
        assert np.array_equal(a.x[r, first], a.x[r, first + 1])
        assert np.array_equal(a.y[r, first], a.y[r, first + 1])
        assert not np.array_equal(b.x[r, first], b.x[r, first + 1])


# fixed points


@pytest.mark.parametrize("algorithm", METHODS, ids=NAMES)
def test_the_optimum_is_a_fixed_point_with_known_multipliers(algorithm: Algorithm) -> None:
    """f9: inside of the feasible interval the multipliers of the objectives balance 2 x and 2 (x - 1)."""
    runs = runs_of([[0.5, 0.5]], [0])
    x, V = GAUSSIAN.optimum(runs.weights)
    path = follow(noise_free(runs), algorithm, x[:, None], runs, 3)
    np.testing.assert_allclose(path.x, x.item(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(path.y[..., 0], V.item(), rtol=0, atol=1e-9)
    mu = path.state["alg"]["mu"][0].numpy()
    np.testing.assert_allclose(mu, [1.0 - x.item(), x.item(), 0.0, 0.0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(mu[:2], [0.5551, 0.4449], rtol=0, atol=1e-4)
    # nowhere else: from a point beside it, it is approached
    off = follow(noise_free(runs), algorithm, x[:, None] + 0.05, runs, 3)
    assert abs(off.x[0, 3, 0] - x.item()) < 0.03


ANALYTIC = ConstrainedGaussian(ideal="analytic")
END = 0.650080


@pytest.mark.parametrize("algorithm", METHODS, ids=NAMES)
def test_an_active_constraint(algorithm: Algorithm) -> None:
    """(e) 16: weights (.1, .9), analytic z: the first constraint binds, and f_2' = -mu g'."""
    runs = runs_of([[0.1, 0.9]], [0])
    x, V = ANALYTIC.optimum(runs.weights)
    assert abs(x.item() - END) < 1e-6
    slope = 4 * x.item() ** 3 + 3 * x.item()
    multiplier = 0.9 * 2 * (1 - x.item()) / slope
    path = follow(noise_free(runs, ANALYTIC), algorithm, x[:, None], runs, 3)
    np.testing.assert_allclose(path.x, x.item(), rtol=0, atol=1e-8)
    np.testing.assert_allclose(path.state["alg"]["mu"][0], [0.0, 1.0, multiplier, 0.0], rtol=0, atol=1e-5)
    runs, theta = grid((0.3, 0.9), (0.1,))
    path = follow(noise_free(runs, ANALYTIC, decay=0.51), replace(algorithm, step_size=0.8), theta, runs, 80)
    np.testing.assert_allclose(path.x[:, -1, 0], END, rtol=0, atol=0.01)
    np.testing.assert_allclose(path.y[:, -1, 0], V.item(), rtol=0, atol=0.02)


def test_the_penalty_is_exact_above_the_multiplier_and_not_below() -> None:
    """(e) 16, beta* of Theorem 2 is .2066 here: a smaller beta leaves the penalised optimum's violation."""
    runs = runs_of([[0.1, 0.9]], [0])
    theta = torch.full((1, 1), 0.5, dtype=F64)
    ends = {}
    for beta in (0.0, 0.15, 0.3):
        algorithm = CSMOO2(beta=beta, step_size=0.8, step_decay=0.6)
        ends[beta] = follow(noise_free(runs, ANALYTIC, decay=0.51), algorithm, theta, runs, 80).x[0, -1, 0]
    x = np.linspace(0.3, 1.2, 90001)
    V = np.maximum(0.1 * x**2, 0.9 * (x - 1) ** 2)
    g = np.maximum(0.0, np.maximum(x**4 + 1.5 * x**2 - 0.8125, (x - 1) ** 4 + 1.5 * (x - 1) ** 2 - 1.8125))
    for beta, end in ends.items():
        assert abs(end - x[np.argmin(V + beta * g)]) < 5e-3, (beta, end)
    assert ends[0.0] > ends[0.15] + 0.01 > END + 0.02
    assert abs(ends[0.3] - END) < 5e-3


# the ideal point of extreme runs


def of_extremes(channel_seed: int | None) -> PLS:
    """As `make_job` makes it."""
    return PLS(channel_seed=channel_seed, ideal="extremes").with_ideal_by(extremes.extreme_values)


def test_ideal_points_of_instances_are_those_of_each_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound problem must keep its channels when its extreme runs bind it again."""
    monkeypatch.setattr(extremes, "STEPS", 50)
    pls._solved.cache_clear()
    seeds = [3, 1, 3]
    runs = runs_of([[0.5, 0.5]] * 3, seeds)
    z = of_extremes(None).bind(runs).ideal_point
    assert z.shape == (3, 2)
    for r, seed in enumerate(seeds):
        alone = of_extremes(seed).ideal_point
        torch.testing.assert_close(z[r], alone, rtol=0, atol=1e-8)
    assert (z[0] - z[1]).abs().max() > 0.1
    # by hand: user i's best rate at the ends of the two runs, on the instance of seed 1
    problem = PLS(channel_seed=1)
    ends = runs_of([[0.99, 0.01], [0.01, 0.99]], [0, 0])
    path = follow(noisy(ends, problem, 4), CSMOO2(tau=0.055, beta=10.0), problem.initial(ends), ends, 50)
    F = problem.values(torch.from_numpy(path.x[:, -1]))[:, :2]
    torch.testing.assert_close(z[1], F.amin(0), rtol=0, atol=1e-8)
    assert (z[1] >= problem.ideal_point).all()
    # the surrogates of a run with this ideal point start at its own z
    oracle = noisy(runs, of_extremes(None), 4)
    torch.testing.assert_close(oracle.ideal, z)


def test_an_oracle_asks_once_for_its_ideal_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a column of every recorded step, and may be costly; another oracle of the problem asks again."""
    requests = []
    honest = PLS.ideal_point.fget
    assert honest is not None
    monkeypatch.setattr(PLS, "ideal_point", property(lambda self: requests.append(1) or honest(self)))
    runs = runs_of([[0.5, 0.5]] * 2, [3, 1])
    first, second = (noisy(runs, PLS(channel_seed=seed), 4) for seed in (None, 0))
    z = [first.ideal for _ in range(3)] + [second.ideal]
    assert len(requests) == 2
    assert torch.equal(z[0], z[2])
    assert z[0].shape == (2, 2)
    assert z[3].shape == (2,)


# what the command line says and does


def test_conditions_name_what_is_broken() -> None:
    runs = runs_of([[0.5, 0.5]], [0])

    def said(a: float, b: float) -> list[str]:
        return conditions(noisy(runs, decay=a).spec, b, "X")

    assert said(0.8, 0.95) == said(0.51, 1.0) == []
    for a, b, words in (
        (0.8, 0.9, ["2b - a > 1"]),
        (0.6, 0.8, ["2b - a > 1"]),
        (0.4, 0.9, ["0.5 < a < 1"]),
        (1.0, 1.01, ["0.5 < b <= 1", "0.5 < a < 1"]),
        (0.5, 0.5, ["0.5 < b <= 1", "0.5 < a < 1", "2b - a > 1"]),
    ):
        lines = said(a, b)
        assert len(lines) == len(words), lines
        for line, word in zip(lines, words, strict=True):
            assert word in line
    assert conditions(Minibatch(GAUSSIAN, runs).spec, 0.9, "X") == []


def test_the_first_step_is_a_share_of_the_way() -> None:
    CSMOO1(step_size=2.0, step_offset=16.0, step_decay=0.75)
    with pytest.raises(ConfigError, match="<= 1"):
        CSMOO1(step_size=2.0, step_offset=2.0, step_decay=0.75)


def test_a_set_that_the_solver_does_not_know_is_refused_before_the_first_step() -> None:
    class Strip(Box):
        """A set of somebody's own."""

    spec = Spec(1, 2, 0, 3, Strip(0.0, 1.0))
    (reason,) = CSMOO1().misfits(spec)
    assert "Free, Box, Intervals, Ball, but the problem's X is Strip" in reason
    assert CSMOO1().misfits(replace(spec, X=Box(0.0, 1.0))) == []
