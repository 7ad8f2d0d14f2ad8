"""The papers' names come from experiments/<paper>/paper.yaml."""

from pathlib import Path

import pytest

from mobench.errors import ConfigError
from mobench.report import papers as module
from mobench.system import paths


def test_every_paper_with_experiments_is_named_and_has_its_own_place() -> None:
    folders = {path.name for path in (paths.beside("conf") / "experiment").iterdir() if path.is_dir()}
    known = module.papers()
    assert set(known) == folders
    assert [info.position for info in known.values()] == list(range(1, len(known) + 1))


@pytest.mark.parametrize("text", ["short: X", "short: X\ntitle: Y\nposition: first", "- X", ""])
def test_a_file_that_is_not_complete_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/paper.yaml").write_text(text)
    monkeypatch.setattr(paths, "experiments", lambda: tmp_path)
    with pytest.raises(ConfigError, match=r"mine/paper.yaml needs the entries"):
        module.papers.__wrapped__()


def test_a_paper_without_a_file_comes_last_under_its_id() -> None:
    assert module.paper_info("nobody").short == "nobody"
    assert module.paper_info("nobody").position > max(info.position for info in module.papers().values())
