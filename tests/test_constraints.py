"""Constraint families: their functions, derivatives, messages, and the methods that take them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_sa import FEREROSA
from mobench.constraints import LossCap
from mobench.constraints.base import Constrained
from mobench.core import Point, Runs, loop
from mobench.core.oracle import Oracle
from mobench.errors import CompatibilityError, ConfigError
from mobench.oracles import EMA, Epochs, Exact, LocalSteps
from mobench.problems import BallAndHalfSpace, HalfPlane, LeastSquares
from tests.conftest import Run

F64 = torch.float64
EVEN = torch.tensor([[0.5, 0.5]], dtype=F64)
THREE = torch.tensor([[0.2, 0.3, 0.5]], dtype=F64)
PROBLEM = LeastSquares()
RUNS = Runs.product(torch.tensor([[0.3, 0.7], [0.6, 0.4]], dtype=F64), [0, 1])


class Ratio(Constrained):
    """A family whose matrix is not diagonal:  g_m = f_m - 1.5 mean_k f_k."""

    version = 1

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle, torch.eye(2) - 0.75, torch.zeros(2))


@pytest.mark.parametrize("name", ["cap", "ratio"])
def test_values_and_derivatives_against_autodiff(name: str) -> None:
    exact = Exact(PROBLEM, RUNS)
    oracle = LossCap(exact, PROBLEM, RUNS, value=[0.5, 0.7]) if name == "cap" else Ratio(exact)
    start = oracle.initial(RUNS)
    x = start + 0.1 * torch.ones_like(start)
    point = oracle.at(x, oracle.init(x), 0)

    def every(x: torch.Tensor) -> torch.Tensor:
        F = PROBLEM.values(x)
        bound = torch.tensor([0.5, 0.7], dtype=F64) if name == "cap" else 1.5 * F.mean(1, keepdim=True)
        return torch.cat([F, F - bound], dim=1)

    torch.testing.assert_close(point.values(), every(x))
    torch.testing.assert_close(oracle.exact(x), every(x))
    K = oracle.spec.M + oracle.spec.N
    rows = torch.autograd.functional.jacobian(lambda y: every(y).sum(0), x).transpose(0, 1)
    torch.testing.assert_close(point.jacobian(), rows)
    torch.testing.assert_close(point.jacobian("g"), rows[:, oracle.spec.M :])
    w = torch.rand(len(x), K, dtype=F64)
    v = torch.rand_like(x)
    torch.testing.assert_close(point.vjp(w), torch.einsum("rk,rkp->rp", w, rows))
    torch.testing.assert_close(point.vjp(w[:, :2]), torch.einsum("rk,rkp->rp", w[:, :2], rows[:, :2]))
    torch.testing.assert_close(point.jvp(v), torch.einsum("rkp,rp->rk", rows, v))

    def gradient(y: torch.Tensor) -> torch.Tensor:
        return torch.autograd.functional.jacobian(lambda z: (w * every(z)).sum(), y, create_graph=True)

    _, hv = torch.autograd.functional.vjp(gradient, x, v)
    torch.testing.assert_close(point.hvp(w, v), hv)
    moved = point.moved(x + 0.2)
    torch.testing.assert_close(moved.values(), every(x + 0.2))


def test_constraints_of_the_problem_come_first() -> None:
    problem = HalfPlane()
    runs = Runs.product(EVEN, [0])
    oracle = LossCap(Exact(problem, runs), problem, runs, value=2.0)
    assert (oracle.spec.M, oracle.spec.N) == (2, 3)
    x = torch.tensor([[0.2, 0.5]], dtype=F64)
    values = oracle.exact(x)
    torch.testing.assert_close(values[:, 2], torch.tensor([0.5], dtype=F64))
    torch.testing.assert_close(values[:, 3:], values[:, :2] - 2.0)


def test_a_sample_and_its_averages() -> None:
    """Constraints of a minibatch are those of the batch; averages are averages of constraints."""
    inner = Epochs(PROBLEM, RUNS, batch_size=16)
    oracle = LossCap(inner, PROBLEM, RUNS, value=0.5)
    x = oracle.initial(RUNS)
    point = oracle.at(x, oracle.init(x), 3)
    torch.testing.assert_close(point.values()[:, 2:], inner.at(x, {}, 3).values() - 0.5)
    averaged = LossCap(EMA(PROBLEM, RUNS, Epochs(PROBLEM, RUNS, batch_size=16)), PROBLEM, RUNS, value=0.5)
    state = averaged.init(x)
    for t in range(3):
        point = averaged.at(x, state, t)
        torch.testing.assert_close(point.values()[:, 2:], point.F - 0.5)
        state = point.state
    assert set(state) == set(averaged.inner.init(x))


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        (LossCap, {"value": 0.0}, "cannot be met"),
        (LossCap, {"value": [1.0, 2.0, 3.0]}, "3 caps"),
        (LossCap, {}, "give only one of them"),
        (LossCap, {"value": 1.0, "ratio": 1.0}, "give only one of them"),
        (LossCap, {"ratio": 1.0}, "needs the loss of a constant predictor"),
    ],
)
def test_what_cannot_be_met_is_refused(family: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        family(Exact(PROBLEM, RUNS), PROBLEM, RUNS, **options)


def test_local_steps_are_refused() -> None:
    oracle = LocalSteps(PROBLEM, RUNS, local_steps=2, local_step=0.1)
    with pytest.raises(CompatibilityError, match="local steps"):
        LossCap(oracle, PROBLEM, RUNS, value=1.0)


def test_the_group_on_the_command_line(mobench: Run) -> None:
    quick = ("problem=least_squares", "constraint=loss_cap", "steps=3", "preferences=2", "logger=local")
    done = mobench(*quick, "algorithm=csmoo2", "constraint.value=2.0")
    assert done.code == 0
    assert {"g_1", "g_2", "violation"} <= set(done.rows)
    assert (done.rows["g_1"] - (done.rows["f_1"] - 2.0)).abs().max() < 1e-12
    mobench(*quick, "algorithm=csmoo2", "constraint.valeu=2.0").refused(
        "constraint.valeu is unknown", "Did you mean 'value'"
    )
    mobench(*quick, "algorithm=ls").refused("it does not support constraints")
    free = [a for a in quick if not a.startswith("constraint")]
    mobench(*free, "algorithm=ls", "constraint.value=2.0").refused(
        "constraint.value=2.0 is set, but constraint=none", "loss_cap"
    )
    assert mobench(*free, "algorithm=ls", "constraint.value=null").code == 0
    mobench(*quick, "algorithm=csmoo2", "constraint=3").refused("loss_cap")


def test_toys_have_their_closed_forms() -> None:
    """Rows and Hessians of P1 and P2 against autodiff; instances differ by seed and not by batch."""
    runs = Runs.product(THREE, [0, 3])
    both: list[tuple[Any, Runs]] = [(HalfPlane(), Runs.product(EVEN, [0, 3])), (BallAndHalfSpace(), runs)]
    for problem, preferences in both:
        oracle = Exact(problem, preferences)
        x = oracle.initial(preferences) + 0.3
        point: Point = oracle.at(x, {}, 0)
        rows = torch.autograd.functional.jacobian(
            lambda y, o=oracle: o.problem.values(y).sum(0), x
        ).transpose(0, 1)
        torch.testing.assert_close(point.jacobian(), rows)
        w = torch.rand(len(x), rows.shape[1], dtype=F64)
        v = torch.rand_like(x)
        ahead, back = (oracle.at(x + s * 1e-5 * v, {}, 0).vjp(w) for s in (1.0, -1.0))
        torch.testing.assert_close(point.hvp(w, v), (ahead - back) / 2e-5, rtol=1e-6, atol=1e-8)
    oracle = Exact(BallAndHalfSpace(), runs)
    x = torch.ones(2, 6, dtype=F64)
    values = oracle.exact(x)
    assert not torch.allclose(values[0, :3], values[1, :3])
    alone = Exact(BallAndHalfSpace(), Runs.product(THREE, [3])).exact(x[:1])
    torch.testing.assert_close(alone[0], values[1], rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", [FERERO, FEREROSA])
@pytest.mark.parametrize("line", ["ray", "none"])
def test_ferero_takes_caps_as_constraints_as_its_own_bounds(method: Any, line: str) -> None:
    """Caps of the problem, and the same as options of the method: one trajectory, and it meets them."""
    runs = Runs.product(torch.tensor([[0.3, 0.7]], dtype=F64), [0, 1])
    start = Exact(PROBLEM, runs).initial(runs)
    low = Exact(PROBLEM, runs).exact(start).amin(0)
    cap = [float(low[0]), 0.7 * float(low[1])]
    ends = []
    for bound, oracle in (
        (cap, Exact(PROBLEM, runs)),
        (None, LossCap(Exact(PROBLEM, runs), PROBLEM, runs, value=cap)),
    ):
        rates = {"gamma": 0.02} if method is FEREROSA else {}
        algorithm = method(line=line, upper=bound, step_size=0.05, domain="simplex", **rates)
        state = loop.start(oracle, algorithm, {}, start, runs, 300)
        state = loop.advance(oracle, algorithm, {}, state, 300)
        ends.append((state["theta"], algorithm.report(PROBLEM.values(state["theta"]), state["alg"])))
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=0, atol=1e-10)
    assert "inequality_violation" in ends[0][1]
    assert "inequality_violation" not in ends[1][1]  # the runner has a column for the problem's own
    if line == "none":
        assert float((PROBLEM.values(ends[0][0]) - torch.tensor(cap)).max()) < 1e-2
