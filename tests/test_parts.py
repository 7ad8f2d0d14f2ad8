"""A job in parts: the rows are those of one batch, and no part is run twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mobench
from mobench.config.compose import compose
from mobench.errors import ConfigError
from mobench.jobs import run as module
from mobench.jobs import train as train_module
from mobench.jobs.build import make_job
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from mobench.system import provenance
from mobench.system.files import write_json
from tests.conftest import Run, of_before

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
def test_joined_rows_are_those_of_one_batch(tmp_path: Path, case: str) -> None:
    chosen = (*CASES[case], "seeds=[3,0,7]")
    whole = JobFolder(run_job(job(*chosen), tmp_path / "whole").folder)
    outcome = run_job(job(*chosen, "hardware.split=2"), tmp_path / "parts")
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
    assert len(ours["parts"]) == 2
    assert ours["seconds_train"] == pytest.approx(joined.status()["seconds"])
    if theirs["hypervolume"] is not None:
        assert ours["hypervolume"]["last"] == pytest.approx(theirs["hypervolume"]["last"])


def test_seeds_that_were_run_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    train = module.train
    monkeypatch.setattr(
        module, "train", lambda job, *rest: trained.append(job.config.seeds) or train(job, *rest)
    )
    chosen = ("algorithm=ls",)
    run_job(job(*chosen, "seeds=[0,1]", "hardware.split=2"), tmp_path)
    run_job(job(*chosen, "seeds=[1,5,0]", "hardware.split=3"), tmp_path)
    assert run_job(job(*chosen, "seeds=[1,5,0]", "hardware.split=3"), tmp_path).skipped
    assert trained == [[0], [1], [5]]


def test_a_run_is_one_row_of_many_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of parts are left out beside those of the whole; jobs that share seeds are named."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    for method in ("ls", "omd_tch"):
        run_job(job(f"algorithm={method}", "seeds=[0,1]", "hardware.split=2"), tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 6
    rows = mobench.rows()
    assert not rows.duplicated(["algorithm", "output", "run"]).any()
    assert len(rows[rows["algorithm"] == "ls"]) == 6
    part = mobench.rows(f"job={rows['job'][0]}")  # the whole
    assert len(mobench.rows("seeds=[0]", "algorithm=ls")) == 3  # a part that is wanted by itself
    assert len(part) == 6
    run_job(job("algorithm=ls", "seeds=[1,2]"), tmp_path)
    with pytest.warns(UserWarning, match="jobs share runs") as said:
        assert len(mobench.rows("algorithm=ls")) == 12
    assert str(said[0].message).count("vlmop2-ls-") == 2


def test_rows_name_all_devices_that_computed_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts on several devices, and a part that began on one and went on on another."""
    chosen = ("algorithm=ls",)
    alone = JobFolder(run_job(job(*chosen, "seeds=[0]"), tmp_path).folder).meta()
    assert "seconds_by_device" not in alone
    monkeypatch.setattr(provenance, "device_name", lambda device=None: "CPU of another kind")
    run_job(job(*chosen, "seeds=[1]"), tmp_path)
    joined = JobFolder(run_job(job(*chosen, "seeds=[0,1]", "hardware.split=2"), tmp_path).folder).meta()
    assert joined["device"] == f"{alone['device']} and CPU of another kind"
    assert sum(joined["seconds_by_device"].values()) == pytest.approx(joined["seconds_wall"])
    clock = train_module.Clock(before=5.0, devices={"a": 3.0, "b": 2.0})
    assert list(clock.by_device("a")) == ["a", "b"]
    assert sum(clock.by_device("c").values()) == pytest.approx(clock.wall(), abs=0.1)
    assert clock.by_device("b")["a"] == 3.0


def test_parts_of_before_rows_said_what_failed_are_joined(tmp_path: Path) -> None:
    """Rows that are kept for long are older than some of what meta.json says today."""
    chosen = ("algorithm=ls",)
    for seed in (0, 1):
        run_job(job(*chosen, f"seeds=[{seed}]"), tmp_path)
    older = JobFolder(run_job(job("algorithm=ls", "seeds=[0]"), tmp_path).folder)
    meta = of_before(older).meta()
    for name in ("final_rows", "unsolved"):
        del meta[name]
    write_json(older.path / "meta.json", meta)
    joined = JobFolder(run_job(job(*chosen, "seeds=[0,1]", "hardware.split=2"), tmp_path).folder).meta()
    assert joined["final_rows"] == 6
    assert joined["unsolved"] == []


def test_parts_that_do_not_belong_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = JobFolder.meta
    monkeypatch.setattr(
        JobFolder, "meta", lambda self: meta(self) | {"ideal_point": [len(self.key), id(self)]}
    )
    outcome = run_job(job("algorithm=ls", "seeds=[0,1]", "hardware.split=2"), tmp_path)
    assert outcome.status == "failed"
    assert "cannot be joined: their ideal_point differs" in str(outcome.error)


# hardware.split


def exactly(joined: JobFolder, whole: JobFolder) -> None:
    """Bit for bit: rows, history, solutions, hypervolume."""
    pd.testing.assert_frame_equal(
        joined.final().drop(columns=CLOCKS), whole.final().drop(columns=CLOCKS), check_exact=True
    )
    pd.testing.assert_frame_equal(joined.history(), whole.history(), check_exact=True)
    for name, values in whole.solutions().items():
        np.testing.assert_array_equal(joined.solutions()[name], values)
    assert joined.meta()["hypervolume"] == whole.meta()["hypervolume"]
    assert joined.meta()["final_rows"] == whole.meta()["final_rows"]


@pytest.mark.parametrize("method", ["algorithm=ls", "algorithm=mgda", "algorithm=pmtl"])
def test_a_split_job_is_the_whole_one(tmp_path: Path, method: str) -> None:
    """By seeds (2), and by seeds and preferences (4: two chunks of each seed). PMTL sees all preferences."""
    chosen = (method, "seeds=[3,0]", "steps=6")
    whole = JobFolder(run_job(job(*chosen, "hardware.split=1"), tmp_path / "whole").folder)
    assert "parts" not in whole.meta()
    for parts, count in ((2, 2), (3, 4)):
        outcome = run_job(job(*chosen, f"hardware.split={parts}"), tmp_path / str(parts))
        joined = JobFolder(outcome.folder)
        assert joined.key == whole.key
        assert len(joined.meta()["parts"]) == count
        exactly(joined, whole)


def test_runs_that_move_together_are_cut_by_seeds_only(tmp_path: Path) -> None:
    chosen = ("algorithm=hv_gradient", "algorithm.reference=[1.1,1.1]", "steps=3")
    whole = JobFolder(run_job(job(*chosen, "seeds=[1,2]"), tmp_path / "whole").folder)
    outcome = run_job(job(*chosen, "seeds=[1,2]", "hardware.split=2"), tmp_path / "parts")
    exactly(JobFolder(outcome.folder), whole)
    with pytest.raises(ConfigError, match=r"moves all preferences of a seed together.*2 seed\(s\)"):
        run_job(job(*chosen, "seeds=[1,2]", "hardware.split=3"), tmp_path / "parts3")


def test_more_parts_than_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the job has 3 runs"):
        run_job(job("algorithm=ls", "seeds=[0]", "hardware.split=4"), tmp_path)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["hardware.split=2", "hardware.part=[0,2]"], "both cut the job"),
        (["hardware.split=0"], r"hardware\.split=0 must be at least 1"),
        (["hardware.max_batch_runs=-1"], r"hardware\.max_batch_runs=-1 must be at least 1"),
        (["hardware.part=[2,2]"], "must be \\[k, n\\]"),
    ],
)
def test_splits_that_are_none(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_job(job("algorithm=ls", *overrides))


def test_an_interrupted_split_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second part fails; the first is not run again, and the rows are those of one batch."""
    chosen = ("algorithm=ls", "seeds=[0]", "steps=4")
    whole = JobFolder(run_job(job(*chosen), tmp_path / "whole").folder)
    train = module.train
    trained: list[Any] = []

    def fails(some: Any, *rest: Any) -> Any:
        trained.append(some.config.hardware.part)
        if trained[-1] == [1, 3] and trained.count([1, 3]) == 1:
            raise RuntimeError("no more power")
        return train(some, *rest)

    monkeypatch.setattr(module, "train", fails)
    outcome = run_job(job(*chosen, "hardware.split=3"), tmp_path / "parts")
    assert outcome.status == "failed"
    assert "seeds 0 and preferences 2 of 3 failed: RuntimeError: no more power" in str(outcome.error)
    outcome = run_job(job(*chosen, "hardware.split=3"), tmp_path / "parts")
    assert trained == [[0, 3], [1, 3], [1, 3], [2, 3]]
    exactly(JobFolder(outcome.folder), whole)


def test_parts_run_beside_each_other_under_a_launcher(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, four parts; the command joins them and prints one job."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs hydra-joblib-launcher")
    arguments = [*BASE, "algorithm=mgda", "seeds=[0,1]", "steps=4"]
    result = mobench(*arguments, "hardware.split=4", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert result.code == 0, result.err
    whole = JobFolder(run_job(job("algorithm=mgda", "seeds=[0,1]", "steps=4"), tmp_path / "whole").folder)
    joined = JobFolder(tmp_path / "outputs" / "runs" / whole.key)
    assert len(joined.meta()["parts"]) == 4
    exactly(joined, whole)
