"""W&B as a view: what is logged are the numbers of the rows, and a failure costs no row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mobench.jobs import wandb_log
from mobench.jobs.store import JobFolder
from tests.conftest import Run

QUICK = ("algorithm=ls", "preferences=2", "steps=3")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (f"logger.tags=[ok,{70 * 't'}]", "is 70 characters"),
        ("logger.tags=['']", "is empty"),
        ("logger.project=a/b", "cannot contain characters"),
        (f"logger.project={130 * 'p'}", "exceeded 128 characters"),
        ("logger.project='a:b'", "cannot contain characters"),
    ],
)
def test_settings_that_wandb_refuses_are_refused_before_the_job(
    mobench: Run, setting: str, reason: str
) -> None:
    result = mobench(*QUICK, "logger=wandb", setting)
    result.refused("W&B refuses the settings of the logger", reason, "Change logger.tags", code=2)
    assert result.folders == []
    assert mobench(*QUICK, "logger=local", setting).code == 0


class Seen:
    """A run that stores its arguments."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.summary: dict[str, Any] = {}
        self.logged: list[dict[str, Any]] = []

    def define_metric(self, *names: str, **_: str) -> None: ...

    def log(self, row: dict[str, Any]) -> None:
        self.logged.append(row)

    def finish(self) -> None: ...


@pytest.mark.filterwarnings("ignore")  # what W&B's own modules warn about when they are imported
def test_what_is_logged(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run for each job and one for the artifact, with the numbers of the rows."""
    import wandb

    begun: list[Seen] = []
    monkeypatch.setattr(wandb, "init", lambda **options: begun.append(Seen(**options)) or begun[-1])
    result = mobench("+experiment=ferero/fig7", "scale=smoke", "steps=20", "logger=wandb")
    assert (result.code, result.err) == (0, "")
    runs = {run.options["id"]: run for run in begun}
    (drawn,) = result.root.glob("other_settings/ferero/fig7+steps=20-*")  # steps is a setting of its own
    keys = json.loads((drawn / "provenance.json").read_text())["jobs"]
    assert set(runs) == {*keys.values(), "artifact-ferero-fig7-smoke"}
    for key in keys.values():
        options = runs[key].options
        assert (options["name"], options["group"], options["job_type"]) == (key, "ferero/fig7", "FERERO")
        assert (options["project"], options["mode"]) == ("mobench", "offline")
        assert options["config"]["steps"] == 20
        history = pd.read_parquet(result.root / "runs" / key / "history.parquet")
        curves = [row for row in runs[key].logged if "f_1" in row]
        assert [row["step"] for row in curves] == history["step"].tolist() == list(range(21))
        for name in ("f_1", "equality_violation"):
            assert [row[name] for row in curves] == history[name].tolist()
        final = pd.read_csv(result.root / "runs" / key / "final.csv")
        assert math.isclose(runs[key].summary["mean/f_2"], final["f_2"].mean(), rel_tol=1e-15)
        assert (runs[key].summary["runs"], runs[key].summary["runs_done"]) == (1, 1)
        assert len(runs[key].logged[-1]["final"].data) == len(final)
    report = runs["artifact-ferero-fig7-smoke"]
    assert (report.options["group"], report.options["job_type"]) == ("ferero/fig7", "artifact")
    assert report.summary["verdict/undecided with other settings"] >= 1
    assert set(report.logged[0]) >= {"figure", "claims"}


def test_auto_without_a_key_is_one_line(mobench: Run) -> None:
    result = mobench("-m", "algorithm=ls,tch", *QUICK[1:], "logger=auto")
    assert result.code == 0
    assert result.err.count("\n") == 1
    assert result.err.startswith(
        "W&B is off because no API key is configured (logger=wandb logs offline; logger=local"
    )
    assert not (result.root / "wandb").exists()


@pytest.mark.filterwarnings("ignore")  # what W&B's own modules warn about when they are imported
def test_finished_jobs_are_logged_without_training(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of a sweep, then one of them."""
    import wandb

    begun: list[Seen] = []
    monkeypatch.setattr(wandb, "init", lambda **_: begun.append(Seen()) or begun[-1])
    sweep = ("-m", "algorithm=ls,mgda", *QUICK[1:])
    done = mobench(*sweep, "logger=local")
    assert (done.code, begun) == (0, [])
    rows = {path: path.stat().st_mtime_ns for path in done.root.glob("runs/*/final.csv")}
    for words, logged in ((sweep, 2), (QUICK, 3)):
        assert mobench(*words, "logger=wandb", "logger.finished=true").code == 0
        assert len(begun) == logged
    assert all(run.logged and run.summary["runs_done"] == 2 for run in begun)
    assert rows == {path: path.stat().st_mtime_ns for path in done.root.glob("runs/*/final.csv")}


@pytest.mark.parametrize(
    ("name", "key", "set_mode", "expected"),
    [
        ("local", True, None, None),
        ("auto", False, None, None),
        ("auto", True, None, "online"),
        ("auto", True, "offline", "offline"),
        ("wandb", False, None, "offline"),
        ("wandb", True, None, "online"),
    ],
)
def test_mode(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    key: bool,
    set_mode: str | None,
    expected: str | None,
) -> None:
    for variable in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    if key:
        (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password " + "x" * 40 + "\n")
        (tmp_path / ".netrc").chmod(0o600)
    if set_mode:
        monkeypatch.setenv("WANDB_MODE", set_mode)
    assert wandb_log.has_key() is key
    assert wandb_log.mode({"logger": {"name": name}}) == expected


@pytest.mark.filterwarnings("ignore")  # what W&B's own modules warn about when they are imported
@pytest.mark.parametrize("where", ["init", "log"])
def test_failure_of_wandb_leaves_the_job_done(
    mobench: Run, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    import wandb

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            raise wandb.Error("the server is on fire")

    def init(**_: Any) -> Any:
        if where == "init":
            raise wandb.Error("the server is on fire")
        return Refusing()

    monkeypatch.setattr(wandb, "init", init)
    result = mobench("+experiment=ferero/fig7", "scale=smoke", "steps=3", "logger=wandb")
    assert result.code == 0
    assert [job.done for job in result.folders] == [True, True]
    assert list(result.root.glob("other_settings/ferero/fig7+steps=3-*/claims.json"))
    lines = result.err.splitlines()
    assert len(lines) == 3  # two jobs and the artifact
    for line in lines:
        assert line.startswith("warning: W&B could not log ")
        assert line.endswith(": the server is on fire. The rows on disk are complete.")


@pytest.mark.parametrize("value", ["onlien", "0123456789abcdef0123456789abcdef01234567"])
def test_unknown_mode_is_refused_before_the_job(
    mobench: Run, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """W&B itself says so only when the job is done; the value is not shown, because it may be a key."""
    monkeypatch.setattr(wandb_log, "has_key", lambda: True)
    real = wandb_log.os.environ.get
    monkeypatch.setattr(
        wandb_log.os.environ, "get", lambda k, d=None: value if k == "WANDB_MODE" else real(k, d)
    )
    result = mobench("algorithm=ls", "preferences=2", "steps=3", "logger=auto")
    result.refused("WANDB_MODE must be one of online, offline", code=2)
    assert value not in result.out + result.err
    assert result.folders == []


@pytest.mark.filterwarnings("ignore")  # what W&B's own modules warn about when they are imported
def test_no_number_of_a_lost_run_reaches_a_curve_or_the_summary(
    mobench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    seen = Seen()

    def lost(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.copy()
        rows.loc[rows["run"] == 0, "f_1"] = math.inf
        rows.loc[rows["run"] == 0, "f_2"] = math.nan
        if "status" in rows:
            rows.loc[rows["run"] == 0, "status"] = "diverged"
        return rows

    whole = JobFolder.final, JobFolder.history
    monkeypatch.setattr(wandb, "init", lambda **_: seen)
    monkeypatch.setattr(JobFolder, "final", lambda self: lost(whole[0](self)))
    monkeypatch.setattr(JobFolder, "history", lambda self: lost(whole[1](self)))
    result = mobench(*QUICK, "record.every=1", "logger=wandb")
    assert (result.code, result.err) == (0, "")
    numbers = [v for row in [*seen.logged, seen.summary] for v in row.values() if isinstance(v, int | float)]
    assert len(numbers) > 20
    assert all(map(math.isfinite, numbers))
    assert (seen.summary["runs"], seen.summary["runs_done"]) == (2, 1)
