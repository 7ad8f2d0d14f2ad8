"""Makes a bundle of drawn artifacts.

One follows from a verdict to its numbers: in `claims.json`, `claims[i].jobs` are keys of `jobs`;
`jobs[key].rows` is the file of its rows, `configuration` that of its settings, `commands` what runs it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mobench.artifacts.drawing import tally
from mobench.bundle.archive import document
from mobench.bundle.contents import Contents, Drawn, Rows
from mobench.system import provenance
from mobench.system.paths import locks

FORMAT = 1  # of claims.json
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
    files["claims.json"] = document(_claims_document(contents))
    files["environment/lock.txt"] = (locks() / LOCK).read_bytes()
    files["code/version.json"] = document(_version(contents))
    commands = [drawn.command for drawn in contents.artifacts]
    files["commands.sh"] = "\n".join(["#!/usr/bin/env bash", "set -euo pipefail", *commands, ""]).encode()
    files["README.md"] = _readme(contents).encode()
    return files


def _claims_document(contents: Contents) -> dict[str, Any]:
    """Returns claims.json: every claim with the jobs that it rests on, and every job with its files."""
    return {
        "format": FORMAT,
        "software": {
            "name": "mobench",
            "version": provenance.versions()["mobench"],
            "commit": provenance.code()["git_sha"],
        },
        "artifacts": {drawn.id: _artifact(drawn) for drawn in contents.artifacts},
        "claims": [
            as_listed(drawn.id, claim, drawn.jobs) for drawn in contents.artifacts for claim in drawn.claims
        ],
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


def as_listed(drawing: str, claim: Mapping[str, Any], every: Mapping[str, str]) -> dict[str, Any]:
    """Returns a claim of an artifact as claims.json lists it; one that names no jobs rests on all of them."""
    names = claim.get("jobs")
    jobs = every if names is None else {name: every[name] for name in names}
    keys = ("statement", "source", "published", "measured", "tolerance", "scale", "verdict", "reason")
    return {
        "artifact": drawing,
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


def _version(contents: Contents) -> dict[str, Any]:
    """Returns code/version.json: the code that made the bundle, and the commits of the rows."""
    commits: dict[str, list[str]] = {}
    for key, job in contents.jobs.items():
        changed = " with changes" if job.meta.get("git_dirty") else ""
        commits.setdefault(f"{job.meta.get('git_sha')}{changed}", []).append(key)
    return {
        "mobench": provenance.versions()["mobench"],
        **provenance.describe(),
        "rows_by_commit": commits,
    }


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
