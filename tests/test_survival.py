"""Runs that survive signals and dying workers under every launcher; GPU slots, cores, `mobench status`."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from hashlib import sha256
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import MissingConfigException

from campaigns.faults import LAUNCHERS
from mobench.cli import status
from mobench.config.schema import conf_dir
from mobench.jobs import checkpoints, store, train
from mobench.jobs import run as runner
from mobench.jobs.build import make_job
from mobench.jobs.store import JobFolder
from mobench.sweep import launch, launchers
from mobench.sweep.plan import Planned
from mobench.system import gpu_lock, provenance, signals, workers
from tests.conftest import Run, shell
from tests.test_runner import (
    BASE,
    STEPS,
    TWO_PASS,
    Killed,
    composed,
    die,
    disturb,
    first_pass,
    killed,
    last_chunk,
    resumed_at,
    same_rows,
    second_pass,
)

__all__ = ["resumed_at"]  # a fixture

QUICK = ("preferences=2", "seeds=[0]", f"steps={STEPS}", "checkpoint.seconds=0", "logger=local")


# signals


@pytest.mark.parametrize("number", signals.SAVE)
def test_usr_saves_and_goes_on(mobench: Run, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    saved = []
    save = JobFolder.save_checkpoint
    monkeypatch.setattr(
        JobFolder, "save_checkpoint", lambda self, p: (saved.append(p["state"]["t"]), save(self, p))
    )
    with monkeypatch.context() as patch:
        disturb(patch, first_pass, lambda: os.kill(os.getpid(), number))
        result = mobench("algorithm=omd_tch", *BASE[:3], "checkpoint.seconds=1000", "logger=local")
    assert result.code == 0, result.err
    assert result.job.done
    (step,) = saved
    assert 40 < step < STEPS


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_foreign_handler_decides_after_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """USR2 ends the process after it is back in the queue, TERM is passed over, as submitit does it."""
    seen = []

    def requeue(got: int, frame: FrameType | None) -> None:
        (folder,) = (tmp_path / "outputs/runs").iterdir()
        seen.append((got, (folder / "checkpoint.pt").exists()))
        if got == signal.SIGUSR2:
            sys.exit(-1)

    before = signal.signal(number, requeue)
    try:
        config = composed("algorithm=omd_tch", *BASE[:3], "checkpoint.seconds=1000", "logger=local")
        with monkeypatch.context() as patch:
            disturb(patch, first_pass, lambda: os.kill(os.getpid(), number))
            if number == signal.SIGUSR2:
                with pytest.raises(SystemExit):
                    runner.run_job(config, tmp_path / "outputs")
            else:
                assert runner.run_job(config, tmp_path / "outputs").status == "done"
        assert seen == [(number, True)]
        assert signal.getsignal(number) is requeue
    finally:
        signal.signal(number, before)
    done = runner.run_job(config, tmp_path / "outputs")
    same_rows(JobFolder(done.folder), JobFolder(runner.run_job(config, tmp_path / "undisturbed").folder))


def test_a_job_that_has_ended_is_not_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A signal in the last steps: the foreign handler, which would requeue the job, is not called."""
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    try:
        with monkeypatch.context() as patch:
            disturb(patch, last_chunk, lambda: os.kill(os.getpid(), signal.SIGUSR2))
            done = runner.run_job(composed("algorithm=ls", *QUICK), tmp_path)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert done.status == "done"
    assert seen == []


def test_rerun_goes_on_when_it_is_put_back(
    monkeypatch: pytest.MonkeyPatch, resumed_at: list[tuple[int, bool]], tmp_path: Path
) -> None:
    """rerun=true is about rows from before the sweep, not about those of a relaunched worker."""
    config = composed("algorithm=omd_tch", *QUICK, "rerun=true")
    first = runner.run_job(config, tmp_path)
    old = (first.folder / "final.csv").read_bytes()
    monkeypatch.setenv(workers.SINCE, str(time.time()))
    with monkeypatch.context() as patch:
        disturb(patch, first_pass, die)
        with pytest.raises(Killed):
            runner.run_job(config, tmp_path)
    assert resumed_at == []  # from before the sweep
    assert not runner.run_job(config, tmp_path).skipped
    assert len(resumed_at) == 1
    assert (first.folder / "final.csv").read_bytes() != old
    assert runner.run_job(config, tmp_path).skipped
    monkeypatch.setenv(workers.SINCE, str(time.time()))
    assert not runner.run_job(config, tmp_path).skipped


def test_stop_is_not_lost_when_the_job_fails(
    mobench: Run, plug_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_and_fail() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError("by itself")

    with monkeypatch.context() as patch:
        disturb(patch, first_pass, stop_and_fail)
        result = mobench("-m", "algorithm=ls,mgda", *QUICK)
    result.refused("Stopped", "had just failed: ValueError: by itself", code=130)
    assert result.job.status()["status"] == "failed"  # the second job did not start


# checkpoints that a job cannot continue from

TWICE = (*TWO_PASS, "preferences=2", "seeds=[0,1]", f"steps={STEPS}", "checkpoint.seconds=0", "logger=local")
Change = Callable[[dict[str, Any]], Any]


class Custom:
    """An object of a class, which no checkpoint may hold."""


def put(value: Any, *path: str) -> Change:
    """Sets one value of a checkpoint, or removes it where it is None."""

    def change(saved: dict[str, Any]) -> dict[str, Any]:
        node = saved
        for name in path[:-1]:
            node = node[name]
        node[path[-1]] = value
        if value is None:
            del node[path[-1]]
        return saved

    return change


NEW = ("format", "key", "form", "processes")  # absent from checkpoints of older versions
UNFIT: dict[str, tuple[Change, str]] = {
    "a list": (lambda saved: [saved], "holds list"),
    "an object": (lambda saved: saved | {"seconds": Custom()}, "something else than tensors"),
    "of older versions": (
        lambda saved: {k: saved[k] for k in saved.keys() - NEW},
        "format none; this one has 3",
    ),
    "of a newer version": (put(4, "format"), "format 4; this one has 3"),
    "no key": (put(None, "key"), "belongs to NoneType"),
    "key of another job": (put("zdt1-ls-0123456789", "key"), "belongs to zdt1-ls-0123456789"),
    "no state": (put(None, "state"), "differs in state"),
    "a key too many": (put(1, "gamma"), "differs in gamma"),
    "theta in float32": (put("float32 of shape (4, 20)", "form", "theta"), "theta is float32"),
    "a method's value too many": (put("float64 of shape (4,)", "form", "alg.extra"), "the job's absent"),
    "theta of more runs": (
        put("float64 of shape (5, 20)", "form", "theta"),
        "theta is float64 of shape (5, 20), and the job's float64 of shape (4, 20)",
    ),
    "a value too few": (put(None, "form", "alive"), "alive is absent, and the job's bool of shape (4,)"),
}


def test_a_checkpoint_has_the_form_of_its_job(halfway: dict[str, Path]) -> None:
    """The form names dtype and shape of each value of the state, which another version may have changed."""
    form = store._unpacked(halfway["job"] / "checkpoint.pt")["form"]
    assert form["theta"] == "float64 of shape (4, 20)"
    assert form["alive"] == "bool of shape (4,)"
    assert any(name.startswith("out.adaptive_two_pass.") for name in form)


def _whole(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def _packed_anew(path: Path, data: bytes) -> None:
    path.write_bytes(store._MAGIC + sha256(data).digest() + data)


UNSOUND: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a byte fewer": (lambda path: _whole(path, path.read_bytes()[:-1]), "is corrupt"),
    "empty": (lambda path: _whole(path, b""), "is corrupt"),
    "other bytes": (lambda path: _whole(path, path.read_bytes()[:-50] + b"!" * 50), "is corrupt"),
    "rubbish with its digest": (lambda path: _packed_anew(path, b"rubbish"), "something else than tensors"),
    "a pickle": (lambda path: _packed_anew(path, pickle.dumps({"state": 1})), ""),
}


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of a job that was killed in its second pass, and that of the same job undisturbed."""
    root = tmp_path_factory.mktemp("halfway")
    with pytest.MonkeyPatch.context() as patch:
        disturb(patch, second_pass, die)
        with pytest.raises(Killed):
            runner.run_job(composed(*TWICE), root / "killed")
    (killed_one,) = (root / "killed" / "runs").iterdir()
    undisturbed = runner.run_job(composed(*TWICE), root / "undisturbed").folder
    return {"job": killed_one, "undisturbed": undisturbed}


def goes_on(
    halfway: dict[str, Path],
    root: Path,
    damage: Callable[[Path], Any],
    both: bool,
    seen: list[tuple[int, bool]],
) -> list[str]:
    """Runs the job again with damaged checkpoints; returns the lines that it says."""
    folder = root / "runs" / halfway["job"].name
    shutil.copytree(halfway["job"], folder)
    names = ["checkpoint.pt", "checkpoint.prev.pt"][: 2 if both else 1]
    for name in names:
        damage(folder / name)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        done = runner.run_job(composed(*TWICE), root)
    assert done.status == "done", done.error
    same_rows(JobFolder(folder), JobFolder(halfway["undisturbed"]))
    assert len(seen) == (0 if both else 1)  # the previous one, or anew
    assert not list(folder.glob("checkpoint*"))
    lines = said.getvalue().splitlines()
    assert len(lines) == len(names), lines
    for line, name in zip(lines, names, strict=True):
        assert line.startswith(f"warning: {folder / name} ")
        assert line.endswith("; it is ignored.")
        assert len(line) < 400
    return lines


@pytest.fixture(scope="module")
def fits(halfway: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], None]:
    """The check of a checkpoint before a job continues from it."""
    job = make_job(composed(*TWICE)).on("cpu")
    training = train._begun(job, JobFolder(tmp_path_factory.mktemp("fits")), "", anew=True)
    return functools.partial(checkpoints.check, training=training)


def previous(halfway: dict[str, Path], root: Path, damage: Callable[[Path], Any], fits: Any) -> str:
    """Loads the checkpoints of the killed job, the newer of which is damaged; returns what is said of it."""
    folder = shutil.copytree(halfway["job"], root / "job")
    damage(folder / "checkpoint.pt")
    saved, (line,) = JobFolder(folder).load_checkpoint(fits)
    assert saved is not None
    assert saved["state"]["t"] == store._unpacked(folder / "checkpoint.prev.pt")["state"]["t"]
    assert line.startswith(f"{folder / 'checkpoint.pt'} ")
    assert line.endswith("; it is ignored.")
    assert len(line) < 400
    return line


@pytest.mark.parametrize("name", [*UNFIT, *UNSOUND])
def test_a_checkpoint_that_does_not_fit_or_cannot_be_read_is_named_and_ignored(
    halfway: dict[str, Path], fits: Any, tmp_path: Path, name: str
) -> None:
    """Its digest is wrong; or right, but it is another job's, another version's, or of another form."""
    change, words = (UNFIT | UNSOUND)[name]

    def unfit(path: Path) -> None:
        path.write_bytes(store._packed(change(store._unpacked(path))))  # type: ignore[arg-type]

    assert words in previous(halfway, tmp_path, unfit if name in UNFIT else change, fits)  # type: ignore[arg-type]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", ["other bytes", "no permission"])
def test_a_job_goes_on_from_the_other_checkpoint_or_begins_anew(
    halfway: dict[str, Path],
    tmp_path: Path,
    resumed_at: list[tuple[int, bool]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    both: bool,
) -> None:
    refused: list[Path] = []
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path in refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    damage = refused.append if name == "no permission" else UNSOUND[name][0]
    for line in goes_on(halfway, tmp_path, damage, both, resumed_at):
        assert name != "no permission" or "cannot be read (Permission denied)" in line


# code that changes between two processes of a job


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"git_sha": "b" * 40}, f"commit {'a' * 10} instead of {'b' * 10}"),
        ({"versions": {"torch": "2.9", "numba": "0.6"}}, "numba unknown instead of 0.6"),
        ({"files": "1"}, "files of mobench that were edited since"),
        ({"device": "CPU B"}, ""),
        ({}, ""),
    ],
)
def test_provenance_names_the_code_of_all_processes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    words: str,
) -> None:
    first = {"git_sha": "a" * 40, "git_dirty": False, "files": "0", "versions": {"torch": "2.9"}}
    first["device"] = "CPU A"
    config = composed("algorithm=ls", *QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "this_process", lambda device: first)
        disturb(patch, first_pass, die)
        with pytest.raises(Killed):
            runner.run_job(config, tmp_path)
    second = first | changed
    monkeypatch.setattr(provenance, "this_process", lambda device: second)
    done = runner.run_job(config, tmp_path)
    meta = JobFolder(done.folder).meta()
    lines = [line for line in capsys.readouterr().err.splitlines() if "were computed with" in line]
    assert len(lines) == bool(words)
    assert all(words in line for line in lines)
    several = bool(changed)
    assert ("processes" in meta) is several
    if several:
        one, two = meta["processes"]
        step = one["steps"][1]
        assert 0 < step < STEPS
        assert (one, two) == (first | {"steps": [0, step]}, second | {"steps": [step, STEPS]})
    both = [first, second] if "git_sha" in changed else [first]
    assert meta["git_sha"] == " and ".join(one["git_sha"] for one in both)


# workers that die

TARGETS = {
    "basic": "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "joblib": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
}

WORKER = '''
"""A method that kills its process once, in the middle."""

import os
import pathlib
import signal
from dataclasses import dataclass

import torch

from mobench.core.algorithm import Info, Weighting


@dataclass(frozen=True, kw_only=True)
class Victim(Weighting):
    """The process that first comes to step `at` is killed."""

    once: str = ""
    at: int = 60

    def weights(self, F, G, state, t):
        mark = pathlib.Path(self.once)
        if t == self.at and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full_like(F, 0.5), state, Info()
'''


@pytest.fixture
def victim(tmp_path: Path) -> dict[str, str]:
    """The environment in which workers find the method."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/mobench_victim.py").write_text(WORKER)
    folder = tmp_path / "conf/algorithm"
    folder.mkdir(parents=True)
    (folder / "victim.yaml").write_text(
        f"_target_: mobench_victim.Victim\nstep_size: 0.05\nonce: {tmp_path / 'killed'}\n"
    )
    return {"PYTHONPATH": str(tmp_path / "code"), "SEARCH": f"hydra.searchpath=[file://{tmp_path / 'conf'}]"}


def test_killed_worker_costs_nothing(
    tmp_path: Path, victim: dict[str, str], mobench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two jobs is killed by the system: the sweep launches it again from its checkpoint."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="launcher is not installed")
    root = tmp_path / "outputs"
    command = (victim["SEARCH"], "-m", "algorithm=victim,ls", *QUICK)
    done = shell(root, *command, *LAUNCHERS["joblib"], env=victim, timeout=200)
    assert (tmp_path / "killed").exists()
    assert done.returncode == 0, done.stderr
    assert "lost their worker" in done.stdout
    folders = [JobFolder(p) for p in sorted((root / "runs").iterdir())]
    assert [f.done for f in folders] == [True] * 2
    monkeypatch.syspath_prepend(victim["PYTHONPATH"])
    alone = mobench(*command, root=tmp_path / "alone")
    monkeypatch.delitem(sys.modules, "mobench_victim")
    assert alone.code == 0, alone.err
    for folder in folders:
        same_rows(folder, JobFolder(tmp_path / "alone/runs" / folder.key))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "code", "conf", "killed", "outputs"]


@pytest.mark.parametrize(
    ("launcher", "error", "words", "sizes"),
    [
        ("joblib", OSError("no processes left"), "the launcher failed (OSError: no processes left)", [2]),
        # launched again, where one worker takes the others along the last time alone, then given up
        ("joblib", BrokenExecutor("gone"), "its worker died (BrokenExecutor: gone)", [2, 1, 1]),
        ("submitit_local", BrokenExecutor("gone"), "its worker died (BrokenExecutor: gone)", [2, 2]),
    ],
)
def test_only_jobs_of_dead_workers_are_launched_again_and_not_for_ever(
    mobench: Run,
    monkeypatch: pytest.MonkeyPatch,
    launcher: str,
    error: Exception,
    words: str,
    sizes: list[int],
) -> None:
    pytest.importorskip(TARGETS[launcher].rpartition(".")[0], reason="launcher is not installed")
    for options in ((), ("rerun=true",)):  # rows from before the sweep are no answer to rerun=true
        mobench("-m", "algorithm=ls,mgda", *QUICK, *options)
    calls: list[int] = []

    def broken(self: Any, jobs: Any) -> Any:
        calls.append(len(jobs))
        raise error

    adapter = launchers.ADAPTERS.get(TARGETS[launcher], launchers.Adapter)
    monkeypatch.setattr(adapter, "launch", broken)
    options = (*LAUNCHERS[launcher], "rerun=true", "hardware.retries=1")
    result = mobench("-m", "algorithm=ls,mgda", *QUICK, *options)
    assert result.code == 1
    assert "2 of 2 jobs failed" in result.out
    assert result.err.count(words) == 2
    assert calls == sizes


def test_retries_are_each_jobs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that may not be launched again is not, whatever another one of the sweep may."""
    sizes: list[int] = []

    def lost(jobs: list[Any], adapter: Any) -> list[Any]:
        sizes.append(len(jobs))
        return [launch.Lost(job.folder.key, "failed", Path()) for job in jobs]

    monkeypatch.setattr(launch, "_launched", lost)
    jobs: Any = [
        SimpleNamespace(folder=SimpleNamespace(key=f"{n}", status=dict), config={"hardware": {"retries": n}})
        for n in (0, 2, 0, 1)
    ]
    outcomes = launch._until_answered(jobs, SimpleNamespace(pooled=True), lambda _: None)
    assert {outcome.key for outcome in outcomes} == {"0", "1", "2"}
    assert sizes == [4, 1, 1, 1]  # together; the rest, and alone who may not again; the last one alone


@pytest.mark.parametrize(
    ("answer", "lost", "words"),
    [
        (BrokenExecutor("gone"), True, "its worker died (BrokenExecutor: gone)"),
        (RuntimeError("Job 7 has not produced any output"), False, "the launcher failed"),
        ("Stopped at step 3", False, "Stopped at step 3"),
        ("Job not requeued because: timed-out too many times.", False, "timed-out too many times"),
        (
            ("UncompletedJobError", "Job 3 has not produced any output (state: CANCELLED by 1000)"),
            False,
            "(state: CANCELLED by 1000)",
        ),
        (
            ("FailedJobError", "sbatch: fatal: Could not establish a configuration source"),
            False,
            "the launcher failed (FailedJobError: sbatch: fatal: Could not",
        ),
    ],
)
def test_answers_of_workers(tmp_path: Path, answer: Any, lost: bool, words: str) -> None:
    if isinstance(answer, tuple):  # one of submitit's errors
        submitit = pytest.importorskip("submitit", reason="needs submitit")
        answer = getattr(submitit.core.utils, answer[0])(answer[1])
    folder = JobFolder(tmp_path / "job")
    job = Planned([], {"rerun": False}, folder)
    began = time.time()
    outcome = launch.outcome(answer, job, began)
    assert (isinstance(outcome, launch.Lost), outcome.status) == (lost, "failed")
    assert words in str(outcome.error)
    # whatever the answer: the folder knows
    folder.write_status("failed", error="its own reason")
    assert launch.outcome(answer, job, began).error == "its own reason"
    folder.write_status("done")
    (folder.path / "final.csv").write_text("run\n0\n")
    assert launch.outcome(answer, job, began).status == "done"
    assert launch.outcome(answer, Planned([], {"rerun": True}, folder), time.time() + 1).status == "failed"


# GPU slots, with names for devices


def _hold(root: Path, ids: list[str], each: int, out: Any, go: Path) -> None:
    gpu_lock.WAIT = 0.02
    with gpu_lock.take(ids, each, root=root) as number:
        out.put((number, os.getpid()))
        while not go.exists():
            time.sleep(0.02)


def test_every_job_has_its_own_gpu(tmp_path: Path) -> None:
    devices = each = 2
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    go = tmp_path / "go"
    ids = [f"gpu-{k}" for k in range(devices)]
    jobs = [
        context.Process(target=_hold, args=(tmp_path, ids, each, out, go)) for _ in range(devices * each + 1)
    ]
    for job in jobs[:devices]:
        job.start()
    first = [out.get(timeout=30) for _ in range(devices)]
    # a GPU gets no second job while another is free
    assert sorted(n for n, _ in first) == list(range(devices))
    for job in jobs[devices:]:
        job.start()
    rest = [out.get(timeout=30) for _ in range(devices * (each - 1))]
    assert sorted(n for n, _ in rest) == list(range(devices)) * (each - 1)
    time.sleep(0.2)
    assert out.empty()  # the last one waits
    number, pid = first[1]
    os.kill(pid, signal.SIGKILL)  # however a job ends, its GPU is free
    assert out.get(timeout=30)[0] == number
    go.touch()
    for job in jobs:
        job.join(30)
    assert sorted(job.exitcode or 0 for job in jobs) == sorted([-signal.SIGKILL] + [0] * (len(jobs) - 1))


def test_device_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda` becomes a free number, all else stays, a given number is locked too; Slurm has chosen itself."""
    monkeypatch.setattr(gpu_lock, "folder", lambda: tmp_path)
    monkeypatch.setattr(gpu_lock, "visible", lambda: ["x", "y"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with gpu_lock.device("cuda") as a, gpu_lock.device("cuda") as b, gpu_lock.device("cpu") as c:
        assert (a, b, c) == ("cuda:0", "cuda:1", "cpu")
    with gpu_lock.device("cuda:0") as a, gpu_lock.device("cuda") as b:
        assert (a, b) == ("cuda:0", "cuda:1")
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # an allocation of two, shared by the jobs of a sweep inside
    with gpu_lock.device("cuda") as a, gpu_lock.device("cuda") as b:
        assert (a, b) == ("cuda:0", "cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with gpu_lock.device("cuda") as a, gpu_lock.device("cuda") as b:
        assert (a, b) == ("cuda", "cuda")


def test_the_choice_of_a_gpu_is_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a job that is run again would insist on that one."""

    @contextlib.contextmanager
    def available(*_: Any) -> Iterator[str]:
        yield "cpu"

    monkeypatch.setattr(gpu_lock, "device", available)
    done = runner.run_job(composed("algorithm=ls", *QUICK, "hardware.device=cuda"), tmp_path)
    assert JobFolder(done.folder).config()["hardware"]["device"] == "cuda"


def test_job_is_the_same_on_every_device() -> None:
    """A device is no part of a job: its rows are the same up to rounding, and serve everywhere."""
    from mobench.jobs.job import identity

    jobs = [
        make_job(composed("algorithm=ls", f"hardware.device={d}"))
        for d in ("cpu", "cuda", "cuda:0", "cuda:1")
    ]
    assert len({json.dumps(identity(job)) for job in jobs}) == 1


# shares of cores


def test_parallel_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    assert train.threads(None) == 16
    monkeypatch.setenv(workers.PARALLEL, "4")
    assert train.threads(None) == 4
    assert train.threads(3) == 3
    monkeypatch.setenv(workers.PARALLEL, "40")
    assert train.threads(None) == 1
    monkeypatch.delenv(workers.PARALLEL)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    assert train.threads(None) == 2


def test_how_many_jobs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)

    def count(name: str, jobs: int, **launcher: Any) -> int:
        adapter = launchers.ADAPTERS.get(TARGETS[name], launchers.Adapter)
        return adapter(SimpleNamespace(**launcher)).at_once(jobs)

    assert [count("joblib", 100, joblib={"n_jobs": n}) for n in (2, -1, -2)] == [2, 8, 7]
    assert count("joblib", 3, joblib={"n_jobs": 4}) == 3
    assert count("submitit_local", 5) == 5
    assert count("submitit_slurm", 5) == 1
    assert count("basic", 5) == 1


@pytest.mark.parametrize("name", TARGETS)
def test_launchers_are_known_by_their_configuration(name: str) -> None:
    """The classes that the installed plug-ins' own files name are those that mobench adapts."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        try:
            config = hydra_compose("config", [f"hydra/launcher={name}"], return_hydra_config=True)
        except MissingConfigException:
            pytest.skip(f"hydra/launcher={name} is not installed")
    assert config.hydra.launcher["_target_"] == TARGETS[name]


# mobench status


@pytest.fixture
def look(mobench: Run) -> Any:
    """`mobench status ARGUMENTS`: exit code, what it printed, its errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        result = mobench("status", *arguments)
        return result.code, result.out, result.err

    return call


def test_status_of_everything(
    mobench: Run, monkeypatch: pytest.MonkeyPatch, plug_in: str, look: Any, tmp_path: Path
) -> None:
    assert look() == (0, f"{tmp_path / 'outputs/runs'}: no jobs of 0\n", "")
    mobench("algorithm=ls", *QUICK)
    mobench(plug_in, "algorithm=broken", *QUICK)
    mobench(plug_in, "problem=hole", "algorithm=ls", "preferences=3", "steps=20", "logger=local")
    killed(mobench, monkeypatch, first_pass, "algorithm=omd_tch", *QUICK)
    code, out, _ = look()
    assert code == 1
    lines = out.splitlines()
    assert lines[0].endswith("1 done, 1 diverged, 1 dead, 1 failed of 4")
    assert [line.split()[0] for line in lines[1:4]] == ["failed", "dead", "diverged"]
    assert "KeyError: 'lost'" in lines[1]
    assert "of 120" in lines[2]
    assert "will resume from its checkpoint" in lines[2]
    assert "of 3 runs diverged" in lines[3]
    assert lines[4].strip() == "to finish: mobench status --failed"
    assert len(lines) == 5
    assert len(look("--all")[1].splitlines()) == 6


def test_failed_and_dead_jobs_run_again(
    mobench: Run,
    monkeypatch: pytest.MonkeyPatch,
    resumed_at: list[tuple[int, bool]],
    plug_in: str,
    look: Any,
    tmp_path: Path,
) -> None:
    mobench(plug_in, "algorithm=broken", *QUICK)
    killed(mobench, monkeypatch, first_pass, "algorithm=omd_tch", *QUICK)
    code, out, err = look("--failed")
    assert code == 1
    assert "2 to rerun" in out
    assert err.count("failed again: KeyError: 'lost'") == 1
    assert max(resumed_at)[0] > 30
    folders = {f.name.split("-")[1]: JobFolder(f) for f in (tmp_path / "outputs/runs").iterdir()}
    assert folders["omdtch"].done
    same_rows(folders["omdtch"], mobench("algorithm=omd_tch", *QUICK, root=tmp_path / "undisturbed").job)


def test_status_of_an_artifact(mobench: Run, look: Any, tmp_path: Path) -> None:
    code, out, _ = look("ferero/fig7", "scale=smoke")
    assert code == 0  # nothing has failed
    assert "2 missing of 2" in out
    assert "to finish: mobench +experiment=ferero/fig7 scale=smoke" in out
    assert not (tmp_path / "outputs").exists()  # looking writes nothing
    mobench("+experiment=ferero/fig7", "scale=smoke", "logger=local")
    code, out, _ = look("ferero/fig7", "scale=smoke")
    assert (code, out) == (0, "ferero/fig7: 2 done of 2\n")


def test_old_folders_run_again(mobench: Run, monkeypatch: pytest.MonkeyPatch, look: Any) -> None:
    """Folders of a version that knew fewer keys."""
    killed(mobench, monkeypatch, first_pass, "algorithm=ls", *QUICK)
    (folder,) = mobench("--help").folders
    config = folder.config()
    del config["vary"], config["hardware"]["retries"], config["checkpoint"]["signal"]
    (folder.path / "config.yaml").write_text(yaml.safe_dump(config))
    code, out, err = look("--failed")
    assert code == 0, err
    assert "done" in out
    assert folder.done


@pytest.mark.parametrize("text", ["{}", '{"status"'])
def test_broken_folders_are_listed(mobench: Run, look: Any, text: str) -> None:
    folder = mobench("algorithm=ls", *QUICK).job
    (folder.path / "status.json").write_text(text)
    (folder.path / "config.yaml").unlink()
    (folder.path.parent / "stray").mkdir()
    code, out, _ = look()
    assert code == 1
    assert "1 failed of 1" in out
    assert "unreadable status.json" in out


def test_killed_before_the_first_status(mobench: Run, look: Any) -> None:
    folder = mobench("algorithm=ls", *QUICK).job
    for name in ("status.json", "final.csv"):
        (folder.path / name).unlink()
    code, out, _ = look()
    assert code == 1
    assert "stopped before its first step" in out
    assert look("--failed")[0] == 0
    assert folder.done


def test_looking_says_what_does_not_fit(look: Any) -> None:
    code, out, err = look("algorithm=csmoo2,ls", "problem=vlmop2", "algorithm.nothing=1")
    assert code == 2
    assert err.count("not run:") == 2
    code, out, _ = look("ferero/fig5", "scale=smoke", "data=mnist", "hardware=gpu")  # neither is here
    assert code == 0
    assert "missing" in out


def test_a_job_that_runs_is_not_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path / "job")
    with folder.locked():
        folder.write_status("running", step=1, steps=4, progress=0.25, seconds=60.0, started=0.0)
        (folder.path / "config.yaml").write_text("checkpoint: {seconds: 30}\n")
        state = status.look(folder)
        assert state.state == "running"
        assert "25 %, about 3 min left" in state.words
    assert status.look(folder).state == "dead"
    # on another machine, where the file system may share no locks, the last sign of life decides
    monkeypatch.setattr(store.socket, "gethostname", lambda: "elsewhere")
    assert status.look(folder).state == "running"
    (folder.path / "config.yaml").unlink()
    assert status.look(folder).state == "running"
    now = time.time()
    monkeypatch.setattr(store.time, "time", lambda: now + 400)
    assert status.look(folder).state == "dead"
    assert not folder.held


def test_looking_never_refuses_a_job(tmp_path: Path) -> None:
    """`held` takes the lock for an instant; a job that starts then waits for it."""
    folder = JobFolder(tmp_path / "job")
    context = multiprocessing.get_context("fork")
    stop = context.Event()

    def watch() -> None:
        while not stop.is_set():
            _ = JobFolder(tmp_path / "job").held

    with folder.locked():
        pass
    process = context.Process(target=watch)
    process.start()
    try:
        for _ in range(300):
            with folder.locked():
                pass
    finally:
        stop.set()
        process.join(30)
    assert process.exitcode == 0
