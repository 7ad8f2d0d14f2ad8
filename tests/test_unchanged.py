"""An artifact is run and drawn again exactly where something that decides about it has changed."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from mobench.artifacts import freshness
from mobench.system import paths
from tests.conftest import Run

TABLE = ("+experiment=ferero/fig7", "scale=smoke", "logger=local")


def drawn_again(mobench: Run, *overrides: str) -> bool:
    result = mobench(*TABLE, *overrides)
    assert result.code == 0, result.err
    assert ("unchanged since" in result.out) != (" jobs, " in result.out)
    return " jobs, " in result.out


def test_what_makes_it_anew(mobench: Run, tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "artifacts" / "ferero" / "fig7"
    assert drawn_again(mobench)
    assert not drawn_again(mobench)
    assert not drawn_again(mobench, "progress=false")  # says nothing about what comes out
    for name in ("figure.png", "claims.json", "provenance.json"):
        (folder / name).unlink()
        assert drawn_again(mobench), name
        assert not drawn_again(mobench), name
    (folder / "figure.png").write_bytes((folder / "figure.png").read_bytes()[:-1])
    assert drawn_again(mobench)
    assert not (folder / "figure.pdf").exists()
    assert drawn_again(mobench, "artifact.pdf=true")
    assert not drawn_again(mobench, "artifact.pdf=true")
    (folder / "figure.pdf").unlink()
    assert drawn_again(mobench, "artifact.pdf=true")
    assert drawn_again(mobench, "rerun=true")
    assert drawn_again(mobench, "rerun=true")
    assert not (folder / "figure.pdf").exists()  # no older picture lies beside the new one
    assert drawn_again(mobench, "seeds=[7]")  # the same folder, other jobs
    assert drawn_again(mobench)
    origin = json.loads((folder / "provenance.json").read_text())
    (job, *_) = origin["jobs"].values()
    rows = tmp_path / "outputs" / "runs" / job / "final.csv"
    os.utime(rows, ns=(1, 1))
    assert drawn_again(mobench)
    for damage in (
        {"inputs": None},
        {"inputs": {**origin["inputs"], "code": "0"}},
        {"jobs": ["not contain a mapping"]},
    ):
        (folder / "provenance.json").write_text(json.dumps({**origin, **damage}))
        assert drawn_again(mobench), damage
    assert not drawn_again(mobench)
    (folder / "claims.json").write_text("[{")
    assert drawn_again(mobench)
    # its rows are still there, but it failed when it was run again
    status = rows.with_name("status.json")
    status.write_text(json.dumps({**json.loads(status.read_text()), "status": "failed"}))
    assert drawn_again(mobench)
    shutil.rmtree(rows.parent)
    assert drawn_again(mobench)


def test_several_at_once_and_only_what_changed(mobench: Run, tmp_path: Path) -> None:
    both = ("+experiment=ferero/fig1,ferero/fig7", "scale=smoke", "logger=local")
    assert mobench(*both).code == 0
    (tmp_path / "outputs/artifacts/ferero/fig7/figure.png").unlink()
    again = mobench(*both)
    assert again.out.startswith("2 jobs, 2 already finished, 0 to run")
    assert "ferero/fig1: 1 check passed; " in again.out
    assert again.out.count("unchanged since") == 1


def test_code_is_all_that_can_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the project: each kind of file counts, a paper's drawing only for that paper."""
    package = tmp_path / "mobench"
    experiments = tmp_path / "experiments"
    shutil.copytree(paths.experiments(), experiments, ignore=shutil.ignore_patterns("results", "__pycache__"))
    shutil.copytree(
        paths.package(), package, ignore=shutil.ignore_patterns("__pycache__", "experiments", "conf")
    )
    shutil.copytree(freshness.conf_dir(), tmp_path / "conf")
    monkeypatch.setattr(freshness, "package", lambda: package)
    monkeypatch.setattr(freshness, "experiments", lambda: experiments)
    monkeypatch.setattr(freshness, "conf_dir", lambda: tmp_path / "conf")

    def hashes() -> tuple[str, str]:
        freshness._library.cache_clear()
        freshness.code.cache_clear()
        return freshness.code("ferero"), freshness.code("csmoo")

    def after(path: Path) -> tuple[bool, bool]:
        before = hashes()
        path.write_text(path.read_text() + "\n")
        now = hashes()
        return before[0] != now[0], before[1] != now[1]

    assert hashes() == hashes()
    assert after(package / "metrics" / "hypervolume.py") == (True, True)
    assert after(tmp_path / "conf" / "algorithm" / "epo.yaml") == (True, True)
    assert after(experiments / "ferero" / "published" / "table1.csv") == (True, False)
    assert after(experiments / "csmoo" / "published" / "fig33.csv") == (False, True)
    assert after(experiments / "csmoo" / "claims.yaml") == (False, True)
    assert after(experiments / "ferero" / "properties.py") == (True, False)
    assert after(package / "artifacts" / "checks.py") == (True, True)
    assert after(experiments / "ferero" / "images.py") == (True, False)
    assert after(experiments / "csmoo" / "beamforming.py") == (False, True)
    assert after(package / "report" / "pages.py") == (False, False)  # it shows, and draws nothing
    (experiments / "other.py").write_text("")
    assert hashes() == hashes()
    freshness._library.cache_clear()
    freshness.code.cache_clear()


def test_no_paper_imports_another() -> None:
    """Only files of its own package make a paper's artifacts be drawn again."""
    for path in paths.experiments().rglob("*.py"):
        assert not re.search(r"^\s*from (\.\.|experiments\b)", path.read_text(), re.MULTILINE), path
