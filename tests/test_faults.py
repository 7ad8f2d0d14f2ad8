"""Broken things that a person meets: truncated files, a clock that jumps."""

from __future__ import annotations

import time

import pytest

from tests.conftest import Run

QUICK = ("algorithm=ls", "preferences=2", "seeds=[0]", "steps=20", "logger=local")


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


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_clock_that_jumps(mobench: Run, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Times come from a clock that nobody sets; a job's row after a jump is as any other."""
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
