"""Criteria of the bilevel paper's claims can fail; flat effects, two readings and rates are judged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.mobl import cleaning, few_shot, quadratic
from experiments.mobl.rows import over_seeds, rises
from mobench.algorithms.wc_mhgd import WCMHGD
from mobench.artifacts import Artifact, RunCount
from mobench.artifacts import style as st
from mobench.artifacts.artifact import registered
from mobench.artifacts.checks import Below, SurelyAbove
from mobench.config.schema import PaperConfig as Paper
from mobench.core import Runs, loop
from mobench.core.bilevel import GraphView
from mobench.oracles import Exact, Hypergradient
from mobench.problems import BilevelQuadratic

S = 5
PAPERS = Paper(data=["CIFAR-100"], seeds=2)


# effects


@pytest.mark.parametrize(
    ("means", "values", "holds"),
    [
        ((1.0, 2.0, 3.0), [2.0, 2.1, 1.9], True),
        ((1.0, 1.0, 3.0), [2.0, 2.1, 1.9], True),  # neighbours may be equal
        ((1.0, 0.5, 3.0), [2.0, 2.1, 1.9], False),
        ((1.0, 2.0, 3.0), [2.0, -2.1, 1.9], False),
        ((1.0, np.nan, 3.0), [np.nan, 1.0], None),  # lost runs decide nothing
    ],
)
def test_means_rise_in_order_and_surely(
    means: tuple[float, ...], values: list[float], holds: bool | None
) -> None:
    sure = SurelyAbove(over_seeds(values), agree=True)
    assert rises(dict(enumerate(means)), "accuracy", sure).holds is holds


def test_two_readings() -> None:
    yes, no = Below(0.0, 1.0), Below(2.0, 1.0)
    assert cleaning.BothReadings({"a": yes, "b": yes}).holds is True
    assert cleaning.BothReadings({"a": no, "b": no}).holds is False
    assert cleaning.BothReadings({"a": yes, "b": no.provided(False, "lost")}).holds is None
    one = cleaning.BothReadings({"a": yes, "b": no})
    assert one.holds == "partial"
    assert one.which == "It holds where a is rescaled, not where b is."


# few-shot: accuracies at their ceiling are no evidence


def rows_of(main: float, others: float, seeds: int = 3, step: float = 0.0, preferred: float = 0.8) -> Any:
    """Rows of one job: each of five preferences, the preferred task's accuracy and that of the others."""
    weights = np.full((S, S), (1 - preferred) / (S - 1))
    np.fill_diagonal(weights, preferred)
    lines = []
    for task in range(S):
        for seed in range(seeds):
            line: dict[str, Any] = {"run": len(lines), "seed": seed}
            for s in range(S):
                value = (main if s == task else others) + step * seed
                line |= {f"train_accuracy_{s + 1}": value, f"test_accuracy_{s + 1}": value}
                line[f"f_{s + 1}"] = 2 - value / 100
            lines.append(line | {f"preference_{s + 1}": weights[task, s] for s in range(S)})
    table = pd.DataFrame(lines).assign(step=1, output="last", status="done")
    return SimpleNamespace(
        final=table.drop(columns="step"),
        history=table.drop(columns="status"),
        weights=np.repeat(weights, seeds, axis=0),
        meta={"data": "CIFAR-100"},
        data="CIFAR-100",
        config={"problem": {"tasks": S}, "seeds": list(range(seeds)), "oracle": {"inner_steps": 32}},
        complete=True,
        runs=RunCount(len(table), len(table)),
    )


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Artifact, "figure", lambda self, figure: st.plt.close(figure))


def claims_of(id: str, jobs: dict[str, Any]) -> dict[str, Any]:
    a = Artifact(id, id, "paper", jobs, paper=PAPERS)
    registered(id)(a)
    return {c.id: c for c in a.claims}


def test_accuracies_at_their_ceiling_decide_nothing() -> None:
    """At 100 % everywhere nothing is best of all, further, or larger; 100.0 = 100.0 is no lead."""
    flat = rows_of(100.0, 100.0)
    claims = claims_of("mobl/fig1", {"pref": flat, "extreme": flat})
    assert {
        id: claims[id].verdict for id in ("preferred-training", "extreme-training", "loss", "covered")
    } == {
        "preferred-training": "inconclusive",
        "extreme-training": "inconclusive",
        "loss": "check failed",
        "covered": "inconclusive",
    }
    assert all("Saturated" in claims[id].reason for id in ("preferred-training", "covered"))
    claims = claims_of("mobl/fig5", {"pref": flat})
    # nearly the highest, but there is nothing to see
    assert claims["nearly-best-training"].verdict == "inconclusive"
    assert "Saturated" in claims["nearly-best-training"].reason


def test_a_sentence_that_names_no_accuracy_is_refuted_by_neither_alone() -> None:
    """The lead in the test shrinks, and training accuracies are at their ceiling, which shows nothing."""
    pref, extreme = rows_of(90.0, 70.0, step=0.5), rows_of(80.0, 70.0, step=0.5, preferred=0.96)
    for job in (pref, extreme):
        for rows in (job.final, job.history):
            rows[[f"train_accuracy_{s + 1}" for s in range(S)]] = 100.0
    claim = claims_of("mobl/fig1", {"pref": pref, "extreme": extreme})["extreme-test"]
    assert claim.verdict == "inconclusive"
    assert "names no accuracy" in claim.reason
    assert "Saturated" in claim.reason


def test_preferences_that_work_are_reproduced() -> None:
    clear = rows_of(90.0, 70.0, step=0.5)
    further = rows_of(92.0, 40.0, step=0.5, preferred=0.96)
    claims = claims_of("mobl/fig1", {"pref": clear, "extreme": further})
    assert claims.pop("balanced").verdict == "check failed"  # these losses are not in the preferences' ratio
    assert {c.verdict for c in claims.values()} <= {"reproduced", "check passed"}
    assert all(c.reason == "" for c in claims.values())
    assert claims_of("mobl/fig5", {"pref": clear})["nearly-best-test"].verdict == "reproduced"
    # the other way round the trend becomes less pronounced
    claims = claims_of("mobl/fig1", {"pref": further, "extreme": clear})
    assert claims["extreme-test"].verdict == "not reproduced"


def test_losses_in_the_inverse_ratio_of_the_preferences_are_balanced() -> None:
    jobs = {"pref": rows_of(90.0, 70.0), "extreme": rows_of(90.0, 70.0, preferred=0.96)}
    for job in jobs.values():
        for s in range(S):
            job.history[f"f_{s + 1}"] = 1e-3 / job.weights[job.history["run"], s]
    assert claims_of("mobl/fig1", jobs)["balanced"].verdict == "check passed"
    jobs["extreme"].history.loc[0, "f_1"] *= 1.02
    claim = claims_of("mobl/fig1", jobs)["balanced"]
    assert claim.verdict == "check failed"
    assert "r = .96: 2.00 %" in claim.measured


def test_a_lead_that_the_ceiling_ends_is_found_before_it() -> None:
    job = rows_of(100.0, 100.0)
    starts = [rows_of(40.0, 40.0).history.assign(step=0), rows_of(100.0, 78.0).history.assign(step=7)]
    job.history = pd.concat([*starts, job.history.assign(step=50)])
    claims = claims_of("mobl/fig5", {"pref": job})
    assert claims["nearly-best-training"].verdict == "inconclusive"
    assert "lead at step 7: +22.0 pp" in claims["early-training"].measured
    assert claims["early-training"].verdict == "check passed"
    job.history = rows_of(40.0, 30.0).history
    claims = claims_of("mobl/fig5", {"pref": job})
    assert claims["early-training"].verdict == "inconclusive"
    assert "No step has a mean training accuracy of 80 %" in claims["early-training"].reason


def test_without_80_percent_the_last_step_of_images_drawn_anew_is_judged() -> None:
    job = rows_of(70.0, 60.0)
    job.history = pd.concat([rows_of(40.0, 50.0).history.assign(step=0), job.history.assign(step=9)])
    digits = SimpleNamespace(**vars(job) | {"data": "digits", "meta": {"data": "digits"}})
    on_digits = claims_of("mobl/readings", {"query_5": digits, "anew": digits})
    assert {claim.verdict for claim in on_digits.values()} == {"inconclusive"}
    claims = claims_of("mobl/readings", {"query_5": job, "anew": job})
    assert claims["query_5"].verdict == "inconclusive"
    assert claims["anew"].verdict == "check passed"
    assert "lead at step 9: training +10.0 pp" in claims["anew"].measured
    reached = rows_of(100.0, 80.0).history
    job.history = pd.concat([reached.assign(step=5), job.history])
    assert "lead at step 5" in claims_of("mobl/readings", {"anew": job})["anew"].measured


def test_figure_4_is_drawn_without_the_trade_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """artifact.only may leave out its job, which takes as long as the others together."""
    panels: list[Any] = []
    monkeypatch.setattr(Artifact, "figure", lambda self, figure: panels.extend(figure.axes))
    jobs = {name: rows_of(90.0, 70.0, step=0.5) for name in ("pref", "extreme", "d8", "d16")}
    for job in jobs.values():
        job.history["train_accuracy"] = 80.0
    for name, D in (("d8", 8), ("d16", 16)):
        jobs[name].config = {**jobs[name].config, "oracle": {"inner_steps": D}}
    claims = claims_of("mobl/fig4", jobs)
    assert "inner-steps" in claims
    assert "trade-off" not in claims
    assert [ax.get_title()[:3] for ax in panels] == ["(a)", "(c)"]


def test_figure_2_is_drawn_without_the_exact_dual() -> None:
    jobs = {name: rows_of(90.0, 70.0, step=0.5) for name in ("pref", "extreme", "moml", "forum")}
    some = claims_of("mobl/fig2", jobs)
    every = claims_of("mobl/fig2", {**jobs, "forum_exact": rows_of(80.0, 70.0)})
    assert {id: claim.measured for id, claim in some.items()} == {id: c.measured for id, c in every.items()}
    assert len(some) == 4


def test_stand_ins_decide_nothing_in_either_direction() -> None:
    for accuracy in (100.0, 70.0):
        job = rows_of(accuracy, 70.0)
        job.data = job.meta["data"] = "digits"
        judged = claims_of("mobl/fig5", {"pref": job})
        claims = {id: c.verdict for id, c in judged.items() if not id.startswith("early-")}  # checks of ours
        assert set(claims.values()) == {"inconclusive"}
        assert "measured on digits" in judged["nearly-best-training"].reason


def test_a_winner_that_carries_over_from_training_to_test() -> None:
    train = np.array([[90.0, 80.0], [80.0, 90.0], [90.0, 90.0]])  # no one leads in the last seed
    test = np.array([[70.0, 60.0], [70.0, 60.0], [70.0, 60.0]])
    assert few_shot.carried(train, test).tolist() == [True, False]
    assert few_shot.carried(train, train).tolist() == [True, True]
    assert few_shot.carried(train[:1], np.array([[70.0, 70.0]])).tolist() == [False]


@pytest.mark.parametrize(
    ("accuracies", "holds"),
    [
        ([[90, 80], [70, 80]], True),
        ([[90, 80], [81, 80]], False),
        ([[90, 80], [80, 80]], True),
        ([[90, 80], [80, 80], [80, 80]], None),  # shared in two of three seeds
        ([[90, 80]], None),
    ],
)
def test_a_task_that_leads_in_all_seeds_dominates(accuracies: list[list[float]], holds: bool | None) -> None:
    assert few_shot.leads_always(np.array(accuracies)).holds is holds


# theory


def test_running_means_of_steps_that_are_not_all_recorded() -> None:
    """Exact where a column is linear between records, whatever the gaps."""
    at = np.array([0, 1, 2, 3, 7, 12, 20])
    rows = pd.DataFrame(
        {"run": 0, "step": at, "direction_square": 5.0 + 2.0 * at, "min_norm_square": 1.0 + 3.0 * at}
    )
    job: Any = SimpleNamespace(history=rows)
    steps, means = quadratic.running_mean(job, "direction_square")
    every = 5.0 + 2.0 * np.arange(1, 21)  # of step k in row k + 1
    assert steps.tolist() == [1, 2, 3, 7, 12, 20]
    np.testing.assert_allclose(means[:, 0], [every[:k].mean() for k in steps])
    steps, means = quadratic.running_mean(job, "min_norm_square")
    every = 1.0 + 3.0 * np.arange(21)
    np.testing.assert_allclose(means[:, 0], [every[:k].mean() for k in steps])


def test_slopes() -> None:
    at = np.arange(1, 1001)
    mean, each = quadratic.slopes(at, np.stack([3.0 / at, 2.0 / at**0.5], axis=1))
    np.testing.assert_allclose(each, [-1.0, -0.5])
    assert -1.0 < mean < -0.5


def test_exact_squares_are_those_of_the_directions() -> None:
    """|sum_s r_s lambda_s grad phi_s(x_k)|^2 from columns is that of the exact hypergradients."""
    problem = BilevelQuadratic(gram=True)
    runs = Runs.product(torch.tensor([[0.4, 0.15, 0.15, 0.15, 0.15]], dtype=torch.float64), (0, 1))
    x = problem.initial(runs)
    oracle = Hypergradient(problem, runs, inner_steps=4, inner_step=0.4)
    algorithm = WCMHGD(step_size=0.3, trade_off=1.0, trade_off_decay=1.0)
    lines = []
    points = []
    weights = []

    def observe(t: int, now: dict[str, Any], point: Any) -> None:
        theta = now["theta"]
        columns = problem.columns_at(theta, problem.solve(theta)) | algorithm.report(
            theta.new_zeros(2, S), now["alg"]
        )
        points.append(Exact(problem, runs).at(theta, {}, 0).jacobian())
        weights.append(now["alg"]["lam"])
        lines.extend({"run": r, "step": t, **{k: float(v[r]) for k, v in columns.items()}} for r in range(2))

    state = loop.start(oracle, algorithm, {}, x, runs, 6)
    loop.advance(oracle, algorithm, {}, state, 6, observe)
    job: Any = SimpleNamespace(
        history=pd.DataFrame(lines), weights=runs.weights.numpy(), folder=SimpleNamespace(key="quadratic")
    )
    squares = quadratic.exact_squares(job)
    assert squares.shape == (5, 2)
    for k in range(5):
        direction = torch.einsum("rs,rsp->rp", runs.weights * weights[k + 1], points[k])
        np.testing.assert_allclose(squares[k], direction.square().sum(1))
    job.history = job.history[job.history["step"] != 3]
    with pytest.raises(ValueError, match="not every step"):
        quadratic.exact_squares(job)


# the quadratic with samples


def test_terms_of_the_lower_level_have_the_mean_of_the_whole() -> None:
    problem = BilevelQuadratic(samples=40, noise=0.9)
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3, 8, generator=rng).double()
    y = torch.randn(3, 1, 6, generator=rng).double()
    v = torch.randn(3, S, 6, generator=rng).double()
    whole = problem.view(x)
    every = problem.view(x, torch.arange(40).expand(3, 40))
    for one, other in (
        (whole.lower_gradient(y), every.lower_gradient(y)),
        (whole.lower_hvp(y, v), every.lower_hvp(y, v)),
        (whole.lower(y), every.lower(y)),
    ):
        torch.testing.assert_close(one, other)
    batch = torch.tensor([[0, 1], [2, 2], [3, 4]])
    some = problem.view(x, batch)
    a, z = problem.terms()

    def g(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        c = problem.constants()
        bend = 1 + a[batch].mean(1)
        linear = (x @ c.B.mT + c.c + z[batch].mean(1)).unsqueeze(1)
        return 0.5 * bend.unsqueeze(1) * ((y @ c.A) * y).sum(-1) - (y * linear).sum(-1)

    graph = GraphView(x, problem.f, g)
    torch.testing.assert_close(some.lower(y), graph.lower(y))
    torch.testing.assert_close(some.lower_gradient(y), graph.lower_gradient(y))
    torch.testing.assert_close(some.lower_hvp(y, v), graph.lower_hvp(y, v))
    assert float((1 + a).min()) > 0  # each term is strongly convex
    assert not torch.allclose(some.lower_gradient(y), whole.lower_gradient(y))


# what is kept


def test_the_gram_matrix_times_a_factor_is_u_over_it() -> None:
    """The second reading rests on this: c^2 times the Gram matrix gives the weights of u / c^2."""
    rng = torch.Generator().manual_seed(1)
    J = torch.randn(4, S, 7, generator=rng).double()
    F = torch.rand(4, S, generator=rng).double() + 0.5
    r = torch.full((4, S), 0.2, dtype=torch.float64)
    G = J @ J.mT
    state = {"r": r, "lam": r}
    for u, c in ((10.0, 3.0), (1.0, 0.2)):
        one = WCMHGD(trade_off=u).weights(F, c**2 * G, state, 0)[0]
        other = WCMHGD(trade_off=u / c**2).weights(F, G, state, 0)[0]
        torch.testing.assert_close(one, other)
    plain = WCMHGD(trade_off=10.0).weights(F, G, state, 0)[0]
    assert not torch.allclose(plain, WCMHGD(trade_off=10.0).weights(F, 9.0 * G, state, 0)[0])
