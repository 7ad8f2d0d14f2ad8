"""Makes a bundle of drawn artifacts."""

from __future__ import annotations

from collections.abc import Mapping

from mobench.artifacts.drawing import tally
from mobench.bundle.archive import document
from mobench.bundle.claims import SCHEMA, claims_document
from mobench.bundle.contents import Contents
from mobench.bundle.crate import METADATA, WORKFLOW, metadata
from mobench.bundle.croissant import CARD, data_cards, rows_card
from mobench.bundle.statements import checklists, compute
from mobench.system import provenance
from mobench.system.paths import locks

LOCK = "full.txt"  # in `locks`
README = """# {title}

Made by mobench {version} ({code}). {artifacts} artifacts, {claims} claims ({verdicts}), {jobs} jobs, {rows} rows.

| file | what it holds |
| --- | --- |
| `claims.json` | every claim: statement, published and measured values, tolerance, verdict, and the jobs whose rows it rests on; `claims.schema.json` is its schema |
| `runs/KEY/` | of each job: `final.csv` (a row per run and output rule), `config.yaml`, `meta.json` (provenance) |
| `artifacts/PAPER/NAME/` | figures and tables as they were drawn |
| `commands.sh` | what runs the jobs and draws the artifacts |
| `environment/`, `code/` | locked dependencies with hashes, what was installed, version of the code and its changes |
| `compute.json`, `checklists.json` | what it cost; answers to the checklists of venues as far as the data show them |
| `croissant.json`, `data/` | Croissant cards of the rows and of the data sets |
| `ro-crate-metadata.json` | the same as a Workflow Run RO-Crate |
| `manifest.json` | SHA-256 of every file |

From a verdict to its numbers: in `claims.json`, `claims[i].jobs` are keys of `jobs`, and `jobs[KEY]` names the
rows, the configuration and the command.

## Check it

    git clone {source} && cd mobench && git checkout {commit}
    python -m venv .venv && . .venv/bin/activate
    pip install --require-hashes -r LOCK      # environment/lock.txt of this bundle
    pip install --no-deps --no-build-isolation .
    mobench verify BUNDLE.zip --rows 20

`mobench verify` refuses a bundle in which anything was changed, runs a random sample of rows again, and says
of each whether it is identical, inside the interval, or outside. It needs the data sets that `data/` names.
"""


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
    files["checklists.json"] = document(checklists(contents))
    files["environment/lock.txt"] = (locks() / LOCK).read_bytes()
    files["environment/installed.txt"] = "\n".join([*provenance.installed(), ""]).encode()
    files |= _code(contents)
    commands = [drawn.command for drawn in contents.artifacts]
    files[WORKFLOW] = "\n".join(["#!/usr/bin/env bash", "set -euo pipefail", *commands, ""]).encode()
    files[CARD] = document(rows_card(contents, files))
    files |= {name: document(card) for name, card in data_cards(contents).items()}
    files["README.md"] = _readme(contents).encode()
    files[METADATA] = document(metadata(contents, files))
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
    return README.format(
        title=", ".join(drawn.id for drawn in contents.artifacts),
        version=provenance.versions()["mobench"],
        code=code["git_describe"] or "not from a checkout",
        artifacts=len(contents.artifacts),
        claims=len(claims),
        verdicts=tally(str(claim["verdict"]) for claim in claims),
        jobs=len(contents.jobs),
        rows=sum(len(job.final) for job in contents.jobs.values()),
        source="https://github.com/mobench/mobench",
        commit=code["git_sha"] or "the commit of this version",
    )
