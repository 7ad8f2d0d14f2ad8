"""Properties of OMD-TCH: multipliers, adaptive conversion, memory, symmetry, the convex bound."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.algorithms.omd_tch import OMDTCH
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.core import Algorithm, Context, Free, Point, Runs, Spec, TablePoint, loop
from mobench.core.output import Adaptive, AdaptiveTwoPass, Mean, Output, WeightedSum, conversion_weights
from mobench.core.preferences import spread
from mobench.core.random import generator
from mobench.oracles import Exact
from mobench.problems import VLMOP2, LeastSquares
from tests.helpers import runs_at, simulate
from tests.reference.omd import AdaptiveMean, pareto_set

FLOAT = torch.float64
TOY = VLMOP2(n=10, clip=0.99999, start={"kind": "uniform", "low": -0.3, "high": 0.3, "per_preference": True})


def state_of(algorithm: Algorithm, w: Tensor) -> dict[str, Any]:
    R, M = w.shape
    theta = torch.zeros(R, 2, dtype=FLOAT)
    ctx = Context(
        spec=Spec(R, M, 0, 2, Free()), prefs=w, all_prefs=w, theta=theta, exact=lambda x: w, steps=10
    )
    return algorithm.init(ctx)


def multipliers(algorithm: OMDTCH, w: Tensor, table: Tensor) -> Tensor:
    """lambda^(1..T+1) (R, T+1, M) for a fixed sequence of values (R, T, M)."""
    state = state_of(algorithm, w)
    out = []
    for t in range(table.shape[1]):
        out.append(state["lam"])
        _, state, _ = algorithm.weights(table[:, t], None, state, t)
    return torch.stack([*out, state["lam"]], 1)


def values(R: int, T: int, M: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(generator(seed, test="omd", M=M).uniform(0, 2, (R, T, M)))


# multipliers


@pytest.mark.parametrize("mirror", ["pgd", "eg"])
def test_zero_multiplier_step_is_linear_scalarization(mirror: str) -> None:
    """f1: lambda stays 1/m, theta follows LS with eta_theta / m."""
    runs = runs_at(70.0, 40.0, 10.0)
    omd = simulate(TOY, OMDTCH(step_size=0.2, lambda_step=0, mirror=mirror), runs, 40)
    ls = simulate(TOY, LS(step_size=0.1), runs, 40)
    np.testing.assert_allclose(omd.state["alg"]["lam"].numpy(), 0.5, rtol=0, atol=1e-12)
    np.testing.assert_allclose(omd.x, ls.x, rtol=0, atol=1e-12)
    moving = simulate(TOY, OMDTCH(step_size=0.2, lambda_step=1.0, mirror=mirror), runs, 40)
    assert np.abs(moving.x - ls.x).max() > 1e-3


@pytest.mark.parametrize("mirror", ["pgd", "eg"])
@pytest.mark.parametrize("M", [2, 3, 10])
def test_multipliers_stay_in_the_simplex(mirror: str, M: int) -> None:
    """f2, also with steps that are far too long; EG stays positive and its logarithms finite."""
    w = spread(6, M)
    for step in (0.3, 30.0, 3e4):
        algorithm = OMDTCH(lambda_step=step, mirror=mirror)
        table = values(6, 40, M)
        lam = multipliers(algorithm, w, table)
        assert (lam >= 0).all()
        np.testing.assert_allclose(lam.sum(-1).numpy(), 1, rtol=0, atol=1e-12)
        if mirror == "eg":
            state = state_of(algorithm, w)
            for t in range(40):
                _, state, _ = algorithm.weights(table[:, t], None, state, t)
            assert state["log"].isfinite().all()
            if step < 1:
                assert (lam > 0).all()


def test_two_multipliers_in_closed_form() -> None:
    """f3: lambda_1 <- clip(lambda_1 + eta (w_1 F_1 - w_2 F_2) / 2, 0, 1)."""
    w = spread(7, 2)
    table = values(7, 30, 2)
    lam = multipliers(OMDTCH(lambda_step=1.3), w, table).numpy()
    first = np.full(7, 0.5)
    for t in range(30):
        np.testing.assert_allclose(lam[:, t, 0], first, rtol=0, atol=1e-12)
        wF = (w * table[:, t]).numpy()
        first = np.clip(first + 1.3 * (wF[:, 0] - wF[:, 1]) / 2, 0, 1)
    assert ((lam == 0) | (lam == 1)).any()


def test_exponentiated_gradient_depends_on_the_sum_only() -> None:
    """f4: softmax of the accumulated values, so the order does not matter; clipping makes PGD remember it."""
    w = spread(5, 3)
    table = values(5, 25, 3)
    lam = multipliers(OMDTCH(lambda_step=0.9, mirror="eg"), w, table)
    total = 0.9 * (w[:, None] * table).cumsum(1)
    np.testing.assert_allclose(lam[:, 1:], torch.softmax(total, -1), rtol=0, atol=1e-12)
    end = {
        mirror: [
            multipliers(OMDTCH(lambda_step=3.0, mirror=mirror), w, v)[:, -1] for v in (table, table.flip(1))
        ]
        for mirror in ("eg", "pgd")
    }
    np.testing.assert_allclose(*end["eg"], rtol=0, atol=1e-12)
    assert (end["pgd"][0] - end["pgd"][1]).abs().max() > 0.05


def test_limits_are_tchebycheff() -> None:
    """f5: a huge EG step gives the accumulated argmax, mu -> 0 turns STCH into TCH; ties go to the first."""
    w = spread(6, 4)
    table = values(6, 10, 4)
    lam = multipliers(OMDTCH(lambda_step=1e7, mirror="eg"), w, table)
    expected = torch.nn.functional.one_hot((w[:, None] * table).cumsum(1).argmax(-1), 4).to(FLOAT)
    np.testing.assert_allclose(lam[:, 1:], expected, rtol=0, atol=1e-12)
    for ideal in (0.0, [0.1, 0.2, 0.05, 0.3]):
        tch = TCH(ideal=ideal)
        stch = STCH(mu=1e-7, ideal=ideal)
        a = state_of(tch, w)
        b = state_of(stch, w)
        for t in range(10):
            sharp = tch.weights(table[:, t], None, a, t)[0]
            k = (w * (table[:, t] - torch.as_tensor(ideal, dtype=FLOAT))).argmax(-1)
            np.testing.assert_array_equal(sharp, torch.nn.functional.one_hot(k, 4) * w)
            np.testing.assert_allclose(stch.weights(table[:, t], None, b, t)[0], sharp, rtol=0, atol=1e-12)
    half = torch.full((1, 2), 0.5, dtype=FLOAT)
    tie = TCH().weights(torch.ones(1, 2, dtype=FLOAT), None, state_of(TCH(), half), 0)[0]
    assert tie.tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize("mirror", ["pgd", "eg"])
def test_common_factor_of_the_objectives(mirror: str) -> None:
    """f9 as corrected: s F with eta_lambda / s for a fixed sequence; for paths eta_theta / s as well."""
    w = spread(4, 3)
    table = values(4, 20, 3)
    lam = [multipliers(OMDTCH(lambda_step=2.0 / s, mirror=mirror), w, s * table) for s in (1.0, 50.0)]
    np.testing.assert_allclose(*lam, rtol=0, atol=1e-12)
    start = {"kind": "uniform", "low": -0.3, "high": 0.3}
    paths = [
        simulate(
            VLMOP2(n=6, scale=(s, s), start=start),
            OMDTCH(step_size=0.05 / s, lambda_step=1.0 / s, mirror=mirror),
            runs_at(60.0, 20.0),
            60,
            ("mean", "adaptive"),
        )
        for s in (1.0, 8.0)
    ]
    np.testing.assert_allclose(paths[0].x, paths[1].x, rtol=0, atol=1e-10)
    for rule in ("mean", "adaptive"):
        np.testing.assert_allclose(paths[0].answers[rule], paths[1].answers[rule], rtol=0, atol=1e-10)


# conversion


def tables(M: int) -> list[np.ndarray]:
    """Random sequences with few and with many distinct values (ties), and with a trend."""
    rng = generator(1, test="tables", M=M)
    out = []
    for T in (1, 2, 3, 7, 20, 40):
        trend = np.linspace(1.0, 0.0, T)[:, None]
        out += [
            rng.uniform(0, 1, (T, M)),
            rng.integers(0, 4, (T, M)).astype(float),
            rng.uniform(0, 0.3, (T, M)) + trend,
        ]
    return out


def masses(F: np.ndarray) -> np.ndarray:
    """(T, T): how much of iterate t's unit of mass ends on iterate s; written for clarity, not speed."""
    T = len(F)
    mass = np.eye(T)
    stored: list[int] = []

    def better(a: int, b: int) -> bool:
        return bool((F[a] <= F[b]).all() and (F[a] < F[b]).any())

    for t in range(T):
        above = [s for s in stored if better(s, t)]
        if above:
            mass[t] = 0.0
            mass[t, above] = 1.0 / len(above)
            continue
        for s in [s for s in stored if better(t, s)]:
            stored.remove(s)
            mass[:, t] += mass[:, s]
            mass[:, s] = 0.0
        stored.append(t)
    return mass


@pytest.mark.parametrize("M", [2, 3])
def test_adaptive_conversion(M: int) -> None:
    """f6, for every prefix: total, stored set, weights, where the mass goes, and the inequality."""
    for F in tables(M):
        mass = masses(F)
        gamma = conversion_weights(torch.from_numpy(F)[None])[0].numpy()
        np.testing.assert_allclose(gamma, mass.sum(0), rtol=0, atol=1e-12)
        for t in range(1, len(F) + 1):
            prefix = conversion_weights(torch.from_numpy(F[:t])[None])[0].numpy()
            reference = AdaptiveMean()
            for row in F[:t]:
                reference.add(row)
            assert prefix.sum() == pytest.approx(t, abs=1e-9)
            stored = (np.flatnonzero(prefix) + 1).tolist()
            assert stored == pareto_set(F[:t]) == sorted(reference.gamma)
            assert (prefix[prefix > 0] >= 1 - 1e-12).all()
            np.testing.assert_allclose(
                prefix[prefix > 0], [reference.gamma[k] for k in stored], rtol=0, atol=1e-12
            )
        for t, s in np.argwhere(mass > 0):
            assert (F[s] <= F[t]).all()
        assert (gamma @ F <= F.sum(0) + 1e-9).all()


def test_weak_ties_count_equal_values_as_dominated() -> None:
    for F in tables(2):
        reference = AdaptiveMean("weak")
        for row in F:
            reference.add(row)
        gamma = conversion_weights(torch.from_numpy(F)[None], weak_ties=True)[0].numpy()
        expected = np.zeros(len(F))
        expected[[k - 1 for k in reference.gamma]] = list(reference.gamma.values())
        np.testing.assert_allclose(gamma, expected, rtol=0, atol=1e-12)
    equal = torch.ones(1, 3, 2, dtype=FLOAT)
    assert conversion_weights(equal).tolist() == [[1, 1, 1]]
    assert conversion_weights(equal, weak_ties=True).tolist() == [[3, 0, 0]]


def test_batched_conversion_is_that_of_each_run() -> None:
    F = torch.from_numpy(np.stack([t for t in tables(2) if len(t) == 40]))
    whole = conversion_weights(F)
    for r in range(len(F)):
        assert torch.equal(conversion_weights(F[r : r + 1])[0], whole[r])


def test_order_decides_the_weights_but_not_the_set() -> None:
    """f7: the 3-point counterexample, chains, antichains, and random sequences."""
    p = [0.0, 1.0]
    q = [1.0, 0.0]
    r = [2.0, 2.0]
    for order, expected in (((p, q, r), [1.5, 1.5, 0]), ((r, p, q), [0, 2, 1]), ((r, q, p), [0, 2, 1])):
        gamma = conversion_weights(torch.tensor([order], dtype=FLOAT))
        assert gamma.tolist() == [expected]
    chain = torch.arange(6, dtype=FLOAT)[:, None].expand(6, 2)
    antichain = torch.stack([torch.arange(6), 5 - torch.arange(6)], 1).to(FLOAT)
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 37):
        i = list(order)
        assert conversion_weights(chain[i][None])[0, i.index(0)] == 6
        assert (conversion_weights(antichain[i][None]) == 1).all()
    rng = generator(2, test="order")
    different = 0
    for F in tables(2):
        i = rng.permutation(len(F))
        a = conversion_weights(torch.from_numpy(F)[None])[0].numpy()[i]
        b = conversion_weights(torch.from_numpy(F[i])[None])[0].numpy()
        assert ((a > 0) == (b > 0)).all()
        different += not np.allclose(a, b)
    assert different > 0


def feed(rule: Output, thetas: Tensor, F: Tensor) -> dict[str, Any]:
    """The state after the sequence theta (T, P), F (T, M) of one run, or (R, T, ...) of several."""
    thetas, F = (x if x.ndim == 3 else x[None] for x in (thetas, F))
    M = F.shape[-1]
    state = rule.init(thetas[:, 0], M)
    for t in range(thetas.shape[1]):
        # a live tensor that is overwritten afterwards: a rule that keeps a reference would see it
        live = thetas[:, t].clone()
        point = TablePoint(live, Free(), M, {}, F[:, t], torch.zeros(len(F), M, live.shape[1], dtype=FLOAT))
        state = rule.update(state, live, point, t)
        live.fill_(torch.nan)
    return state


def test_figure_1() -> None:
    """Four vectors: theta_2 dominated by theta_1, theta_3 dominating theta_1, theta_4 incomparable."""
    F = torch.tensor([[2.0, 2.0], [3.0, 2.5], [1.0, 1.5], [0.5, 3.0]], dtype=FLOAT)
    steps = [{1: 1.0}, {1: 2.0}, {3: 3.0}, {3: 3.0, 4: 1.0}]
    for t, expected in enumerate(steps, 1):
        gamma = conversion_weights(F[:t][None])[0].tolist()
        assert {k + 1: g for k, g in enumerate(gamma) if g} == expected
    theta = torch.from_numpy(generator(0, test="fig1").standard_normal((4, 3)))
    rule = Adaptive()
    answer = rule.final(feed(rule, theta, F), theta[-1:])
    np.testing.assert_allclose(answer[0], (3 * theta[2] + theta[3]) / 4, rtol=0, atol=1e-15)


def test_decreasing_losses_return_the_last_evaluated_iterate() -> None:
    """f8: theta^(T), not the iterate after the last step; the mean differs."""
    problem = LeastSquares(n=3, tasks=2, samples=20, start={"kind": "constant", "value": 3.0})
    runs = runs_at(45.0)
    path = simulate(problem, OMDTCH(step_size=0.02), runs, 30, ("last", "mean", "adaptive"))
    assert (np.diff(path.f, axis=1) < 0).all()
    np.testing.assert_allclose(path.answers["adaptive"], path.x[:, 29], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(path.answers["last"], path.x[:, 30])
    np.testing.assert_allclose(path.answers["mean"], path.x[:, :30].mean(1), rtol=0, atol=1e-13)
    assert np.abs(path.answers["mean"] - path.answers["adaptive"]).max() > 0.1


# two passes, memory


def second_pass(problem: VLMOP2, algorithm: Algorithm, runs: Runs, steps: int, weak: bool = False) -> Tensor:
    """`adaptive_two_pass` as the runner drives it."""
    first = AdaptiveTwoPass(weak_ties=weak)
    oracle = Exact(problem, runs)
    state = loop.start(oracle, algorithm, {"a": first}, problem.initial(runs), runs, steps)
    state = loop.advance(oracle, algorithm, {"a": first}, state, steps)
    rule = WeightedSum(first.gamma(state["out"]["a"], steps))
    state = loop.start(oracle, algorithm, {"a": rule}, problem.initial(runs), runs, steps)
    state = loop.advance(oracle, algorithm, {"a": rule}, state, steps)
    return loop.finals({"a": rule}, state)["a"]


@pytest.mark.parametrize("weak", [False, True])
def test_two_pass_equals_snapshots(weak: bool) -> None:
    """f10, past several compactions of the ring; the stored sets of the runs have different sizes."""
    runs = runs_at(80.0, 45.0, 9.0)
    algorithm = OMDTCH(step_size=0.05)
    rule = "adaptive_weak_ties" if weak else "adaptive"
    path = simulate(TOY, algorithm, runs, 300, (rule,))
    alive = path.state["out"][rule]["alive"].sum(1)
    assert len(set(alive.tolist())) > 1
    assert int(alive.max()) > Adaptive.capacity
    np.testing.assert_allclose(
        path.answers[rule], second_pass(TOY, algorithm, runs, 300, weak), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("capacity", [1, 2, 5, 64])
def test_ring_of_any_capacity_gives_the_same_average(capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that keep much and runs that keep little share one ring; removed slots never come back."""
    monkeypatch.setattr(Adaptive, "capacity", capacity)
    rng = generator(3, test="ring")
    T = 90
    trend = np.linspace(1, 0, T)
    F = np.stack([
        np.stack([trend, 1 - trend], 1),  # an antichain: all are kept
        np.stack([trend, trend], 1),  # a chain: one is kept
        rng.uniform(0, 1, (T, 2)),
        rng.integers(0, 3, (T, 2)).astype(float),
    ])  # fmt: skip
    thetas = torch.from_numpy(rng.standard_normal((4, T, 3)))
    table = torch.from_numpy(F)
    rule = Adaptive()
    state = feed(rule, thetas, table)
    expected = (conversion_weights(table).unsqueeze(-1) * thetas).sum(1) / T
    np.testing.assert_allclose(rule.final(state, thetas[:, -1]), expected, rtol=0, atol=1e-12)
    sizes = [len(pareto_set(f)) for f in F]
    assert state["alive"].sum(1).tolist() == sizes
    assert state["gamma"].shape[1] <= max(capacity, 4 * max(sizes))
    np.testing.assert_allclose((state["gamma"] * state["alive"]).sum(1), T, rtol=0, atol=1e-9)


def elements(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.numel()
    return sum(elements(v) for v in state.values()) if isinstance(state, dict) else 0


def test_memory_of_two_passes() -> None:
    """The first keeps O(R T M), whatever P; the second O(R P), whatever T."""
    R = 2
    M = 2
    sizes: dict[tuple[int, int], int] = {}
    for P, T in itertools.product((3, 3000), (50, 400)):
        thetas = torch.zeros(R, 1, P, dtype=FLOAT).expand(R, T, P)
        F = values(R, T, M)
        rule = AdaptiveTwoPass()
        sizes[P, T] = elements(feed(rule, thetas, F))
        assert sizes[P, T] <= 2 * R * max(T, 64) * M
        second = WeightedSum(conversion_weights(F))
        state = feed(second, thetas, F)
        assert elements(state) == R * P
        assert elements(feed(Mean(), thetas, F)) == R * (P + 1)
    assert sizes[3, 50] == sizes[3000, 50]
    assert sizes[3, 400] == sizes[3000, 400]


def test_two_pass_answer_needs_its_second_pass() -> None:
    with pytest.raises(RuntimeError, match="second pass"):
        AdaptiveTwoPass().final({}, torch.zeros(1, 2, dtype=FLOAT))


def test_averages_of_float32_are_accumulated_in_float64() -> None:
    theta = torch.full((1, 2000, 2), 0.1, dtype=torch.float32)
    state = Mean().init(theta[:, 0], 2)
    for t in range(2000):
        point = TablePoint(theta[:, t], Free(), 2, {}, theta[:, t], torch.zeros(1, 2, 2))
        state = Mean().update(state, theta[:, t], point, t)
    assert state["mean"].dtype == FLOAT
    answer = Mean().final(state, theta[:, 0])
    assert answer.dtype == torch.float32
    assert torch.equal(answer, theta[:, 0])


# convex tasks


def test_outputs_see_the_iterate_before_its_step() -> None:
    """(theta_t, F_t) of one point: a pair from different steps would give other weights."""
    seen: list[tuple[Tensor, Tensor]] = []

    class Watch(Mean):
        def update(self, state: dict[str, Any], theta: Tensor, point: Point, t: int) -> dict[str, Any]:
            seen.append((theta.clone(), point.F.clone()))
            return super().update(state, theta, point, t)

    runs = runs_at(50.0)
    oracle = Exact(TOY, runs)
    rules = {"watch": Watch()}
    algorithm = OMDTCH(step_size=0.05)
    state = loop.start(oracle, algorithm, rules, TOY.initial(runs), runs, 6)
    loop.advance(oracle, algorithm, rules, state, 6)
    path = simulate(TOY, algorithm, runs, 6)
    np.testing.assert_array_equal(torch.stack([x for x, _ in seen], 1), path.x[:, :6])
    np.testing.assert_allclose(torch.stack([f for _, f in seen], 1), path.f[:, :6], rtol=0, atol=1e-15)
