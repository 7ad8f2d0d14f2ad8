"""A training loop of one's own whose rows and history are those of a job."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import mobench
from mobench.cli import status
from mobench.errors import ConfigError, PreferenceError, StoreError
from mobench.jobs.store import JobFolder
from mobench.study import recording


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    return tmp_path


def descend(stop_at: int | None = None, **options: object) -> Path:
    """Ten steps of gradient descent on two parabolas."""
    with mobench.record("two wells", "ls", preference=[1, 3], seed=4, lr=0.1, **options) as run:  # type: ignore[arg-type]
        x = torch.tensor(2.0, dtype=torch.float64)
        for step in range(10):
            if step == stop_at:
                raise KeyboardInterrupt
            x = x - 0.1 * (0.25 * 2 * x + 0.75 * 2 * (x - 1))
            run.log(step + 1, [x.square(), (x - 1).square()], distance=(x - 0.75).abs())
    return run.path


def test_a_recorded_loop_is_a_job_that_everything_reads() -> None:
    path = descend()
    rows = mobench.rows("problem=two wells", "lr=0.1")
    (row,) = rows.to_dict("records")
    x = 0.75 + 1.25 * 0.8**10  # the error shrinks by 1 - 2 * 0.1
    assert (row["f_1"], row["f_2"], row["distance"]) == pytest.approx((x**2, (x - 1) ** 2, x - 0.75))
    assert (row["algorithm"], row["seed"], row["preference_2"], row["status"]) == ("ls", 4, 0.75, "done")
    history = mobench.load(rows).history
    assert history["step"].tolist() == list(range(1, 11))
    assert np.allclose(history["distance"], 1.25 * 0.8 ** np.arange(1, 11))
    assert JobFolder(path).done
    assert len(mobench.plot(rows, "step", "distance").axes[0].lines) == 1
    assert mobench.table(rows).frame["f_1"].item() == row["f_1"]
    assert status.main([]) == 0


def test_a_stopped_loop_is_recorded_anew(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        descend(stop_at=6)
    assert status.main([]) == 1
    assert re.search(r"failed +two_wells-ls-\w+ +KeyboardInterrupt", capsys.readouterr().out)
    with pytest.warns(UserWarning, match="1 failed"):
        assert mobench.rows("problem=two wells").empty
    once = JobFolder(descend()).history()
    assert once.equals(JobFolder(descend(rerun=True)).history())
    assert len(list((outputs / "runs").iterdir())) == 1


def full(monkeypatch: pytest.MonkeyPatch, where: Callable[[str], bool]) -> None:
    """No file can be written any more whose path is of this kind."""

    def fsync(fd: int) -> None:
        if where(str(Path(f"/proc/self/fd/{fd}").readlink())):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_sign_of_life_that_cannot_be_written_ends_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "BEAT", -1.0)
    with mobench.record("disk", "m", [1, 1]) as run:
        with monkeypatch.context() as there:
            full(there, lambda path: ".status.json." in path)
            with pytest.warns(UserWarning, match="No space left"):
                run.log(1, [1.0, 2.0])
        run.log(2, [0.5, 1.0])
    rows = mobench.rows("problem=disk")
    assert rows[["f_1", "f_2", "status"]].values.tolist() == [[0.5, 1.0, "done"]]
    assert mobench.load(rows).history["f_1"].tolist() == [1.0, 0.5]


def test_the_error_of_a_loop_is_its_own_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop() -> None:
        with mobench.record("disk", "m", [1, 1]):
            full(monkeypatch, lambda path: True)
            raise ZeroDivisionError

    with pytest.warns(UserWarning, match="No space left"), pytest.raises(ZeroDivisionError):
        loop()


@pytest.mark.parametrize("name", ["final.csv", "history.parquet", "meta.json", "status.json"])
def test_rows_that_find_no_space_are_written_elsewhere(
    name: str, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the message brings them to their place."""
    elsewhere = outputs / "temporary files"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    run = mobench.record("disk", "m", [1, 3])
    with monkeypatch.context() as there:

        def loop() -> None:
            with run:
                run.log(1, [1.0, 2.0])
                run.log(2, [0.5, 1.0])
                full(there, lambda path: f"/runs/{run.folder.key}/.{name}." in path)

        with pytest.raises(StoreError, match="No space left") as raised:
            loop()
    assert not run.done
    assert not run.folder.done
    assert "checkpoint" not in str(raised.value)
    command = str(raised.value).split("to their place: ")[1]
    subprocess.run(shlex.split(command), check=True)
    rows = mobench.rows("problem=disk")
    assert rows[["f_1", "f_2", "status"]].values.tolist() == [[0.5, 1.0, "done"]]
    assert mobench.load(rows).history["f_1"].tolist() == [1.0, 0.5]
    assert run.folder.done


def test_rows_that_find_no_space_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop() -> None:
        with mobench.record("disk", "m", [1, 3]) as run:
            run.log(1, [1.0, 2.0])
            full(monkeypatch, lambda path: True)

    with pytest.raises(StoreError, match=r"No space left.*not to another place.*record the run anew"):
        loop()


def test_no_command_promises_to_finish_a_loop_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        descend(stop_at=6)
    for arguments in ([], ["--failed"]):
        status.main(arguments)
        out = capsys.readouterr().out
        assert "mobench status --failed" not in out
        assert "to finish 1 recorded by mobench.record: run their own programs again" in out
    assert "0 to rerun" in out


def test_a_finished_run_is_not_recorded_again() -> None:
    descend()
    with mobench.record("two wells", "ls", [0.25, 0.75], 4, lr=0.1) as run:
        assert run.done
        with pytest.raises(ConfigError, match=r"finished .*rerun=True"):
            run.log(11, [0, 0])


def test_the_best_step_may_be_the_final_one_and_lost_runs_are_lost() -> None:
    for seed, losses in enumerate(([3.0, 1.0, 2.0], [3.0, 1.0, float("inf")])):
        with mobench.record("own", "mgda", [1, 1], seed) as run:
            for step, value in enumerate(losses, 1):
                run.log(step, [value, 0.0])
                if seed == 0 and value == 1.0:
                    run.keep()
    rows = mobench.rows("problem=own").sort_values("seed")
    assert rows["f_1"].tolist() == [1.0, np.inf]
    assert rows["ended"].tolist() == [2, 3]
    assert rows["status"].tolist() == ["done", "diverged"]


@pytest.mark.parametrize(
    ("violation", "expected"), [(0.0, "done"), (np.inf, "done"), (0.5, "done"), (np.nan, "diverged")]
)
def test_a_violation_that_is_nan_ends_a_run_as_a_loss_does(violation: float, expected: str) -> None:
    with mobench.record("caps", "a", [1, 1]) as run:
        run.log(1, [0.1, 0.1], violation=violation)
    assert mobench.rows("problem=caps")["status"].tolist() == [expected]


def test_what_cannot_be_recorded_is_refused(outputs: Path) -> None:
    with pytest.raises(PreferenceError, match="positive numbers"):
        mobench.record("own", "mgda", [1, 0])
    with pytest.raises(ConfigError, match=r"lr=.* is neither a number nor a word"):
        mobench.record("own", "mgda", [1, 1], lr=torch.ones(2))
    with (
        pytest.raises(ConfigError, match="3 losses, but the preference has 2"),
        mobench.record("own", "a", [1, 1]) as run,
    ):
        run.log(1, [1, 2, 3])
    (folder,) = (outputs / "runs").iterdir()
    assert JobFolder(folder).status()["status"] == "failed"
    with mobench.record("own", "b", [1, 1]) as run:
        run.log(1, [1, 2])
        with pytest.raises(ConfigError, match="later steps only"):
            run.log(1, [1, 2])


@pytest.mark.parametrize("column", ["seed", "status", "f_1", "preference_2", "problem", "algorithm.lr"])
def test_columns_that_rows_have_already_are_refused(column: str) -> None:
    with mobench.record("two wells", "ls", preference=[1, 3]) as run:
        with pytest.raises(ConfigError, match=f"log got {column}=, which is a column of all rows already"):
            run.log(1, [1.0, 2.0], **{column: 7.0})
        run.log(1, [1.0, 2.0], accuracy=0.5)


def test_a_method_is_found_by_its_name() -> None:
    """The folder's name leaves out signs."""
    with mobench.record("two wells", "My-method 2", preference=[1, 3]) as run:
        run.log(1, [1.0, 2.0])
    assert mobench.rows("algorithm=My-method 2")["algorithm"].tolist() == ["My-method 2"]


def test_settings_tell_runs_apart() -> None:
    """Numbers of NumPy are numbers; nothing is rounded or left out without a word."""
    with mobench.record("two wells", "ls", [1, 3], seed=np.int64(2), lr=np.float32(0.5)) as run:
        run.log(1, [1.0, 2.0])
    assert mobench.rows("lr=0.5")["seed"].tolist() == [2]
    with pytest.raises(ConfigError, match=r"seed=0\.9 must be a whole number"):
        mobench.record("two wells", "ls", [1, 3], seed=0.9)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="record got class="):
        mobench.record("two wells", "ls", [1, 3], **{"class": "other"})
