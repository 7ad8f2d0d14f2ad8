"""Run a resolved job: skip it if it is finished, resume it if it is half done, and say what became of it."""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path
from typing import Any

from mobench.errors import Interrupted, MobenchError, StoreError
from mobench.jobs import parts, rehearsal, wandb_log
from mobench.jobs.build import make_job
from mobench.jobs.failures import in_words
from mobench.jobs.job import Job
from mobench.jobs.outcome import Outcome, failed, finished, folder_of, places_of
from mobench.jobs.rows import finish
from mobench.jobs.store import JobFolder
from mobench.jobs.train import train
from mobench.system import gpu, gpu_lock, signals, workers


def again(job: Job, folder: JobFolder) -> bool:
    """Returns whether to ignore rows and checkpoints: `rerun=true`, but not what this very sweep has written
    already. A job that Slurm puts back into its queue, or whose worker died, goes on.
    """
    began = workers.since()
    written = began is not None and float(folder.status().get("time", 0.0)) >= began
    return job.config.rerun and not written


def run_job(config: dict[str, Any], root: Path | None = None, title: str = "") -> Outcome:
    """Resolves a plain configuration and runs the job; see `run`.

    Raises:
        ConfigError, PreferenceError: the configuration is no job's.
    """
    return run(make_job(config), root, title)


def run(job: Job, root: Path | None = None, title: str = "") -> Outcome:
    """Runs a job, unless its rows are there. A failure is an Outcome, never an exception that ends a sweep.

    Args:
        root: holds `runs`; default: the outputs folder.
        title: what messages call the job.

    Raises:
        ConfigError, CompatibilityError: before a folder exists.
        Interrupted: the user stopped it.
    """
    folder = folder_of(job, root)
    if folder.done and not again(job, folder):
        if job.config.logger.finished:
            wandb_log.log_job(job.config.plain, folder)
        return finished(folder, skipped=True, title=title)
    for place in places_of(job, root):
        if (damage := place.damage) is not None:
            print(f"warning: {title + ': ' if title else ''}{damage} The job will be rerun.", file=sys.stderr)
    if job.measures:
        rehearsal.check_measures(job)
    if pieces := parts.parts_of(job):
        return _in_parts(job, pieces, folder, root, title)
    hardware = job.config.hardware
    try:
        with gpu_lock.device(hardware.device, hardware.jobs_per_device, title) as device:
            here = job.on(device)
            with gpu.current(here.device, hardware.tf32):
                return _on_its_device(here, folder, title)
    # no lock can be had: of the folder, which another process may hold, or of a GPU
    except StoreError as error:
        return failed(folder, str(error), title)


def _in_parts(job: Job, pieces: list[Job], folder: JobFolder, root: Path | None, title: str) -> Outcome:
    """Runs a job part by part, and joins their rows."""
    for piece in pieces:
        name = parts.title_of(piece)
        outcome = run(piece, root, f"{title or job.key}, {name}")
        if outcome.status == "failed":
            return failed(folder, f"Its part with the {name} failed: {outcome.error}", title)
    try:
        with folder.locked():
            parts.join(job, pieces, [folder_of(piece, root) for piece in pieces], folder)
    except StoreError as error:
        return failed(folder, str(error), title)
    wandb_log.log_job(job.config.plain, folder)
    return finished(folder, title=title)


def _on_its_device(job: Job, folder: JobFolder, title: str) -> Outcome:
    """Run a job that has its device."""
    wandb_log.check(job.config.plain)
    spec = job.joined.spec
    with folder.locked(), signals.caught() as arrived:
        anew = again(job, folder)
        if folder.done and not anew:  # another process was faster
            return finished(folder, skipped=True, title=title)
        unknown = "the result of this job will not be reused, because its code cannot be fingerprinted"
        for line in [*(f"{unknown}: {why}" for why in job.opaque.values()), *job.algorithm.advice(spec)]:
            print(f"warning: {title + ': ' if title else ''}{line}", file=sys.stderr)
        try:
            finish(train(job, folder, title, arrived, anew), folder)
        except Interrupted:
            with contextlib.suppress(MobenchError):  # so that nobody takes it for dead
                said = folder.status()
                known = ("step", "steps", "progress", "seconds", "started")
                progress = {key: said[key] for key in known if key in said}
                folder.write_status("running", **progress, interrupted=True)
            raise
        except Exception as error:
            message = in_words(error, job)
            # a full disk must not hide the reason
            with contextlib.suppress(MobenchError):
                folder.write_status("failed", error=message, traceback=traceback.format_exc())
            if arrived.stop:
                raise Interrupted(f"Stopped. {folder.key} had just failed: {message}") from error
            return failed(folder, message, title)
    wandb_log.log_job(job.config.plain, folder)
    if arrived.stop:
        raise Interrupted(f"Stopped. {folder.key} had just finished and is complete ({folder.path}).")
    return finished(folder, title=title)
