"""`checkpoint.keep=true`: a job with more steps continues a finished one, and has the rows of all at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import mobench
from mobench.errors import MobenchError

KEEP: dict[str, Any] = {
    "seeds": [0, 1],
    "preferences": 2,
    "logger": "local",
    "progress": False,
    "checkpoint.keep": True,
}
TOYS: dict[str, dict[str, Any]] = {
    "two output rules": {"problem": "vlmop2", "algorithm": "omd_tch", "algorithm.outputs": ["last", "mean"]},
    "stored iterates": {"problem": "vlmop2", "algorithm": "omd_tch", "algorithm.outputs": ["adaptive"]},
    "multipliers": {"problem": "vlmop2", "algorithm": "ferero_sa", "record.dense": 7},
    "running averages": {"problem": "least_squares", "algorithm": "mgda", "oracle": "ema"},
    "epochs": {"problem": "least_squares", "algorithm": "modo", "oracle": "minibatch", "oracle.samples": 2},
    "steps that shrink": {"problem": "vlmop2", "algorithm": "ls", "algorithm.step_decay": 0.5},
}


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def at_once(monkeypatch: pytest.MonkeyPatch, folder: Path, **given: Any) -> pd.DataFrame:
    """The rows of a job beside which there is no other."""
    with monkeypatch.context() as patch:
        patch.setenv("MOBENCH_OUTPUTS", str(folder / "whole"))
        return mobench.run(**given)


def check_same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a.drop(columns="seconds"), b.drop(columns="seconds"), check_exact=True)
    first = mobench.load(a)
    second = mobench.load(b)
    pd.testing.assert_frame_equal(first.history, second.history, check_exact=True)
    for x, y in zip(first.solutions.values(), second.solutions.values(), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("name", TOYS)
def test_rows_are_those_of_all_steps_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given = TOYS[name] | KEEP | {"record.every": 4}
    shorter = mobench.run(**given, steps=10)
    rows = mobench.run(**given, steps=30)
    key = Path(shorter.attrs["mobench_folder"]).name
    assert f"continues from step 10 of {key}." in capfd.readouterr().err
    meta = mobench.load(rows).meta
    assert meta["continued"] == key
    assert [step for step, _ in meta["clock"]] == sorted({step for step, _ in meta["clock"]})
    check_same(rows, at_once(monkeypatch, tmp_path, **given, steps=30))
    # the shorter job is as it was
    check_same(mobench.run(**given, steps=10), shorter)


def network(**options: Any) -> Any:
    torch.manual_seed(0)
    data = torch.randn(40, 4), torch.randn(40, 2)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))

    def loss(outputs: torch.Tensor, batch: Any) -> torch.Tensor:
        return (outputs - batch[1]).square().mean(0)

    return mobench.networks(make, loss, data, batch_size=8, execution="vmap", **options)


def test_networks_go_on_in_the_middle_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**KEEP, "algorithm": "omd_tch"}
    seen: list[int] = []
    mobench.run(problem=network(), **given, steps=7)
    mobench.run(problem=network(), **given, steps=18)
    rows = mobench.run(problem=network(callback=lambda step, rows: seen.append(step)), **given, steps=30)
    assert seen == [20, 25, 30]  # from the longest of both
    check_same(rows, at_once(monkeypatch, tmp_path, problem=network(), **given, steps=30))


@pytest.mark.parametrize(("steps", "ended"), [(8, 2), (20, 4)])
def test_runs_that_a_stop_rule_has_ended_stay_where_they_are(
    steps: int, ended: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(history: pd.DataFrame) -> Any:
        return history.groupby("run")["step"].last() >= 2 + 4 * np.arange(4)

    given = {**KEEP, "algorithm": "ls", "record.every": 2}
    some = mobench.run(problem=network(stop=late), **given, steps=steps)
    rows = mobench.run(problem=network(stop=late), **given, steps=40)
    assert (some["ended"] >= 0).sum() == ended
    assert rows["ended"].tolist() == [2, 6, 10, 14]
    check_same(rows, at_once(monkeypatch, tmp_path, problem=network(stop=late), **given, steps=40))


def test_a_job_that_continues_another_resumes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**KEEP, "algorithm": "omd_tch", "checkpoint.seconds": 0}
    shorter = mobench.run(problem=network(), **given, steps=10)

    def fails(step: int, rows: pd.DataFrame) -> None:
        if step >= 25:
            raise RuntimeError("no more power")

    with pytest.raises(MobenchError, match="no more power"):
        mobench.run(problem=network(callback=fails), **given, steps=40)
    seen: list[int] = []
    rows = mobench.run(problem=network(callback=lambda step, rows: seen.append(step)), **given, steps=40)
    assert seen[0] > 10
    assert mobench.load(rows).meta["continued"] == Path(shorter.attrs["mobench_folder"]).name
    check_same(rows, at_once(monkeypatch, tmp_path, problem=network(), **given, steps=40))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"algorithm": "pmtl"}, r"PMTL depends on the number of steps \(its state 'alg.phase1_steps'\)"),
        (
            {"algorithm": "omd_tch", "algorithm.outputs": ["adaptive_two_pass"]},
            "output rule adaptive_two_pass runs all steps a second time",
        ),
    ],
)
def test_where_first_steps_depend_on_the_last_one_a_job_begins_anew(
    options: dict[str, Any],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = KEEP | {"problem": "vlmop2"} | options
    mobench.run(**given, steps=5)
    rows = mobench.run(**given, steps=20)
    text = capfd.readouterr().err
    assert "starts at step 0" in text
    assert re.search(reason, text)
    assert "continued" not in mobench.load(rows).meta
    check_same(rows, at_once(monkeypatch, tmp_path, **given, steps=20))


@pytest.mark.parametrize(
    ("problem", "cut"),
    [
        ("vlmop2", {"hardware.split": 2}),
        ("network", {"hardware.split": 4}),
    ],
)
def test_a_job_in_parts_continues_part_by_part(
    cut: dict[str, int],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """By seeds, and by seeds and preferences: the rows are those of all steps at once in the same parts."""
    given = {**KEEP, "problem": problem, "algorithm": "omd_tch", "record.every": 4, **cut}
    if problem == "network":
        given["problem"] = network()
    shorter = mobench.load(mobench.run(**given, steps=10)).meta["parts"]
    rows = mobench.run(**given, steps=30)
    assert mobench.load(rows).meta["continued"] == " and ".join(shorter)
    text = capfd.readouterr().err
    assert all(f"continues from step 10 of {part}." in text for part in shorter)
    check_same(rows, at_once(monkeypatch, tmp_path, **given, steps=30))


def test_another_cut_begins_anew_and_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    given = {**KEEP, "problem": "vlmop2", "algorithm": "mgda"}
    mobench.run(**given, steps=10, **{"hardware.split": 2})
    rows = mobench.run(**given, steps=20)
    assert "continued" not in mobench.load(rows).meta
    text = capfd.readouterr().err
    assert "has finished 10 steps in parts" in text
    assert "in the same way (hardware.split" in text


def test_other_jobs_are_not_continued(capfd: pytest.CaptureFixture[str], outputs: Path) -> None:
    given = {**KEEP, "problem": "vlmop2", "algorithm": "mgda"}

    def continued(**more: Any) -> bool:
        rows = mobench.run(**given | more)
        return "continued" in mobench.load(rows).meta

    assert not continued(steps=10, **{"checkpoint.keep": False})
    assert not continued(steps=12)
    assert "has finished 10 steps, but without checkpoint.keep=true" in capfd.readouterr().err
    assert not continued(steps=20, **{"algorithm.step_size": 0.02})
    assert not continued(steps=20, seeds=[0])
    assert not continued(steps=20, **{"checkpoint.keep": False})
    assert not continued(steps=8)  # fewer steps
    assert continued(steps=30)
    assert not continued(steps=30, rerun=True)
    # a damaged state is none
    for path in outputs.glob("runs/*/state.pt"):
        path.write_bytes(path.read_bytes()[:-9])
    assert not continued(steps=40)
    assert "is corrupt" in capfd.readouterr().err


def test_only_jobs_that_ask_for_it_keep_a_state(outputs: Path) -> None:
    given = {**KEEP, "problem": "vlmop2", "algorithm": "mgda", "steps": 5}
    mobench.run(**given | {"checkpoint.keep": False})
    assert not list(outputs.glob("runs/*/*.pt"))
    rows = mobench.run(**given, rerun=True)
    (state,) = outputs.glob("runs/*/*.pt")
    assert state.name == "state.pt"
    # the option decides no result: both are one job
    assert len(list((outputs / "runs").iterdir())) == 1
    assert (
        json.loads((state.parent / "meta.json").read_text())["identity"]
        == mobench.load(rows).meta["identity"]
    )
