"""The tests themselves: what they need of a machine is marked,
and nothing else of it decides which of them run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from mobench.config.schema import conf_dir
from tests import conftest
from tests.conftest import REPOSITORY


def test_a_test_sees_no_data(data_folder: Path) -> None:
    assert list(data_folder.iterdir()) == []
    assert os.environ["MOBENCH_DATA"] == str(data_folder)
    assert OmegaConf.load(conf_dir() / "config.yaml").data_root == str(data_folder)
    # wherever pytest was started
    assert [name for name in os.environ if name.startswith(("WANDB_", "SLURM_", "HYDRA_"))] == []
    assert "MOBENCH_OUTPUTS" not in os.environ


@pytest.mark.parametrize("turn", ["first", "second"])
def test_a_variable_is_gone_with_its_test(turn: str) -> None:
    """As W&B's are, which are set for its processes when a run is logged."""
    assert "WANDB_SILENT" not in os.environ, turn
    os.environ["WANDB_SILENT"] = "true"
    os.environ["MOBENCH_DATA"] = "elsewhere"


@pytest.mark.data("mnist", "rf1")
def test_a_test_marked_data_sees_them(data_folder: Path) -> None:
    assert os.environ["MOBENCH_DATA"] == str(data_folder) == str(Path(conftest.DATA).resolve())
    assert (data_folder / "MNIST").is_dir()


def test_no_test_finds_data_on_its_own() -> None:
    """A test that looks for official files itself would run, or not, unseen;
    one that names a place works only there.
    """
    reads = re.compile(
        r"""(environ(\.get\(|\[)|getenv\()\s*["']MOBENCH_DATA["']|["']MOBENCH_DATA["'] (not )?in os"""
    )
    places = re.compile(r"\.\./shared")
    sources = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    assert len(sources) > 50
    for path in sources:
        if path.name != Path(__file__).name:
            text = path.read_text(encoding="utf-8")
            assert not reads.search(text), f"{path.name}: use @pytest.mark.data and the fixture data_folder"
            assert not places.search(text), path.name
