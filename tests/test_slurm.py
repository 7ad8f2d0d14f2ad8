"""A sweep on a real Slurm, one node, started and stopped here;
`make faults` runs 24 jobs with 18 disturbances.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.faults import disturb_slurm, slurm

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
    assert "1 job lost their worker" in log
    assert tally.requeued >= 2
