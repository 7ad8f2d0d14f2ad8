"""The core: points, sets, random numbers, preferences, outputs; and what the loop does with a run that ends.

What it promises of every method (alone as in a batch, resume, neighbours) is in tests/contract.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.algorithms.mgda import MGDA
from mobench.algorithms.omd_tch import OMDTCH
from mobench.core import (
    Algorithm,
    Ball,
    Box,
    Free,
    GraphPoint,
    Oracle,
    Point,
    Problem,
    Runs,
    Set,
    Spec,
    TablePoint,
    Weighting,
    loop,
)
from mobench.core.algorithm import Info
from mobench.core.arrays import SMALL
from mobench.core.output import Last, Mean, make_output
from mobench.core.preferences import angle_deg, check_weights, from_rays_deg, ray, resolve, spread
from mobench.core.random import counter_indices, counter_normal, counter_uniform, generator, seed_for
from mobench.errors import ConfigError, PreferenceError
from mobench.oracles import Exact, Minibatch
from mobench.problems import VLMOP2, LeastSquares
from tests.contract.cases import Faulty
from tests.helpers import runs_at

FLOAT = torch.float64
OUTPUTS = ("last", "mean", "adaptive")
VLMOP = VLMOP2(n=6, start={"kind": "uniform", "low": -0.5, "high": 0.5, "per_preference": True})
TASKS = LeastSquares(n=4, tasks=2, samples=30)


def runs_of(problem: Problem, preferences: int, seeds: int) -> Runs:
    return Runs.product(spread(preferences, problem.n_objectives), range(seeds))


def advance(
    algorithm: Algorithm,
    problem: Problem,
    oracle: Oracle,
    runs: Runs,
    steps: int,
    theta: Tensor | None = None,
) -> tuple[dict[str, Any], Tensor]:
    """Final state and the path (R, steps + 1, P)."""
    rules = {name: make_output(name) for name in OUTPUTS}
    state = loop.start(
        oracle, algorithm, rules, problem.initial(runs) if theta is None else theta, runs, steps
    )
    xs: list[Tensor] = []
    state = loop.advance(
        oracle, algorithm, rules, state, steps, lambda t, s, p: xs.append(s["theta"].clone())
    )
    return state, torch.stack([*xs, state["theta"]], 1)


# points


def stacked(x: Tensor) -> Tensor:
    """Two objectives and a constraint."""
    return torch.stack([(x**2).sum(-1), torch.sin(x).prod(-1) + x[:, 0], x[:, 0] * x[:, 1] - 1.0], -1)


def points() -> list[Point]:
    x = torch.from_numpy(generator(0, test="points").standard_normal((4, 3)))
    graph = GraphPoint(stacked, x, Free(), 2, {})
    table = TablePoint(
        x, Free(), 2, {"a": x}, graph.values(), GraphPoint(stacked, x, Free(), 2, {}).jacobian(), stacked
    )
    return [graph, table]


def central(fn: Any, x: Tensor, v: Tensor, h: float = 1e-6) -> Tensor:
    return (fn(x + h * v) - fn(x - h * v)) / (2 * h)


@pytest.mark.parametrize("which", [0, 1])
def test_point_answers_agree_with_finite_differences(which: int) -> None:
    point = points()[which]
    x = point.x
    rng = generator(1, test="points")
    v = torch.from_numpy(rng.standard_normal((4, 3)))
    np.testing.assert_allclose(point.values(), stacked(x), rtol=0, atol=1e-15)
    assert not point.values().requires_grad
    np.testing.assert_allclose(point.jvp(v), central(stacked, x, v), rtol=0, atol=1e-8)
    J = torch.stack([central(stacked, x, e.expand(4, -1)) for e in torch.eye(3, dtype=FLOAT)], -1)
    np.testing.assert_allclose(point.jacobian(), J, rtol=0, atol=1e-8)
    for k in (2, 3):
        w = torch.from_numpy(rng.standard_normal((4, k)))
        np.testing.assert_allclose(point.vjp(w), (w.unsqueeze(1) @ J[:, :k]).squeeze(1), rtol=0, atol=1e-8)

        def gradient(z: Tensor, w: Tensor = w) -> Tensor:
            return GraphPoint(stacked, z, Free(), 2, {}).vjp(w)

        np.testing.assert_allclose(point.hvp(w, v), central(gradient, x, v), rtol=0, atol=1e-7)


@pytest.mark.parametrize("which", [0, 1])
def test_point_parts_and_products(which: int) -> None:
    point = points()[which]
    J = point.jacobian()
    assert torch.equal(point.F, point.values()[:, :2])
    assert torch.equal(point.G, point.values()[:, 2:])
    assert torch.equal(point.jacobian("f"), J[:, :2])
    assert torch.equal(point.jacobian("g"), J[:, 2:])
    for part in ("f", "g", "all"):
        rows = point.jacobian(part)
        np.testing.assert_allclose(point.gramian(part), rows @ rows.mT, rtol=0, atol=1e-14)
    v = torch.ones(4, 3, dtype=FLOAT)
    np.testing.assert_allclose(point.jvp(v), (J @ v.unsqueeze(-1)).squeeze(-1), rtol=0, atol=1e-14)
    assert point.state == ({} if which == 0 else {"a": point.x})


def test_rows_are_made_once_and_only_on_request() -> None:
    calls = []

    def rows() -> Tensor:
        calls.append(1)
        return torch.ones(2, 2, 3, dtype=FLOAT)

    x = torch.zeros(2, 3, dtype=FLOAT)
    point = TablePoint(x, Free(), 2, {}, torch.ones(2, 2, dtype=FLOAT), rows)
    point.values()
    assert not calls
    point.gramian()
    point.jvp(x)
    point.vjp(torch.ones(2, 2, dtype=FLOAT))
    assert len(calls) == 1
    with pytest.raises(NotImplementedError, match="Hessian-vector"):
        point.hvp(torch.ones(2, 2, dtype=FLOAT), x)


def test_hessian_of_linear_functions_is_zero() -> None:
    C = torch.from_numpy(generator(2, test="points").standard_normal((3, 2)))
    x = torch.ones(4, 3, dtype=FLOAT)
    w = torch.ones(4, 2, dtype=FLOAT)
    assert torch.equal(GraphPoint(lambda z: z @ C, x, Free(), 2, {}).hvp(w, x), torch.zeros_like(x))


# sets


@pytest.mark.parametrize("X", [Free(), Box(-0.5, 0.8), Ball(1.2)], ids=str)
def test_sets(X: Set) -> None:
    """Projection: inside, idempotent, nearest (variational inequality); tangent: its derivative."""
    rng = generator(0, test="sets")
    p = torch.from_numpy(rng.standard_normal((50, 3)))
    V = torch.from_numpy(rng.standard_normal((50, 2, 3)))
    q = X.project(p)
    np.testing.assert_allclose(X.project(q), q, rtol=0, atol=1e-15)
    inside = X.project(torch.from_numpy(2 * rng.standard_normal((50, 3))))
    assert (((p - q) * (inside - q)).sum(-1) <= 1e-12).all()
    if isinstance(X, Box):
        assert ((q >= -0.5) & (q <= 0.8)).all()
    if isinstance(X, Ball):
        assert (torch.linalg.vector_norm(q, dim=-1) <= 1.2 * (1 + 1e-15)).all()
        assert (torch.linalg.vector_norm(p, dim=-1) > 1.2).any()
    for k in range(2):
        np.testing.assert_allclose(X.tangent(p, V)[:, k], central(X.project, p, V[:, k]), rtol=0, atol=1e-8)


def test_ball_at_its_centre() -> None:
    zero = torch.zeros(1, 3, dtype=FLOAT)
    V = torch.ones(1, 2, 3, dtype=FLOAT)
    assert torch.equal(Ball(2.0).project(zero), zero)
    assert torch.equal(Ball(2.0).tangent(zero, V), V)


# random numbers


def test_counter_numbers_are_uniform_and_independent() -> None:
    keys = torch.arange(200, dtype=torch.int64)  # neighbouring keys are the hard case
    u = counter_uniform(keys, "batch0", 3, 500)
    assert ((u >= 0) & (u < 1)).all()
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(u[:, 0].numpy(), "uniform").pvalue > 1e-3
    cells = np.histogram2d(u[:, :-1].flatten().numpy(), u[:, 1:].flatten().numpy(), bins=16)[0]
    assert stats.chisquare(cells.flatten()).pvalue > 1e-3
    bound = 5 / math.sqrt(u.numel())
    other = [counter_uniform(keys, "batch1", 3, 500), counter_uniform(keys, "batch0", 4, 500), u.roll(1, 0)]
    for v in other:
        assert abs(float(((u - 0.5) * (v - 0.5)).mean()) * 12) < bound
    assert u.unique().numel() == u.numel()


def test_counter_numbers_depend_on_their_own_key_only() -> None:
    keys = torch.tensor(
        [0, 1, -1, 2**63 - 1, -(2**63), 12345678901234567, seed_for(-3, a=1)], dtype=torch.int64
    )
    whole = counter_uniform(keys, "s", 7, 33)
    assert ((whole >= 0) & (whole < 1)).all()
    assert len(set(whole[:, 0].tolist())) == len(keys)
    for i in range(len(keys)):
        assert torch.equal(counter_uniform(keys[i : i + 1], "s", 7, 33)[0], whole[i])
    assert torch.equal(counter_uniform(keys.flip(0), "s", 7, 33), whole.flip(0))
    assert torch.equal(counter_uniform(keys, "s", 7, 5), whole[:, :5])
    assert counter_uniform(keys, "s", 7, 0).shape == (7, 0)
    for high in (1, 2, 10, 2**31, 2**53):
        index = counter_indices(keys, "s", 7, 200, high)
        assert ((index >= 0) & (index < high)).all()
    spreads = counter_indices(torch.arange(50), "s", 0, 400, 10).flatten().bincount(minlength=10)
    assert stats.chisquare(spreads.numpy()).pvalue > 1e-3


def test_small_and_large_draws_are_the_same_numbers() -> None:
    """Small draws are made by NumPy, large ones by PyTorch."""
    keys = torch.tensor([0, -1, 2**63 - 1, -(2**63), 987654321])
    for draw in (counter_uniform, counter_normal):
        large = draw(keys, "s", 7, 2 * SMALL)
        assert torch.equal(draw(keys, "s", 7, 5), large[:, :5])
        assert large.dtype == torch.float64


def test_splitmix_matches_its_definition() -> None:
    """Unsigned 64-bit arithmetic in Python integers."""
    mask = (1 << 64) - 1

    def splitmix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    for key in (0, 1, -1, 2**63 - 1, -(2**63), 987654321):
        u = counter_uniform(torch.tensor([key], dtype=torch.int64), "x", 5, 4)[0].tolist()
        base = splitmix((key ^ seed_for(5, stream="x")) & mask)
        for j in range(4):
            bits = splitmix((base + j * 0x9E3779B97F4A7C15) & mask)
            assert u[j] == (bits >> 11) * 2.0**-53


def test_named_seeds() -> None:
    assert seed_for(1, a=1, b=2) == seed_for(1, b=2, a=1)
    seeds = {
        seed_for(b, **axes)
        for b in (-5, 0, 5)
        for axes in ({}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": "1", "b": 1})
    }
    assert len(seeds) == 15
    assert all(0 <= s < 2**63 for s in seeds)
    a = generator(-1, use="x").standard_normal(3)
    b = generator(-1, use="x").standard_normal(3)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, generator(1, use="x").standard_normal(3))


class Startless(Problem):
    """f = x in one variable."""

    n_objectives = dim = 1

    def values(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return x


def test_a_problem_without_a_start_of_its_own_starts_anywhere_in_the_cube() -> None:
    """Uniform in [-1, 1], as `mobench.objectives` says of its default."""
    x = Startless().initial(runs_of(Startless(), 1, 2000))
    assert stats.kstest(x.flatten().numpy(), "uniform", args=(-1, 2)).pvalue > 1e-3
    assert -1 <= x.min() < -0.99
    assert 0.99 < x.max() <= 1


def test_negative_and_large_seeds_make_runs() -> None:
    runs = Runs.product(spread(2, 2), [-7, 0, 2**62])
    x = VLMOP.initial(runs)
    assert len({tuple(row) for row in x.tolist()}) == 6
    batch = Minibatch(TASKS, runs, batch_size=4, samples=2)
    point = batch.at(TASKS.initial(runs), {}, 0, 0)
    assert point.values().isfinite().all()


def test_minibatches_differ_by_seed_step_and_sample_but_not_by_preference() -> None:
    runs = runs_of(TASKS, 3, 2)
    oracle = Minibatch(TASKS, runs, batch_size=8, samples=2)
    x = torch.zeros(6, 4, dtype=FLOAT)
    first = oracle.at(x, {}, 0, 0).values()
    assert torch.equal(first[0::2], first[0:1].expand(3, -1))  # preference-major: runs 0, 2, 4 share a seed
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, oracle.at(x, {}, 1, 0).values())
    assert not torch.equal(first, oracle.at(x, {}, 0, 1).values())
    assert torch.equal(first, oracle.at(x, {}, 0, 0).values())


# preferences


@pytest.mark.parametrize("M", [2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 10, 64])
def test_spread_is_in_the_open_simplex(M: int, count: int) -> None:
    w = spread(count, M)
    assert w.shape == (count, M)
    assert (w > 0).all()
    np.testing.assert_allclose(w.sum(-1), 1, rtol=0, atol=1e-14)
    assert len({tuple(row) for row in w.tolist()}) == count
    v = ray(w)
    np.testing.assert_allclose(torch.linalg.vector_norm(v, dim=-1), 1, rtol=0, atol=1e-14)
    product = w * v  # the ray is where all w_m f_m are equal
    np.testing.assert_allclose(product, product[:, :1].expand(-1, M), rtol=1e-13, atol=0)
    if M > 2:
        assert torch.equal(spread(count + 5, M)[:count], w)


def test_angles_of_two_objectives() -> None:
    angles = [0.5, 9.0, 45.0, 60.0, 89.0]
    w = from_rays_deg(angles)
    v = ray(w)
    np.testing.assert_allclose(torch.atan2(v[:, 1], v[:, 0]) * 180 / math.pi, angles, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        spread(5, 2), from_rays_deg(np.linspace(9, 81, 5).tolist()), rtol=0, atol=1e-15
    )
    F = torch.from_numpy(generator(0, test="angle").uniform(0, 2, (5, 2)))
    expected = (torch.atan2(F[:, 1], F[:, 0]) - torch.atan2(v[:, 1], v[:, 0])).abs() * 180 / math.pi
    np.testing.assert_allclose(angle_deg(F, w), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(angle_deg(3.7 * v, w), 0, atol=1e-13)
    tilted = torch.stack([v[:, 0] - 1e-9 * v[:, 1], v[:, 1] + 1e-9 * v[:, 0]], -1)
    np.testing.assert_allclose(angle_deg(tilted, w), 1e-9 * 180 / math.pi, rtol=1e-5, atol=0)


def test_resolve_reads_every_form() -> None:
    assert torch.equal(resolve(4, 2), spread(4, 2))
    assert torch.equal(
        resolve({"count": 4, "rays_deg": None, "weights": None, "floor": None}, 3), spread(4, 3)
    )
    assert len(resolve({}, 2)) == 10
    np.testing.assert_allclose(
        resolve({"rays_deg": [30, 60]}, 2), from_rays_deg([30.0, 60.0]), rtol=0, atol=1e-15
    )
    w = [[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(resolve({"weights": w}, 3), w, rtol=0, atol=1e-15)
    floored = resolve({"weights": [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]], "floor": 0.01}, 2)
    np.testing.assert_allclose(floored, [[0.01, 0.99], [0.5, 0.5], [0.99, 0.01]], rtol=0, atol=1e-15)
    # weights from a text file are off by rounding: accepted, and made exact
    assert resolve({"weights": [[0.3333333, 0.6666667]]}, 2).sum() == 1.0


@pytest.mark.parametrize(
    ("config", "M", "words"),
    [
        (0, 2, "at least one"),
        ({"weights": [[0.0, 1.0]]}, 2, "floor"),
        ({"weights": [[0.6, 0.6]]}, 2, "sum to 1"),
        ({"weights": [[0.5, 0.5000012]]}, 2, "sum to 1"),
        ({"weights": [[1.2, -0.2]]}, 2, "> 0"),
        ({"weights": [[0.5, 0.5]]}, 3, "M=3"),
        ({"weights": [[0.5, 0.5], [1.0]]}, 2, "equal length"),
        ({"weights": []}, 2, "non-empty"),
        ({"weights": [[math.nan, 1.0]]}, 2, "finite"),
        ({"weights": [[0.5, 0.5]], "rays_deg": [45]}, 2, "only one of"),
        ({"rays_deg": [45, 45.0]}, 2, "twice"),
        (
            {"weights": [[0.001, 0.999], [0.005, 0.995]], "floor": 0.01},
            2,
            "clipped at preferences.floor=0.01",
        ),
        ({"simplex_steps": 200, "floor": 0.01}, 2, "twice"),
        ({"simplex_steps": 3, "rays_deg": [45]}, 2, "only one of"),
        ({"rays_deg": [45]}, 3, "M=2"),
        ({"rays_deg": []}, 2, "empty"),
        ({"rays_deg": [0]}, 2, "between 0 and 90"),
        ({"rays_deg": [90.0]}, 2, "between 0 and 90"),
        ({"weights": [[0.5, 0.5]], "floor": 0.5}, 2, "floor"),
        ({"weights": [[0.5, 0.5]], "floor": 0.0}, 2, "floor"),
        *(
            (
                {"weights": [weights], "floor": floor},
                len(weights),
                words,
            )  # a floor makes no weights of others
            for floor in (None, 0.01)
            for weights, words in (
                ([2, 3], "Their sum is 5; divide"),
                ([1, 2, 3], "Their sum is 6; divide"),
                ([0.2, 0.2], "Their sum is 0.4; divide"),
                ([-0.5, 1.5], "> 0 and the weights must sum to 1.$"),
                ([0.0, 0.9], "Their sum is 0.9; divide"),
                ([0.0, 0.0], "the weights must sum to 1"),
            )
        ),
    ],
)
def test_bad_preferences_are_refused_in_words(config: Any, M: int, words: str) -> None:
    with pytest.raises(PreferenceError, match=words):
        resolve(config, M)


def test_unknown_preference_key() -> None:
    with pytest.raises(ConfigError, match="angles"):
        resolve({"angles": [3]}, 2)


@pytest.mark.parametrize("M", [2, 3, 5])
def test_floor_keeps_weights_above_it(M: int) -> None:
    """Clipping and then dividing by the sum must not push a weight far below the floor."""
    w = check_weights(torch.eye(M, dtype=FLOAT), M, 0.01)
    np.testing.assert_allclose(w.sum(-1), 1, rtol=0, atol=1e-15)
    assert (w >= 0.01 * (1 - 0.01 * M)).all()


def test_runs_are_preference_major_and_keep_their_numbers() -> None:
    w = spread(3, 2)
    runs = Runs.product(w, [5, 7])
    assert runs.seeds.tolist() == [5, 7, 5, 7, 5, 7]
    assert runs.index.tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(runs.weights, w[runs.index])
    part = runs.take([4, 1])
    assert len(part) == 2
    assert part.seeds.tolist() == [5, 7]
    assert part.index.tolist() == [2, 0]
    assert torch.equal(part.all, w)
    assert part.name(0) == runs.name(4) != runs.name(1)
    for bad in ([], [1, 1]):
        with pytest.raises(ConfigError, match="seeds"):
            Runs.product(w, bad)


# outputs


def test_last_and_mean() -> None:
    rng = generator(0, test="outputs")
    theta = torch.from_numpy(rng.standard_normal((3, 8, 2)))
    mean = Mean()
    state = Mean().init(theta[:, 0], 2)
    assert torch.equal(mean.final(state, theta[:, 0]), theta[:, 0])
    for t in range(7):
        x = theta[:, t]
        state = mean.update(state, x, TablePoint(x, Free(), 2, {}, x, torch.zeros(3, 2, 2, dtype=FLOAT)), t)
    np.testing.assert_allclose(mean.final(state, theta[:, 7]), theta[:, :7].mean(1), rtol=0, atol=1e-15)
    assert torch.equal(Last().final({}, theta[:, 7]), theta[:, 7])
    with pytest.raises(ConfigError, match="mean"):
        make_output("means")


# the loop


@pytest.mark.parametrize("step_size", [10.0, 1e-3], ids=["infinite", "finite"])
def test_an_iterate_that_overflows_is_frozen_at_its_last_value(step_size: float) -> None:
    """Also where it is finite, but its squares are not."""
    runs = runs_of(VLMOP, 3, 1)
    oracle = Faulty(Exact(VLMOP, runs), "overflow", 1, 4)
    state, path = advance(LS(step_size=step_size), VLMOP, oracle, runs, 8)
    assert state["alive"].tolist() == [True, False, True]
    assert torch.equal(path[1, 4:], path[1, 4:5].expand(5, -1))


def test_a_run_that_rests_does_not_wake_up() -> None:
    """`alive` says that the run ended there, so it must not go on with the rest of its state."""
    runs = runs_of(VLMOP, 3, 1)
    for method in (LS(step_size=0.05), OMDTCH(step_size=0.05), MGDA(step_size=0.05)):
        state, path = advance(method, VLMOP, Faulty(Exact(VLMOP, runs), "nan", 1, 4, 5), runs, 10)
        assert state["alive"].tolist() == [True, False, True]
        assert torch.equal(path[1, 4:], path[1, 4:5].expand(7, -1))


@pytest.mark.parametrize("steps", [(12,), (3, 7, 12)])
def test_no_step_is_taken_when_no_run_is_left(steps: tuple[int, ...]) -> None:
    """Every step is still observed, at the iterates where the runs were lost."""
    runs = runs_of(VLMOP, 3, 1)
    taken = []

    class Counted(Solving):
        def weights(self, F: Tensor, G: Tensor | None, state: Any, t: int) -> tuple[Tensor, Any, Info]:
            taken.append(t)
            return super().weights(F, G, state, t)

    class Lost(Exact):
        """Every run is lost, each at a step of its own."""

        def at(self, theta: Tensor, state: dict[str, Tensor], t: int, k: int = 0) -> Point:
            point = super().at(theta, state, t, k)
            J = point.jacobian().clone()
            J[torch.arange(3) <= t - 2] = math.nan
            return TablePoint(theta, point.X, point.M, {}, point.values(), J, hessian=point.hvp)

    oracle = Lost(VLMOP, runs)
    algorithm = Counted(step_size=0.01)
    seen: list[tuple[int, Tensor]] = []
    state = loop.start(oracle, algorithm, {}, VLMOP.initial(runs), runs, 12)
    for until in steps:
        state = loop.advance(
            oracle, algorithm, {}, state, until, lambda t, now, point: seen.append((t, now["theta"].clone()))
        )
    assert taken == [0, 1, 2, 3, 4]
    assert [t for t, _ in seen] == list(range(12))
    assert state["t"] == 12
    assert not state["alive"].any()
    for _, theta in seen[5:]:
        assert torch.equal(theta, state["theta"])
    assert torch.equal(seen[2][1][0], state["theta"][0])
    assert not torch.equal(seen[2][1][2], state["theta"][2])


class Failing(Weighting):
    """Reports a failed solve and a residual in one run."""

    def weights(self, F: Tensor, G: Tensor | None, state: Any, t: int) -> tuple[Tensor, Any, Info]:
        w = torch.ones_like(F)
        kkt = torch.tensor([0.1 * t, math.nan if t == 2 else 0.0, 1e-3], dtype=FLOAT)
        return w, state, Info(kkt, torch.tensor([False, t >= 3, False]))


class Solving(Failing):
    """The same steps without a failed solve."""

    def weights(self, F: Tensor, G: Tensor | None, state: Any, t: int) -> tuple[Tensor, Any, Info]:
        w, state, info = super().weights(F, G, state, t)
        return w, state, Info(info.kkt)


def test_residuals_and_failures_are_counted_per_run() -> None:
    runs = runs_of(VLMOP, 3, 1)
    state, _ = advance(Failing(), VLMOP, Exact(VLMOP, runs), runs, 5)
    np.testing.assert_allclose(state["kkt"], [0.4, 0.0, 1e-3], rtol=0, atol=1e-15)
    assert state["fail"].tolist() == [0, 1, 0]
    assert state["stopped"].tolist() == [-1, 3, -1]
    assert state["alive"].tolist() == [True, False, True]
    assert not state["unsolvable"].any()
    # the run stays where its solve failed, and its neighbours do not notice
    before, _ = advance(Failing(), VLMOP, Exact(VLMOP, runs), runs, 3)
    assert before["alive"].all()
    assert torch.equal(state["theta"][1], before["theta"][1])
    whole, _ = advance(Solving(), VLMOP, Exact(VLMOP, runs), runs, 5)
    assert torch.equal(state["theta"][[0, 2]], whole["theta"][[0, 2]])
    assert not torch.equal(whole["theta"][1], before["theta"][1])
    plain, _ = advance(LS(step_size=0.05), VLMOP, Exact(VLMOP, runs), runs, 5)
    assert plain["kkt"].tolist() == [-1.0] * 3


def test_steps_follow_the_schedule_and_the_set() -> None:
    """theta <- Proj(theta + alpha / (1 + t)^decay d), also for a start outside the set."""
    problem = VLMOP2(n=4, clip=0.6, start={"kind": "constant", "value": 5.0})
    runs = runs_of(problem, 2, 1)
    algorithm = LS(step_size=0.5, step_decay=0.75)
    _, path = advance(algorithm, problem, Exact(problem, runs), runs, 6)
    x = torch.full((2, 4), 0.6, dtype=FLOAT)
    for t in range(6):
        np.testing.assert_allclose(path[:, t], x, rtol=0, atol=1e-14)
        J = problem.linearize(x)[1]()
        x = (x - 0.5 / (1 + t) ** 0.75 * (runs.weights.unsqueeze(1) @ J).squeeze(1)).clamp(-0.6, 0.6)
    np.testing.assert_allclose(path[:, 6], x, rtol=0, atol=1e-14)


class Counting(Oracle):
    """Keeps a count per run between steps; requests of one step do not change it."""

    def __init__(self, problem: Problem, runs: Runs) -> None:
        self.inner = Exact(problem, runs)
        self.spec = dataclasses.replace(self.inner.spec, stateful=True)
        self.seen: list[list[float]] = []

    def init(self, theta: Tensor) -> dict[str, Tensor]:
        return {"count": torch.arange(len(theta), dtype=FLOAT)}

    def at(self, theta: Tensor, state: dict[str, Tensor], t: int, k: int = 0) -> Point:
        self.seen.append(state["count"].tolist())
        point = self.inner.at(theta, state, t, k)
        point.state = {"count": state["count"] + 1.0}
        return point

    def exact(self, theta: Tensor) -> Tensor:
        return self.inner.exact(theta)


def test_the_state_of_an_oracle_moves_once_a_step() -> None:
    runs = runs_of(VLMOP, 2, 1)
    oracle = Counting(VLMOP, runs)
    algorithm = MGDA(step_size=0.05)
    rules = {"last": make_output("last")}
    state = loop.start(oracle, algorithm, rules, VLMOP.initial(runs), runs, 5)
    state = loop.advance(oracle, algorithm, rules, state, 2)
    state = loop.advance(oracle, algorithm, rules, state, 5)
    assert state["oracle"]["count"].tolist() == [5.0, 6.0]
    assert oracle.seen == [[t, t + 1.0] for t in range(5)]


def test_spec_is_frozen_and_the_base_classes_refuse_politely() -> None:
    spec = Spec(1, 2, 0, 3, Free())
    with pytest.raises(AttributeError):
        spec.M = 3  # type: ignore[misc]
    oracle = Exact(VLMOP, runs_at(45.0))
    assert oracle.init(torch.zeros(1, 6, dtype=FLOAT)) == {}
    # any oracle can show fn(f); what it no longer has is refused
    x = torch.full((1, 6), 0.1, dtype=FLOAT)
    point = oracle.transformed(torch.log).at(x, {}, 0)
    torch.testing.assert_close(point.values(), oracle.exact(x).log())
    assert "hvp" not in oracle.transformed(torch.log).spec.provides
    with pytest.raises(NotImplementedError, match="Hessian"):
        point.hvp(torch.ones(1, 2, dtype=FLOAT), x)
