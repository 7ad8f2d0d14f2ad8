"""Inputs at the edge: columns of values, zeros, starts that are not finite, runs that ended early."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import mobench
from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_public_code import PublicCodeFERERO
from mobench.algorithms.hv_gradient import HVGradient
from mobench.algorithms.ls import LS
from mobench.algorithms.mgda import MGDA
from mobench.algorithms.pmtl import PMTL
from mobench.artifacts import JobRows
from mobench.artifacts.checks import AllOf, Count, Equal, Largest, Smallest
from mobench.artifacts.statistics import percent
from mobench.core import Runs, loop
from mobench.core.preferences import spread
from mobench.errors import ConfigError, StoreError
from mobench.jobs.failures import advice_for
from mobench.metrics.recognition import error_rate
from mobench.oracles import Exact
from mobench.problems import LeastSquares
from mobench.solvers.projections import project_weighted_simplex


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


COLUMN = torch.tensor([[0.1], [0.2]], dtype=torch.float64)


@pytest.mark.parametrize("algorithm", [MGDA(), FERERO()])
def test_advice_on_a_job_that_varies_a_step_size(algorithm: Any) -> None:
    """It used to raise when the job was finished, and the job counted as failed."""
    advice = advice_for(algorithm)
    assert "algorithm.subproblem=cvxpy" in advice
    assert advice_for(algorithm.stacked({"step_size": COLUMN})) == advice
    assert advice_for(LS().stacked({"step_size": COLUMN})) == ""


def test_epo_stays_where_all_losses_are_zero() -> None:
    r = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    state = {"r": r, "relaxed": torch.zeros(2, dtype=torch.int64)}
    weights, _, info = EPO().weights(torch.zeros(2, 2).double(), torch.zeros(2, 2, 2).double(), state, 0)
    assert bool(torch.isfinite(weights).all())
    assert info.fail is None or not bool(info.fail.any())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reference_point_is_not_made_of_a_start_that_is_not_finite(value: float) -> None:
    """The other points would stay where they are, and nothing would say so."""
    F = torch.tensor([[1.0, 2.0], [2.0, 1.0], [value, 1.0]], dtype=torch.float64)
    ctx: Any = SimpleNamespace(
        spec=SimpleNamespace(M=2), prefs=torch.ones(3, 2).double(), seeds=None, theta=F, exact=lambda x: x
    )
    with pytest.raises(ConfigError, match=r"not finite there\. Set algorithm\.reference"):
        HVGradient().init(ctx)


def test_paths_of_runs_that_ended_early_are_refused() -> None:
    """Reshaped, they would mix runs: here two runs have two and six steps."""
    rows = [{"output": "last", "run": 0, "step": k, "f_1": k, "f_2": k} for k in range(2)]
    rows += [{"output": "last", "run": 1, "step": k, "f_1": 10 + k, "f_2": 10 + k} for k in range(6)]
    job: Any = SimpleNamespace(history=pd.DataFrame(rows), folder=SimpleNamespace(path="here"))
    with pytest.raises(StoreError, match="2 to 6 recorded steps"):
        JobRows.paths(job)
    job.history = job.history[job.history["step"] < 2]
    np.testing.assert_array_equal(JobRows.paths(job)[:, :, 0], [[0, 1], [10, 11]])


@pytest.mark.parametrize(
    ("share", "text"), [(0.9999, "99.99 %"), (0.0004, "0.04 %"), (1.0, "100 %"), (1 - 1e-9, "99.9999999 %")]
)
def test_a_share_that_is_not_all_is_not_written_as_all(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_nan_is_neither_the_smallest_nor_the_largest() -> None:
    for check in (Smallest, Largest):
        assert check({"A": float("nan")}, "A").holds is False
        assert check({"A": float("nan"), "B": 1.0}, "A").holds is False


def test_folders_of_runs_that_have_just_begun_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    for name, config in (("begun", "problem: {}"), ("other", "unknown: 1")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config)
    (tmp_path / "runs" / "other" / "status.json").write_text(json.dumps({"status": "done"}))
    assert mobench.runs().empty


def test_projection_onto_a_simplex_of_size_zero() -> None:
    """Only 0 is left of entries in the equality; the others are clipped at 0, in any number of variables."""
    y = torch.tensor([[0.5, 2.0], [0.5, -2.0], [1.0, 1.0], [-0.5, 3.0]], dtype=torch.float64)
    w = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    s = torch.zeros(4, 1, dtype=torch.float64)
    expected = torch.tensor([[0.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert torch.equal(project_weighted_simplex(y, w, s), expected)
    third = torch.ones(4, 1, dtype=torch.float64)  # the general rule, with one more entry in the equality
    wide = project_weighted_simplex(torch.cat([y, 0 * third], 1), torch.cat([w, third], 1), s)
    assert torch.equal(wide[:, :2], expected)


@pytest.mark.parametrize("check", [Count({}), Equal({}, {}), AllOf()])
def test_a_check_of_nothing_does_not_hold(check: Any) -> None:
    assert check.holds is False
    assert Count({}, at_most=0).holds is True  # none is required


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PublicCodeFERERO(gamma_decay=0.5), "be 0 with ferero_public_code"),
        (lambda: PublicCodeFERERO(warm_steps=3), "be 0 with ferero_public_code"),
        (lambda: FERERO(subproblem="pgd", inner_step=0.0), r"inner_step=0\.0 must be > 0"),
        (lambda: FERERO(subproblem="pgd", inner_step=float("inf")), "must be > 0, and finite"),
        (lambda: FERERO(subproblem="pgd", inner_tolerance=float("nan")), "inner_tolerance=nan must be >= 0"),
        (lambda: error_rate("per", ["a"], ["a"]), "kind"),
    ],
)
def test_refused_with_the_reason(call: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        call()


def test_phase_one_has_its_share_of_the_steps() -> None:
    """0.29 * 100 is 28.999999999999996 in floating point."""
    oracle = Exact(LeastSquares(n=4, tasks=2, samples=8), Runs.product(spread(2, 2), [0]))
    runs = Runs.product(spread(2, 2), [0])
    state = loop.start(oracle, PMTL(phase1=0.29), {}, oracle.problem.initial(runs), runs, 100)
    assert int(state["alg"]["phase1_steps"][0]) == 29


KINKED = [lambda x: torch.sqrt(x[0] ** 2) + 0 * x[1], lambda x: (x[0] - 1) ** 2 + x[1] ** 2]
"""The first has no gradient at x_0 = 0, though its value there is finite."""


@pytest.mark.parametrize("algorithm", ["stch_set", "hv_gradient"])
def test_a_diverged_run_leaves_its_set(algorithm: str) -> None:
    """It stays at a finite value, and once went on to serve an objective there."""
    pair = mobench.objectives(KINKED, start=[[0.0, 0.0], [0.5, 0.5]])
    other = mobench.objectives(KINKED, start=[0.5, 0.5])
    options: dict[str, Any] = {"algorithm": algorithm, "steps": 50, "seeds": [0]}
    if algorithm == "hv_gradient":
        options["algorithm.reference"] = [1.1, 1.1]
    with pytest.warns(UserWarning, match="1 of 2 runs"):
        both = mobench.run(problem=pair, preferences=2, **options)
    alone = mobench.run(problem=other, preferences=1, **options)
    assert both["status"].tolist() == ["diverged", "done"]
    columns = ["f_1", "f_2"]
    assert np.allclose(both.loc[1, columns].to_numpy(float), alone.loc[0, columns].to_numpy(float), atol=1e-3)


def test_the_state_of_a_diverged_run_rests_as_it_does_alone() -> None:
    """Beside a neighbour its weights once went on from the gradients of its last iterate (0.878)."""
    f = [lambda x: (x[0] ** 2 - 1) ** 2, lambda x: 3 * (x[0] - 2) ** 4]
    options: dict[str, Any] = {"algorithm": "moco", "oracle": "exact", "steps": 60, "seeds": [0]}
    options |= {"algorithm.step_size": 0.01, "algorithm.weight_step": 1e-72}
    with pytest.warns(UserWarning, match="1 of 2 runs"):
        pair = mobench.run(problem=mobench.objectives(f, start=[[0.3], [60.0]]), preferences=2, **options)
    with pytest.warns(UserWarning, match="1 of 1 run"):
        alone = mobench.run(problem=mobench.objectives(f, start=[60.0]), preferences=1, **options)
    assert pair["status"].tolist() == ["done", "diverged"]
    assert 0.51 < alone.loc[0, "lambda_1"] < 0.6
    assert pair.loc[1, "lambda_1"] == pytest.approx(alone.loc[0, "lambda_1"], rel=1e-9)


@pytest.mark.parametrize("M", [2, 3])
@pytest.mark.parametrize("method", [FERERO(step_size=0.2), FERERO(step_size=0.2, subproblem="pgd")])
def test_ferero_where_all_losses_are_zero(M: int, method: Any) -> None:
    """0 is on every ray, and optimal."""
    f = [lambda x, m=m: torch.relu(x[m] - 0.2) for m in range(M)]
    problem = mobench.objectives(f, start=[0.3] * M, positive=True)
    rows = mobench.run(problem=problem, algorithm=method, steps=200, seeds=[0], preferences=1)
    assert rows["status"].tolist() == ["done"]
    assert rows[[f"f_{m + 1}" for m in range(M)]].to_numpy().max() < 1e-12
