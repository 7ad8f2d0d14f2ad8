"""A sweep on a real Slurm, one node, started and stopped here (`make faults` runs 24 disturbed jobs)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.faults import disturb_slurm, slurm
from mobench.jobs.store import JobFolder
from tests.conftest import REPOSITORY, environment
from tests.test_docs import TUTORIAL, commands, expanded, place

__all__ = ["place"]  # a fixture

JOBS = (
    "algorithm=ferero,pmtl",
    "seeds=[0],[1]",
    "preferences=3",
    "steps=10000",  # long enough to be disturbed on a fast machine
    "checkpoint.seconds=0.2",
    "logger=local",
    "progress=false",
)


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands find it."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs hydra-submitit-launcher")
    with tempfile.TemporaryDirectory(prefix="mobench-slurm-") as base:  # short: it holds sockets
        try:
            with slurm(Path(base)) as env:
                yield env
        except RuntimeError as reason:
            pytest.skip(f"no Slurm: {reason}")


@pytest.mark.timeout(400)
def test_killed_and_preempted_jobs_end_with_the_same_rows(tmp_path: Path, cluster: dict[str, str]) -> None:
    tally = disturb_slurm(JOBS, tmp_path, cluster, kills=1, preemptions=2)
    assert tally.faults == []
    assert (tally.kills, tally.jobs) == (3, 4)
    log = (tmp_path / "sweep.log").read_text()
    assert log.startswith("4 jobs, 0 already finished, 4 to run")
    assert "1 of 4 jobs lost their worker" in log
    assert tally.requeued >= 2


@pytest.mark.timeout(300)
def test_the_tutorial_on_slurm(place: Path, tmp_path: Path, cluster: dict[str, str]) -> None:
    (words,) = [w for w, _ in commands(TUTORIAL) if "hardware=slurm" in w]
    env = environment(
        tmp_path / "outputs", PYTHONPATH=os.pathsep.join([str(place / "mine" / "code"), str(REPOSITORY)])
    )
    done = subprocess.run(
        [sys.executable, "-m", "mobench", *expanded(words, place)],
        cwd=place,
        env=env | cluster,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folders = [JobFolder(path) for path in (tmp_path / "outputs" / "runs").iterdir()]
    assert {f.key.rpartition("-")[0] for f in folders} == {"valley-heavyball", "vlmop2-heavyball"}
    assert all((f.final()["status"] == "done").all() for f in folders)
