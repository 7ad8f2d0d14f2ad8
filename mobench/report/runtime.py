"""Reports how long the command of an artifact takes and on which device, as its jobs recorded it."""

from __future__ import annotations

from collections.abc import Sequence

from mobench.report.model import Entry, Job, Site
from mobench.report.words import duration


def runtime(entry: Entry, site: Site) -> list[tuple[str, str]]:
    """Returns pairs of a device and a duration, then remarks that qualify them."""
    keys = dict.fromkeys(entry.jobs.values())
    jobs = _jobs_of(entry, site)
    drawing = f"then {duration(entry.origin.get('seconds_drawing'))} for drawing"
    if not keys:
        return []
    if not jobs:
        whole = duration(entry.origin.get("seconds_jobs"))
        return [("Jobs", f"{whole} in total when it was drawn (the job folders are missing), {drawing}")]
    timed = [job for job in jobs if job.seconds is not None]
    cpu = [job for job in timed if not job.on_gpu]
    gpu = [job for job in timed if job.on_gpu]
    lines = []
    if cpu:
        lines.append((_cores(cpu), f"{_sum(cpu)}, {drawing}"))
    if gpu:
        lines.append(("One GPU", _sum(gpu) if cpu else f"{_sum(gpu)}, {drawing}"))
    of = _jobs(len(jobs))
    if len(keys) > len(timed):
        lines.append(
            ("Unknown", f"the time of {_jobs(len(keys) - len(timed))}, whose folder or time is missing")
        )
    if kept := sum(job.kept for job in jobs):
        lines.append(
            ("Kept", f"the rows of {kept} of {of} come with the repository, so these jobs are not rerun")
        )
    if shared := sum(len(job.entries) > 1 for job in jobs):
        lines.append(("Shared", f"other artifacts share {shared} of {of}; a finished job is not rerun"))
    return lines


def cost(site: Site, entry: Entry) -> str:
    """Writes the wall time of an artifact's jobs, one after another, and their hardware; "" if unknown."""
    timed = [job for job in _jobs_of(entry, site) if job.seconds is not None]
    return f" ({_sum(timed)})" if timed else ""


def _jobs_of(entry: Entry, site: Site) -> list[Job]:
    return [site.by_key[key] for key in dict.fromkeys(entry.jobs.values()) if key in site.by_key]


def _jobs(n: int) -> str:
    return f"{n} job{'s' if n != 1 else ''}"


def _sum(jobs: Sequence[Job]) -> str:
    devices = ", ".join(sorted({job.device for job in jobs}))
    return f"{duration(sum(job.seconds or 0.0 for job in jobs))} for {_jobs(len(jobs))} on {devices}"


def _cores(jobs: Sequence[Job]) -> str:
    threads = {job.threads for job in jobs if job.threads is not None}
    if threads == {1}:
        return "One core"
    if not threads:
        return "CPU"
    low = min(threads)
    high = max(threads)
    return f"{low} threads" if low == high else f"{low} to {high} threads"
