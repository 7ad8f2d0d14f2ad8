"""One job: skipped, run again, killed and resumed bit for bit; what fails, what diverges, what is written."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from mobench.algorithms.ls import LS
from mobench.cli import status
from mobench.config import compose
from mobench.core import loop
from mobench.core.output import WeightedSum
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from mobench.problems import VLMOP2
from mobench.system import provenance
from tests.conftest import Run

STEPS = 120
BASE = ("preferences=3", "seeds=[0,1]", f"steps={STEPS}", "checkpoint.seconds=0", "logger=local")
QUICK = ("algorithm=ls", "preferences=2", "steps=5", "logger=local")
TWO_PASS = (
    "algorithm=omd_tch",
    "algorithm.outputs=[mean,adaptive,last,adaptive_two_pass]",
    "record.evaluate=true",
)

When = Callable[[dict[str, Any], dict[str, Any]], bool]


class Killed(BaseException):
    """An exception that no handler expects: the process is gone."""


def first_pass(rules: dict[str, Any], state: dict[str, Any]) -> bool:
    return state["t"] > 40


def second_pass(rules: dict[str, Any], state: dict[str, Any]) -> bool:
    return state["t"] > 40 and any(isinstance(rule, WeightedSum) for rule in rules.values())


def last_chunk(rules: dict[str, Any], state: dict[str, Any]) -> bool:
    return state["t"] == STEPS


def die() -> None:
    raise Killed


def disturb(patch: pytest.MonkeyPatch, when: When, action: Callable[[], None]) -> None:
    """Do `action` once, after the first steps for which `when` holds and before their checkpoint."""
    original = loop.advance
    pending = [action]

    def advance(oracle: Any, algorithm: Any, rules: Any, *args: Any) -> Any:
        state = original(oracle, algorithm, rules, *args)
        if pending and when(rules, state):
            pending.pop()()
        return state

    patch.setattr(loop, "advance", advance)


@pytest.fixture
def resumed_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, bool]]]:
    """(step, second pass) of every checkpoint that was continued from."""
    seen: list[tuple[int, bool]] = []
    original = JobFolder.load_checkpoint

    def load(self: JobFolder, *place: str) -> Any:
        saved, messages = original(self, *place)
        if saved is not None:
            seen.append((saved["state"]["t"], saved["pass"] == 1))
        return saved, messages

    monkeypatch.setattr(JobFolder, "load_checkpoint", load)
    return seen


def killed(run: Run, monkeypatch: pytest.MonkeyPatch, when: When, *arguments: str) -> None:
    with monkeypatch.context() as patch:
        disturb(patch, when, die)
        with pytest.raises(Killed):
            run(*arguments)


def composed(*arguments: str) -> dict[str, Any]:
    """The plain configuration of a command line."""
    return compose.compose(arguments)


def same_rows(a: JobFolder, b: JobFolder) -> None:
    """All rows of both jobs, bit for bit, but for the seconds."""
    assert a.key == b.key
    for name in ("final", "history"):
        left = getattr(a, name)()
        right = getattr(b, name)()
        assert list(left) == list(right)
        for column in left:
            if column != "seconds":
                x = left[column].to_numpy()
                y = right[column].to_numpy()
                same = x.tobytes() == y.tobytes() if x.dtype.kind in "fiub" else (x == y).all()
                assert same, f"{name}.{column}"
    for rule, x in a.solutions().items():
        assert x.tobytes() == b.solutions()[rule].tobytes()


# killed and resumed

# the states of methods continue to the bit in tests/contract; here the job does, in either pass
CASES: dict[str, tuple[When, bool]] = {"first-pass": (first_pass, False), "second-pass": (second_pass, True)}


@pytest.mark.parametrize("name", CASES)
def test_killed_and_resumed_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch, resumed_at: list[tuple[int, bool]], tmp_path: Path, name: str
) -> None:
    when, second = CASES[name]
    config = composed(*TWO_PASS, *BASE)
    with monkeypatch.context() as patch:
        disturb(patch, when, die)
        with pytest.raises(Killed):
            run_job(config, tmp_path / "killed")
    assert resumed_at == []
    done = run_job(config, tmp_path / "killed")
    assert done.status == "done", done.error
    ((step, in_second),) = resumed_at
    assert 0 < step <= 80
    assert in_second is second
    assert not list(done.folder.glob("checkpoint*"))
    undisturbed = run_job(config, tmp_path / "undisturbed")
    same_rows(JobFolder(done.folder), JobFolder(undisturbed.folder))
    clock = JobFolder(done.folder).meta()["clock"]  # of both processes together
    assert clock[0][0] < step < clock[-1][0]
    assert clock == sorted(clock)


def recorded(rows: pd.DataFrame, name: str, kind: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(rows.filter(regex=f"^{name}_").to_numpy(copy=True)).to(kind)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_columns_that_follow_from_values_are_those_of_every_step(mobench: Run, kind: torch.dtype) -> None:
    """Columns of each step and of all steps at once agree bit for bit, in the type of the values."""
    job = ("algorithm=mgda", "preferences=3", "steps=9", f"dtype={kind}".replace("torch.", ""))
    done = mobench(*job, "logger=local").job
    rows = done.history()
    w = recorded(done.final(), "preference", kind).repeat(10, 1)
    assert (w * recorded(rows, "f", kind)).amax(1).double().tolist() == rows["tchebycheff"].tolist()
    assert list(rows)[-3:] == ["f_2", "tchebycheff", "direction_square"]


def test_the_violation_of_every_step_is_that_of_its_values(mobench: Run) -> None:
    job = ("problem=constrained_gaussian", "algorithm=csmoo2", "preferences=3", "steps=9", "logger=local")
    rows = mobench(*job).job.history()
    expected = recorded(rows, "g", torch.float64).amax(1).clamp_min(0.0)
    assert expected.tolist() == rows["violation"].tolist()


def test_killed_while_a_checkpoint_is_written(
    mobench: Run, monkeypatch: pytest.MonkeyPatch, resumed_at: list[tuple[int, bool]], tmp_path: Path
) -> None:
    seen = []

    def fsync(fd: int) -> None:
        if "checkpoint.pt" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            seen.append(fd)
            if len(seen) == 4:
                os.ftruncate(fd, 100)
                raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(Killed):
            mobench("algorithm=omd_tch", *BASE)
    (folder,) = (tmp_path / "outputs/runs").iterdir()
    assert not (folder / "checkpoint.pt").exists()  # only the previous one
    (folder / ".checkpoint.pt.99999.tmp").write_bytes(b"half")
    done = mobench("algorithm=omd_tch", *BASE)
    assert len(resumed_at) == 1
    assert not list(folder.glob(".*.tmp"))
    same_rows(done.job, mobench("algorithm=omd_tch", *BASE, root=tmp_path / "undisturbed").job)


# stopped by signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals(mobench: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    handlers = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        disturb(patch, first_pass, lambda: os.kill(os.getpid(), number))
        result = mobench("-m", "algorithm=omd_tch,ls", "checkpoint.seconds=30", *BASE[:3], "logger=local")
    result.refused("Stopped at step", f"of {STEPS}. Repeat the command to resume from there", code=130)
    folder = result.job  # the second job did not start
    assert (folder.path / "checkpoint.pt").exists()
    assert folder.status()["status"] == "running"
    assert 40 < folder.status()["step"] < STEPS
    assert signal.getsignal(signal.SIGINT) is handlers
    done = mobench("algorithm=omd_tch", *BASE)
    same_rows(done.job, mobench("algorithm=omd_tch", *BASE, root=tmp_path / "undisturbed").job)


def test_signal_in_the_last_steps_stops_a_sweep_after_the_job(
    mobench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        disturb(patch, last_chunk, lambda: os.kill(os.getpid(), signal.SIGTERM))
        result = mobench("-m", "algorithm=ls,mgda", *BASE)
    result.refused("Stopped", "had just finished and is complete", code=130)
    assert result.job.done


def test_second_signal_does_not_wait(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        disturb(patch, first_pass, twice)
        result = mobench("algorithm=ls", *BASE)
    result.refused("Stopped.", "Repeat the command to resume", code=130)
    assert mobench("algorithm=ls", *BASE).job.done


# skipped, run again


def test_finished_job_is_not_run_again(mobench: Run) -> None:
    first = mobench(*QUICK)
    final = first.job.path / "final.csv"
    before = {p.name: p.stat().st_mtime_ns for p in first.job.path.iterdir()}
    again = mobench(*QUICK)
    assert again.code == 0
    assert again.out.startswith("already finished (rerun=true reruns it)\n")
    assert again.out.removeprefix("already finished (rerun=true reruns it)\n") == first.out
    assert {p.name: p.stat().st_mtime_ns for p in again.job.path.iterdir()} == before
    fresh = mobench(*QUICK, "rerun=true")
    assert "already finished" not in fresh.out
    assert final.stat().st_mtime_ns != before["final.csv"]
    same = [c for c in first.rows if c != "seconds"]
    pd.testing.assert_frame_equal(fresh.rows[same], again.rows[same], check_exact=True)


def test_rerun_does_not_continue_a_checkpoint(
    mobench: Run, monkeypatch: pytest.MonkeyPatch, resumed_at: list[tuple[int, bool]]
) -> None:
    killed(mobench, monkeypatch, first_pass, "algorithm=ls", *BASE)
    assert mobench("algorithm=ls", *BASE, "rerun=true").code == 0
    assert resumed_at == []


def test_same_preferences_said_differently_are_one_job(mobench: Run) -> None:
    first = mobench(*QUICK, "preferences=4")
    again = mobench(*QUICK[:1], *QUICK[2:], "preferences.rays_deg=[9,33,57,81]")
    assert again.out.startswith("already finished")
    weights = first.rows[["preference_1", "preference_2"]].round(15).to_numpy().tolist()
    third = mobench(*QUICK[:1], *QUICK[2:], f"preferences.weights={weights}".replace(" ", ""))
    assert third.out.startswith("already finished")


def test_what_is_not_part_of_a_job(mobench: Run) -> None:
    result = mobench("-m", *QUICK, "scale=smoke,paper", "progress=true,false", "logger.project=a,b")
    assert result.out.startswith("1 job")
    again = mobench(
        *QUICK, "hardware.threads=2", "checkpoint.seconds=1", "data_root=elsewhere", "logger=auto"
    )
    assert again.out.startswith("already finished")


def test_what_is_part_of_a_job(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = mobench("-m", *QUICK[:2], "steps=2,3", "seeds=[0],[1]", "dtype=float64,float32", QUICK[3])
    assert result.out.startswith("8 jobs")
    assert len(result.folders) == 8
    again = mobench("-m", *QUICK[:2], "steps=2", QUICK[3])
    assert again.out.startswith("1 job, 1 already finished")
    monkeypatch.setattr(LS, "version", LS.version + 1)
    raised = mobench("-m", *QUICK[:2], "steps=2", QUICK[3])
    assert raised.out.startswith("1 job, 0 already finished")


# failures and divergence


def test_a_failed_solve_ends_its_run_alone(mobench: Run, plug_in: str) -> None:
    arguments = (plug_in, "algorithm=stubborn", "preferences=2", "record.every=1", "logger=local")
    result = mobench(*arguments, "steps=20")
    assert result.code == 1
    for words in (
        "1 of 2 runs ended with a failed subproblem solve (run 1 at step 3, worst residual 1.25e-01)",
        "no step or substitute is taken",
        "marked solver_failed",
        "max_failure_share=0.0",
    ):
        assert words in result.err
    assert "cvxpy" not in result.err  # this method has no such solver
    assert "solver_failed: 1 of 2 runs (run 1)" in result.out
    assert "1 failed, worst relative KKT residual 1.2e-01" in result.out
    assert "1 of 1" in result.out  # finished runs of a preference
    assert "0 of 1" in result.out
    status = result.job.status()
    assert status["status"] == "done"
    assert status["solver_failed"] == 1
    assert status["error"] in result.err
    unsolved = [{"run": 1, "step": 3, "residual": 0.125, "no_solution": False}]
    assert result.job.meta()["unsolved"] == unsolved
    assert result.rows["status"].tolist() == ["done", "solver_failed"]
    assert result.rows["solver_failures"].tolist() == [0, 1]

    # the run that failed is where it was before step 3, its neighbour where it is without it
    values = ["f_1", "f_2"]
    whole = mobench(*arguments, "steps=20", "algorithm.fails_at=-1", root=result.root / "whole")
    short = mobench(*arguments, "steps=3", root=result.root / "short")
    assert whole.code == short.code == 0
    assert result.rows.loc[0, values].equals(whole.rows.loc[0, values])
    assert result.rows.loc[1, values].equals(short.rows.loc[1, values])
    paths = result.job.history()
    other = whole.job.history()
    assert paths[paths["run"] == 0].equals(other[other["run"] == 0])
    rest = paths[(paths["run"] == 1) & (paths["step"] >= 3)]
    assert len(rest) == 18
    assert len(rest[values].drop_duplicates()) == 1
    assert np.array_equal(result.job.solutions()["last"][0], whole.job.solutions()["last"][0])


def test_a_job_with_failed_solves_is_complete_and_never_silent(mobench: Run, plug_in: str) -> None:
    arguments = (plug_in, "algorithm=stubborn", "preferences=2", "steps=20", "logger=local")
    result = mobench(*arguments)
    written = result.job.status()["time"]
    again = mobench(*arguments)  # the same solve would fail again: not run, but said
    assert again.code == 1
    assert "already finished" in again.out
    assert "run 1 at step 3" in again.err
    assert again.job.status()["time"] == written
    sweep = mobench("-m", *arguments, "seeds=[0]")
    assert sweep.out.startswith("1 job, 1 already finished, 0 to run")
    assert sweep.code == 1
    assert "run 1 at step 3" in sweep.err
    repeated = mobench(*arguments, "rerun=true")
    assert repeated.code == 1
    assert repeated.job.status()["time"] > written
    # a share of the runs
    short = mobench(*arguments, "max_failure_share=0.49", root=result.root / "short")
    assert short.code == 1
    allowed = mobench(*arguments, "max_failure_share=0.5", root=result.root / "allowed")
    assert allowed.code == 0
    assert allowed.err == ""
    assert "solver_failed: 1 of 2 runs (run 1)" in allowed.out
    assert allowed.job.status()["solver_failed"] == 1
    assert "error" not in allowed.job.status()
    assert allowed.rows["status"].tolist() == ["done", "solver_failed"]
    assert allowed.rows.drop(columns="seconds").equals(result.rows.drop(columns="seconds"))


def test_an_artifact_says_each_time_which_of_its_runs_have_no_answer(mobench: Run) -> None:
    """FERERO's hard starts with exact multipliers: drawn from the finished runs, with exit code 1."""
    settings = ("algorithm.subproblem=exact", "steps=20", "seeds=[0]")
    for unchanged in (False, True):
        result = mobench("+experiment=ferero/fig4", *settings, "logger=local")
        assert result.code == 1
        assert "ferero/fig4 f: 2 of 4 runs ended with a failed subproblem solve" in result.err
        assert "2 of these subproblems were proved to have no solution" in result.err
        assert "set algorithm.subproblem=cvxpy" in result.err
        assert ("unchanged since" in result.out) == unchanged
    (origin,) = result.root.glob("other_settings/ferero/fig4+*/provenance.json")
    drawn = json.loads(origin.read_text())
    folder = JobFolder(result.root / "runs" / drawn["jobs"]["f"])
    assert [u["no_solution"] for u in folder.meta()["unsolved"]] == [True, True]
    seen = status.look(folder)
    assert seen.state == "unsolved"
    assert "2 of 4 runs ended with a failed solve" in seen.words


def test_error_in_a_method_is_its_jobs_failure(mobench: Run, plug_in: str) -> None:
    result = mobench(plug_in, "algorithm=broken", "preferences=2", "logger=local")
    place = ("mobench_plugin_of_the_tests.py:", "in Broken.weights", str(result.job.path))
    result.refused("KeyError: 'lost'", *place, code=1)
    assert 'raise KeyError("lost")' in result.job.status()["traceback"]


@pytest.mark.parametrize("algorithm", ["ls", "mgda", "epo", "pmtl", "omd_tch"])
def test_nan_objective_is_that_rows_end(mobench: Run, plug_in: str, algorithm: str) -> None:
    """A row that is not finite is `diverged`, a final answer: the job is done and neighbours agree."""
    method = (f"algorithm={algorithm}", "algorithm.step_size=0.15")
    arguments = (plug_in, "problem=hole", *method, "preferences=3", "logger=local")
    result = mobench(*arguments, "problem.edge=0.28")
    assert result.code == 0, result.err
    rows = result.rows
    bad = result.rows["status"] == "diverged"
    assert 0 < bad.sum() < len(rows) or algorithm == "mgda", rows
    assert rows.loc[bad, ["f_1", "f_2"]].isna().all(axis=None)
    assert rows.loc[~bad, ["f_1", "f_2"]].notna().all(axis=None)
    assert (rows.loc[~bad, "status"] == "done").all()
    assert result.job.status()["status"] == "done"
    assert result.job.status()["diverged"] == bad.sum()
    if bad.any():
        assert f"diverged: {bad.sum()} of 3 runs (run {', '.join(map(str, rows['run'][bad]))})" in result.out
        again = mobench(*arguments, "problem.edge=0.28")
        assert again.out.startswith("already finished")  # final: not run again
    whole = mobench(*arguments, "problem.edge=-100", root=result.root / "whole")
    assert (whole.rows["status"] == "done").all()
    columns = ["f_1", "f_2", "angle_deg", "stationarity"]
    assert (whole.rows.loc[~bad, columns].to_numpy() == rows.loc[~bad, columns].to_numpy()).all()


# what is written


def test_job_folder(mobench: Run) -> None:
    method = ("algorithm=omd_tch", "algorithm.outputs=[last,mean]")
    folder = mobench(*method, *BASE[:2], "steps=12", "record.every=5", "logger=local").job
    assert re.fullmatch(r"vlmop2-omdtch-[0-9a-f]{10}", folder.key)
    names = {".lock", "config.yaml", "status.json", "meta.json"}
    assert {p.name for p in folder.path.iterdir()} == names | {
        "final.csv",
        "solutions.npz",
        "history.parquet",
    }
    head = ["run", "seed", "output", "preference_1", "preference_2", "ray_1", "ray_2", "f_1", "f_2"]
    final = folder.final()
    assert list(final)[:9] == head
    assert list(final)[-4:] == ["seconds", "solver_failures", "kkt_residual_max", "status"]
    assert final["run"].tolist() == [*range(6)] * 2
    assert final["seed"].tolist() == [0, 1] * 6
    np.testing.assert_allclose(final["ray_1"] * final["preference_1"], final["ray_2"] * final["preference_2"])

    history = folder.history()
    assert list(history)[:4] == ["run", "step", "seed", "output"]
    assert sorted(set(history["step"])) == [0, 5, 10, 12]
    ends = history[history["step"] == 12]
    last = final[final["output"] == "last"]
    assert (ends[["f_1", "f_2"]].to_numpy() == last[["f_1", "f_2"]].to_numpy()).all()

    x = torch.from_numpy(folder.solutions()["mean"])
    from mobench.problems import VLMOP2

    assert (VLMOP2().values(x).numpy() == final[final["output"] == "mean"][["f_1", "f_2"]].to_numpy()).all()

    status = folder.status()
    assert (status["status"], status["step"], status["steps"], status["diverged"]) == ("done", 12, 12, 0)
    assert status["finished"] >= status["started"]
    meta = folder.meta()
    assert {"git_sha", "git_dirty", "versions", "device", "date", "execution", "peak_memory_mib"} <= set(meta)
    assert meta["seconds_wall"] >= meta["seconds_train"] > 0
    assert meta["execution"].startswith("one batch of 6 runs on cpu")
    assert meta["identity"]["versions"] == {"problem": 1, "oracle": 1, "algorithm": 1}
    config = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert (config["steps"], config["seeds"], config["preferences"]["count"]) == (12, [0, 1], 3)


def test_objectives_are_training_also_where_the_record_asks_for_them_first(
    mobench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = VLMOP2.values

    def slow(self: VLMOP2, *arguments: Any) -> torch.Tensor:
        time.sleep(0.1)
        return values(self, *arguments)

    monkeypatch.setattr(VLMOP2, "values", slow)
    # then values are computed when they are requested
    monkeypatch.setattr(VLMOP2, "linearize", lambda *arguments: None)
    result = mobench("problem=vlmop2", "algorithm=ls", "steps=10", "record.every=1", "logger=local")
    meta = json.loads((result.job.path / "meta.json").read_text())
    assert meta["seconds_train"] >= 10 * 0.1
    # steps of more than a tenth of a second: each recorded one has its time, and time passes between them
    steps, seconds = zip(*meta["clock"], strict=True)
    assert steps == tuple(range(11))
    assert all(later - earlier >= 0.09 for earlier, later in itertools.pairwise(seconds[:-1]))
    assert seconds[-1] == pytest.approx(meta["seconds_train"], abs=1e-3)


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
        result = mobench(*QUICK, "steps=20", "checkpoint.seconds=0")
    assert result.code == 0, result.err
    meta = result.job.meta()
    assert 0 <= meta["seconds_train"] <= meta["seconds_wall"] < 60
    assert result.job.done


def test_provenance_does_not_lock_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is killed while git refreshes the index would leave a lock that refuses later commits."""
    provenance.code()  # cached for all other tests, from the real repository
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("mobench.system.provenance.subprocess.run", run)
    provenance.describe()
    assert any("describe" in command for command in commands)
    assert all(command[:2] == ["git", "--no-optional-locks"] for command in commands)
