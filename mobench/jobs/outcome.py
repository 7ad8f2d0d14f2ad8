"""The outcome of a job, and the folders that it may lie in. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mobench.jobs.store import JobFolder
from mobench.system.paths import outputs_root, results_root

if TYPE_CHECKING:
    import mobench.jobs.job


@dataclass
class Outcome:
    """The outcome of a job.

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


def failed(folder: JobFolder, error: str, title: str = "") -> Outcome:
    """The outcome of a job that has no rows, or old ones."""
    return Outcome(folder.key, "failed", folder.path, error=error, title=title)


def places_of(job: mobench.jobs.job.Job, root: Path | None = None) -> tuple[JobFolder, JobFolder]:
    """The job's folder below `root`/runs (default: outputs/runs), and the one below experiments/results/runs,
    where rows that took a long machine are kept with the project: they need not be made again, and are never
    written to.
    """
    trained, archived = (place / "runs" / job.key for place in (root or outputs_root(), results_root()))
    return JobFolder(trained), JobFolder(archived)


def folder_of(job: mobench.jobs.job.Job, root: Path | None = None) -> JobFolder:
    """The first of both, or the second if rows are kept there alone."""
    trained, archived = places_of(job, root)
    return archived if archived.done and not trained.done and not job.config.rerun else trained
