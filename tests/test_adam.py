"""`algorithm.optimizer=adam`: Adam's step along the direction of a method, against torch.optim.Adam."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import mobench
from mobench.algorithms.mgda import MGDA
from mobench.core import adam
from mobench.errors import CompatibilityError, ConfigError, MobenchError
from mobench.jobs import run as runner
from mobench.jobs.rows import finish
from tests.conftest import REPOSITORY

QUICK: dict[str, Any] = {"preferences": 2, "seeds": [0, 1], "logger": "local", "progress": False}
ADAM = {"algorithm.optimizer": "adam"}
F64 = torch.float64


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


def iterates(rows: pd.DataFrame) -> Tensor:
    return torch.from_numpy(mobench.load(rows).solutions["last"])


def last_state(patch: pytest.MonkeyPatch, **options: Any) -> tuple[dict[str, Any], pd.DataFrame]:
    """The state after the last step of a job, and its rows."""
    states = []
    with patch.context() as inside:
        inside.setattr(runner, "finish", lambda job, *rest: states.append(job.state) or finish(job, *rest))
        rows = mobench.run(**options)
    return states[0], rows


def directions(steps: int) -> Tensor:
    """Gradients of three runs: lengths from 1e-6 to 1e6, and one that is zero at times."""
    rng = np.random.default_rng(0)
    gradients = torch.from_numpy(rng.standard_normal((steps, 3, 5)))
    gradients[:, 1] *= torch.logspace(-6, 6, steps, dtype=F64).unsqueeze(1)
    gradients[::3, 2] = 0.0
    return gradients


@pytest.mark.parametrize(("dtype", "bound"), [(F64, 1e-12), (torch.float32, 1e-5)])
def test_the_step_is_that_of_torch(dtype: torch.dtype, bound: float) -> None:
    gradients = directions(300).to(dtype)
    x = torch.ones(3, 5, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=0.03)
    theta = x.detach().clone()
    state = adam.first(theta)
    for d in gradients:
        x.grad = -d
        optimizer.step()
        u, state = adam.step(d, state)
        theta = theta + 0.03 * u
        torch.testing.assert_close(theta, x.detach(), rtol=bound, atol=bound)


TARGETS = torch.tensor([[1.0, -2.0, 0.5], [-1.0, 1.0, 2.0]], dtype=F64)
SCALES = torch.tensor([1.0, 10.0, 0.1], dtype=F64)


def wells(x: Tensor) -> Tensor:
    return (SCALES.to(x) * (x - TARGETS.to(x)).square()).sum(1)


@pytest.mark.parametrize("method", ["mgda", "ferero", "famo"])
def test_a_job_is_a_loop_with_balanced(method: str) -> None:
    start = [2.0, 2.0, -1.0]
    problem = mobench.objectives(wells, start=start, positive=True, ideal=[0, 0])
    weights = [[0.3, 0.7], [0.6, 0.4]]
    options = {key: value for key, value in QUICK.items() if key != "preferences"}
    options |= {"seeds": [0], "preferences.weights": weights, "algorithm.step_size": 0.05, "steps": 40}
    rows = mobench.run(problem=problem, algorithm=method, **options, **ADAM)
    plain = mobench.run(problem=problem, algorithm=method, **options)
    assert not torch.allclose(iterates(rows), iterates(plain), atol=1e-3)
    for preference, iterate in zip(weights, iterates(rows), strict=True):
        x = torch.tensor(start, dtype=F64, requires_grad=True)
        optimizer = mobench.Balanced(torch.optim.Adam([x], lr=0.05), method, preference, steps=40)
        for _ in range(40):
            optimizer.step(wells(x))
        torch.testing.assert_close(iterate, x.detach(), rtol=0, atol=1e-10)


def network(**options: Any) -> Any:
    torch.manual_seed(0)
    data = torch.randn(20, 4, dtype=F64), torch.randn(20, 2, dtype=F64)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()

    def loss(outputs: Tensor, batch: Any) -> Tensor:
        return (outputs - batch[1]).square().mean(0)

    return mobench.networks(make, loss, data, execution="vmap", **options), data, loss


def test_a_run_is_the_same_alone_and_with_steps_of_its_own() -> None:
    options = {"problem": "least_squares", "algorithm": "mgda", "steps": 20, **QUICK, **ADAM}
    options |= {"oracle": "epochs", "oracle.batch_size": 8, "algorithm.step_size": 0.1}
    together = iterates(mobench.run(**options))
    alone = iterates(mobench.run(**options | {"seeds": [1]}))
    torch.testing.assert_close(together[[1, 3]], alone, rtol=0, atol=1e-12)
    split = iterates(mobench.run(**options, rerun=True, **{"hardware.split": 4}))
    torch.testing.assert_close(split, together, rtol=0, atol=1e-12)
    varied = iterates(mobench.run(**options, **{"vary.step_size": [0.05, 0.1]}))
    other = iterates(mobench.run(**options | {"algorithm.step_size": 0.05}))
    torch.testing.assert_close(varied, torch.cat([other, together]), rtol=0, atol=1e-12)


def test_iterates_stay_within_bounds() -> None:
    problem = mobench.objectives(wells, start=[0.0, 0.0, 0.0], bounds=([-0.5, None, 0.25], [0.5, 0.75, None]))
    x = iterates(mobench.run(problem=problem, algorithm="ls", steps=200, **QUICK, **ADAM))
    assert bool((x[:, 0].abs() <= 0.5).all() and (x[:, 1] <= 0.75).all() and (x[:, 2] >= 0.25).all())
    # the minimiser of a separable sum on intervals is projected, in each coordinate
    w = torch.tensor([[0.136729, 0.863271], [0.863271, 0.136729]], dtype=F64)
    best = w @ TARGETS
    assert bool((best[:, 1] > -9).all())
    expected = torch.stack(
        [best[:, 0].clamp(-0.5, 0.5), best[:, 1].clamp_max(0.75), best[:, 2].clamp_min(0.25)], 1
    )
    torch.testing.assert_close(x[[0, 2]], expected, rtol=0, atol=2e-3)


def test_a_stopped_job_continues_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"algorithm": "ferero", **QUICK, **ADAM, "record.every": 5}
    checkpointing = {"checkpoint.seconds": 0}

    def fails(step: int, rows: pd.DataFrame) -> None:
        if step >= 25:
            raise RuntimeError("no more power")

    with pytest.raises(MobenchError, match="no more power"):
        mobench.run(problem=network(callback=fails)[0], steps=30, **options, **checkpointing)
    seen: list[int] = []
    again = network(callback=lambda step, rows: seen.append(step))[0]
    rest = mobench.run(problem=again, steps=30, **options, **checkpointing)
    assert seen[0] > 0
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "whole"))
    whole = mobench.run(problem=network()[0], steps=30, **options)
    pd.testing.assert_frame_equal(
        rest.drop(columns="seconds"), whole.drop(columns="seconds"), check_exact=True
    )
    pd.testing.assert_frame_equal(mobench.load(rest).history, mobench.load(whole).history, check_exact=True)
    assert torch.equal(iterates(rest), iterates(whole))


def test_a_run_that_a_stop_rule_has_ended_keeps_its_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = mobench.objectives(
        wells,
        start=[[2.0, 2.0, -1.0], [1.9, 2.0, -1.0]],
        stop=lambda history: history.groupby("run")["step"].last() >= 3 + 4 * np.arange(2),
    )
    options = {"algorithm": "ls", **QUICK | {"seeds": [0]}, **ADAM}
    state, rows = last_state(monkeypatch, problem=problem, steps=20, **options)
    assert rows["ended"].tolist() == [3, 7]
    assert state["adam"]["n"].tolist() == [3.0, 7.0]


def test_jobs_without_adam_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is in no key, whether it is written down or not, and in no state."""
    options = {"problem": "vlmop2", "algorithm": "mgda", "steps": 3, **QUICK}
    state, rows = last_state(monkeypatch, **options)
    assert "adam" not in state
    first = mobench.load(rows)
    assert mobench.load(mobench.run(**options, **{"algorithm.optimizer": "sgd"})).path == first.path
    assert mobench.load(mobench.run(**options, **ADAM)).path != first.path
    assert "optimizer" not in json.dumps(first.meta["identity"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "nsga2", "problem": "zdt1"}, "points for all preferences"),
        ({"algorithm": "hv_gradient"}, "points for all preferences"),
        ({"algorithm": "qffl"}, "the length of its step"),
        ({"algorithm": "mlm_cmoo"}, "its weights and multipliers"),
        ({"protocol": "csmoo_pls", "algorithm": "csmoo2"}, "(?s)fraction of the way.*projection onto a Ball"),
        ({"protocol": "csmoo_pls", "algorithm": "penalty_sgd"}, "projection onto a Ball"),
        ({"problem": "bilevel_quadratic", "algorithm": "forum", "oracle": "value_gap"}, "lowers the gap"),
        (
            {"problem": "least_squares", "algorithm": "ls", "oracle": "ema", "oracle.blocks": 2},
            "set oracle.block_move=all",
        ),
    ],
)
def test_where_a_step_is_more_than_a_direction_adam_is_refused(options: dict[str, Any], words: str) -> None:
    quick = {"problem": "vlmop2", **QUICK, "steps": 2}
    if "protocol" in options:
        del quick["problem"]
    with pytest.raises(CompatibilityError, match=words):
        mobench.run(**quick | options, **ADAM)


def test_other_doors_have_no_optimizer_of_a_method() -> None:
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(ConfigError, match=r"option of mobench\.run"):
        mobench.solve("mgda", torch.eye(2), optimizer="adam")
    with pytest.raises(ConfigError, match=r"option of mobench\.run"):
        mobench.Balanced(torch.optim.SGD([x], lr=0.1), MGDA(optimizer="adam"))
    with pytest.raises(ConfigError, match=r"algorithm\.optimizer"):
        mobench.run(problem="vlmop2", algorithm="mgda", steps=1, **QUICK, **{"algorithm.optimizer": "lion"})
    assert "algorithm.optimizer=adam" in (REPOSITORY / "conf" / "config.yaml").read_text()
