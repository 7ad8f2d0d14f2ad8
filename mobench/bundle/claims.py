"""claims.json: every claim with the jobs that it rests on, and every job with its rows, configuration and
command.

One follows from a verdict to its numbers: `claims[i].jobs` are keys of `jobs`; `jobs[key].rows` is the file
of its rows, `configuration` that of its settings, `commands` what runs it again. The file
`claims.schema.json` beside this module is the JSON schema of the document.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mobench.bundle.contents import Contents, Drawn, Rows
from mobench.system.provenance import code, versions

SCHEMA = Path(__file__).with_name("claims.schema.json")
FORMAT = 1


def claims_document(contents: Contents) -> dict[str, Any]:
    """Returns claims.json."""
    return {
        "$schema": SCHEMA.name,
        "format": FORMAT,
        "software": {"name": "mobench", "version": versions()["mobench"], "commit": code()["git_sha"]},
        "artifacts": {drawn.id: _artifact(drawn) for drawn in contents.artifacts},
        "claims": [_claim(drawn, claim) for drawn in contents.artifacts for claim in drawn.claims],
        "jobs": {key: _job(job) for key, job in contents.jobs.items()},
    }


def _artifact(drawn: Drawn) -> dict[str, Any]:
    origin = drawn.origin
    return {
        "title": str(origin["title"]),
        "scale": str(origin["scale"]),
        "command": drawn.command,
        "drawn": str(origin["date"]),
        "jobs": drawn.jobs,
        "files": sorted(drawn.files),
        "notes": [str(note) for note in origin.get("notes") or []],
        "also_shows": dict(origin.get("references") or {}),
    }


def _claim(drawn: Drawn, claim: dict[str, Any]) -> dict[str, Any]:
    """Returns a claim of the artifact; one that names no jobs rests on all of them."""
    names = claim.get("jobs")
    jobs = drawn.jobs if names is None else {name: drawn.jobs[name] for name in names}
    keys = ("statement", "source", "published", "measured", "tolerance", "scale", "verdict", "reason")
    return {
        "artifact": drawn.id,
        "id": claim["id"],
        "kind": "check" if claim["source"] == "ours" else "claim",
        **{key: claim[key] for key in keys},
        "timed": bool(claim.get("timed")),
        "jobs": sorted(set(jobs.values())),
    }


def _job(job: Rows) -> dict[str, Any]:
    identity = job.meta["identity"]
    return {
        "rows": f"{job.base}/final.csv",
        "count": len(job.final),
        "runs": job.runs.planned,
        "preferences": len(identity["preferences"]),
        "seeds": identity["seeds"],
        "configuration": f"{job.base}/config.yaml",
        "provenance": f"{job.base}/meta.json",
        "data": job.meta.get("data"),
        "data_sha256": job.meta.get("data_sha256"),
        "names": [{"artifact": drawn.id, "name": name} for drawn, name in job.used],
        "commands": [drawn.job_command(name) for drawn, name in job.used],
    }
