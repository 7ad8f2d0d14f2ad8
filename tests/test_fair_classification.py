"""Fair logistic regression: scikit-learn's own fit and data, CVXPY, differences, and the front."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.data import patients as data
from mobench.data.patients import patients
from mobench.errors import ConfigError
from mobench.problems import FairClassification
from tests.test_problems import dominated

FLOAT = torch.float64
CASES = [FairClassification(), FairClassification(criterion="odds", protected="sex", ridge=0.1)]
IDS = ["parity", "odds"]


def penalised(p: FairClassification, *penalties: float) -> Tensor:
    return p.minimisers(torch.tensor([penalties], dtype=FLOAT))


def test_the_data_are_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its loader as by its files; groups and labels are counted by hand."""
    datasets = pytest.importorskip("sklearn.datasets")
    table = datasets.load_diabetes(scaled=False)
    mine = data._tables()
    np.testing.assert_allclose(mine[0], table.data)
    np.testing.assert_allclose(mine[1], table.target)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    np.testing.assert_allclose(data._tables()[0], table.data)
    found = patients("bmi")
    assert len(found.train.y) + len(found.test.y) == 442
    assert int(found.train.s.sum() + found.test.s.sum()) == int((table.data[:, 2] >= 30).sum())
    assert abs(float(found.train.y.double().mean()) - 0.5) < 0.05
    torch.testing.assert_close(
        found.train.x[:, :-1].mean(0), torch.zeros(10, dtype=FLOAT), rtol=0, atol=1e-12
    )


def test_without_a_penalty_it_is_scikit_learns_regression() -> None:
    """C = 1 / (N ridge); the intercept is a column of ours, which the ridge reaches as well."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    p = FairClassification(ridge=0.01)
    part = p.data_set.train
    N = len(part.y)
    other = linear_model.LogisticRegression(C=1 / (0.01 * N), fit_intercept=False, tol=1e-10, max_iter=1000)
    other.fit(part.x.numpy(), part.y.numpy())
    np.testing.assert_allclose(penalised(p, 0.0)[0], other.coef_[0], atol=1e-5)
    accuracy = p.columns(penalised(p, 0.0), torch.zeros(1, 2))["accuracy"]
    assert float(accuracy) == pytest.approx(other.score(part.x.numpy(), part.y.numpy()))


def test_gaps_are_what_they_say() -> None:
    """Squared difference of group means of x'theta, and differences of group rates, by plain loops."""
    p = FairClassification(criterion="odds")
    theta = penalised(p, 0.3, 0.1)
    part = p.data_set.train
    z = (part.x @ theta[0]).tolist()
    groups: dict[tuple[bool, bool], list[float]] = {}
    for score, y, s in zip(z, part.y.tolist(), part.s.tolist(), strict=True):
        groups.setdefault((y, s), []).append(score)
    for place, y in ((1, True), (2, False)):
        expected = (np.mean(groups[y, True]) - np.mean(groups[y, False])) ** 2
        assert float(p.values(theta)[0, place]) == pytest.approx(expected)
    rate = {key: np.mean(np.array(scores) > 0) for key, scores in groups.items()}
    worst = max(abs(rate[y, True] - rate[y, False]) for y in (True, False))
    assert float(p.columns(theta, p.values(theta))["odds_gap"][0]) == pytest.approx(worst)
    everyone = {s: np.array(groups[True, s] + groups[False, s]) > 0 for s in (True, False)}
    gap = abs(everyone[True].mean() - everyone[False].mean())
    assert float(p.columns(theta, p.values(theta))["parity_gap"][0]) == pytest.approx(gap)


@pytest.mark.parametrize("p", CASES, ids=IDS)
def test_the_front_is_optimal_and_reaches_its_frame(p: FairClassification) -> None:
    """No point of it dominates another; minimisers solve CVXPY's program, and no other point beats them."""
    F = p.front(36)
    assert len(F) == 36
    assert not dominated(F, F, margin=1e-9).any()
    z = p.ideal_point
    ref = torch.tensor(p.ref_point, dtype=FLOAT)
    assert (z - 1e-9 <= F).all()
    assert (ref >= F).all()
    penalties = [0.2] * (p.n_objectives - 1)
    best = penalised(p, *penalties)
    weights = torch.tensor([1.0, *penalties], dtype=FLOAT)
    value = float((p.values(best) * weights).sum())
    rng = torch.Generator().manual_seed(0)
    near = best + 0.01 * torch.randn(200, p.dim, generator=rng, dtype=FLOAT)
    assert (p.values(near) @ weights > value).all()
    cp = pytest.importorskip("cvxpy")
    own = p._numbers(best)
    theta = cp.Variable(p.dim)
    loss = cp.sum(cp.logistic(-own.signed.numpy() @ theta)) / len(own.signed)
    program = loss + p.ridge / 2 * cp.sum_squares(theta) + 0.2 * cp.sum_squares(own.c.numpy() @ theta)
    assert cp.Problem(cp.Minimize(program)).solve(solver="CLARABEL") == pytest.approx(value, abs=1e-7)


def test_what_is_unknown_is_refused() -> None:
    for bad in ({"protected": "wealth"}, {"criterion": "calibration"}, {"ridge": 0.0}, {"data": "adult"}):
        with pytest.raises(ConfigError):
            dataclasses.replace(FairClassification(), **bad)
