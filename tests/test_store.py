"""Job folders: atomic writes, full and read-only disks, corrupt checkpoints, one writer, round trips."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mobench.errors import StoreError
from mobench.jobs.store import JobFolder, config_hash
from mobench.system.files import write_atomic, write_json
from mobench.system.paths import outputs_root
from tests.conftest import Run, of_before

LS = ("algorithm=ls", "preferences=2", "steps=5", "logger=local")


def refuse(number: int, when: Callable[[str], bool] = lambda path: True) -> Callable[[int], None]:
    """An fsync that fails with `number` for files whose path satisfies `when`."""

    def fsync(fd: int) -> None:
        if when(str(Path(f"/proc/self/fd/{fd}").readlink())):
            raise OSError(number, os.strerror(number))

    return fsync


# single files


def test_write_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "deep" / "file"
    write_atomic(target, b"old")
    monkeypatch.setattr(os, "fsync", refuse(errno.ENOSPC))
    with pytest.raises(StoreError, match=r"no space left on the device.*Free space.*MOBENCH_OUTPUTS"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in target.parent.iterdir()] == ["file"]  # no temporary file is left


def test_device_that_is_really_full() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with (
        Path("/dev/full").open("wb", buffering=0) as f,
        pytest.raises(OSError, match="No space left") as caught,
    ):
        f.write(b"x")
    assert caught.value.errno == errno.ENOSPC  # what the simulated disk above raises


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "read-only"), (errno.EACCES, "permission denied"), (errno.ENOSPC, "no space left")],
)
def test_reasons_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    def refused(self: Path, *args: object, **kw: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(StoreError, match=words):
        write_atomic(tmp_path / "a" / "b", b"")
    with pytest.raises(StoreError, match=words), JobFolder(tmp_path / "job").locked():
        pass


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"a": math.nan})
    assert not (tmp_path / "x.json").exists()


def test_outputs_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOBENCH_OUTPUTS", raising=False)
    assert outputs_root() == Path("outputs")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    assert outputs_root() == tmp_path


def test_hash_is_of_the_content() -> None:
    assert config_hash({"a": 1, "b": [0.1, None]}) == config_hash({"b": [0.1, None], "a": 1})
    assert config_hash({"a": 0.1}) != config_hash({"a": 0.1 + 1e-17 + 2e-17})
    assert len(config_hash({})) == 10


# folders


def test_tables_keep_every_bit(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(5000) * 10.0 ** rng.integers(-300, 300, 5000)
    frame = pd.DataFrame({"run": np.arange(5000), "x": x, "empty": np.nan, "status": "done"})
    folder.write_table("final.csv", frame)
    folder.write_table("history.parquet", frame)
    pd.testing.assert_frame_equal(folder.final(), frame, check_exact=True, check_dtype=False)
    pd.testing.assert_frame_equal(folder.history(), frame, check_exact=True, check_dtype=False)
    folder.write_solutions({"last": x.reshape(50, 100)})
    assert (folder.solutions()["last"] == x.reshape(50, 100)).all()


@pytest.mark.parametrize("name", ["run", "seed", "f_1", "preference_2"])
def test_text_in_the_place_of_a_number_is_one_message(tmp_path: Path, name: str) -> None:
    folder = JobFolder(tmp_path / "job")
    names = ("run", "seed", "preference_1", "preference_2", "f_1", "status")
    frame = pd.DataFrame([[0, 0, 0.3, 0.7, 1.0, "done"], [1, 0, 0.5, 0.5, 2.0, "done"]], columns=names)
    folder.write_table("final.csv", frame)
    assert len(folder.final()) == 2
    folder.write_table("final.csv", frame.astype({name: object}).replace({name: {frame[name][1]: "abc"}}))
    with pytest.raises(StoreError, match=f"{name} must be numbers.*rerun=true"):
        folder.final()


def test_status(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    assert folder.status() == {"status": "missing"}
    folder.write_status("running", step=3, steps=10)
    status = folder.status()
    assert (status["status"], status["step"], status["pid"]) == ("running", 3, os.getpid())
    assert {"updated", "host"} <= set(status)
    folder.write_status("done")
    assert not folder.done  # rows are missing
    (folder.path / "final.csv").write_text("run\n0\n")
    assert folder.done
    (folder.path / "status.json").write_text('{"status": "do')
    assert folder.status()["status"] == "failed"
    assert "unreadable" in folder.status()["error"]
    assert not folder.done
    (folder.path / "status.json").write_text('{"status": "done", "seconds": "long"}')
    assert folder.status()["error"] == "unreadable status.json: seconds is 'long', not a number"


def test_one_writer(tmp_path: Path) -> None:
    first = JobFolder(tmp_path / "job")
    second = JobFolder(tmp_path / "job")
    with first.locked():
        with pytest.raises(StoreError, match="Another process is running this job"), second.locked():
            pass
        with JobFolder(tmp_path / "other").locked():
            pass
    with second.locked():
        pass


def test_checkpoints(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    assert folder.load_checkpoint() == (None, [])
    for t in (1, 2, 3):
        folder.save_checkpoint({"state": {"t": t, "x": torch.full((2,), 0.1 * t, dtype=torch.float64)}})
    current = folder.path / "checkpoint.pt"
    previous = folder.path / "checkpoint.prev.pt"
    loaded, messages = folder.load_checkpoint()
    assert loaded is not None
    assert (loaded["state"]["t"], messages) == (3, [])

    sound = current.read_bytes()
    damaged = [
        sound[:-1],
        sound[: len(sound) // 2],
        b"",
        b"\0" * len(sound),
        sound[:200] + b"!" + sound[201:],
    ]
    for data in damaged:
        current.write_bytes(data)
        loaded, (message,) = folder.load_checkpoint()
        assert loaded is not None
        assert loaded["state"]["t"] == 2
        assert "checkpoint.pt is corrupt" in message
    previous.write_bytes(b"rubbish")
    loaded, messages = folder.load_checkpoint()
    assert loaded is None
    assert ["prev" in m for m in messages] == [False, True]

    folder.remove_checkpoints()
    assert list(folder.path.iterdir()) == []


# a whole command on a bad disk


def test_outputs_below_a_file(mobench: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = mobench(*LS, root=tmp_path / "file" / "outputs")
    result.refused("Cannot write", "Not a directory", "MOBENCH_OUTPUTS=DIR", code=1)


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "no space left"), (errno.EROFS, "read-only")])
@pytest.mark.parametrize("name", ["config.yaml", "history.parquet", "meta.json", "final.csv"])
def test_disk_fails_at_any_file(
    mobench: Run, monkeypatch: pytest.MonkeyPatch, name: str, number: int, words: str
) -> None:
    monkeypatch.setattr(os, "fsync", refuse(number, lambda path: f".{name}." in path))
    result = mobench(*LS)
    result.refused("Cannot write", name, words, "MOBENCH_OUTPUTS", code=1)
    assert not result.job.done
    assert result.job.status()["status"] == "failed"
    assert words in result.job.status()["error"]
    monkeypatch.undo()
    assert mobench(*LS).job.done  # a failed job is run again


def test_disk_that_is_full_even_for_the_status(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", refuse(errno.ENOSPC))
    result = mobench(*LS)
    result.refused("no space left", code=1)
    assert not result.job.done


def test_bad_folder_costs_no_other_job(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = mobench(*LS)
    rows = (before.job.path / "final.csv").read_bytes()
    monkeypatch.setattr(os, "fsync", refuse(errno.ENOSPC, lambda path: "mgda" in path))
    result = mobench("-m", "algorithm=ls,mgda,tch", *LS[1:])
    assert result.code == 1
    status = {job.key.split("-")[1]: job.done for job in result.folders}
    assert status == {"ls": True, "mgda": False, "tch": True}
    assert next(j for j in result.folders if "-ls-" in j.key).path.joinpath("final.csv").read_bytes() == rows
    assert result.err.count("mobench: error:") == 1


def test_second_process_is_refused(mobench: Run) -> None:
    folder = mobench("-m", "algorithm=ls", "rerun=true", *LS[1:]).job
    status = json.loads((folder.path / "status.json").read_text())
    with folder.locked():
        result = mobench("-m", "algorithm=ls,mgda", "rerun=true", *LS[1:])
        assert result.code == 1
        assert f"Another process is running this job ({folder.path})" in result.err
        assert "wait for it or stop it" in result.err
        # the other process's folder is not touched, and the other job of the sweep is done
        assert json.loads((folder.path / "status.json").read_text()) == status
        assert [j.done for j in result.folders] == [True, True]
    assert mobench(*LS, "rerun=true").code == 0


# rows that are not all there


CUTS = {
    "a row": (lambda text: text[: text.rindex("\n", 0, -1) + 1], "has 5 rows, but 6 are expected"),
    "half a row": (lambda text: text[:-20], "has 5 rows and an incomplete row, but 6 are expected"),
    "all but the head": (lambda text: text[: text.index("\n") + 1], "has 0 rows, but 6 are expected"),
    "everything": (lambda text: "", "has 0 rows and an incomplete row, but 6 are expected"),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("old", [False, True])
def test_truncated_rows_are_not_finished(mobench: Run, cut: str, old: bool) -> None:
    """Said, and the job is run again, as one whose rows are gone;
    also in a folder whose meta.json has no number of rows.
    """
    command = (*LS, "seeds=[0,1,2]", "progress=false")
    job = mobench(*command).job
    path = job.path / "final.csv"
    whole = job.final()
    if old:
        meta = of_before(job).meta()
        assert meta.pop("final_rows") == 6
        write_json(job.path / "meta.json", meta)
    shorten, words = CUTS[cut]
    path.write_text(shorten(path.read_text()))
    assert not job.done
    assert words in str(job.damage)
    with pytest.raises(StoreError, match=words):
        job.final()
    again = mobench(*command)
    assert again.code == 0
    assert "already finished" not in again.out
    assert f"warning: {path} {words}" in again.err
    assert "will be rerun" in again.err
    np.testing.assert_array_equal(again.rows["f_1"], whole["f_1"])


def test_rows_of_several_output_rules_and_variants(mobench: Run) -> None:
    options = ("algorithm.outputs=[last,mean]", "vary.step_size=[0.1,0.01]")
    job = mobench(*LS, *options).job
    assert job.meta()["final_rows"] == len(job.final()) == 2 * 2 * 2
    meta = of_before(job).meta()
    del meta["final_rows"]
    write_json(job.path / "meta.json", meta)
    assert job.done
    assert job.damage is None


def test_the_state_of_truncated_rows(mobench: Run) -> None:
    from mobench.cli.status import look

    job = mobench(*LS).job
    assert look(job).state == "done"
    path = job.path / "final.csv"
    path.write_text(path.read_text()[:-1])
    assert look(job).state == "failed"
    assert "has 1 rows and an incomplete row, but 2 are expected" in look(job).words
