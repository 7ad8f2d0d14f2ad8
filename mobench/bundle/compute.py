"""The cost of the jobs in a bundle."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mobench.bundle.contents import Contents, Rows


def compute(contents: Contents) -> dict[str, Any]:
    """Returns compute.json: time, memory, machine and precision of each job, as its meta.json has them.

    Core-hours are wall time times threads, of the runs that are in the bundle: what was tried before, and
    what failed, is not in them.
    """
    jobs = {key: _cost(job) for key, job in contents.jobs.items()}
    return {
        "core_hours": sum(job["core_hours"] for job in jobs.values()),
        "gpu_hours": sum(job["gpu_hours"] for job in jobs.values()),
        "wall_hours": sum(job["seconds"] for job in jobs.values()) / 3600,
        "peak_memory_mib": max((job["peak_memory_mib"] or 0.0 for job in jobs.values()), default=0.0),
        "devices": dict(Counter(job["device"] for job in jobs.values())),
        "precisions": dict(Counter(job["precision"] for job in jobs.values())),
        "not_counted": "trials before these runs, failed runs, and the drawing of figures",
        "jobs": jobs,
    }


def _cost(job: Rows) -> dict[str, Any]:
    meta = job.meta
    dtype = str(meta["dtype"])
    return {
        "device": str(meta["device"]),
        "threads": job.threads,
        "jobs_at_once": meta.get("at_once"),
        "seconds": job.seconds,
        "core_hours": job.seconds * job.threads / 3600,
        "gpu_hours": job.gpu_seconds / 3600,
        "peak_memory_mib": meta.get("peak_memory_mib"),
        "peak_gpu_memory_mib": meta.get("peak_gpu_memory_mib"),
        "precision": f"{dtype}, products in tf32" if meta.get("tf32") else dtype,
    }
