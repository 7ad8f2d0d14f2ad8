"""Rows that come with the project are written by `mobench keep` and found, not touched, by `mobench`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mobench.cli import keep as kept_rows
from mobench.errors import StoreError
from mobench.sweep.planner import Planner, Use
from mobench.system.paths import results_root
from tests.conftest import Run

QUICK = ("problem=zdt1", "algorithm=ls", "preferences=2", "steps=5", "seeds=[0]", "logger=local")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for experiments/results."""
    root = tmp_path / "results"
    for module in ("mobench.jobs.outcome", "mobench.cli.keep", "mobench.artifacts.freshness"):
        monkeypatch.setattr(f"{module}.results_root", lambda: root)
    return root


def stamps(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}


def test_kept_rows_are_found_and_left_alone(mobench: Run, results: Path, tmp_path: Path) -> None:
    first = mobench(*QUICK)
    assert first.code == 0, first.err
    kept_rows.keep(first.job, results)
    folder = results / "runs" / first.job.key
    before = stamps(folder)
    assert set(before) == {"config.yaml", "final.csv", "meta.json", "solutions.npz", "status.json"}
    assert (folder / "final.csv").read_bytes() == (first.job.path / "final.csv").read_bytes()
    assert not {"host", "pid"} & set(json.loads((folder / "status.json").read_text()))

    elsewhere = tmp_path / "elsewhere"
    again = mobench(*QUICK, root=elsewhere)
    assert again.code == 0, again.err
    assert again.out == f"already finished (rerun=true reruns it)\n{first.out}".replace(
        str(first.job.path), str(folder)
    )
    assert again.folders == []
    assert stamps(folder) == before

    fresh = mobench(*QUICK, "rerun=true", root=elsewhere)  # rows of its own; those kept stay as they are
    assert fresh.code == 0
    assert fresh.job.key == first.job.key
    assert stamps(folder) == before
    repeated = mobench(*QUICK, root=elsewhere)  # own rows win
    assert "already finished" in repeated.out
    assert str(folder) not in repeated.out

    other = mobench(*QUICK, "steps=6", root=tmp_path / "other")  # another job
    assert "already finished" not in other.out


def test_jobs_of_an_artifact_that_is_not_complete(
    mobench: Run, results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of the named jobs are kept, or none: a name without finished rows is an error."""
    first = mobench(*QUICK)
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(first.root))
    assert kept_rows.keep_jobs([first.job.key, "zdt1-ls-nothing"]) == 1
    assert "zdt1-ls-nothing cannot be kept" in capsys.readouterr().err
    assert not results.exists()
    monkeypatch.setattr(sys, "argv", ["keep", "--jobs", f"outputs/runs/{first.job.key}"])
    assert kept_rows.main(sys.argv[1:]) == 0
    assert (results / "runs" / first.job.key / "final.csv").exists()
    assert not (results / "artifacts.yaml").exists()
    hint = f"mobench keep --jobs {first.job.key} --history"  # its artifact may need what stays behind
    out = capsys.readouterr().out
    assert "without its history" in out
    assert hint in out
    assert kept_rows.main(hint.split()[2:]) == 0
    assert "without its history" not in capsys.readouterr().out
    assert (results / "runs" / first.job.key / "history.parquet").exists()


def test_overrides_with_brackets_are_noted(tmp_path: Path) -> None:
    command = "mobench +experiment=omd_tch/table2 scale=paper 'artifact.only=[m2_*]' 'seeds=[0]' logger=local"
    kept_rows.note("omd_tch/table2", command, tmp_path)
    kept_rows.note("csmoo/fig38", "mobench +experiment=csmoo/fig38 scale=paper artifact.pdf=True", tmp_path)
    of_a_machine = "data_root=/home/me hardware=gpu rerun=True checkpoint.every=60 hydra.verbose=true"
    kept_rows.note("ferero/fig5", f"mobench +experiment=ferero/fig5 scale=paper {of_a_machine}", tmp_path)
    assert kept_rows.drawings(tmp_path) == {
        "csmoo/fig38": ["scale=paper"],
        "ferero/fig5": ["scale=paper"],
        "omd_tch/table2": ["scale=paper", "artifact.only=[m2_*]", "seeds=[0]"],
    }


def test_history_on_request_and_no_large_solutions(
    mobench: Run, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = mobench(*QUICK).job
    kept_rows.keep(job, results, history=True)
    folder = results / "runs" / job.key
    assert (folder / "history.parquet").read_bytes() == (job.path / "history.parquet").read_bytes()
    assert (folder / "solutions.npz").exists()
    monkeypatch.setattr(kept_rows, "LARGEST", 10)
    kept_rows.keep(job, results / "again")
    assert not {"history.parquet", "solutions.npz"} & {
        p.name for p in (results / "again" / "runs" / job.key).iterdir()
    }


def test_folders_of_data_stay_behind(
    mobench: Run, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = mobench(
        "protocol=federated", "algorithm=ls", "scale=smoke", f"data_root={tmp_path}", "logger=local"
    ).job
    assert str(tmp_path) in (job.path / "config.yaml").read_text()
    kept_rows.keep(job, results, history=True)
    for path in (results / "runs" / job.key).glob("*.*[ln]"):
        assert str(tmp_path) not in path.read_text()


def test_kept_rows_are_drawn_without_training(
    mobench: Run,
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Keeping notes the overrides; --draw uses them, and refuses where rows are missing."""
    drawn = mobench("+experiment=ferero/fig7", "steps=3", "logger=local")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(drawn.root))
    (made,) = (drawn.root / "other_settings/ferero").iterdir()
    origin = drawn.root / "other_settings/ferero" / made.name / "provenance.json"
    provenance = json.loads(origin.read_text())
    name = next(iter(provenance["jobs"]))
    changed = provenance | {
        "jobs": provenance["jobs"] | {name: "vlmop2-ferero-0123456789"}
    }  # as after an edit
    origin.write_text(json.dumps(changed))
    assert kept_rows.main([f"ferero/{made.name}"]) == 1
    assert f"settings or code have changed since ({name})" in capsys.readouterr().err
    assert not results.exists()
    origin.write_text(json.dumps(provenance))
    assert kept_rows.main(["ferero/fig7"]) == 1
    assert f"With other settings it was drawn as ferero/{made.name}: name that" in capsys.readouterr().err
    (unfinished, *finished) = provenance["jobs"].values()
    there = drawn.root / "runs" / unfinished
    there.rename(tmp_path / "aside")
    capsys.readouterr()
    assert kept_rows.main([f"ferero/{made.name}", "--history"]) == 1  # what is finished is kept
    assert f"{unfinished} is not finished in" in capsys.readouterr().err
    assert [path.name for path in (results / "runs").iterdir()] == finished
    (tmp_path / "aside").rename(there)
    monkeypatch.setattr(sys, "argv", ["keep", f"ferero/{made.name}", "--history"])
    assert kept_rows.main(sys.argv[1:]) == 0
    assert kept_rows.drawings() == {"ferero/fig7": ["steps=3"]}
    shutil.rmtree(there)  # kept, and gone from here: nothing is missing
    capsys.readouterr()
    assert kept_rows.main(sys.argv[1:]) == 0
    assert f"{unfinished} is already kept; skipped" in capsys.readouterr().out
    empty = tmp_path / "empty"
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(empty))
    monkeypatch.setattr(sys, "argv", ["keep", "--draw"])
    assert kept_rows.main(sys.argv[1:]) == 0
    made = empty / "kept/artifacts/ferero/fig7"
    assert (made / "figure.png").exists()
    assert not (empty / "runs").exists()
    drawn_at = (made / "figure.png").stat().st_mtime_ns
    capsys.readouterr()
    assert kept_rows.main(sys.argv[1:]) == 0
    assert "unchanged since" in capsys.readouterr().out
    assert (made / "figure.png").stat().st_mtime_ns == drawn_at
    assert not (made / "figure.pdf").exists()
    assert kept_rows.main(["--draw", "--pdf"]) == 0
    assert (made / "figure.pdf").exists()
    with pytest.raises(SystemExit):
        kept_rows.main(["ferero/fig7", "--pdf"])
    assert "--pdf is an option of --draw" in capsys.readouterr().err
    shutil.rmtree(next((results / "runs").iterdir()))
    capsys.readouterr()
    assert kept_rows.main(sys.argv[1:]) == 1
    assert "ferero/fig7 cannot be drawn from kept rows" in capsys.readouterr().err
    assert not (empty / "runs").exists()
    monkeypatch.setattr(sys, "argv", ["keep", "--draw", "ferero/fig3"])
    assert kept_rows.main(sys.argv[1:]) == 2
    assert "No rows are kept for ferero/fig3" in capsys.readouterr().err


def test_kept_times_of_a_processor_are_not_those_of_a_gpu(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact that compares times is drawn from kept rows on a CPU; on a GPU it is timed there."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    planner.use = Use.NOWHERE
    command = ["+experiment=ferero/table11", "scale=paper", "data=mnist"]
    for hardware, timed in (("cpu", False), ("gpu", True)):
        jobs = planner.plan([*command, f"hardware={hardware}"]).jobs
        assert {job.config["rerun"] for job in jobs} == {timed}, hardware


def test_rows_of_the_project_come_from_committed_code() -> None:
    """Otherwise nobody could run again what made them."""
    every = sorted((results_root() / "runs").glob("*/meta.json"))
    assert every
    unclear = [
        path.parent.name for path in every if json.loads(path.read_text()).get("git_dirty") is not False
    ]
    assert unclear == []
    root = Path(__file__).parents[1]

    def git(*arguments: str, lines: str = "") -> str:
        done = subprocess.run(["git", *arguments], input=lines, cwd=root, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    if git("rev-parse", "--is-shallow-repository").strip() != "false":
        return  # the files alone, or a part of their history
    said = [str(json.loads(path.read_text())["git_sha"]) for path in every]
    shas = sorted({sha for one in said for sha in one.split(" and ")})  # of rows that were joined: all
    objects = git("cat-file", "--batch-check", lines="\n".join(shas)).splitlines()
    assert len(objects) == len(shas)
    assert [line for line in objects if " commit " not in line] == []


def test_a_kept_history_stays_with_its_rows(mobench: Run, results: Path) -> None:
    """Rows that are kept again without it once lay beside the history of other rows."""
    done = mobench(*QUICK, "record.every=1")
    kept_rows.keep(done.job, results, history=True)
    before = stamps(results / "runs" / done.job.key)
    with pytest.raises(StoreError, match="was kept with its history; add --history"):
        kept_rows.keep(done.job, results)
    assert stamps(results / "runs" / done.job.key) == before


@pytest.mark.parametrize("name", ["config.yaml", "meta.json", "history.parquet"])
def test_a_job_without_a_file_is_not_kept(
    name: str,
    mobench: Run,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = mobench(*QUICK, "record.every=1")
    (done.job.path / name).unlink()
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(done.root))
    monkeypatch.setattr(sys, "argv", ["keep", "--jobs", done.job.key, "--history"])
    assert kept_rows.main(sys.argv[1:]) == 1
    assert f"cannot be kept: it has no {name}" in capsys.readouterr().err
    assert not (results / "runs" / done.job.key).exists()
