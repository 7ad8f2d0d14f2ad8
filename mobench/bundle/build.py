"""Makes a bundle of drawn artifacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mobench.artifacts.drawing import tally
from mobench.bundle.archive import document
from mobench.bundle.claims import SCHEMA, claims_document
from mobench.bundle.contents import Contents, Rows
from mobench.system import provenance
from mobench.system.paths import locks

LOCK = "full.txt"  # in `locks`
README = Path(__file__).with_name("about.md")


def build(contents: Contents, history: bool = False) -> dict[str, bytes]:
    """Returns the files of a bundle, without its manifest; the same rows and code give the same bytes.

    Args:
        contents: artifacts and jobs.
        history: add the recorded steps of the jobs, which are large; figures that draw curves need them.
    """
    files: dict[str, bytes] = {}
    for drawn in contents.artifacts:
        files |= drawn.files
    for job in contents.jobs.values():
        files |= job.files(history)
    files["claims.json"] = document(claims_document(contents))
    files[SCHEMA.name] = SCHEMA.read_bytes()
    files["compute.json"] = document(_compute(contents))
    files["environment/lock.txt"] = (locks() / LOCK).read_bytes()
    files["environment/installed.txt"] = "\n".join([*provenance.installed(), ""]).encode()
    files |= _code(contents)
    commands = [drawn.command for drawn in contents.artifacts]
    files["commands.sh"] = "\n".join(["#!/usr/bin/env bash", "set -euo pipefail", *commands, ""]).encode()
    files["README.md"] = _readme(contents).encode()
    return files


def _compute(contents: Contents) -> dict[str, Any]:
    """Returns compute.json: time, memory, machine and precision of each job, as its meta.json has them.

    Core-hours are wall time times threads, of the runs that are in the bundle, without earlier trials and
    failed runs.
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


def _code(contents: Contents) -> Mapping[str, bytes]:
    """Returns the files with the version of the code and its changes."""
    commits: dict[str, list[str]] = {}
    for key, job in contents.jobs.items():
        changed = " with changes" if job.meta.get("git_dirty") else ""
        commits.setdefault(f"{job.meta.get('git_sha')}{changed}", []).append(key)
    version = {
        "mobench": provenance.versions()["mobench"],
        **provenance.describe(),
        "rows_by_commit": commits,
        "rows_by_versions": contents.versions,
    }
    files = {"code/version.json": document(version)}
    if changes := provenance.changes():
        files["code/changes.diff"] = changes.encode()
    return files


def _readme(contents: Contents) -> str:
    claims = [claim for drawn in contents.artifacts for claim in drawn.claims]
    code = provenance.describe()
    return README.read_text().format(
        title=", ".join(drawn.id for drawn in contents.artifacts),
        version=provenance.versions()["mobench"],
        code=code["git_describe"] or "not from a checkout",
        artifacts=len(contents.artifacts),
        claims=len(claims),
        verdicts=tally((str(claim["verdict"]), str(claim["source"])) for claim in claims),
        jobs=len(contents.jobs),
        rows=sum(len(job.final) for job in contents.jobs.values()),
        commit=code["git_sha"] or "the commit of this version",
    )
