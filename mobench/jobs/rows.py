"""The end of a job: final rows, hypervolumes, meta.json, and the mark that it is done."""

from __future__ import annotations

import math
import resource
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mobench import metrics
from mobench.core.preferences import angle_deg, ray
from mobench.core.served import source
from mobench.core.sets import Free
from mobench.core.truth import FrontDistance, KnownFront
from mobench.jobs.failures import too_many_failed, unsolved
from mobench.jobs.job import Job
from mobench.jobs.record import columns, measures
from mobench.jobs.store import JobFolder
from mobench.jobs.store import columns as named
from mobench.jobs.store import infeasible as violating
from mobench.jobs.train import Training
from mobench.system import gpu, provenance, workers
from mobench.system.files import write_json

FRONT_POINTS = 20_001  # resolution of `front_distance`: spacing of a front of length 1.5 is below 1e-4
ROUNDED = 1e-6  # below 0, up to which an objective counts as 0
STORED = 4_000_000  # numbers of a solutions.npz, at most, unless the problem is about them


def finish(training: Training, folder: JobFolder) -> None:
    """Evaluates a trained job, writes its rows, then marks the folder done; in that order,
    so that `done` means complete.
    """
    job = training.job
    tick = time.monotonic()
    with torch.no_grad():
        _record_end(training)
        frames = [_rows(training, name) for name in job.algorithm.outputs]
    evaluation = time.monotonic() - tick
    folder.write_table("history.parquet", _history(training))
    if job.problem.keeps_solutions or job.joined.spec.P * len(job.runs) <= STORED:
        folder.write_solutions({name: training.answers[name].cpu().numpy() for name in job.algorithm.outputs})
    if job.problem.ref_point is not None and job.problem.n_objectives > metrics.MOST_OBJECTIVES:
        print(f"notice: the rows have no hypervolume: {hypervolume_fault(job)}.", file=sys.stderr)
    if job.joined.spec.positive and (words := _negative(frames)):
        print(f"notice: {words}", file=sys.stderr)
    meta = _meta(training, frames, evaluation)
    write_json(folder.path / "meta.json", meta)
    folder.write_table("final.csv", pd.concat(frames, ignore_index=True))
    mark_done(job, folder, frames[0], meta["unsolved"], training.clock.began, training.clock.training)


def mark_done(
    job: Job,
    folder: JobFolder,
    rows: pd.DataFrame,
    unsolved: list[dict[str, Any]],
    began: float,
    seconds: float,
) -> None:
    """Marks a job done whose files are all written, with their digests, and removes its checkpoints.

    Args:
        rows: final rows of the first output rule.
        unsolved: the runs that ended with a failed solve.
        began: when the job began, in seconds since the epoch.
        seconds: of training.
    """
    ended: dict[str, Any] = {
        "diverged": int((rows["status"] == "diverged").sum()),
        "solver_failed": len(unsolved),
    }
    if words := too_many_failed(job, unsolved):
        ended["error"] = words
    times = {"started": began, "finished": time.time(), "seconds": seconds}
    about = {"step": job.steps, "steps": job.steps, **times, **ended, "runs": len(job.runs)}
    folder.write_status("done", **about, sha256=folder.digests())
    folder.remove_checkpoints()


def _negative(frames: list[pd.DataFrame]) -> str:
    """Says which objective ends below 0, where they are said to be positive; empty if none does."""
    ends = pd.concat([frame[named(frame, "f_")] for frame in frames])
    lowest = ends.min()
    name = str(lowest.idxmin()) if lowest.notna().any() else ""
    if not name or not lowest[name] < -ROUNDED:
        return ""
    return (
        f"{name} ends at {lowest[name]:.4g}, but the problem says that no objective is below 0, on which "
        "methods rely: angles, rays and an ideal point of 0 mean nothing. Give positive=False and ideal=."
    )


def _record_end(training: Training) -> None:
    """The last row of the history, of the iterate after the last step."""
    job = training.job
    last = training.answers["last"]
    point = job.joined.last_point(last, training.state["oracle"], job.steps)
    seen = job.joined.exact(last) if point is None else point.values()
    averages = {name: training.answers[name] for name in training.averaged}
    row = columns(job, last, seen, training.state["alg"], averages, point)
    training.recorder.add(job.steps, row)
    training.consider(job.steps, row, training.state)
    training.clock.recorded.append((job.steps, training.clock.training))
    if training.watched is not None:
        training.watch(training.watched, job.steps, training.state)
    if "best" in training.state:
        best = training.state["best"]
        chosen = best["step"].unsqueeze(1) >= 0  # else no recorded step has the number that decides
        training.answers["last"] = torch.where(chosen, best["theta"], last)


def _history(training: Training) -> pd.DataFrame:
    """All recorded rows, those of a run up to the step at which a stop rule ended it."""
    rows = training.recorder.frame(training.job)
    if "ended" not in training.state:
        return rows
    ended = training.state["ended"].cpu().numpy()[rows["run"]]
    return rows[(ended < 0) | (rows["step"] <= ended)].reset_index(drop=True)


def _meta(training: Training, frames: list[pd.DataFrame], evaluation: float) -> dict[str, Any]:
    """Returns the contents of meta.json: provenance, times, and facts about all rows."""
    job = training.job
    ideal = job.joined.ideal
    on_gpu = gpu.peak_memory_mib(job.device)
    by_process = training.processes()
    by_device = training.clock.by_device(provenance.device_name(job.device))
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        # of all processes, in their order
        **provenance.together(by_process),
        **({"processes": by_process} if len(by_process) > 1 else {}),
        "device": " and ".join(by_device),
        **({"seconds_by_device": by_device} if len(by_device) > 1 else {}),
        "execution": f"one batch of {len(job.runs)} runs on {job.device}, {torch.get_num_threads()} "
        f"thread(s), {job.problem.strategy(job.device)}",
        **job.problem.facts(job.runs),
        **({"measures": source(job.measures.values())} if job.measures else {}),
        # workers of the sweep on this machine (under Slurm 1): other jobs may cost time
        "at_once": workers.at_once(),
        "dtype": job.config.dtype,
        **({"tf32": True} if job.config.hardware.tf32 else {}),
        "seconds_train": training.clock.training,
        "seconds_evaluate": evaluation,
        "seconds_wall": training.clock.wall(),
        # at recorded steps, the seconds of training so far; of short steps, one in each tenth of a second
        "clock": [[step, round(seconds, 3)] for step, seconds in training.clock.recorded],
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **({} if on_gpu is None else {"peak_gpu_memory_mib": on_gpu, "cuda_graph": training.graph}),
        "hypervolume": hypervolumes(job, frames),
        "final_rows": sum(map(len, frames)),
        "ideal_point": None if ideal is None else ideal.tolist(),
        "unsolved": unsolved(training.state),
        "identity": job.identity,
    }


def hypervolume_fault(job: Job) -> str | None:
    """Why a job has no hypervolume; None if it has one."""
    if job.problem.ref_point is None:
        return f"{type(job.problem).__name__} has no reference point"
    if job.problem.n_objectives > metrics.MOST_OBJECTIVES:
        return (
            f"{job.problem.n_objectives} objectives are more than the {metrics.MOST_OBJECTIVES} of which "
            "hypervolumes can be computed"
        )
    if len(job.runs.all) < 2:
        return "a single preference does not give a front"
    return "a job with vary has one hypervolume for each value" if job.varied else None


def hypervolumes(job: Job, frames: list[pd.DataFrame]) -> dict[str, Any] | None:
    """Per output rule and seed, of the finished runs of all preferences, with the reference point used; None
    where there is none: of a job that varies hyper-parameters each value would have its own. Where exact ones
    would take longer than their share of `record.hypervolume_seconds`, they are estimates, and
    `half_width_99` has half the width of their intervals. Points that violate constraints by more than
    `metrics.FEASIBLE` do not count; `infeasible` has their number by output rule, where there are any.
    """
    ref = job.problem.ref_point
    if ref is None or hypervolume_fault(job) is not None:
        return None
    share = job.config.record.hypervolume_seconds / sum(frame["seed"].nunique() for frame in frames)
    out: dict[str, Any] = {"reference_point": list(ref)}
    widths: dict[str, dict[str, float]] = {}
    infeasible: dict[str, int] = {}
    for frame in frames:
        output = str(frame["output"].iloc[0])
        out[output] = {}
        good = frame["status"].to_numpy() == "done"
        seeds = frame["seed"].to_numpy()
        # column by column: a table of some of them costs ten times as much
        F = np.column_stack([frame[name].to_numpy() for name in named(frame, "f_")])
        counts = good & ~violating(frame)
        if left_out := int((good & ~counts).sum()):
            infeasible[output] = left_out
        for seed in np.unique(seeds[good]):
            volume = metrics.bounded_hypervolume(F[counts & (seeds == seed)], ref, share)
            out[output][str(seed)] = volume.value
            if volume.half_width is not None:
                widths.setdefault(output, {})[str(seed)] = volume.half_width
    out |= {"half_width_99": widths} if widths else {}
    return out | ({"infeasible": infeasible} if infeasible else {})


def _rows(training: Training, output: str) -> pd.DataFrame:
    """One row per run for one output rule."""
    job = training.job
    theta = training.answers[output]
    spec = job.joined.spec
    M = spec.M
    runs = job.runs
    values = job.joined.exact(theta)
    F = values[:, :M].cpu().to(torch.float64)
    w = runs.weights
    v = ray(w)
    data: dict[str, Any] = {"run": range(len(runs)), "seed": runs.seeds.numpy(), "output": output}
    data |= {name: column.numpy() for name, column in job.varied.items()}
    data |= {f"preference_{m + 1}": w[:, m].numpy() for m in range(M)}
    data |= {f"ray_{m + 1}": v[:, m].numpy() for m in range(M)}
    data |= {f"f_{m + 1}": F[:, m].numpy() for m in range(M)}
    data |= {f"g_{n + 1}": values[:, M + n].cpu().numpy() for n in range(spec.N)}
    if spec.positive:
        data["angle_deg"] = angle_deg(F, w).numpy()
    measured = measures(job, theta, values) | job.algorithm.report(values[:, :M], training.state["alg"])
    with_certificates = job.config.record.certificates
    certified = _front_distance(job, F) if with_certificates else {}
    certified |= {name: value.cpu().numpy() for name, value in measured.items()}
    certified |= _certificates(job, theta) if with_certificates else {}
    return pd.DataFrame(data | certified | _ends(training, F, values[:, M:]))


def _front_distance(job: Job, F: Tensor) -> dict[str, Any]:
    """Distance of each run to the true front, where the problem knows it;
    other constraints make another front.
    """
    if "constraint" in job.config.layers:
        return {}
    problem = job.problem
    distance = problem.distance_to_front(F) if isinstance(problem, FrontDistance) else None
    if distance is None and isinstance(problem, KnownFront):
        front = problem.front(FRONT_POINTS)
        distance = None if front is None else metrics.front_distance(F, front.to(F))
    return {} if distance is None else {"front_distance": distance.numpy()}


def _certificates(job: Job, theta: Tensor) -> dict[str, Any]:
    """Returns the distance of each run from a stationary point, where it can be measured."""
    oracle = job.joined
    if oracle.spec.N > 0 and not isinstance(oracle.spec.X, Free):
        return {}
    point = oracle.exact_point(theta)
    if point is not None and oracle.spec.N == 0:
        return {"stationarity": metrics.stationarity(point).cpu().numpy()}
    if point is not None and oracle.spec.constraint_kind == "inequality":
        return {"kkt": metrics.constrained_kkt(point).cpu().numpy()}
    return {}


def _ends(training: Training, F: Tensor, constraints: Tensor) -> dict[str, Any]:
    """Returns the status of each run and the report of its subproblems' solver."""
    state = training.state
    kkt = state["kkt"].cpu().numpy()
    # a constraint may be infinite: log x <= 0 is kept at 0, and a violation of inf is one
    fine = np.isfinite(F.numpy()).all(1) & ~constraints.isnan().any(1).cpu().numpy()
    alive = state["alive"].cpu().numpy() & fine
    failed = state["fail"].cpu().numpy()
    ended = {"ended": state["ended"].cpu().numpy()} if "ended" in state else {}
    kept_step = {"kept": state["best"]["step"].cpu().numpy()} if "best" in state else {}
    return {
        **ended,
        **kept_step,
        "seconds": training.clock.training / len(training.job.runs),
        "solver_failures": failed,
        "kkt_residual_max": np.where(kkt < 0, math.nan, kkt),
        "status": np.where(failed > 0, "solver_failed", np.where(alive, "done", "diverged")),
    }
