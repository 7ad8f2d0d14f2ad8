"""The needs of a test are marked, and nothing else of a machine decides which tests run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import conftest


@pytest.mark.data("mnist", "rf1")
def test_a_test_marked_data_sees_them(data_folder: Path) -> None:
    assert os.environ["MOBENCH_DATA"] == str(data_folder) == str(Path(conftest.DATA).resolve())
    assert (data_folder / "MNIST").is_dir()
