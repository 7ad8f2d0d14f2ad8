"""Run one job: skip it if it is finished, resume it if it is half done, write its rows."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor
from tqdm import tqdm

from mobench import metrics
from mobench.core import loop
from mobench.core.algorithm import Algorithm
from mobench.core.compatibility import check
from mobench.core.oracle import Oracle
from mobench.core.output import AdaptiveTwoPass, Output, WeightedSum, make_output
from mobench.core.point import Point
from mobench.core.preferences import angle_deg, ray
from mobench.core.sets import Free
from mobench.errors import ConfigError, Interrupted, MobenchError, StoreError
from mobench.jobs import memory, wandb_log
from mobench.jobs.job import Job, identity, make_job, own_classes, worn
from mobench.jobs.rehearsal import rehearse
from mobench.jobs.store import JobFolder, columns, config_hash, refuse_older, write_atomic, write_json
from mobench.system import gpu_lock, provenance, signals
from mobench.system.paths import outputs_root, results_root

PARALLEL = "MOBENCH_PARALLEL"  # how many jobs a sweep runs at once on this machine; its workers inherit it
SINCE = "MOBENCH_SINCE"  # when a sweep began; its workers inherit it
BEAT = 5.0  # seconds between signs of life where checkpoints are rarer
FRONT_POINTS = 20_001  # resolution of `front_distance`: spacing of a front of length 1.5 is below 1e-4


@dataclass
class Outcome:
    """What became of a job.

    One that is done has an error too where more of its runs than `max_failure_share` ended with a failed
    solve: its rows are complete, and say which; the command ends with exit code 1.
    """

    key: str
    status: Literal["done", "failed"]
    folder: Path
    skipped: bool = False
    error: str | None = None
    title: str = ""


def finished(folder: JobFolder, skipped: bool = False, title: str = "") -> Outcome:
    """The outcome of a job whose rows are on disk."""
    return Outcome(folder.key, "done", folder.path, skipped, folder.status().get("error"), title)


def places_of(job: Job, root: Path | None = None) -> tuple[JobFolder, JobFolder]:
    """outputs/runs/<problem>-<algorithm>-<hash>, and the same below experiments/results, where rows that took
    a long machine are kept with the project: they need not be made again, and are never written to. Raises
    StoreError if `root` is of an older mobench.
    """
    refuse_older(root or outputs_root())
    name = f"{job.problem.name}-{type(job.algorithm).__name__.lower()}-{config_hash(identity(job))}"
    return JobFolder((root or outputs_root()) / "runs" / name), JobFolder(results_root() / "runs" / name)


def folder_of(job: Job, root: Path | None = None) -> JobFolder:
    """The first of both, or the second if rows are kept there alone."""
    own, kept = places_of(job, root)
    return kept if kept.done and not own.done and not job.config["rerun"] else own


@dataclass
class Recorder:
    """History rows as tensors: recorded steps, objective values per output rule, extra columns."""

    every: int
    evaluate: bool
    dense: int = 0
    steps: list[int] = field(default_factory=list)
    columns: dict[str, list[Tensor]] = field(default_factory=dict)

    def wants(self, t: int) -> bool:
        """Whether step t is recorded; the first always is."""
        return t == 0 or t < self.dense or (self.every > 0 and t % self.every == 0)

    def add(self, t: int, columns: dict[str, Tensor]) -> None:
        """Append one recorded step."""
        if self.steps and columns.keys() != self.columns.keys():
            changed = ", ".join(sorted(columns.keys() ^ self.columns.keys()))
            raise MobenchError(
                f"Step {t} has other columns than step {self.steps[0]}: {changed}. `columns` of the problem "
                "and `report` of the algorithm must return the same names in every step (nan where there is "
                "no number)."
            )
        self.steps.append(t)
        for name, value in columns.items():
            self.columns.setdefault(name, []).append(value.detach().to("cpu", torch.float64))

    def state(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"steps": list(self.steps), "columns": {k: torch.stack(v) for k, v in self.columns.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """From the checkpoint."""
        self.steps = list(state["steps"])
        self.columns = {k: list(v.unbind(0)) for k, v in state["columns"].items()}

    def frame(self, job: Job) -> pd.DataFrame:
        """Tidy rows: run, step, seed, output, f_1..f_M, extra columns."""
        R = len(job.runs)
        T = len(self.steps)
        base = {
            "run": np.tile(np.arange(R), T),
            "step": np.repeat(np.array(self.steps, dtype=np.int64), R),
            "seed": np.tile(job.runs.seeds.numpy(), T),
            **{name: np.tile(values.numpy(), T) for name, values in job.varied.items()},
        }
        frames = []
        rules = sorted({k.split("/")[0] for k in self.columns}, key=lambda r: (r != "last", r))
        for rule in rules:
            data: dict[str, Any] = {**base, "output": rule}
            for name, values in self.columns.items():
                if name.startswith(f"{rule}/"):
                    table = torch.stack(values).numpy()
                    short = name.split("/", 1)[1]
                    if table.ndim == 3:
                        data |= {
                            f"{short}_{m + 1}": table[..., m].reshape(-1) for m in range(table.shape[-1])
                        }
                    else:
                        data[short] = table.reshape(-1)
            frames.append(pd.DataFrame(data))
        return pd.concat(frames, ignore_index=True)


def run_job(config: dict[str, Any], root: Path | None = None, title: str = "") -> Outcome:
    """Run the job of a plain configuration. A failure is an Outcome, never an exception that ends a sweep.

    Raises:
        ConfigError, PreferenceError, CompatibilityError: before a folder exists.
        Interrupted: the user stopped it.
    """
    planned = make_job(config, planned=True)
    # code that cannot be told from other code: no rows or checkpoint are known to be its own
    if planned.opaque:
        config = {**config, "rerun": True}
    folder = folder_of(planned, root)
    if folder.done and not again(config, folder):
        return finished(folder, skipped=True, title=title)
    for place in places_of(planned, root):
        if (damage := place.damage) is not None:
            print(f"warning: {title + ': ' if title else ''}{damage} The job is run again.", file=sys.stderr)
    hardware = config["hardware"]
    try:
        with gpu_lock.device(hardware["device"], hardware["jobs_per_device"], title) as device:
            job = make_job(config, device=device)
            if (too_large := memory.refusal(job)) is not None:  # other jobs of a sweep may fit
                return Outcome(folder.key, "failed", folder.path, error=too_large, title=title)
            return _run(job, folder, title)
    # no lock can be had: of the folder, which another process may hold, or of a GPU
    except StoreError as error:
        return Outcome(folder.key, "failed", folder.path, error=str(error), title=title)


def again(config: dict[str, Any], folder: JobFolder) -> bool:
    """Whether rows and checkpoints do not count: `rerun=true`, but not for what this very sweep has written
    already. A job that Slurm puts back into its queue, or whose worker died, goes on.
    """
    since = os.environ.get(SINCE)
    return bool(config["rerun"]) and not (since and float(folder.status().get("time", 0.0)) >= float(since))


def _run(job: Job, folder: JobFolder, title: str) -> Outcome:
    """Run a job that has its device."""
    config = job.config
    if config["logger"]["name"] != "local" and wandb_log.has_key():
        wandb_log.asked()
    spec = job.oracle().spec
    check(spec, job.algorithm, type(job.problem).__name__)
    with folder.locked(), signals.caught() as arrived:
        if folder.done and not again(config, folder):  # another process was faster
            return finished(folder, skipped=True, title=title)
        unknown = [
            f"this job runs anew each time, because code cannot be fingerprinted: {r}"
            for r in job.opaque.values()
        ]
        for line in [*unknown, *job.algorithm.advice(spec)]:
            print(f"warning: {title + ': ' if title else ''}{line}", file=sys.stderr)
        try:
            _train(job, folder, title, arrived)
        except Interrupted:
            raise
        except Exception as error:
            message = _in_words(error, job)
            # a full disk must not hide the reason
            with contextlib.suppress(MobenchError):
                folder.write_status("failed", error=message, traceback=traceback.format_exc())
            if arrived.stop:
                raise Interrupted(f"Stopped; {folder.key} had just failed: {message}") from error
            return Outcome(folder.key, "failed", folder.path, error=message, title=title)
    wandb_log.log_job(config, folder)
    if arrived.stop:
        raise Interrupted(f"Stopped; {folder.key} had just finished and is complete ({folder.path}).")
    return finished(folder, title=title)


def _in_words(error: Exception, job: Job) -> str:
    """What went wrong, and what to do where that is known."""
    if isinstance(error, torch.OutOfMemoryError):
        now = min(len(job.runs), job.config["hardware"]["max_batch_runs"] or len(job.runs))
        if now == 1:
            return (
                f"{job.device} ran out of memory with one run at once. A smaller problem.model or "
                f"oracle.batch_size needs less, and is another job. {error}"
            )
        fits = now // 2
        return (
            f"{job.device} ran out of memory with {now} of {len(job.runs)} runs at once. "
            f"hardware.max_batch_runs={fits} needs about half of it and gives the same rows (smaller "
            f"oracle.batch_size does not). {error}"
        )
    if isinstance(error, MobenchError):
        return str(error)
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{_place(error, job)}{notes}"


def _place(error: Exception, job: Job) -> str:
    """File and line of the user's own code where it was raised, "" if it has no part in it."""
    tops = {cls.__module__.partition(".")[0] for cls in own_classes(job.config).values()}
    frames = traceback.walk_tb(error.__traceback__)
    found = [(f, line) for f, line in frames if str(f.f_globals.get("__name__")).partition(".")[0] in tops]
    if not found:
        return ""
    frame, line = found[-1]
    return f" ({frame.f_code.co_filename}:{line}, in {frame.f_code.co_qualname})"


def advice_for(algorithm: Algorithm) -> str:
    """What can be tried where solves fail: the reference solver,
    if the method has one that it does not use yet; else nothing.
    """
    try:
        other = dataclasses.replace(algorithm, subproblem="cvxpy")  # type: ignore[call-arg]
    except (TypeError, ConfigError):  # no such field, or no such choice
        return ""
    if getattr(algorithm, "subproblem", None) == other.subproblem:  # type: ignore[attr-defined]
        return ""
    return "algorithm.subproblem=cvxpy compares with another solver; "


def _progress(job: Job, title: str, start: int, total: int) -> Callable[[int], None]:
    """A bar on a terminal, plain lines (at most one in five seconds) elsewhere."""
    label = title or f"{job.problem.name}/{type(job.algorithm).__name__}"
    if not job.config["progress"]:
        return lambda t: None
    if sys.stderr.isatty():
        bar = tqdm(total=total, initial=start, desc=label, unit="step", leave=False)

        def update(t: int) -> None:
            bar.update(t - bar.n)
            if t >= total:
                bar.close()

        return update
    last = time.monotonic()

    def line(t: int) -> None:
        nonlocal last
        if time.monotonic() - last > 5.0 and t < total:
            last = time.monotonic()
            print(f"{label}: step {t} of {total}", file=sys.stderr, flush=True)

    return line


def _unsolved(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that ended with a failed solve: run, the step whose solve it was, its residual
    (None if there is none), and whether the program is proved to have no solution.
    """
    found = []
    for run in state["fail"].nonzero().squeeze(1).tolist():
        kkt = float(state["kkt"][run])
        residual = kkt if 0 <= kkt < math.inf else None
        step = int(state["stopped"][run])
        proved = bool(state["unsolvable"][run])
        found.append({"run": run, "step": step, "residual": residual, "no_solution": proved})
    return found


def _too_many_failed(job: Job, unsolved: list[dict[str, Any]]) -> str | None:
    """What to say of a job in which more runs than `max_failure_share` ended with a failed solve;
    else None.
    """
    share = job.config["max_failure_share"]
    runs = len(job.runs)
    if len(unsolved) <= share * runs:
        return None
    first = ", ".join(f"run {u['run']} at step {u['step']}" for u in unsolved[:5])
    first += ", ..." if len(unsolved) > 5 else ""
    proved = sum(u["no_solution"] for u in unsolved)
    why = f" {proved} of these subproblems are proved to have no solution." if proved else ""
    worst = max((u["residual"] for u in unsolved if u["residual"] is not None), default=None)
    size = "" if worst is None else f", worst residual {worst:.2e}"
    return (
        f"{len(unsolved)} of {runs} runs ended with a failed subproblem solve ({first}{size}).{why} They "
        "stay where that solve failed: no step is taken from it and nothing is substituted. Their rows are "
        "marked solver_failed and are left out of every mean; the other runs are complete. "
        f"{advice_for(job.algorithm)}max_failure_share={share} is the share of runs that may end so without "
        "an error."
    )


def _threads(config: dict[str, Any]) -> int:
    """Of one job: as configured, else its share of the cores that this process may use beside other jobs
    of the sweep.
    """
    if config["hardware"]["threads"]:
        return int(config["hardware"]["threads"])
    cores = int(os.environ.get("SLURM_CPUS_PER_TASK") or len(os.sched_getaffinity(0)))
    return max(1, min(torch.get_num_threads(), cores // int(os.environ.get(PARALLEL) or 1)))


def _train(job: Job, folder: JobFolder, title: str, arrived: signals.Signals) -> None:
    config = job.config
    oracle = job.oracle()
    runs = job.runs.to(job.device)
    torch.set_num_threads(_threads(config))
    folder.path.mkdir(parents=True, exist_ok=True)
    outputs: dict[str, Output] = {name: make_output(name) for name in job.algorithm.outputs}
    recorder = Recorder(config["record"]["every"], config["record"]["evaluate"], config["record"]["dense"])
    two_pass = [name for name, rule in outputs.items() if isinstance(rule, AdaptiveTwoPass)]
    # averages whose objective values the history follows; a two-pass average exists only at the end
    averaged = [n for n in outputs if recorder.evaluate and n != "last" and n not in two_pass]

    def fresh(rules: dict[str, Output]) -> dict[str, Any]:
        theta = oracle.initial(job.runs).to(job.device, job.dtype)
        return loop.start(oracle, job.algorithm, rules, theta, runs, job.steps)

    saved, messages = (None, []) if again(config, folder) else folder.load_checkpoint()
    for message in messages:
        print(f"warning: {message}", file=sys.stderr)
    began = time.time()
    woke = time.monotonic()
    spent = 0.0
    before = 0.0
    answers: dict[str, Tensor] = {}
    gamma: Tensor | None = None
    if saved is None:
        for message in rehearse(job):
            print(f"warning: {title + ': ' if title else ''}{message}", file=sys.stderr)
        folder.remove_checkpoints()
        write_atomic(folder.path / "config.yaml", yaml.safe_dump(config, sort_keys=False).encode())
        state = fresh(outputs)
        second = False
    else:
        state = saved["state"]
        second = saved["second"]
        spent = saved["seconds"]
        # checkpoints of older versions carry the time of training alone
        before = saved.get("seconds_wall", spent)
        answers = saved["answers"]
        gamma = saved["gamma"]
        recorder.load(saved["history"])
        if second:
            assert gamma is not None
    passes = 2 if two_pass else 1

    def beat() -> None:
        """The sign of life that `mobench-status` reads."""
        progress = (state["t"] / job.steps + second) / passes
        known: dict[str, Any] = {
            "step": state["t"],
            "steps": job.steps,
            "progress": progress,
            "seconds": spent,
        }
        folder.write_status("running", **known, started=began, resumed=saved is not None, runs=len(runs))

    def wall() -> float:
        """Seconds since the job first began, without the time between its processes;
        a clock that is set does not matter.
        """
        return before + time.monotonic() - woke

    beat()

    recording = 0.0  # seconds of this process: evaluation is no training

    def observe(t: int, now: dict[str, Any], point: Any) -> None:
        nonlocal recording
        if not recorder.wants(t):
            return
        # before the clock: the step needs these values in any case, whoever asks for them first
        seen = point.values() if point.recorded is None else point.recorded
        tick = time.monotonic()
        averages = {n: outputs[n].final(now["out"][n], now["theta"]) for n in averaged}
        recorder.add(t, _columns(job, oracle, now["theta"], seen, now["alg"], averages, point))
        recording += time.monotonic() - tick

    while True:
        rules: dict[str, Output] = outputs
        if second:
            assert gamma is not None
            rules = {name: WeightedSum(gamma) for name in two_pass}
        show = _progress(job, title + (" (second pass)" if second else ""), state["t"], job.steps)
        chunk = 1
        checked = time.monotonic()
        told = checked
        while state["t"] < job.steps:
            tick = time.monotonic()
            recorded = recording
            until = min(job.steps, state["t"] + chunk)
            state = loop.advance(oracle, job.algorithm, rules, state, until, None if second else observe)
            took = time.monotonic() - tick
            spent += took - (recording - recorded)
            chunk = min(2 * chunk, 1024) if took < 0.1 else max(1, chunk // 2)
            show(state["t"])
            asked = bool(arrived.pending)  # what comes after the checkpoint waits for the next one
            if asked or time.monotonic() - checked > config["checkpoint"]["seconds"]:
                payload = {
                    "state": state,
                    "second": second,
                    "seconds": spent,
                    "answers": answers,
                    "gamma": gamma,
                }
                folder.save_checkpoint({**payload, "seconds_wall": wall(), "history": recorder.state()})
                beat()
                checked = told = time.monotonic()
            elif time.monotonic() - told > BEAT:
                beat()
                told = time.monotonic()
            if asked and state["t"] < job.steps and arrived.deliver():
                raise Interrupted(
                    f"Stopped at step {state['t']} of {job.steps}; the same command continues from there "
                    f"({folder.path})."
                )
        if second or not two_pass:
            break
        first = {name: rule for name, rule in outputs.items() if name not in two_pass}
        answers = loop.finals(first, state)
        answers["last"] = state["theta"]
        rule = outputs[two_pass[0]]
        assert isinstance(rule, AdaptiveTwoPass)
        gamma = rule.gamma(state["out"][two_pass[0]], job.steps)
        second = True
        state = fresh({name: WeightedSum(gamma) for name in two_pass})
    if second:
        answers |= {name: rules[name].final(state["out"][name], state["theta"]) for name in two_pass}
    else:
        answers = {**loop.finals(outputs, state), "last": state["theta"]}
    _finish(job, oracle, folder, state, answers, averaged, recorder, began, spent, wall)


def _columns(
    job: Job,
    oracle: Oracle,
    theta: Tensor,
    seen: Tensor,
    alg: dict[str, Any],
    averages: dict[str, Tensor],
    point: Point | None,
) -> dict[str, Tensor]:
    """Columns of one recorded step: values and measures of the iterate, the algorithm's own, values of
    averages.

    `seen` are the values that the algorithm sees; `record.evaluate` replaces a sample's or an average's by
    exact ones and keeps the Tchebycheff value of what was seen beside that of what is.
    """
    M = oracle.spec.M
    # a transformed value is no objective
    evaluate = job.config["record"]["evaluate"] or job.algorithm.transforms
    values = oracle.exact(theta) if evaluate else seen
    own = bool(job.config["record"]["measures"])
    columns = _measured("last", oracle, job, theta, values, point, own) | _report(
        job, values[:, :M], alg, "last/"
    )
    if job.config["record"]["evaluate"] and oracle.ideal is not None:
        columns["last/tchebycheff_seen"] = _tchebycheff(oracle, job, seen)
    for name, average in averages.items():
        columns |= _measured(name, oracle, job, average, oracle.exact(average))
    return columns


def _measured(
    name: str,
    oracle: Oracle,
    job: Job,
    theta: Tensor,
    values: Tensor,
    point: Point | None = None,
    own: bool = True,
) -> dict[str, Tensor]:
    """f, g and the measures that follow from them, with the name of the output rule in front."""
    M = oracle.spec.M
    N = oracle.spec.N
    out = {"f": values[:, :M]} | ({"g": values[:, M:]} if N else {})
    return {
        f"{name}/{key}": value
        for key, value in (out | _measures(oracle, job, theta, values, point, own)).items()
    }


def _measures(
    oracle: Oracle, job: Job, theta: Tensor, values: Tensor, point: Point | None = None, own: bool = True
) -> dict[str, Tensor]:
    """violation = max(0, max_j g_j), the Tchebycheff value where there is an ideal point, and, if `own`,
    the problem's.
    """
    out = {}
    if oracle.spec.N:
        out["violation"] = values[:, oracle.spec.M :].amax(1).clamp_min(0.0)
    if oracle.ideal is not None:
        out["tchebycheff"] = _tchebycheff(oracle, job, values)
    return out | oracle.columns(theta, values, point) if own else out


def _tchebycheff(oracle: Oracle, job: Job, values: Tensor) -> Tensor:
    """max_m w_m (f_m - z_m), w the preference."""
    assert oracle.ideal is not None
    w = job.runs.weights.to(values)
    return (w * (values[:, : oracle.spec.M] - oracle.ideal.to(values))).amax(1)


def _report(job: Job, F: Tensor, alg: dict[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """The algorithm's own columns."""
    return {f"{prefix}{k}": v for k, v in job.algorithm.report(F, alg).items()}


def _finish(
    job: Job,
    oracle: Oracle,
    folder: JobFolder,
    state: dict[str, Any],
    answers: dict[str, Tensor],
    averaged: list[str],
    recorder: Recorder,
    began: float,
    spent: float,
    wall: Callable[[], float],
) -> None:
    """Evaluate, write rows, then mark the folder done; in that order, so that `done` means complete."""
    tick = time.monotonic()
    wanted = list(job.algorithm.outputs)
    with torch.no_grad():
        point = oracle.last_point(answers["last"], state["oracle"], job.steps)
        seen = oracle.exact(answers["last"]) if point is None else point.values()
        averages = {n: answers[n] for n in averaged}
        recorder.add(job.steps, _columns(job, oracle, answers["last"], seen, state["alg"], averages, point))
        frames = [_rows(job, oracle, name, answers[name], state, spent) for name in wanted]
    evaluate = time.monotonic() - tick
    folder.write_table("history.parquet", recorder.frame(job))
    if oracle.spec.P * len(job.runs) <= 4_000_000:
        folder.write_solutions({name: answers[name].cpu().numpy() for name in wanted})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    meta = {
        **provenance.stamp(job.device),
        "execution": f"one batch of {len(job.runs)} runs on {job.device}, {torch.get_num_threads()} "
        f"thread(s), {job.problem.strategy(job.device)}",
        **job.problem.facts(job.runs),
        # workers of the sweep on this machine (under Slurm 1): neighbours may cost time
        "at_once": int(os.environ.get(PARALLEL) or 1),
        "dtype": job.config["dtype"],
        "seconds_train": spent,
        "seconds_evaluate": evaluate,
        "seconds_wall": wall(),
        "peak_memory_mib": peak,
        "hypervolume": _hypervolumes(job, frames),
        "final_rows": sum(map(len, frames)),
        "ideal_point": None if oracle.ideal is None else oracle.ideal.tolist(),
        "unsolved": _unsolved(state),
        "identity": identity(job),
    }
    write_json(folder.path / "meta.json", meta)
    final = pd.concat(frames, ignore_index=True)
    folder.write_table("final.csv", final)
    diverged = int((frames[0]["status"] == "diverged").sum())
    times = {"started": began, "finished": time.time(), "seconds": spent}
    ended: dict[str, Any] = {"diverged": diverged, "solver_failed": len(meta["unsolved"])}
    if words := _too_many_failed(job, meta["unsolved"]):
        ended["error"] = words
    folder.write_status("done", step=job.steps, steps=job.steps, **times, **ended, runs=len(job.runs))
    folder.remove_checkpoints()


def _hypervolumes(job: Job, frames: list[pd.DataFrame]) -> dict[str, Any] | None:
    """Per output rule and seed, of the finished runs of all preferences, with the reference point used; else
    None: one preference makes no front, and of a job that varies hyper-parameters each would have its own.
    """
    ref = job.problem.ref_point
    if ref is None or len(job.runs.all) < 2 or job.varied:
        return None
    out: dict[str, Any] = {"reference_point": list(ref)}
    for frame in frames:
        good = frame[frame["status"] == "done"]
        out[str(frame["output"].iloc[0])] = {
            str(seed): metrics.hypervolume(group[columns(frame, "f_")].to_numpy(), ref)
            for seed, group in good.groupby("seed")
        }
    return out


def _rows(
    job: Job, oracle: Oracle, output: str, theta: Tensor, state: dict[str, Any], spent: float
) -> pd.DataFrame:
    """One row per run for one output rule."""
    M = oracle.spec.M
    runs = job.runs
    values = oracle.exact(theta)
    F = values[:, :M].cpu().to(torch.float64)
    w = runs.weights
    v = ray(runs.weights)
    data: dict[str, Any] = {"run": range(len(runs)), "seed": runs.seeds.numpy(), "output": output}
    data |= {name: values.numpy() for name, values in job.varied.items()}
    data |= {f"preference_{m + 1}": w[:, m].numpy() for m in range(M)}
    data |= {f"ray_{m + 1}": v[:, m].numpy() for m in range(M)}
    data |= {f"f_{m + 1}": F[:, m].numpy() for m in range(M)}
    data |= {f"g_{n + 1}": values[:, M + n].cpu().numpy() for n in range(oracle.spec.N)}
    if oracle.spec.positive:
        data["angle_deg"] = angle_deg(F, w).numpy()
    own_front = not worn(job.config, "constraint")  # other constraints, another front
    distance = job.problem.distance_to_front(F) if own_front else None
    front = job.problem.front(FRONT_POINTS) if distance is None and own_front else None
    if front is not None:
        distance = metrics.front_distance(F, front.to(F))
    if distance is not None:
        data["front_distance"] = distance.numpy()
    own = _measures(oracle, job, theta, values) | _report(job, values[:, :M], state["alg"])
    data |= {name: value.cpu().numpy() for name, value in own.items()}
    point = oracle.exact_point(theta) if oracle.spec.N == 0 or isinstance(oracle.spec.X, Free) else None
    if point is not None and oracle.spec.N == 0:
        data["stationarity"] = metrics.stationarity(point).cpu().numpy()
    elif point is not None and oracle.spec.constraint_kind == "inequality":
        data["kkt"] = metrics.constrained_kkt(point).cpu().numpy()
    kkt = state["kkt"].cpu().numpy()
    alive = state["alive"].cpu().numpy() & np.isfinite(F.numpy()).all(1)
    failed = state["fail"].cpu().numpy()
    data |= {
        "seconds": spent / len(runs),
        "solver_failures": failed,
        "kkt_residual_max": np.where(kkt < 0, math.nan, kkt),
        "status": np.where(failed > 0, "solver_failed", np.where(alive, "done", "diverged")),
    }
    return pd.DataFrame(data)
