"""Decision spaces, NSGA-II and PSL: maps against finite differences, selection against its definition,
pymoo's own run, resuming to the bit, seeds that do not notice each other, and what is refused.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.algorithms.mgda import MGDA
from mobench.algorithms.nsga2 import NSGAII, Operators, distinct
from mobench.algorithms.population import Population
from mobench.algorithms.population_hypervolume import greedy, improvements_plane
from mobench.algorithms.population_surrogate import _fitted, fit
from mobench.algorithms.psl import PSL, ParetoSet, latin_hypercube, reference_point, standardised
from mobench.constraints import LossCap
from mobench.core import Algorithm, Box, Context, Oracle, Problem, Runs, loop
from mobench.core.compatibility import reasons
from mobench.core.output import make_output
from mobench.core.preferences import spread
from mobench.core.random import generator
from mobench.errors import CompatibilityError, ConfigError
from mobench.metrics.hypervolume import hypervolume
from mobench.oracles import EMA, Epochs, Exact, Minibatch
from mobench.problems import VLMOP2, ZDT1, LeastSquares
from mobench.spaces import Boxed, HeadBias, Hybrid, Subspace
from mobench.spaces.hybrid import task_weights
from tests.conftest import Run
from tests.test_runner import composed

FLOAT = torch.float64
ZDT = ZDT1(n=5, start={"kind": "uniform", "low": 0.0, "high": 1.0, "per_preference": True})
TASKS = LeastSquares(n=8, tasks=2, samples=30, start={"kind": "normal", "scale": 0.5})
TINY = {"n_init": 6, "updates": 15, "candidates": 40, "lr": 1e-3}


@dataclass(frozen=True, kw_only=True)
class Binary(Problem):
    """M binary tasks on shared features tanh(Z A); theta = (A, heads' weights, heads' biases)."""

    tasks: int = 3
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "normal", "scale": 0.5})

    @property
    def n_objectives(self) -> int:
        return self.tasks

    @property
    def dim(self) -> int:
        return 16 + 5 * self.tasks

    @property
    def head_variables(self) -> int:
        return 2 * self.tasks

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m = self.tasks
        return x[:, :16].view(-1, 4, 4), x[:, 16 : 16 + 4 * m].reshape(-1, m, 4), x[:, 16 + 4 * m :]

    def values(self, x: Tensor, batch: Any = None) -> Tensor:
        Z = torch.from_numpy(generator(0, test="binary").standard_normal((20, 4)))
        labels = (Z[:, : self.tasks] > 0.3).double()
        A, w, b = self._parts(x)
        z = torch.tanh(Z @ A) @ w.mT + b.unsqueeze(1)
        return (torch.nn.functional.softplus(z) - labels * z).mean(1)

    def with_heads(self, theta: Tensor, a: Tensor) -> Tensor:
        A, w, b = self._parts(theta)
        shift, scale = a.chunk(2, dim=1)
        return torch.cat([A.flatten(1), (w * scale.exp().unsqueeze(-1)).flatten(1), b + shift], dim=1)


def members(n: int, *seeds: int, M: int = 2) -> Runs:
    return Runs.product(spread(n, M), seeds or (0,))


def begin(oracle: Oracle, algorithm: Algorithm, runs: Runs, steps: int) -> dict[str, Any]:
    return loop.start(oracle, algorithm, {"last": make_output("last")}, oracle.initial(runs), runs, steps)


def path(
    oracle: Oracle, algorithm: Algorithm, runs: Runs, steps: int
) -> tuple[dict[str, Any], list[Tensor], list[Tensor]]:
    """Final state, and theta and the values of every step."""
    xs: list[Tensor] = []
    fs: list[Tensor] = []

    def observe(t: int, state: dict[str, Any], point: Any) -> None:
        xs.append(state["theta"].clone())
        fs.append(point.values().clone())

    rules = {"last": make_output("last")}
    state = loop.advance(oracle, algorithm, rules, begin(oracle, algorithm, runs, steps), steps, observe)
    return state, [*xs, state["theta"]], fs


def central(fn: Any, a: Tensor, v: Tensor, h: float = 1e-6) -> Tensor:
    return (fn(a + h * v) - fn(a - h * v)) / (2 * h)


# spaces


def test_a_subspace_is_one_for_all_runs_of_a_seed_and_scaled() -> None:
    runs = members(4, 0, 7)
    problem = VLMOP2(n=4000)
    oracle = Subspace(Exact(problem, runs), problem, runs, k=16, scale=0.3)
    one = torch.ones(8, 16, dtype=FLOAT)
    moved = oracle.variables(one) - oracle.variables(0 * one)
    for seed in (0, 7):
        mine = moved[runs.seeds == seed]
        torch.testing.assert_close(mine, mine[:1].expand(4, -1), rtol=0, atol=1e-14)
    assert not torch.allclose(moved[0], moved[1])
    assert abs(float(moved.std()) - 0.3) < 0.01
    assert abs(float(moved.mean())) < 0.02
    # fewer variables: the same first directions
    few = Subspace(Exact(problem, runs), problem, runs, k=4, scale=0.3)
    e = torch.eye(8, 16, dtype=FLOAT)
    long, short = (o.variables(v) - o.variables(0 * v) for o, v in ((oracle, e), (few, e[:, :4])))
    torch.testing.assert_close(long[:4] * 2.0, short[:4], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("space", [Subspace, Boxed])
def test_the_first_member_is_where_every_method_starts(space: Any) -> None:
    """f at a = 0 is f(theta_0), bit for bit; others are uniform in the box, keyed by seed and place."""
    runs = members(50, 0, 1)
    options = {"k": 4} if space is Subspace else {"bound": 3.0}
    oracle = space(Exact(TASKS, runs), TASKS, runs, **options)
    a = oracle.initial(runs)
    first = runs.index == 0
    assert torch.equal(oracle.exact(a)[first], TASKS.values(TASKS.initial(runs))[first])
    box = oracle.spec.X
    rest = a[~first]
    assert ((rest > box.lower) & (rest < box.upper)).all()
    assert abs(float(rest.mean())) < 0.2 * box.upper
    assert abs(float(rest.std()) - box.upper / math.sqrt(3)) < 0.1 * box.upper
    assert len({tuple(row) for row in a[~first].tolist()}) == 98
    part = runs.take([3, 40])
    assert torch.equal(space(Exact(TASKS, part), TASKS, part, **options).initial(part), a[[3, 40]])
    together = space(Exact(TASKS, runs), TASKS, runs, start="reference", **options)
    f = together.exact(together.initial(runs))
    assert torch.equal(f, TASKS.values(TASKS.initial(runs)))


def test_warm_up_is_equal_weight_descent_on_the_samples_of_the_oracle() -> None:
    """One network for each seed, whichever preferences are there; the loss falls; the same steps by hand."""
    runs = members(3, 0, 1)
    options: dict[str, Any] = {"k": 4, "warm_steps": 25, "warm_step": 0.02}
    for make in (Exact, lambda p, r: Epochs(p, r, batch_size=8), lambda p, r: Minibatch(p, r, batch_size=8)):
        oracle = Subspace(make(TASKS, runs), TASKS, runs, **options)
        zero = torch.zeros(6, 4, dtype=FLOAT)
        state = oracle.init(zero)
        by_hand = make(TASKS, runs)
        x = TASKS.initial(runs)
        for t in range(25):
            x = x - 0.02 * by_hand.at(x, {}, t).vjp(torch.full((6, 2), 0.5, dtype=FLOAT))
        torch.testing.assert_close(state["reference"], x, rtol=0, atol=1e-12)
        assert (oracle.exact(zero).mean(1) < TASKS.values(TASKS.initial(runs)).mean(1)).all()
        few = runs.take([5, 2])
        other = Subspace(make(TASKS, few), TASKS, few, **options)
        torch.testing.assert_close(other.init(zero[:2])["reference"], x[[5, 2]], rtol=0, atol=1e-12)
    assert state["warm_seconds"].shape == (6,)
    assert (state["warm_seconds"] > 0).all()
    assert torch.equal(oracle.columns(zero, oracle.exact(zero))["warm_seconds"], state["warm_seconds"])
    assert "warm_seconds" not in Subspace(Exact(TASKS, runs), TASKS, runs, k=4).columns(zero, zero)
    larger = Subspace(Epochs(TASKS, runs, batch_size=8), TASKS, runs, warm_batch=30, **options)
    whole = Subspace(Exact(TASKS, runs), TASKS, runs, **options)
    torch.testing.assert_close(
        larger.init(zero)["reference"], whole.init(zero)["reference"], rtol=0, atol=1e-10
    )


def test_a_warm_start_comes_from_the_state_where_there_is_one() -> None:
    runs = members(2)
    options: dict[str, Any] = {"k": 3, "warm_steps": 2, "warm_step": 0.01}
    a = torch.zeros(2, 3, dtype=FLOAT)
    state = Subspace(Exact(TASKS, runs), TASKS, runs, **options).init(a)
    state = state | {"reference": state["reference"] + 1.0}  # as another machine may have made it
    for ask in ("at", "last_point"):
        oracle = Subspace(Exact(TASKS, runs), TASKS, runs, **options)
        before = oracle.exact(a)
        if ask == "at":
            point = oracle.at(a, state, 5)
            assert torch.equal(point.state["reference"], state["reference"])
        else:
            assert oracle.last_point(a, state, 5) is None
        assert torch.equal(oracle.exact(a), TASKS.values(state["reference"]))
        assert not torch.equal(oracle.exact(a), before)


def test_blocks_of_variables_need_the_variables_themselves() -> None:
    runs = members(2)
    inner = EMA(TASKS, runs, Minibatch(TASKS, runs, batch_size=8), blocks=2)
    with pytest.raises(CompatibilityError, match="block_move=all"):
        path(Subspace(inner, TASKS, runs, k=3), MGDA(), runs, 1)
    oracle = Boxed(inner, TASKS, runs, bound=5.0, start="reference")
    _, xs, _ = path(oracle, MGDA(step_size=0.1), runs, 1)
    assert ((xs[1] != xs[0]).sum(1) == 4).all()


def test_heads_are_changed_and_features_are_not() -> None:
    problem = Binary()
    runs = members(2, M=3)
    oracle = HeadBias(Exact(problem, runs), problem, runs, bound=1.5)
    assert oracle.spec.P == 6
    assert Box(-1.5, 1.5) == oracle.spec.X
    theta = problem.initial(runs)[:1]
    a = torch.tensor([[0.1, 0.2, 0.3, 0.0, math.log(2.0), math.log(3.0)]], dtype=FLOAT)
    new = oracle.variables(a.expand(2, -1))[:1] - theta
    # features, and the head whose scale is 1
    assert torch.equal(new[:, :20], torch.zeros(1, 20, dtype=FLOAT))
    torch.testing.assert_close(new[:, 20:24], theta[:, 20:24], rtol=1e-12, atol=0)
    torch.testing.assert_close(new[:, 24:28], 2 * theta[:, 24:28], rtol=1e-12, atol=0)
    torch.testing.assert_close(new[:, 28:], a[:, :3], rtol=1e-12, atol=1e-14)
    state, _, _ = path(oracle, NSGAII(), runs, 4)
    assert (state["theta"].abs() <= 1.5).all()


# the hybrid


def test_hybrid_trains_a_network_in_each_slot() -> None:
    """The same by hand; final rows are those of the networks in the state."""
    runs = members(3, 0, 1)
    oracle = Hybrid(Epochs(TASKS, runs, batch_size=8), TASKS, runs, step=0.02)
    assert oracle.epoch_steps == 4  # 8, 8, 8 and 6 samples
    assert oracle.spec.P == 2
    state, xs, fs = path(oracle, NSGAII(), runs, 3)
    x = TASKS.initial(runs)
    inner = Epochs(TASKS, runs, batch_size=8)
    for t in range(3):
        w = xs[t].clamp_min(1e-3)
        for e in range(4):
            x = x - 0.02 * inner.at(x, {}, 4 * t + e).vjp(w / w.sum(1, keepdim=True))
        torch.testing.assert_close(fs[t], TASKS.values(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(state["oracle"]["networks"], x, rtol=0, atol=1e-12)
    torch.testing.assert_close(oracle.exact(state["theta"]), TASKS.values(x), rtol=0, atol=1e-12)
    assert (TASKS.values(x).sum(1) < TASKS.values(TASKS.initial(runs)).sum(1)).all()
    # a process that is started after the last step knows them from the state
    late = Hybrid(Epochs(TASKS, runs, batch_size=8), TASKS, runs, step=0.02)
    assert torch.equal(late.exact(xs[0]), TASKS.values(TASKS.initial(runs)))
    assert late.last_point(state["theta"], state["oracle"], 3) is None
    torch.testing.assert_close(late.exact(state["theta"]), TASKS.values(x), rtol=0, atol=1e-12)
    assert torch.equal(oracle.initial(runs)[:2], torch.full((2, 2), 0.5, dtype=FLOAT))
    w = task_weights(torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=FLOAT))
    torch.testing.assert_close(w, torch.tensor([[0.5, 0.5], [1 / 1.001, 0.001 / 1.001]], dtype=FLOAT))


def test_hybrid_keeps_constraints_and_the_state_below() -> None:
    runs = members(2)
    inner = EMA(TASKS, runs, Minibatch(TASKS, runs, batch_size=8))
    oracle = Hybrid(LossCap(inner, TASKS, runs, value=0.5), TASKS, runs, epoch_steps=3, step=0.02)
    state, _, fs = path(oracle, NSGAII(), runs, 2)
    assert fs[0].shape == (2, 4)
    torch.testing.assert_close(fs[1][:, 2:], fs[1][:, :2] - 0.5)
    assert state["oracle"]["inner"]["rows"].abs().sum() > 0


def test_hybrid_refuses_gradients() -> None:
    runs = members(2)
    oracle = Hybrid(Epochs(TASKS, runs, batch_size=8), TASKS, runs)
    with pytest.raises(CompatibilityError, match="algorithm=nsga2"):
        path(oracle, LS(), runs, 1)
    with pytest.raises(CompatibilityError, match="needs jacobian"):
        path(oracle, MGDA(), runs, 1)


# what spaces refuse


@dataclass(frozen=True, kw_only=True)
class Far(LeastSquares):
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant", "value": 0.7})


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda r: Boxed(Exact(ZDT, r), ZDT, r),
            CompatibilityError,
            "already lie in a Box. Choose space=none",
        ),
        (lambda r: Subspace(Exact(ZDT, r), ZDT, r, k=2), CompatibilityError, "ZDT1 already lie in a Box"),
        (lambda r: Boxed(Exact(TASKS, r), TASKS, r, bound=math.inf), ConfigError, "finite"),
        (
            lambda r: Boxed(Exact(Far(n=2), r), Far(n=2), r).initial(r),
            ConfigError,
            "large as 0.7.*Raise space.bound",
        ),
        (lambda r: Subspace(Exact(TASKS, r), TASKS, r, k=9), ConfigError, "space.k=9 must lie in 1..8"),
        (lambda r: Subspace(Exact(TASKS, r), TASKS, r, k=0), ConfigError, "space.k=0"),
        (
            lambda r: Subspace(Exact(TASKS, r), TASKS, r, k=2, warm_steps=40, warm_step=1e6).init(
                torch.zeros(2, 2)
            ),
            ConfigError,
            "warm-up diverged within 40 steps. Lower space.warm_step",
        ),
        (
            lambda r: HeadBias(Exact(TASKS, r), TASKS, r),
            CompatibilityError,
            "LeastSquares has none.*space=subspace",
        ),
        (
            lambda r: Hybrid(Exact(TASKS, r), TASKS, r),
            ConfigError,
            "Exact has no epochs. Give space.epoch_steps",
        ),
        (
            lambda r: Hybrid(Exact(TASKS, r), TASKS, r, epoch_steps=0),
            ConfigError,
            "epoch_steps=0 must be >= 1",
        ),
    ],
)
def test_spaces_refuse_in_words(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make(members(2))


def test_spaces_do_not_know_clients(tmp_path: Path) -> None:
    from mobench.jobs.build import make_job

    for space in ("full", "subspace", "hybrid"):
        config = composed("problem=least_squares", "oracle=local_steps", f"space={space}", "problem.n=60")
        with pytest.raises(CompatibilityError, match=f"space={space} cannot be combined with local steps"):
            make_job(config).oracle()
    # a warm-up draws samples itself
    lower = ("problem=bilevel_quadratic", "oracle=hypergradient", "space=subspace", "space.k=2")
    job = make_job(composed(*lower, "space.warm_steps=3"))
    with pytest.raises(
        CompatibilityError, match=r"oracle=exact, minibatch and epochs, not Hypergradient.*warm_steps=0"
    ):
        job.oracle()
    assert make_job(composed(*lower)).oracle().spec.P == 2


# selection


def fronts(F: np.ndarray) -> list[list[int]]:
    """Non-dominated fronts by their definition."""
    left = set(range(len(F)))
    out = []
    while left:
        front = [i for i in left if not any((F[j] <= F[i]).all() and (F[j] < F[i]).any() for j in left)]
        out.append(sorted(front))
        left -= set(front)
    return out


def crowding(F: np.ndarray) -> np.ndarray:
    """Sum over objectives of the normalised distance of the neighbours; infinite at the ends."""
    total = np.zeros(len(F))
    for m in range(F.shape[1]):
        order = np.argsort(F[:, m])
        f = F[order, m]
        total[order[[0, -1]]] = np.inf
        total[order[1:-1]] += (f[2:] - f[:-2]) / (f[-1] - f[0])
    return total


@pytest.mark.parametrize("M", [2, 3])
def test_survivors_are_the_best_by_rank_and_then_by_crowding(M: int) -> None:
    rng = generator(1, test="survivors", M=M)
    for n in (5, 12, 20):
        F = rng.uniform(size=(24, M))
        x = rng.uniform(size=(24, 3))
        operators = Operators(NSGAII(), 3, M, Box(0.0, 1.0), generator(0, use="test"))
        chosen = operators.survivors(x, F, n)
        assert len(set(chosen)) == n
        expected: set[int] = set()
        for front in fronts(F):
            if len(expected) + len(front) <= n:
                expected |= set(front)
                continue
            distance = crowding(F[front])
            cut = np.sort(distance)[::-1][n - len(expected) - 1]
            inside = [front[i] for i in np.flatnonzero(distance > cut)]
            tied = {front[i] for i in np.flatnonzero(distance == cut)}
            assert set(inside) <= set(chosen)
            assert set(chosen) - expected - set(inside) <= tied
            break
        else:
            assert set(chosen) == expected
        assert expected <= set(chosen)


def test_parents_of_a_step_are_the_best_of_parents_and_candidates() -> None:
    """Elitism over a whole run: the non-dominated of all evaluated survive as far as there is room."""
    runs = members(12, 0, 3)
    oracle = Exact(ZDT, runs)
    _, xs, fs = path(oracle, NSGAII(), runs, 8)
    for seed in (0, 3):
        mine = runs.seeds == seed
        everything = torch.cat([f[mine] for f in fs]).numpy()
        final = ZDT.values(xs[-1])[mine].numpy()
        front = everything[fronts(everything)[0]]
        if len(front) <= 12:
            assert all((np.abs(final - f).max(1) < 1e-12).any() for f in front)
        assert all((np.abs(everything - f).max(1) < 1e-12).any() for f in final)
        assert hypervolume(final, (11.0, 11.0)) > hypervolume(fs[0][mine].numpy(), (11.0, 11.0))


@pytest.mark.parametrize("mode", ["individual", "gene"])
def test_mating_stays_in_the_box_and_gives_nothing_twice(mode: str) -> None:
    rng = generator(2, test="mating")
    for trial in range(5):
        box = Box(-0.5, 0.25)
        x = rng.choice([box.lower, box.upper, 0.0, 0.1], (15, 6))  # many at the bounds, some equal
        x = x[distinct(x)]
        method = NSGAII(mutation_mode=mode, mutation_prob=0.9)
        operators = Operators(method, 6, 2, box, generator(trial, use="test"))
        operators.survivors(x, rng.uniform(size=(len(x), 2)), len(x))
        children = operators.children(31)
        assert children.shape == (31, 6)
        assert ((children >= box.lower) & (children <= box.upper)).all()
        assert distinct(np.concatenate([x, children])).all()
        assert (children[:, None] != x).any(-1).all()


def test_mutation_modes() -> None:
    """Shares of individuals and variables that change without crossover, duplicates included."""
    rng = generator(3, test="mutation")
    P = 20
    x = rng.uniform(size=(40, P))
    for mode, each in (("individual", 1 / P), ("gene", 0.1)):
        method = NSGAII(mutation_mode=mode, crossover_prob=0.0)
        operators = Operators(method, P, 2, Box(0.0, 1.0), generator(0, use="m"))
        operators.survivors(x, rng.uniform(size=(40, 2)), 40)
        mating = operators.mating
        born = mating._do(
            operators.problem, operators.parents, 4000, algorithm=operators.contest, random_state=rng
        )
        changed = (born.get("X")[:, None] != x).sum(-1).min(1)
        assert (changed > 0).mean() == pytest.approx(
            (0.1 if mode == "individual" else 1.0) * (1 - (1 - each) ** P), rel=0.15
        )
        assert changed[changed > 0].mean() == pytest.approx(each * P / (1 - (1 - each) ** P), rel=0.1)


def test_members_that_start_from_one_point_spread_out() -> None:
    """Members of a seed that have one start are uniform in the next generation."""
    problem = ZDT1(n=4)
    runs = members(20, 0, 1)
    oracle = Exact(problem, runs)
    state, xs, _ = path(oracle, NSGAII(), runs, 3)
    assert len({tuple(row) for row in xs[0][runs.seeds == 0].tolist()}) == 1
    first = loop.advance(oracle, NSGAII(), {}, begin(oracle, NSGAII(), runs, 3) | {"out": {}}, 1)
    assert int(first["alg"]["memory"]["known"].sum()) == 2  # one for each seed
    assert state["alg"]["memory"]["known"].all()
    second = xs[1][runs.seeds == 0]
    assert len({tuple(row) for row in second.tolist()}) == 20
    assert abs(float(second.mean()) - 0.5) < 0.15
    assert abs(float(second.std()) - 12**-0.5) < 0.1


@dataclass(frozen=True, kw_only=True)
class Broken(ZDT1):
    """Nothing but NaN where x_1 > 0.5 (or everywhere)."""

    everywhere: bool = False

    def values(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        bad = (x[:, :1] > 0.5) | self.everywhere
        return torch.where(bad, torch.nan, super().values(x))

    def linearize(self, x: Tensor, batch: Tensor | None = None) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize("algorithm", [NSGAII(), PSL(**(TINY | {"n_init": 12}))], ids=["nsga2", "psl"])
def test_members_that_diverge_are_never_parents(algorithm: Population) -> None:
    problem = Broken(n=4, start=ZDT.start)
    runs = members(6)
    state, xs, _ = path(Exact(problem, runs), algorithm, runs, 3)
    assert problem.values(xs[0]).isnan().any()
    assert problem.values(state["theta"]).isfinite().all()
    assert state["alive"].all()
    lost = Broken(n=4, start=ZDT.start, everywhere=True)
    if isinstance(algorithm, NSGAII):
        oracle = Exact(problem, runs)
        first = loop.advance(oracle, algorithm, {}, begin(oracle, algorithm, runs, 3) | {"out": {}}, 1)
        assert int(first["alg"]["memory"]["known"].sum()) == int((xs[0][:, 0] <= 0.5).sum())
    state, xs, _ = path(Exact(lost, runs), algorithm, runs, 5)
    assert ((state["theta"] >= 0) & (state["theta"] <= 1)).all()
    assert len({tuple(row) for x in xs[:5] for row in x.tolist()}) == 30  # drawn anew in each step


def test_zdt1_is_solved_as_by_pymoo_itself() -> None:
    """Equal evaluations and operators: the mean hypervolume of three seeds agrees to 2 %."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.optimize import minimize
    from pymoo.problems import get_problem

    n = 40
    steps = 60
    ref = (11.0, 11.0)
    problem = ZDT1(n=30, start=ZDT.start)
    runs = members(n, 0, 1, 2)
    state, xs, _ = path(Exact(problem, runs), NSGAII(), runs, steps)
    F = problem.values(state["theta"]).numpy()
    ours = [hypervolume(F[runs.seeds.numpy() == seed], ref) for seed in range(3)]
    first = problem.values(xs[0]).numpy()
    begun = [hypervolume(first[runs.seeds.numpy() == seed], ref) for seed in range(3)]
    theirs = []
    for seed in range(3):
        method = NSGA2(pop_size=n, crossover=SBX(prob=0.9, eta=2), mutation=PM(prob=0.1, eta=20))
        method.tournament_type = "comp_by_rank_and_crowding"
        result = minimize(get_problem("zdt1"), method, ("n_gen", steps), seed=seed)
        assert result.algorithm.evaluator.n_eval == n * steps
        theirs.append(hypervolume(result.pop.get("F"), ref))
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.02)
    assert np.mean(ours) > 1.1 * np.mean(begun)  # of at most 1.18: the tolerance means something


# hypervolume improvements


@pytest.mark.parametrize("M", [2, 3, 4])
def test_greedy_hypervolume_by_brute_force(M: int) -> None:
    rng = generator(5, test="greedy", M=M)
    ref = np.full(M, 1.0)
    for n in (0, 1, 12):
        S = rng.uniform(0.2, 1.2, (n, M))
        C = rng.uniform(0.0, 1.1, (30, M))
        chosen = greedy(S, C, 4, ref, generator(0, use="volume"))
        assert len(set(chosen)) == 4
        for i in range(4):
            before = np.concatenate([S, C[chosen[:i]]])
            base = hypervolume(before, ref.tolist())
            gains = [hypervolume(np.concatenate([before, c[None]]), ref.tolist()) - base for c in C]
            if M == 2:
                np.testing.assert_allclose(improvements_plane(before, C, ref), gains, rtol=0, atol=1e-12)
            # estimated for M > 3: within its error
            assert gains[chosen[i]] >= max(gains) - (1e-12 if M < 4 else 0.02)
    assert greedy(S, C[:2], 5, ref, rng) == [0, 1] or greedy(S, C[:2], 5, ref, rng) == [1, 0]
    # nothing improves: still different ones
    assert sorted(greedy(np.zeros((1, M)), np.ones((4, M)), 3, ref, rng)) == [0, 1, 2]


def test_reference_point_and_standardisation() -> None:
    F = np.array([[1.0, 5.0, 2.0], [3.0, 1.0, 2.0], [9.0, 9.0, 2.0]])
    Y = standardised(F)
    np.testing.assert_allclose(Y.mean(0), 0, atol=1e-15)
    np.testing.assert_allclose(Y.std(0), [1, 1, 0], atol=1e-15)
    np.testing.assert_allclose(reference_point(Y), np.array([Y[1, 0], Y[0, 1], 0.0]) + 0.1, atol=1e-15)


def test_latin_hypercube_has_one_point_in_each_cell() -> None:
    points = latin_hypercube(10, 4, generator(0, use="test"))
    assert (np.sort((points * 10).astype(int), axis=0) == np.arange(10)[:, None]).all()


# Gaussian processes


def test_surrogates_are_botorchs_posterior() -> None:
    rng = generator(6, test="gp")
    U, u = (torch.from_numpy(rng.uniform(size=(n, 4))) for n in (25, 40))

    def truth(v: Tensor) -> Tensor:
        return torch.stack([torch.sin(3 * v[:, 0]) + v[:, 1], (v - 0.3).square().sum(1)], 1)

    Y = truth(U)
    centre = Y.mean(0)
    scale = Y.std(0)
    surrogate = fit(U, (Y - centre) / scale, 3)
    assert not surrogate.failed
    mean, std = surrogate(u)
    for m in range(2):
        from mobench.core.random import seed_for

        model, failed = _fitted(U, ((Y - centre) / scale)[:, m : m + 1], seed_for(3, objective=m))
        assert not failed
        model.eval()
        posterior = model.posterior(u)
        torch.testing.assert_close(mean[:, m], posterior.mean.detach()[:, 0], rtol=0, atol=1e-6)
        torch.testing.assert_close(std[:, m], posterior.variance.detach()[:, 0].sqrt(), rtol=0, atol=1e-5)
    assert ((mean * scale + centre - truth(u)).square().mean(0) < 0.05 * truth(u).var(0)).all()
    v = torch.from_numpy(rng.standard_normal((40, 4)))
    leaf = u.clone().requires_grad_(True)
    for k in range(2):
        slope = torch.autograd.grad(surrogate(leaf)[k].sum(), leaf)[0]
        torch.testing.assert_close(
            (slope * v).sum(1),
            central(lambda x, k=k: surrogate(x)[k].sum(1), u, v, 1e-5),
            rtol=1e-4,
            atol=1e-5,
        )
    torch.testing.assert_close(PSL(lcb=0.3).bound(surrogate, u), mean - 0.3 * std)
    # at an observed point a gradient exists
    seen = U[:1].clone().requires_grad_(True)
    assert torch.autograd.grad(surrogate(seen)[0].sum(), seen)[0].isfinite().all()


def test_a_fit_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import botorch.fit
    from botorch.exceptions.errors import ModelFittingError

    def fails(*args: Any, **kwargs: Any) -> None:
        raise ModelFittingError("no")

    monkeypatch.setattr(botorch.fit, "fit_gpytorch_mll", fails)
    runs = members(3, 0, 1)
    state, _, _ = path(Exact(ZDT, runs), PSL(**TINY), runs, 5)
    assert state["fail"].tolist() == [1] * 6  # step 1 is the first to fit, and the last of this population
    assert state["stopped"].tolist() == [1] * 6


# Pareto set learning


def test_psl_evaluates_the_start_then_a_hypercube_and_ends_with_its_archive() -> None:
    runs = members(3, 0, 5)
    algorithm = PSL(**(TINY | {"n_init": 8}))
    state, xs, fs = path(Exact(ZDT, runs), algorithm, runs, 5)
    assert torch.equal(xs[0], ZDT.initial(runs))
    for seed in (0, 5):
        mine = runs.seeds == seed
        cube = torch.cat([xs[1][mine], xs[2][mine]]).numpy()
        assert (np.sort((cube * 6).astype(int), axis=0) == np.arange(6)[:, None]).all()
        archive = torch.cat([x[mine] for x in xs[:5]])
        F = torch.cat([f[mine] for f in fs])
        final = state["theta"][mine]
        at = [int((archive - x).abs().amax(1).argmin()) for x in final]
        torch.testing.assert_close(archive[at], final, rtol=0, atol=1e-15)
        Y = standardised(F.numpy())
        assert sorted(at) == sorted(greedy(Y[:0], Y, 3, reference_point(Y), generator(0, use="x")))
        front = fronts(Y)[0]
        assert len(set(at) & set(front)) == min(3, len(front))
    memory = state["alg"]["memory"]
    assert memory["x"].shape == (6, 5, 5)
    assert torch.equal(memory["x"], torch.stack(xs[:5], 1))
    assert torch.equal(memory["values"], torch.stack(fs, 1))
    assert not torch.equal(xs[3], xs[4])  # a model of its own in each step


def test_the_models_rate_decides_how_far_it_comes() -> None:
    """With the paper's 1e-5 the model stays where it was drawn; its authors' 1e-3 moves it."""
    rng = generator(7, test="psl")
    U = torch.from_numpy(rng.uniform(size=(20, 6)))
    Y = torch.stack([U[:, :3].sum(1), -U[:, :3].sum(1)], 1) + U[:, 3:].sum(1, keepdim=True)
    Y = (Y - Y.mean(0)) / Y.std(0)
    surrogate = fit(U, Y, 0)
    spans = {}
    for lr in (1e-5, 1e-3):
        u = PSL(lr=lr, updates=200, candidates=200).batch_of(
            surrogate, Y.numpy(), 8, generator(0, use="spans")
        )
        assert u.shape == (8, 6)
        assert ((u >= 0) & (u <= 1)).all()
        spans[lr] = float(np.ptp(u, axis=0).max())
    assert 4 * spans[1e-5] < spans[1e-3]


def test_pareto_set_model_begins_as_a_linear_layer_does() -> None:
    model = ParetoSet(2, 7, generator(0, use="model"))
    shapes = [(2, 256), (256,), (256, 256), (256,), (256, 7), (7,)]
    assert [tuple(p.shape) for p in model.parameters] == shapes
    for p, n in zip(model.parameters, (2, 2, 256, 256, 256, 256), strict=True):
        assert float(p.detach().abs().max()) <= n**-0.5
        assert float(p.detach().abs().max()) > 0.8 * n**-0.5 or p.numel() < 10
    w = torch.from_numpy(generator(1, use="model").dirichlet(np.ones(2), 5))
    W1, b1, W2, b2, W3, b3 = (p.detach().double() for p in model.parameters)
    h = ((w @ W1 + b1).clamp_min(0) @ W2 + b2).clamp_min(0)
    torch.testing.assert_close(model(w).detach(), torch.sigmoid(h @ W3 + b3), rtol=0, atol=1e-5)


def test_psl_takes_eight_objectives() -> None:
    problem = LeastSquares(n=6, tasks=8, samples=10)
    runs = members(3, M=8)
    oracle = Subspace(Exact(problem, runs), problem, runs, k=4)
    state, _, _ = path(oracle, PSL(**TINY), runs, 3)
    assert (state["theta"].abs() <= 1).all()


# refusals


def refusal(spec: Any, algorithm: Algorithm) -> str:
    return "\n".join(reasons(spec, algorithm))


def test_a_box_is_needed() -> None:
    runs = members(2)
    for algorithm in (NSGAII(), PSL()):
        assert "space=full (all variables) or space=subspace" in refusal(Exact(TASKS, runs).spec, algorithm)
        assert not reasons(Subspace(Exact(TASKS, runs), TASKS, runs, k=2).spec, algorithm)
        # constraints are accepted, and not handled
        capped = LossCap(Exact(TASKS, runs), TASKS, runs, value=0.5)
        assert not reasons(Subspace(capped, TASKS, runs, k=2).spec, algorithm)


def test_psl_refuses_many_variables() -> None:
    runs = members(2)
    problem = VLMOP2(n=1000)
    spec = Boxed(Exact(problem, runs), problem, runs, bound=9.0).spec
    words = refusal(spec, PSL())
    assert re.search(
        r"max_variables=100 variables by Gaussian processes, but there are 1000; choose space=subspace", words
    )
    assert not reasons(spec, PSL(max_variables=1000))
    assert not reasons(spec, NSGAII())


def test_step_sizes_mean_nothing_to_a_population() -> None:
    spec = Exact(ZDT, members(2)).spec
    for options in ({"step_size": 0.5}, {"step_decay": 0.5}):
        assert "must be 1 and algorithm.step_decay" in refusal(spec, NSGAII(**options))
        assert "must be 1 and algorithm.step_decay" in refusal(spec, PSL(**options))


def test_a_population_has_members() -> None:
    runs = members(1, 0, 1)
    with pytest.raises(ConfigError, match=r"preferences=1 is too small: NSGAII uses.*at least 2"):
        begin(Exact(ZDT, runs), NSGAII(), runs, 3)
    runs = members(2)
    with pytest.raises(ConfigError, match="outputs="):
        NSGAII(outputs=["mean"])
    x = ZDT.initial(runs)
    spec = Exact(ZDT, runs).spec
    ctx = Context(spec=spec, prefs=runs.weights, all_prefs=runs.all, theta=x, exact=ZDT.values, steps=3)
    assert NSGAII().init(ctx)["seed"].tolist() == [0, 0]  # without seeds: one population


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NSGAII(mutation_prob=1.5), r"mutation_prob=1.5 must lie in \[0, 1\]; it is a probability"),
        (lambda: NSGAII(crossover_prob=-0.1), r"crossover_prob=-0.1 must lie in \[0, 1\]; it is"),
        (lambda: NSGAII(mutation_eta=0.5), "mutation_eta=0.5 must lie in"),
        (lambda: PSL(n_init=0), "n_init=0 must be at least 1"),
        (lambda: PSL(candidates=0), "candidates=0 must be at least 1"),
        (lambda: PSL(updates=-1), "updates=-1 must be >= 0"),
        (lambda: PSL(lr=0.0), "lr=0.0 must be > 0"),
        (lambda: PSL(rho=math.nan), "rho=nan"),
    ],
)
def test_fields_are_checked(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


def test_a_missing_extra_is_one_clear_message(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name in ("pymoo", "botorch", "gpytorch") else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    for algorithm, names in (("nsga2", "pymoo"), ("psl", "botorch and gpytorch")):
        result = mobench(f"algorithm={algorithm}", "problem=zdt1", "preferences=3", "steps=3", "logger=local")
        result.refused(f"it needs {names}, not installed here; use pip install '.[baselines]'")
