"""Makes a bundle of drawn artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mobench.artifacts.drawing import tally
from mobench.bundle.archive import document
from mobench.bundle.claims import SCHEMA, claims_document
from mobench.bundle.compute import compute
from mobench.bundle.contents import Contents
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
    files["compute.json"] = document(compute(contents))
    files["environment/lock.txt"] = (locks() / LOCK).read_bytes()
    files["environment/installed.txt"] = "\n".join([*provenance.installed(), ""]).encode()
    files |= _code(contents)
    commands = [drawn.command for drawn in contents.artifacts]
    files["commands.sh"] = "\n".join(["#!/usr/bin/env bash", "set -euo pipefail", *commands, ""]).encode()
    files["README.md"] = _readme(contents).encode()
    return files


def _code(contents: Contents) -> Mapping[str, bytes]:
    """Version of the code, and its changes."""
    commits: dict[str, list[str]] = {}
    for key, job in contents.jobs.items():
        changed = " with changes" if job.meta.get("git_dirty") else ""
        commits.setdefault(f"{job.meta.get('git_sha')}{changed}", []).append(key)
    found = {
        "mobench": provenance.versions()["mobench"],
        **provenance.describe(),
        "rows_by_commit": commits,
        "rows_by_versions": contents.versions,
    }
    files = {"code/version.json": document(found)}
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
