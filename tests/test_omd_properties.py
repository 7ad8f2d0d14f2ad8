"""Properties of OMD-TCH: multipliers, adaptive conversion, memory, symmetry, the convex bound."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.omd_tch import OMDTCH
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.core import Algorithm, Context, Free, Point, Runs, Spec, TablePoint, loop
from mobench.core.output import Adaptive, AdaptiveTwoPass, Mean, Output, WeightedSum, conversion_weights
from mobench.core.preferences import spread
from mobench.core.random import generator
from mobench.oracles import Exact
from mobench.problems import VLMOP2
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


@pytest.mark.parametrize("M", [2, 3])
def test_adaptive_conversion(M: int) -> None:
    """f6, for every prefix: total, stored set, weights, and the inequality."""
    for F in tables(M):
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
            assert (prefix @ F[:t] <= F[:t].sum(0) + 1e-9).all()


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
