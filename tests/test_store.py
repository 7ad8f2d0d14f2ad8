"""Job folders: atomic writes, full and read-only disks, corrupt checkpoints, one writer, round trips."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mobench import load
from mobench.errors import StoreError
from mobench.jobs import store
from mobench.jobs.store import JobFolder
from mobench.report.reading import collect
from mobench.system.files import write_atomic, write_json
from mobench.system.forms import read_json
from tests.conftest import Run, in_process, of_before
from tests.test_runner import same_rows

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
    write_json(folder.path / "status.json", {"status": "done", "sha256": [1]})
    assert "sha256 is" in folder.status()["error"]
    assert not folder.done


def test_the_state_is_read_once_and_again_after_any_change(
    two_jobs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / two_jobs[0].name
    shutil.copytree(two_jobs[0], path)
    reads: list[str] = []
    monkeypatch.setattr(store, "read_json", lambda file: reads.append(file.name) or read_json(file))
    time.sleep(0.05)
    assert all(JobFolder(path).done and JobFolder(path).damage is None for _ in range(10))
    assert sorted(reads) == ["meta.json", "status.json"]
    rows = bytearray((path / "final.csv").read_bytes())
    # a clock so coarse that it stands still while the file is edited in place
    monkeypatch.setattr(store, "_TICK", 10**12)
    now = time.time_ns()
    monkeypatch.setattr(store, "_stamp", lambda file: (1, 1, now) if file.exists() else None)
    for k in range(20, 40):
        rows[k] ^= 1
        (path / "final.csv").write_bytes(rows)
        assert not JobFolder(path).done
        rows[k] ^= 1
        (path / "final.csv").write_bytes(rows)
        assert JobFolder(path).done
    (path / "status.json").unlink()
    assert JobFolder(path).status() == {"status": "missing"}


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
    """The job is run again, as one whose rows are gone; also where meta.json has no number of rows."""
    command = (*LS, "seeds=[0,1,2]", "progress=false")
    job = mobench(*command).job
    path = job.path / "final.csv"
    whole = job.final()
    if old:
        meta = job.meta()
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
    meta = job.meta()
    del meta["final_rows"]
    write_json(job.path / "meta.json", meta)
    assert job.done
    assert job.damage is None


# files of another job


def rows_changed(change: Callable[[list[str]], list[str]]) -> Callable[[Path, Path], None]:
    """Changes the lines of final.csv."""

    def swap(mine: Path, other: Path) -> None:
        path = mine / "final.csv"
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return swap


def replaced(name: str) -> Callable[[Path, Path], Any]:
    """Puts the other job's file, or all of its files for an empty name, into the place of this one's."""
    if name:
        return lambda mine, other: shutil.copy(other / name, mine / name)
    return lambda mine, other: (shutil.rmtree(mine), shutil.copytree(other, mine))


def meta_changed(name: str, value: object) -> Callable[[Path, Path], None]:
    def swap(mine: Path, other: Path) -> None:
        meta = json.loads((mine / "meta.json").read_text())
        write_json(mine / "meta.json", meta | {name: value})

    return swap


FOREIGN: dict[str, tuple[str, Callable[[Path, Path], Any]]] = {
    "rows of another job": ("final.csv", replaced("final.csv")),
    "a number changed": ("final.csv", rows_changed(lambda x: [*x[:-1], x[-1].replace("5", "6")])),
    "facts of another job": ("meta.json", replaced("meta.json")),
    "facts without an identity": ("meta.json", meta_changed("identity", None)),
    "everything of another job": ("meta.json", replaced("")),
    "history of another job": ("history.parquet", replaced("history.parquet")),
    "solutions of another job": ("solutions.npz", replaced("solutions.npz")),
    "settings of another job": ("config.yaml", replaced("config.yaml")),
}
RUN_AGAIN = [
    *(name for name, (file, _) in FOREIGN.items() if file == "final.csv"),
    "facts of another job",
    "everything of another job",
]
READERS = {"final.csv": "final", "meta.json": "meta", "history.parquet": "history", "config.yaml": "config"}
READERS["solutions.npz"] = "solutions"
COMMAND = ("algorithm=ls", "preferences=2", "steps=5", "record.every=1", "progress=false", "logger=local")


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of the same problem and method, with other seeds."""
    root = tmp_path_factory.mktemp("two")
    folders = []
    for seeds in ("seeds=[0,1]", "seeds=[5,6]"):
        with pytest.MonkeyPatch.context() as patch:
            assert in_process(root / seeds, (*COMMAND, seeds), patch) == 0
        folders += list((root / seeds / "runs").iterdir())
    return folders[0], folders[1]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_job_is_named_by_every_reader(
    mobench: Run, two_jobs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, swap = FOREIGN[name]
    mine, other = two_jobs
    folder = JobFolder(tmp_path / "outputs/runs" / mine.name)
    shutil.copytree(mine, folder.path)
    swap(folder.path, other)
    words = f"{folder.path / file} "
    readers = READERS if name == "everything of another job" else [file]
    for reader in (READERS[reader] for reader in readers):
        with pytest.raises(StoreError, match=f"^{re.escape(words)}.*(Rerun the job|restore the file)"):
            getattr(folder, reader)()
        with pytest.raises(StoreError, match=re.escape(words)):
            getattr(load(folder.path), reader)
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    (row,) = collect(tmp_path / "outputs").jobs
    again = mobench(*COMMAND, "seeds=[0,1]")
    if name not in RUN_AGAIN:  # looking at a finished job reads no more
        assert "already finished" in again.out
        assert again.code == (2 if file == "meta.json" else 0)  # what it says of the job is in that file
        assert (words in again.err) is (file == "meta.json")
        assert row.status == "done"
        again = mobench(*COMMAND, "seeds=[0,1]", "rerun=true")
    else:
        assert row.status == "failed"
        assert file in row.detail
        assert "already finished" not in again.out
        assert again.err.count(f"warning: {words}") == 1
        assert "The job will be rerun." in again.err
    assert again.code == 0, again.err
    assert folder.done
    same_rows(folder, JobFolder(mine))
    assert load(folder.path).config["seeds"] == [0, 1]


def test_folders_of_older_versions_have_no_digests(two_jobs: tuple[Path, Path], tmp_path: Path) -> None:
    """Their files are known by the identity alone, which is that of the folder's name."""
    mine, other = two_jobs
    folder = JobFolder(tmp_path / mine.name)
    shutil.copytree(mine, folder.path)
    of_before(folder)
    replaced("solutions.npz")(folder.path, other)
    assert folder.done
    assert folder.solutions()
    replaced("meta.json")(folder.path, other)
    assert not folder.done
    assert "belongs to another job" in str(folder.damage)
    assert len(folder.final()) == 4  # who asks for this folder may read it


def test_a_copy_may_have_any_name_but_another_jobs(two_jobs: tuple[Path, Path], tmp_path: Path) -> None:
    mine, other = two_jobs
    for name in ("mine", "my best rows", f"copy-of-{mine.name}", "ls-0123"):
        shutil.copytree(mine, tmp_path / name)
        assert len(load(tmp_path / name).final) == 4
        assert JobFolder(tmp_path / name).done
    shutil.copytree(mine, tmp_path / other.name)
    with pytest.raises(StoreError, match="belongs to another job"):
        _ = load(tmp_path / other.name).history


def test_a_job_that_begins_anew_is_not_done_before_its_files_change(
    mobench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after it has written its configuration, it has no digests of the files before."""
    seen = []
    write = JobFolder.write_config

    def look(self: JobFolder, config: dict[str, Any]) -> None:
        seen.append(self.status()["status"])
        write(self, config)

    mobench(*LS)
    monkeypatch.setattr(JobFolder, "write_config", look)
    assert mobench(*LS, "rerun=true").code == 0
    assert mobench(*LS, "rerun=true", "hardware.split=2", "seeds=[0,1]").code == 0
    assert set(seen) == {"running"}


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
