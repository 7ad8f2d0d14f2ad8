"""Run the jobs of a plan: in this process or by a launcher's workers, and again those whose workers died."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

from hydra.core.utils import JobReturn

from mobench.errors import Interrupted
from mobench.jobs.outcome import Outcome, failed, finished, folder_of
from mobench.jobs.store import JobFolder
from mobench.sweep.launchers import Adapter
from mobench.sweep.plan import Plan, Planned
from mobench.system import workers

Say = Callable[[str], None]


class Lost(Outcome):
    """The worker died and left no answer."""


def launch(plan: Plan, adapter: Adapter, say: Say) -> list[Outcome]:
    """Runs the unfinished jobs of a plan: in parallel, and then one by one those whose time is measured.

    On a cluster, whose jobs share no cores, these run with the others.

    Args:
        say: called with each message about what happens meanwhile.
    """
    beside: list[Planned] = []
    alone: list[list[Planned]] = []
    for job in plan.todo:
        if plan.timed(job) and not adapter.far:
            alone.append([job])
        else:
            beside.append(job)
    groups = [beside, *alone] if beside else alone
    anew = {job.folder.key for job in plan.todo if job.config["rerun"]}
    outcomes = [outcome for group in groups for outcome in launch_group(group, adapter, say)]
    return [outcome if outcome.key in anew else _looked_again(outcome) for outcome in outcomes]


def _looked_again(outcome: Outcome) -> Outcome:
    """Returns a job's outcome, which is success if another process that held the job has finished it."""
    folder = JobFolder(outcome.folder)
    if outcome.status == "failed" and folder.done:
        return finished(folder, skipped=True, title=outcome.title)
    return outcome


def launch_group(jobs: list[Planned], adapter: Adapter, say: Say) -> list[Outcome]:
    """Runs jobs beside each other.

    Raises:
        Interrupted: the user stopped it.
    """
    if adapter.here and jobs:
        from mobench.jobs.run import run  # torch, for which nothing waits that is done

        return [run(planned.take(), title=planned.title) for planned in jobs]
    try:
        with workers.environment(since=time.time()):
            return _joined(jobs, adapter, say)
    except KeyboardInterrupt:
        if adapter.far:
            raise Interrupted(
                "Stopped waiting. Jobs in Slurm's queue continue (`squeue --me` lists them, `scancel` stops "
                "them). `mobench status` shows their state; once they have ended, repeat the command to "
                "finish."
            ) from None
        raise


def _joined(jobs: list[Planned], adapter: Adapter, say: Say) -> list[Outcome]:
    """Runs jobs, those that are cut part by part beside the others, and joins the parts' rows here."""
    parts = {job.folder.key: _parts(job) for job in jobs}
    alone = [job for job in jobs if not parts[job.folder.key]]
    pieces = [piece for job in jobs for piece in parts[job.folder.key]]
    todo = {job.folder.key: job for job in (*alone, *pieces) if job.needed}
    answered = _until_answered(list(todo.values()), adapter, say) if todo else []
    outcomes = {outcome.key: outcome for outcome in answered}
    return [
        _of_parts(job, parts[job.folder.key], outcomes)
        if parts[job.folder.key]
        else outcomes.get(job.folder.key) or finished(job.folder, skipped=True, title=job.title)
        for job in jobs
    ]


def _parts(job: Planned) -> list[Planned]:
    """The parts that a job is run as; none where it is one batch."""
    hardware = job.config["hardware"]
    if hardware["split"] is None:
        return []
    from mobench.jobs import parts
    from mobench.jobs.build import make_job

    planned = []
    for part in parts.parts_of(make_job(job.config)):
        chunk = part.config.hardware.part
        overrides = [
            f"seeds={list(part.config.seeds)}".replace(" ", ""),
            f"hardware.part={'null' if chunk is None else chunk}".replace(" ", ""),
            "hardware.split=null",
        ]
        name = f"{job.name}, {parts.title_of(part)}".removeprefix(", ")
        planned.append(
            Planned([*job.overrides, *overrides], part.config.plain, folder_of(part), job.artifact, name)
        )
    return planned


def _of_parts(job: Planned, parts: list[Planned], outcomes: dict[str, Outcome]) -> Outcome:
    """Joins the rows of a job's parts."""
    for part in parts:
        outcome = outcomes.get(part.folder.key)
        if outcome is not None and outcome.status == "failed":
            return failed(job.folder, f"Its part {part.folder.key} failed: {outcome.error}", job.title)
    from mobench.jobs.run import run_job

    return run_job(job.config, title=job.title)


def _until_answered(jobs: list[Planned], adapter: Adapter, say: Say) -> list[Outcome]:
    """Launches jobs, and again those whose workers died, each at most so many times as it allows."""
    outcomes: dict[str, Outcome] = {}
    left = jobs
    for attempt in itertools.count():
        # a pool's jobs are all lost with one worker: the last time no job fails for another one
        together: list[Planned] = []
        alone: list[Planned] = []
        for job in left:
            last = adapter.pooled and 0 < attempt == job.config["hardware"]["retries"]
            (alone if last else together).append(job)
        began = time.time()
        for group in [together, *([job] for job in alone)]:
            if group:
                outcomes |= {outcome.key: outcome for outcome in _launched(group, adapter)}
        left = [
            job
            for job in left
            if isinstance(outcomes[job.folder.key], Lost) and attempt < job.config["hardware"]["retries"]
        ]
        if not left:
            break
        say(
            f"{len(left)} of {len(jobs)} jobs lost their worker (killed, out of memory or because of a "
            "machine failure) and are launched again"
        )
        left.sort(key=lambda job: job.folder.status().get("time", 0.0) >= began)  # the suspects last
    return list(outcomes.values())


def _launched(jobs: list[Planned], adapter: Adapter) -> list[Outcome]:
    """One Outcome for each job, whatever became of the launcher's workers."""
    began = time.time()
    count = adapter.at_once(len(jobs))
    adapter.prepare(jobs, count)
    try:
        with workers.environment(parallel=count):
            answers = adapter.launch([job.overrides for job in jobs])
    # a worker that dies takes joblib's pool with it: the folders know what was done
    except Exception as error:  # noqa: BLE001
        answers = [error] * len(jobs)
    return [outcome(answer, job, began) for answer, job in zip(answers, jobs, strict=True)]


def outcome(answer: Any, job: Planned, began: float) -> Outcome:
    """Returns what became of a job. Where a worker left no answer, its folder has one, or the job is lost.

    Args:
        answer: what the launcher brought back: an Outcome in Hydra's JobReturn, an exception, or a message.
        began: when the job was launched, in seconds since the epoch.
    """
    if isinstance(answer, JobReturn):
        try:
            # Hydra prints a line about an exception, too
            with contextlib.redirect_stderr(io.StringIO()):
                answer = answer.return_value
        # whatever a worker raised is this job's failure, and is reported
        except Exception as error:  # noqa: BLE001
            answer = f"{type(error).__name__}: {error}"
    if isinstance(answer, Outcome):
        return answer
    folder = job.folder
    status = folder.status()
    now = float(status.get("time", 0.0)) >= began
    if folder.done and (now or not job.config["rerun"]):
        return finished(folder, title=job.title)
    if status["status"] == "failed" and now:
        return failed(folder, str(status.get("error")), job.title)
    if not isinstance(answer, Exception):
        return failed(folder, str(answer), job.title)
    text = f"{type(answer).__name__}: {(str(answer).strip().splitlines() or [''])[-1]}"
    if _is_death(answer):
        return Lost(folder.key, "failed", folder.path, error=f"its worker died ({text})", title=job.title)
    return failed(folder, f"the launcher failed ({text})", job.title)


def _is_death(error: Exception) -> bool:
    """Returns whether an error says that a worker left no answer, and nobody cancelled its job.

    A job that raised, and a command of Slurm's that failed, such as sbatch without a controller, are no dead
    workers.
    """
    if isinstance(error, BrokenExecutor):
        return True
    try:
        from submitit.core.utils import FailedJobError, UncompletedJobError
    except ImportError:
        return False
    uncompleted = isinstance(error, UncompletedJobError) and not isinstance(error, FailedJobError)
    return uncompleted and "state: CANCELLED" not in str(error)
