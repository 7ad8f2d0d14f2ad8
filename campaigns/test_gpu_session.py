"""`make gpu`: parts with time limits, that can be stopped and continued; a rehearsal of the quick ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from campaigns import gpu_session
from campaigns.gpu_session import Part, Session, main
from mobench.config.schema import choices

WORK = """
import signal, sys, time
from pathlib import Path
place = Path(sys.argv[1])
def stop(*_):
    place.write_text("checkpoint")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
print("at work", flush=True)
if not place.exists():
    place.touch()
    time.sleep(30)
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(Session, "command", lambda self, part: [sys.executable, *part.command])
    return Session(tmp_path, tmp_path / "data", rehearse=False)


def part(*command: str, needs: tuple[str, ...] = ()) -> Part:
    return Part("some", "a part", 1.0, command, command, needs)


def test_a_part_is_stopped_at_its_limit_and_continued(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "place"
    work = part("-c", WORK, str(place))
    assert session.run(work, 2.0) == "stopped"
    assert place.read_text() == "checkpoint", "SIGTERM, so that a job saves one"
    assert session.run(work, 20.0) == "done"
    assert (tmp_path / "some.log").read_text() == "at work\n" * 2
    assert session.run(work, 20.0) == "done"
    assert (tmp_path / "some.log").read_text() == "at work\n" * 2, "what is done is not repeated"


def test_another_commit_begins_anew(session: Session, tmp_path: Path) -> None:
    work = part("-c", "print('at work')")
    assert session.run(work, 20.0) == "done"
    session.version = {"git_sha": "another"}
    assert session.run(work, 20.0) == "done"
    assert (tmp_path / "some.log").read_text() == "at work\n" * 2


def test_a_failure_is_shown(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.run(part("-c", "raise SystemExit('what went wrong')"), 20.0) == "failed"
    assert "what went wrong" in capsys.readouterr().out


def test_a_part_without_its_data_is_skipped(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.run(part("-c", "1 / 0", needs=("MNIST", "cifar10")), 20.0) == "skipped"
    assert "contains no MNIST and no cifar10" in capsys.readouterr().out


def test_commands_name_what_there_is(tmp_path: Path) -> None:
    names = {f"{folder.name}/{id}" for folder in _experiments() for id in _ids(folder)}
    for work in gpu_session.parts(tmp_path):
        for command in (work.command, work.rehearsal):
            ids = [word for word in command if word.startswith("+experiment=")]
            assert set(",".join(ids).removeprefix("+experiment=").split(",")) - {""} <= names
            data = [word.removeprefix("data=") for word in command if word.startswith("data=")]
            assert set(data) <= set(choices("data"))


def _experiments() -> list[Path]:
    from mobench.config.schema import conf_dir

    return [folder for folder in (conf_dir() / "experiment").iterdir() if folder.is_dir()]


def _ids(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.yaml")]


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["everything"])
    assert "no part is called everything; choose from tests, benchmark" in capsys.readouterr().err


def test_no_time_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    assert main(["tests", "--minutes", "0"]) == 1


def test_the_benchmark_runs_to_its_end_on_a_pretended_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    assert main(["--rehearse", "benchmark"]) == 0, capsys.readouterr().out
    results = json.loads((tmp_path / "gpu" / "benchmark.json").read_text())
    assert all("error" not in case for case in results["cases"].values())
    page = (tmp_path / "gpu" / "performance_gpu.md").read_text()
    assert "its numbers mean nothing" in page
    assert page.count("\n| ") == 2 + len(results["cases"])
