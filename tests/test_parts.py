"""A job in parts: the rows are those of one batch, and no part is run twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mobench.config.compose import compose
from mobench.errors import ConfigError
from mobench.jobs import run as module
from mobench.jobs.build import make_job
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder

BASE = ("problem=vlmop2", "preferences=3", "steps=12", "record.every=4", "logger=local")
CASES = {
    "rows of two output rules": (
        "algorithm=omd_tch",
        "algorithm.outputs=[mean,last]",
        "record.evaluate=true",
    ),
    "hyper-parameters that vary": ("algorithm=stch", "vary.mu=[0.01,0.1]"),
    "samples": ("problem=constrained_gaussian", "protocol=csmoo_synthetic", "algorithm=csmoo2"),
}
CLOCKS = ["seconds"]


def job(*overrides: str) -> dict[str, Any]:
    return compose([*BASE, *overrides])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2])
def test_joined_rows_are_those_of_one_batch(tmp_path: Path, case: str, size: int) -> None:
    chosen = (*CASES[case], "seeds=[3,0,7]")
    whole = JobFolder(run_job(job(*chosen), tmp_path / "whole").folder)
    outcome = run_job(job(*chosen, f"hardware.seeds_per_job={size}"), tmp_path / "parts")
    joined = JobFolder(outcome.folder)
    assert outcome.status == "done"
    assert joined.done
    assert joined.key == whole.key  # how a job is run is no part of its identity
    expected = whole.final().drop(columns=CLOCKS)
    pd.testing.assert_frame_equal(joined.final().drop(columns=CLOCKS), expected, rtol=1e-9, atol=1e-12)
    pd.testing.assert_frame_equal(joined.history(), whole.history(), rtol=1e-9, atol=1e-12)
    for name, values in whole.solutions().items():
        np.testing.assert_allclose(joined.solutions()[name], values, rtol=1e-9, atol=1e-12)
    ours, theirs = joined.meta(), whole.meta()
    for key in ("final_rows", "unsolved", "identity", "ideal_point"):
        assert ours[key] == theirs[key], key
    assert set(theirs) <= set(ours)
    assert len(ours["parts"]) == -(-3 // size)
    assert ours["seconds_train"] == pytest.approx(joined.status()["seconds"])
    if theirs["hypervolume"] is not None:
        assert ours["hypervolume"]["last"] == pytest.approx(theirs["hypervolume"]["last"])


def test_seeds_that_were_run_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    train = module.train
    monkeypatch.setattr(
        module, "train", lambda job, *rest: trained.append(job.config["seeds"]) or train(job, *rest)
    )
    chosen = ("algorithm=ls", "hardware.seeds_per_job=1")
    run_job(job(*chosen, "seeds=[0,1]"), tmp_path)
    run_job(job(*chosen, "seeds=[1,5,0]"), tmp_path)
    assert run_job(job(*chosen, "seeds=[1,5,0]"), tmp_path).skipped
    assert trained == [[0], [1], [5]]


def test_a_part_that_fails_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = module.train

    def fails(job: Any, *rest: Any) -> Any:
        if job.config["seeds"] == [1]:
            raise RuntimeError("no more power")
        return train(job, *rest)

    monkeypatch.setattr(module, "train", fails)
    chosen = ("algorithm=ls", "seeds=[0,1]", "hardware.seeds_per_job=1")
    outcome = run_job(job(*chosen), tmp_path)
    assert outcome.status == "failed"
    assert "Its part with the seeds 1 failed: RuntimeError: no more power" in str(outcome.error)
    monkeypatch.setattr(module, "train", train)
    assert run_job(job(*chosen), tmp_path).status == "done"


def test_parts_that_do_not_belong_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = JobFolder.meta
    monkeypatch.setattr(
        JobFolder, "meta", lambda self: meta(self) | {"ideal_point": [len(self.key), id(self)]}
    )
    outcome = run_job(job("algorithm=ls", "seeds=[0,1]", "hardware.seeds_per_job=1"), tmp_path)
    assert outcome.status == "failed"
    assert "cannot be joined: their ideal_point differs" in str(outcome.error)


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hardware\.seeds_per_job=0 must be at least 1"):
        make_job(job("algorithm=ls", "hardware.seeds_per_job=0"))
