"""Broken things that a person meets: full disks, truncated files, a clock that jumps."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mobench.errors import StoreError
from mobench.jobs.store import JobFolder
from tests.conftest import Run, shell
from tests.test_runner import same_rows

QUICK = ("algorithm=ls", "preferences=2", "seeds=[0]", "steps=20", "logger=local")


def test_truncated_files_say_what_to_do(mobench: Run) -> None:
    folder = mobench(*QUICK).job
    names = {
        "final.csv": "final",
        "history.parquet": "history",
        "solutions.npz": "solutions",
        "meta.json": "meta",
    }
    for name, reader in names.items():
        path = folder.path / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if name != "final.csv" else b"")
        cut = (
            "final.csv has 0 rows.*Rerun the job"
            if name == "final.csv"
            else f"{name} is not the file that the job wrote.*rerun=true"
        )
        with pytest.raises(StoreError, match=cut):
            getattr(folder, reader)()
        path.unlink()
        with pytest.raises(StoreError, match=f"{name} is missing.*rerun=true"):
            getattr(folder, reader)()
        path.write_bytes(whole)
        getattr(folder, reader)()


def test_truncated_rows_of_an_artifact_are_one_message(mobench: Run) -> None:
    command = ("+experiment=ferero/fig7", "scale=smoke", "logger=local")
    first = mobench(*command)
    path = first.folders[0].path / "history.parquet"
    path.write_bytes(path.read_bytes()[:100])
    again = mobench(*command)
    again.refused(
        "ferero/fig7 is not drawn", "history.parquet is not the file that the job wrote", "rerun=true", code=1
    )
    assert mobench(*command, "rerun=true").code == 0


def mounted(folder: Path, options: str) -> bool:
    """A file system in memory, if this machine and this user can."""
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted(disk, "size=300k"):
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk(mobench: Run, small_disk: Path, tmp_path: Path) -> None:
    """The job fails with the reason; what was finished stays; with space it goes on to the same rows."""
    kept = mobench(*QUICK, root=small_disk / "outputs").job
    before = {p.name: p.read_bytes() for p in kept.path.iterdir()}
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as f:
        while f.write(b"x" * 4096):
            pass
    other = ("algorithm=omd_tch", *QUICK[1:], "checkpoint.seconds=0")
    full = mobench(*other, root=small_disk / "outputs")
    full.refused("no space left on the device", "Finished results are not affected", code=1)
    assert {p.name: p.read_bytes() for p in kept.path.iterdir()} == before
    filler.unlink()
    done = mobench(*other, root=small_disk / "outputs")
    assert done.code == 0, done.err
    (folder,) = (f for f in done.folders if f.key != kept.key)
    same_rows(folder, mobench(*other, root=tmp_path / "elsewhere").job)


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_clock_that_jumps(mobench: Run, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Times come from a clock that nobody sets;
    the row of a job that lived through a jump is as any other.
    """
    calls = [0]
    clock = time.time

    def jumping() -> float:
        calls[0] += 1
        return clock() + (jump if calls[0] > 3 else 0.0)

    with monkeypatch.context() as patch:
        patch.setattr(time, "time", jumping)
        result = mobench(*QUICK, "checkpoint.seconds=0")
    assert result.code == 0, result.err
    meta = result.job.meta()
    assert 0 <= meta["seconds_train"] <= meta["seconds_wall"] < 60
    assert result.job.done


def test_read_only_folder(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    root.mkdir()
    if os.getuid() == 0:
        if not mounted(root, "ro"):
            pytest.skip("this machine mounts nothing, and root may write everywhere")
    else:
        root.chmod(0o500)
    try:
        result = shell(root, *QUICK, env={"HOME": str(tmp_path)})
    finally:
        if os.getuid() == 0:
            subprocess.run(["umount", str(root)], check=True)
    assert result.returncode == 1
    assert "Cannot write" in result.stderr
    assert "read-only" in result.stderr or "permission denied" in result.stderr
    assert "MOBENCH_OUTPUTS" in result.stderr
    assert "Traceback" not in result.stderr


def test_two_starts_of_one_job(mobench: Run) -> None:
    folder = mobench(*QUICK).job
    (folder.path / "final.csv").unlink()
    with JobFolder(folder.path).locked():
        mobench(*QUICK).refused("Another process is running this job", code=1)
    assert mobench(*QUICK).code == 0
