"""The training of a job: steps in chunks, with checkpoints, signs of life and signals between them.

    pass 1: theta_0 .. theta_T, recorded; every output rule listens
    pass p: the same trajectory again, for the rules that need `passes` >= p

A checkpoint between two chunks holds all that the next chunk depends on, so a job that continues from it
gives the rows of one that was never stopped, bit for bit on a CPU.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from mobench.core import loop
from mobench.core.output import Output, make_output
from mobench.core.point import Point
from mobench.core.stepping import Stepper
from mobench.core.watched import Keeping, Watched
from mobench.errors import CompatibilityError, ConfigError, Interrupted
from mobench.jobs import checkpoints
from mobench.jobs.job import Job
from mobench.jobs.record import Growing, Recorder, columns
from mobench.jobs.rehearsal import rehearse
from mobench.jobs.steps import Steps
from mobench.jobs.store import JobFolder
from mobench.system import gpu, provenance, workers
from mobench.system.console import progress
from mobench.system.signals import Signals

BEAT = 5.0  # seconds between signs of life where checkpoints are rarer
SHORT = 0.1  # seconds: chunks of steps that are shorter are doubled, longer ones halved
LONGEST = 1024  # steps of a chunk


@dataclass
class Clock:
    """Seconds of a job, over all of its processes.

    Attributes:
        training: of steps, without recording.
        recording: of this process, with the copies of recorded columns to the host.
        before: from the first start to this one, without the time between processes. devices: the same by
            the devices that it was spent on; nothing of processes before November 2026.
        began: when this process began, since the epoch. woke: the same on a clock that nobody sets.
        recorded: the last recorded step of each chunk that has one, with `training` after that chunk.
    """

    training: float = 0.0
    recording: float = 0.0
    before: float = 0.0
    devices: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    woke: float = field(default_factory=time.monotonic)
    recorded: list[tuple[int, float]] = field(default_factory=list)

    def wall(self) -> float:
        """Returns the seconds since the job first began, without the time between its processes."""
        return self.before + time.monotonic() - self.woke

    def by_device(self, device: str) -> dict[str, float]:
        """Returns `wall` by device, where `device` is that of this process."""
        return self.devices | {device: self.devices.get(device, 0.0) + self.wall() - self.before}


@dataclass
class Training:
    """A job on its way through its steps.

    Attributes:
        outputs: the output rules of the first pass, by name.
        state: of the loop (`mobench.core.loop`).
        number: of the pass, from 0.
        carried: what the passes before hand to this one, for each rule that listens to it.
        answers: theta (R, P) of the output rules that are finished.
        before: the processes that took the steps before this one, see `processes`.
        taken: steps of all passes that they took.
        resumed: whether this process continues from a checkpoint.
        laps: of recording, since the last look at the clock.
        graph: whether steps are replayed as CUDA graphs, see `mobench.jobs.steps`.
        form: of the state before the first step, see `mobench.jobs.checkpoints`.
    """

    job: Job
    folder: JobFolder
    outputs: dict[str, Output]
    recorder: Recorder
    clock: Clock
    state: loop.State = field(default_factory=dict)
    number: int = 0
    carried: dict[str, loop.State] = field(default_factory=dict)
    answers: dict[str, Tensor] = field(default_factory=dict)
    before: list[dict[str, Any]] = field(default_factory=list)
    taken: int = 0
    resumed: bool = False
    graph: str = ""
    form: dict[str, str] = field(default_factory=dict)
    laps: gpu.Laps = field(init=False)
    watched: Watched | None = field(init=False)
    keeping: Keeping | None = field(init=False)
    stepper: Stepper | None = field(init=False)  # of the user's own optimizer
    history: Growing = field(init=False)  # as a stop rule sees it

    def __post_init__(self) -> None:
        self.laps = gpu.Laps(self.job.device)
        self.history = Growing(self.recorder)
        self.watched = None
        problem = self.job.problem
        # asked once: a protocol is slow
        if isinstance(problem, Watched) and not (problem.callback is None and problem.stop is None):
            self.watched = problem
        self.keeping = problem if isinstance(problem, Keeping) and problem.keep is not None else None
        self.stepper = self.job.stepper()

    @property
    def passes(self) -> int:
        """The number of passes of the trajectory: the largest that a rule needs."""
        return max(rule.passes for rule in self.outputs.values())

    @property
    def averaged(self) -> list[str]:
        """Rules whose answer so far the history follows; one of several passes has none before the last."""
        names = [name for name, rule in self.outputs.items() if name != "last" and rule.passes == 1]
        return names if self.recorder.evaluate else []

    def rules(self) -> dict[str, Output]:
        """Returns the rules that listen to this pass."""
        if self.number == 0:
            return self.outputs
        return {name: self.outputs[name].later(carried) for name, carried in self.carried.items()}

    def begin_pass(self) -> None:
        """Goes to the first step of this pass."""
        self.state = self.first_state()

    def first_state(self) -> loop.State:
        """Returns the state before the first step of this pass."""
        job = self.job
        oracle = job.joined
        theta = oracle.initial(job.runs).to(job.device, job.dtype)
        runs = job.runs.to(job.device)
        state = loop.first_state(oracle, job.algorithm, self.rules(), theta, runs, job.steps, self.stepper)
        none = torch.full((len(runs),), -1, dtype=torch.int64, device=job.device)
        stops = self.watched is not None and self.watched.stop is not None
        if stops or (self.keeping is not None and self.keeping.patience is not None):
            state["ended"] = none
        if self.keeping is not None:
            lowest = torch.full((len(runs),), math.inf, dtype=torch.float64, device=job.device)
            waited = torch.zeros_like(none)
            state["best"] = {"theta": state["theta"], "value": lowest, "step": none, "waited": waited}
        return state

    def end_pass(self) -> bool:
        """Collects the answers of rules that are finished and what the others carry over;
        whether it was the last pass.
        """
        listened = self.rules()
        done = {name: rule for name, rule in listened.items() if self.outputs[name].passes == self.number + 1}
        self.answers |= loop.finals(done, self.state)
        if self.number == 0:
            self.answers["last"] = self.state["theta"]
        if self.number + 1 == self.passes:
            return True
        rest = {name: rule for name, rule in listened.items() if name not in done}
        self.carried = {
            name: rule.carried(self.state["out"][name], self.job.steps) for name, rule in rest.items()
        }
        self.number += 1
        self.begin_pass()
        return False

    def observe(self, t: int, now: loop.State, point: Point) -> None:
        """Records step t before it is taken, if it is one that is recorded."""
        if not self.recorder.wants(t):
            return
        # before the clock: the step needs these values in any case, whoever asks for them first
        values = point.values() if point.recorded is None else point.recorded
        with self.laps.lap():
            table = self.seen(now, point, values)
            self.recorder.add(t, table)
            self.consider(t, table, now)
        if self.watched is not None:
            self.watch(self.watched, t, now)

    def consider(self, t: int, columns: dict[str, Tensor], now: loop.State) -> None:
        """Keeps the iterates of a recorded step that are better than those before, and ends the runs that
        have waited too long for one.
        """
        if self.keeping is None:
            return
        best = now["best"]
        values = {name.removeprefix("last/"): value for name, value in columns.items()}
        value = self.keeping.deciding(values, self.job.weights).to(torch.float64)
        going = now["ended"] < 0 if "ended" in now else now["alive"]
        better = (value < best["value"]) & going & now["alive"]  # never of a number that is missing
        now["best"] = {
            "theta": torch.where(better.unsqueeze(1), now["theta"], best["theta"]),
            "value": torch.where(better, value, best["value"]),
            "step": torch.where(better, t, best["step"]),
            "waited": torch.where(better, 0, best["waited"] + 1),
        }
        if self.keeping.patience is not None and t < self.job.steps:
            over = (now["best"]["waited"] >= self.keeping.patience) & going
            now["ended"] = torch.where(over, t, now["ended"])

    def seen(self, now: loop.State, point: Point, values: Tensor) -> dict[str, Tensor]:
        """Returns the columns of a step for all runs: of its state, its point and the values (R, K) there."""
        rules = self.outputs
        averages = {name: rules[name].final(now["out"][name], now["theta"]) for name in self.averaged}
        return columns(self.job, now["theta"], values, now["alg"], averages, point)

    def watch(self, problem: Watched, t: int, now: loop.State) -> None:
        """Shows the step that was recorded last to the problem's callback and stop rule.

        Raises:
            ConfigError: The stop rule returns something else than a boolean for each run.
        """
        if problem.callback is not None:
            problem.callback(t, self.recorder.last(self.job))
        if problem.stop is None or t == self.job.steps:
            return
        stopped = np.asarray(problem.stop(self.history.frame(self.job)))
        if stopped.shape != (len(self.job.runs),) or stopped.dtype != bool:
            raise ConfigError(
                f"stop returned {stopped.dtype} of shape {stopped.shape}; expected {len(self.job.runs)} "
                "booleans, one for each run, such as history.groupby('run')['f_1'].last() < 0.1."
            )
        new = torch.from_numpy(stopped.copy()).to(self.job.device) & (now["ended"] < 0)
        now["ended"] = torch.where(new, t, now["ended"])

    def count(self, seconds: float) -> None:
        """Adds the seconds of some steps, whose work is done, to the clock; brings what they recorded to the
        host.
        """
        recording = self.laps.taken()
        self.clock.training += seconds - recording
        tick = time.monotonic()
        self.recorder.fetch()
        self.clock.recording += recording + time.monotonic() - tick
        step = self.recorder.steps[-1] if self.recorder.steps else None
        if step is not None and (not self.clock.recorded or self.clock.recorded[-1][0] != step):
            self.clock.recorded.append((step, self.clock.training))

    def beat(self) -> None:
        """Writes the sign of life that `mobench status` reads."""
        t = self.state.get("t", 0)
        self.folder.write_status(
            "running",
            step=t,
            steps=self.job.steps,
            progress=(t / self.job.steps + self.number) / self.passes,
            seconds=self.clock.training,
            started=self.clock.began,
            resumed=self.resumed,
            runs=len(self.job.runs),
        )

    def processes(self) -> list[dict[str, Any]]:
        """Returns which code, with which packages on which device, took which steps of all passes together.

        Processes in a row that do not differ are one.
        """
        process = provenance.this_process(self.job.device)
        first = self.taken
        before = self.before
        if before and process == {name: before[-1][name] for name in process}:
            first = before[-1]["steps"][0]
            before = before[:-1]
        return [*before, {**process, "steps": [first, self._taken()]}]

    def _taken(self) -> int:
        return self.number * self.job.steps + int(self.state.get("t", 0))

    def payload(self) -> dict[str, Any]:
        """Returns the contents of a checkpoint."""
        return {
            **checkpoints.origin(self),
            "state": self.state,
            "pass": self.number,
            "carried": self.carried,
            "answers": self.answers,
            "seconds": self.clock.training,
            "seconds_wall": self.clock.wall(),
            "devices": self.clock.by_device(provenance.device_name(self.job.device)),
            "processes": self.processes(),
            "clock": self.clock.recorded,
            "history": self.recorder.state(self.job),
        }

    def save(self) -> None:
        """Writes a checkpoint, and a sign of life."""
        self.folder.save_checkpoint(self.payload())
        self.beat()

    def load(self, saved: dict[str, Any]) -> None:
        """Continues from a checkpoint that fits (`mobench.jobs.checkpoints`), also from another device's."""
        self.state = self._here(saved["state"])
        self.number = saved["pass"]
        self.carried = self._here(saved["carried"])
        self.answers = self._here(saved["answers"])
        self.clock.training = saved["seconds"]
        self.clock.before = saved.get("seconds_wall", saved["seconds"])
        self.clock.devices = dict(saved["devices"])
        self.clock.recorded = list(saved["clock"])
        self.recorder.load(self.job, saved["history"])
        self.before = saved["processes"]
        self.taken = self._taken()
        self.resumed = True

    def _here(self, saved: Any) -> Any:
        """The same with all tensors on the device of the job: a CPU may have saved them."""
        return tree_map_only(Tensor, lambda x: x.to(self.job.device), saved)


def train(job: Job, folder: JobFolder, title: str, arrived: Signals, anew: bool = False) -> Training:
    """Runs all steps of a job that has its device.

    Args:
        folder: locked, and where checkpoints go.
        title: what lines about its progress call the job.
        arrived: the signals that reach this process.
        anew: whether checkpoints do not count.

    Raises:
        Interrupted: a signal asked to stop; after a checkpoint.
    """
    torch.set_num_threads(threads(job.config.hardware.threads))
    training = _begun(job, folder, title, anew)
    while True:
        _run_pass(training, title, arrived)
        if training.end_pass():
            return training


def _begun(job: Job, folder: JobFolder, title: str, anew: bool) -> Training:
    """A training at its first step, or at that of its newest sound checkpoint."""
    folder.path.mkdir(parents=True, exist_ok=True)
    record = job.config.record
    recorder = Recorder(record.every, record.evaluate, record.dense)
    outputs = {name: make_output(name) for name in job.algorithm.outputs}
    _check_stop(job)
    training = Training(job, folder, outputs, recorder, Clock())
    fits = functools.partial(checkpoints.check, training=training)
    saved, messages = (None, []) if anew else folder.load_checkpoint(fits)
    for message in messages:
        print(f"warning: {message}", file=sys.stderr)
    if saved is not None:
        if messages:  # else the next checkpoint would put it in the place of the sound one
            folder.remove_checkpoints("checkpoint.pt")
        _continue(training, saved, title)
        training.beat()
        return training
    for message in rehearse(job):
        print(f"warning: {title + ': ' if title else ''}{message}", file=sys.stderr)
    training.beat()  # before any file changes: those that are there are not those of a finished job any more
    folder.remove_checkpoints()
    folder.write_config(job.config.plain)
    training.begin_pass()
    training.form = checkpoints.form(training.state)
    return training


def _continue(training: Training, saved: dict[str, Any], title: str) -> None:
    """Loads a checkpoint, and says it where other code or other packages took its steps."""
    training.load(saved)
    if others := provenance.differences(training.before, provenance.this_process(training.job.device)):
        print(
            f"warning: {title or training.job.key}: its first {training.taken} steps were computed with "
            f"{others}; meta.json names both.",
            file=sys.stderr,
        )


def _check_stop(job: Job) -> None:
    """Raises CompatibilityError for a stop rule, or `keep`, where a run does not end by itself."""
    keep = job.problem.keep if isinstance(job.problem, Keeping) else None
    keeps = keep is not None
    if not keeps and (not isinstance(job.problem, Watched) or job.problem.stop is None):
        return
    what = f"keep={keep!r}" if keeps else "A stop rule"
    if list(job.algorithm.outputs) != ["last"]:
        raise CompatibilityError(
            f"{what} ends a run at one iterate, but algorithm.outputs={list(job.algorithm.outputs)} "
            "also asks for averages over all steps. Set algorithm.outputs=[last], or give no "
            f"{'keep' if keeps else 'stop rule'}."
        )
    if keeps and not (job.config.record.measures and job.config.record.every > 0):
        raise CompatibilityError(
            f"{what} looks at the recorded columns, so it needs record.measures=true and record.every >= 1."
        )
    if job.algorithm.together:
        raise CompatibilityError(
            f"{type(job.algorithm).__name__} moves all runs of a seed together, so none of them can be "
            f"{'kept' if keeps else 'stopped'} alone."
        )


def _run_pass(training: Training, title: str, arrived: Signals) -> None:
    """The steps that are left of a pass, in chunks of about a tenth of a second."""
    job = training.job
    observe = training.observe if training.number == 0 else None
    steps = Steps(job, training.rules(), training.recorder.wants, observe, training.stepper)
    label = title or f"{job.problem.name}/{type(job.algorithm).__name__}"
    label += " (second pass)" if training.number else ""
    show = progress(label, training.state["t"], job.steps) if job.config.progress else lambda t: None
    chunk = 1
    saved = last_beat = time.monotonic()
    while training.state["t"] < job.steps:
        tick = time.monotonic()
        until = min(job.steps, training.state["t"] + chunk)
        training.state = steps.to(training.state, until)
        gpu.synchronize(job.device)
        took = time.monotonic() - tick
        training.count(took)
        chunk = min(2 * chunk, LONGEST) if took < SHORT else max(1, chunk // 2)
        training.graph = steps.graph
        if "ended" in training.state and bool((training.state["ended"] >= 0).all()):
            training.state["t"] = job.steps
        show(training.state["t"])
        interrupted = bool(arrived.pending)  # what comes after the checkpoint waits for the next one
        if interrupted or time.monotonic() - saved > job.config.checkpoint.seconds:
            training.save()
            saved = last_beat = time.monotonic()
        elif time.monotonic() - last_beat > BEAT:
            training.beat()
            last_beat = time.monotonic()
        if interrupted and training.state["t"] < job.steps and arrived.deliver():
            again = " without rerun=true" if job.config.rerun else ""
            raise Interrupted(
                f"Stopped at step {training.state['t']} of {job.steps}. Repeat the command{again} to resume "
                f"from there ({training.folder.path})."
            )


def threads(wanted: int | None) -> int:
    """Returns torch's threads of one job: as configured, else its share of the cores that this process may
    use beside other jobs of the sweep.
    """
    if wanted:
        return wanted
    cores = int(os.environ.get("SLURM_CPUS_PER_TASK") or len(os.sched_getaffinity(0)))
    return max(1, min(torch.get_num_threads(), cores // workers.at_once()))
