"""Methods that ignore preferences train one run for each seed; rows are those of training all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import mobench
from mobench.errors import MobenchError
from mobench.jobs import train

COMMON: dict[str, Any] = {"preferences": 4, "steps": 25, "logger": "local", "progress": False}


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))


def network(**options: Any) -> Any:
    draws = torch.Generator().manual_seed(0)
    data = torch.randn(40, 5, generator=draws), torch.randn(40, 2, generator=draws)
    held = torch.randn(12, 5, generator=draws), torch.randn(12, 2, generator=draws)
    return mobench.networks(
        make, lambda out, batch: (out - batch[1]).square().mean(0), data, validation=held, **options
    )


def wells(**options: Any) -> Any:
    centres = torch.tensor([[1.0, -2.0, 0.5], [-1.0, 1.0, 2.0]], dtype=torch.float64)
    return mobench.objectives(
        lambda x: (x - centres.to(x)).square().sum(1), dim=3, positive=True, ideal=[0, 0], **options
    )


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "networks": (lambda: network(batch_size=10), {"algorithm": "mgda", "seeds": [0, 1]}),
    "one seed": (network, {"algorithm": "upgrad", "seeds": [3]}),
    "an optimizer": (
        lambda: network(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01), clip=1.0),
        {"algorithm": "pcgrad", "seeds": [0, 1]},
    ),
    "objectives": (wells, {"algorithm": "cagrad", "seeds": [0, 1, 2], "algorithm.outputs": ["last", "mean"]}),
    "float32": (wells, {"algorithm": "graddrop", "seeds": [0, 1], "dtype": "float32"}),
    "vary": (wells, {"algorithm": "mgda", "seeds": [0, 1], "vary.step_size": [0.05, 0.1]}),
    "mobench's own": (lambda: "vlmop2", {"algorithm": "mgda", "seeds": [0, 1]}),
    "mobench's own, alternating": (lambda: "zdt2", {"algorithm": "upgrad", "seeds": [0, 1]}),
    "lower level": (lambda: "bilevel_quadratic", {"algorithm": "moco", "seeds": [0, 1]}),
    "batches": (
        lambda: "least_squares",
        {"algorithm": "modo", "seeds": [0, 1], "oracle": "minibatch", "oracle.samples": 2},
    ),
    "evaluated": (
        lambda: network(batch_size=10),
        {"algorithm": "famo", "seeds": [0, 1], "record.evaluate": True, "algorithm.optimizer": "adam"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_training_all(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, keys = CASES[name]
    few = mobench.run(problem=problem(), **COMMON, **keys)
    meta = mobench.load(few).meta
    assert meta["trained_runs"] == len(few[few["output"] == "last"]) // 4
    assert "one of them was trained for all" in capsys.readouterr().err or "vary.step_size" in keys
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "all"))
    monkeypatch.setattr(train, "alike", lambda job: None)
    every = mobench.run(problem=problem(), **COMMON, **keys)
    assert "trained_runs" not in mobench.load(every).meta
    one, other = mobench.load(few), mobench.load(every)
    assert one.path.name == other.path.name
    # Products of the lower level are summed in an order that depends on the number of runs; where the solver
    # alternates, that of the last bit depends on the processor, too (equal on an EPYC, not on a Xeon).
    rounds = name in ("lower level", "mobench's own, alternating")
    close = {"rtol": 1e-12, "atol": 1e-15} if rounds else {"rtol": 0.0, "atol": 0.0}
    pd.testing.assert_frame_equal(few.drop(columns="seconds"), every.drop(columns="seconds"), **close)
    pd.testing.assert_frame_equal(one.history, other.history, **close)
    for rule, x in one.solutions.items():
        np.testing.assert_allclose(x, other.solutions[rule], **close)
    volumes = (pd.json_normalize([job.meta["hypervolume"]]) for job in (one, other))
    pd.testing.assert_frame_equal(*volumes, **close)
    assert one.meta["unsolved"] == other.meta["unsolved"]


def test_a_stopped_job_continues_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {**COMMON, "algorithm": "mgda", "seeds": [0, 1], "record.every": 5}

    def fails(step: int, rows: pd.DataFrame) -> None:
        assert len(rows) == 8
        if step >= 20:
            raise RuntimeError("no more power")

    with pytest.raises(MobenchError, match="no more power"):
        mobench.run(problem=network(callback=fails), **keys, **{"checkpoint.seconds": 0})
    seen: list[int] = []
    rest = mobench.run(problem=network(callback=lambda step, rows: seen.append(step)), **keys)
    assert seen[0] > 0
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "whole"))
    whole = mobench.run(problem=network(), **keys)
    pd.testing.assert_frame_equal(
        rest.drop(columns="seconds"), whole.drop(columns="seconds"), check_exact=True
    )


def test_parts_train_one_run_for_each_seed() -> None:
    rows = mobench.run(problem=wells(), algorithm="mgda", seeds=[0, 1], **COMMON, **{"hardware.split": 2})
    assert mobench.load(rows).meta["trained_runs"] == 2
    assert rows.groupby("seed")["f_1"].nunique().tolist() == [1, 1]


def other_starts() -> Any:
    return wells(start=[[0.0, 0.0, float(k)] for k in range(4)])


def frozen_differs() -> Any:
    """The trained parameters of all starts are equal, the frozen ones are not."""
    states = []
    for k in range(4):
        torch.manual_seed(0)
        module = held()
        with torch.no_grad():
            module[0].weight.fill_(k / 10)
        states.append(module.state_dict())
    draws = torch.Generator().manual_seed(0)
    data = torch.randn(40, 5, generator=draws), torch.randn(40, 2, generator=draws)
    return mobench.networks(held, lambda out, batch: (out - batch[1]).square().mean(0), data, start=states)


def held() -> nn.Sequential:
    module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    module[0].requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("problem", "keys"),
    [
        (wells, {"algorithm": "ls"}),  # whose weights are the preference
        ("vlmop2", {"algorithm": "mgda", "problem.start.per_preference": True}),
        ("zdt2", {"algorithm": "psl"}),  # a population
        (other_starts, {"algorithm": "mgda"}),
        (frozen_differs, {"algorithm": "mgda"}),
        (lambda: network(optimizer=lambda p: torch.optim.SGD(p, lr=0.1), keep="best"), {"algorithm": "mgda"}),
        (lambda: wells(stop=lambda history: history.groupby("run")["f_1"].last() < 1), {"algorithm": "mgda"}),
    ],
)
def test_runs_that_may_differ_are_all_trained(problem: Any, keys: dict[str, Any]) -> None:
    chosen = problem if isinstance(problem, str) else problem()
    rows = mobench.run(problem=chosen, **COMMON | {"seeds": [0, 1], "steps": 6}, **keys)
    assert "trained_runs" not in mobench.load(rows).meta
