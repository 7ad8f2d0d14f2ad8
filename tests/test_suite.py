"""The tests themselves: what they need of a machine is marked,
and nothing else of it decides which of them run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

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


def test_reasons_say_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(data: Path | str) -> str:
        monkeypatch.setattr(conftest, "DATA", str(data))
        conftest.looked_for.cache_clear()
        return conftest.why_not(("rf1", "speech_small")) or ""

    try:
        assert (
            why("")
            == "needs official files (rf1, speech_small): set MOBENCH_DATA to the folder that holds them"
        )
        assert f"MOBENCH_DATA={tmp_path / 'none'} is no folder" in why(tmp_path / "none")
        assert "no rf1.arff in" in why(tmp_path)
        assert "no speech/english_digits.npz and 1 more in" in why(tmp_path)
        (tmp_path / "rf1.arff").touch()
        assert "no rf1.arff" not in why(tmp_path)
        assert "no speech/english_digits.npz and 1 more in" in why(tmp_path)
    finally:
        conftest.looked_for.cache_clear()


class Item:
    """As much of a collected test as the hook asks for."""

    nodeid = "tests/test_x.py::test_y"

    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self.own = [decorator.mark for decorator in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.own if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)

    def add_marker(self, decorator: pytest.MarkDecorator) -> None:
        self.own.append(decorator.mark)


def test_the_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marked test is skipped, with the reason, where one of its data sets is not; others never are."""

    def skipped(data: str, *marks: pytest.MarkDecorator) -> str | None:
        monkeypatch.setattr(conftest, "DATA", data)
        conftest.looked_for.cache_clear()
        item: Any = Item(*marks)
        conftest.pytest_collection_modifyitems([item])
        found = item.get_closest_marker("skip")
        return None if found is None else str(found.kwargs["reason"])

    (tmp_path / "rf1.arff").touch()
    data = pytest.mark.data
    try:
        for folder in ("", str(tmp_path)):
            assert skipped(folder) is None
        assert (
            skipped("", data("rf1"))
            == "needs official files (rf1): set MOBENCH_DATA to the folder that holds them"
        )
        assert skipped(str(tmp_path), data("rf1")) is None
        assert "speech_small needs it" in str(skipped(str(tmp_path), data("rf1", "speech_small")))
        assert "speech_small needs it" in str(skipped(str(tmp_path), data("speech_small"), data("rf1")))
        with pytest.raises(
            pytest.UsageError, match=r"test_x\.py::test_y: @pytest\.mark\.data names the data sets"
        ):
            skipped("", data)
    finally:
        conftest.looked_for.cache_clear()


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
