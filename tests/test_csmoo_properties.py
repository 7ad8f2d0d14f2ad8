"""Properties of CSMOO and its problems: fixed points, ideal points, steps onto the boundary, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mobench.algorithms.csmoo import CSMOO1, CSMOOBasic, conditions
from mobench.algorithms.csmoo2 import CSMOO2
from mobench.core import Algorithm, Runs, Spec
from mobench.core.sets import Box
from mobench.errors import ConfigError
from mobench.jobs import extremes
from mobench.oracles import EMA, Exact, Minibatch
from mobench.problems import PLS, ConstrainedGaussian, pls
from tests.test_csmoo import follow, runs_of

GAUSSIAN = ConstrainedGaussian()
METHODS: list[Any] = [CSMOOBasic(), CSMOO1(), CSMOO2()]
NAMES = ["basic", "csmoo1", "csmoo2"]


def noisy(runs: Runs, problem: Any = GAUSSIAN, batch: int = 1, **options: Any) -> EMA:
    return EMA(problem, runs, Minibatch(problem, runs, batch_size=batch), **options)


def noise_free(runs: Runs, problem: Any = GAUSSIAN, **options: Any) -> EMA:
    return EMA(problem, runs, Exact(problem, runs), **options)


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


# steps onto the boundary


def test_a_step_onto_the_boundary_is_along_the_ray_through_the_plain_one() -> None:
    """x + alpha d with `onto_boundary` is r (x + alpha d) / |x + alpha d| of the plain step, |x| <= r."""
    problem = PLS(channel_seed=0)
    runs = runs_of([[0.3, 0.7], [0.6, 0.4]], [0, 1])
    start = problem.initial(runs)
    plain, onto = (
        follow(noisy(runs, problem, 4), CSMOO2(onto_boundary=on), start, runs, 1).x[:, 1]
        for on in (False, True)
    )
    radius = np.sqrt(problem.power)
    length = np.linalg.norm(plain, axis=1, keepdims=True)
    assert (length < 0.999 * radius).all()
    np.testing.assert_allclose(onto, radius * plain / length, rtol=1e-12)


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
