"""The fault campaign at small size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY, environment


def test_kills(tmp_path: Path) -> None:
    """Six kinds of jobs are killed once each, at fixed moments; `make faults` kills all kinds 200 times."""
    line = [sys.executable, "-m", "campaigns.faults", "--only", "jobs", "--kills", "6", "--each", "1"]
    env = environment(tmp_path / "outputs")
    done = subprocess.run(
        [*line, "--seed", "0"],
        cwd=REPOSITORY,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; 6 of 6\n" in done.stdout
    assert "- fault" not in done.stdout
