"""ro-crate-metadata.json: the bundle as a Workflow Run RO-Crate (profile version 0.5).

The workflow is `commands.sh`, which runs the jobs and draws the artifacts. One action says what the run of it
read (configurations) and made (rows, figures, tables, claims).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from mobench.bundle.contents import Contents, media_type
from mobench.bundle.croissant import LICENSE, SOURCE
from mobench.system.provenance import versions

METADATA = "ro-crate-metadata.json"
WORKFLOW = "commands.sh"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
ROCRATE = "https://w3id.org/ro/crate/1.1"
CONTEXT = [f"{ROCRATE}/context", {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}]
WORKFLOW_TYPE = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
PARAMETER_TYPE = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
ABOUT = {
    "README.md": "What this bundle is, and how to check it",
    "claims.json": "Every claim with its verdict, and the jobs that it rests on",
    "claims.schema.json": "JSON schema of claims.json",
    "compute.json": "Time, memory, machine and precision of each job",
    "checklists.json": "Answers to checklists of venues, as far as the data show them",
    "croissant.json": "Croissant card of the rows",
    "code/version.json": "Version of the code that made the bundle, and commits of the rows",
    "code/changes.diff": "Changes of the code that are in no commit",
    "environment/lock.txt": "Locked versions of all dependencies with their SHA-256",
    "environment/installed.txt": "Versions of the packages where the bundle was made",
    WORKFLOW: "The commands that run the jobs and draw the artifacts",
}
KINDS = {
    "final.csv": "Final rows of a job",
    "config.yaml": "Configuration of a job",
    "meta.json": "Provenance of a job",
    "status.json": "Status of a job",
    "solutions.npz": "Decision variables of a job",
    "history.parquet": "Recorded steps of a job",
    "figure.png": "Figure of an artifact",
    "figure.pdf": "Figure of an artifact",
    "table.csv": "Table of an artifact",
    "table.md": "Table of an artifact",
    "table.tex": "Table of an artifact",
    "claims.json": "Claims of an artifact, as it was drawn",
    "provenance.json": "Provenance of an artifact",
}


def _ref(id: str) -> dict[str, str]:
    return {"@id": id}


def metadata(contents: Contents, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Returns the metadata of a bundle.

    Args:
        contents: of the bundle.
        files: the bundle's files by name, without the metadata and the manifest.
    """
    ids = ", ".join(drawn.id for drawn in contents.artifacts)
    configurations = [f"{job.base}/config.yaml" for job in contents.jobs.values()]
    results = [f"{job.base}/final.csv" for job in contents.jobs.values()]
    results += [name for drawn in contents.artifacts for name in sorted(drawn.files)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"mobench: {ids}"[:200],
        "description": f"Rows, configurations, figures and claims of {ids}, and what it takes to check them.",
        "datePublished": contents.latest[:10],
        "license": _ref(LICENSE),
        "conformsTo": [_ref(id) for id in PROFILES],
        "hasPart": [_ref(name) for name in sorted(files)],
        "mainEntity": _ref(WORKFLOW),
        "mentions": [_ref("#run")],
        "author": _ref("#developers"),
        "publisher": _ref("#developers"),
    }
    graph = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": _ref("./"),
            "conformsTo": [_ref(ROCRATE), _ref("https://w3id.org/workflowhub/workflow-ro-crate/1.0")],
        },
        root,
        *_about_the_run(contents, configurations, results),
        *[
            _file(name, data, configurations, results)
            for name, data in sorted(files.items())
            if name != WORKFLOW
        ],
        {
            **_file(WORKFLOW, files[WORKFLOW], (), ()),
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            "conformsTo": _ref(WORKFLOW_TYPE),
            "programmingLanguage": _ref("#bash"),
            "input": [_ref("#configuration")],
            "output": [_ref("#result")],
            "license": _ref(LICENSE),
            "creator": _ref("#developers"),
            "author": _ref("#developers"),
            "dateCreated": contents.latest,
            "url": SOURCE,
            "sdPublisher": _ref("#developers"),
            "version": versions()["mobench"],
        },
    ]
    return {"@context": CONTEXT, "@graph": [_singled(entity) for entity in graph]}


def _singled(entity: dict[str, Any]) -> dict[str, Any]:
    """An entity whose lists of one element are that element, as RO-Crate recommends."""
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in entity.items()
    }


def _about_the_run(contents: Contents, configurations: list[str], results: list[str]) -> list[dict[str, Any]]:
    """The entities that are not files."""
    license = {
        "@id": LICENSE,
        "@type": "CreativeWork",
        "name": "MIT License",
        "description": "Permission to use, copy, modify and distribute, with the copyright notice.",
        "url": LICENSE,
    }
    profiles = [
        {"@id": id, "@type": "CreativeWork", "name": name, "version": version}
        for id, (name, version) in PROFILES.items()
    ]
    run = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": "Run of the jobs and drawing of the artifacts",
        "description": "The jobs, each of which may have run at another time, and the drawings",
        "instrument": _ref(WORKFLOW),
        "agent": _ref("#developers"),
        "object": [_ref(name) for name in configurations],
        "result": [_ref(name) for name in results],
        "startTime": _start(contents),
        "endTime": _time(contents.latest).isoformat(),
        "actionStatus": "http://schema.org/CompletedActionStatus",
    }
    return [
        license,
        *profiles,
        run,
        {"@id": "#developers", "@type": "Organization", "name": "The mobench developers", "url": SOURCE},
        {
            "@id": "#bash",
            "@type": "ComputerLanguage",
            "name": "Bash",
            "identifier": _ref("https://www.gnu.org/software/bash/"),
            "url": _ref("https://www.gnu.org/software/bash/"),
        },
        _parameter("#configuration", "configuration", "Configuration of a job"),
        _parameter("#result", "result", "Rows of a job, and files of an artifact"),
    ]


def _parameter(id: str, name: str, description: str) -> dict[str, Any]:
    return {
        "@id": id,
        "@type": "FormalParameter",
        "additionalType": "File",
        "conformsTo": _ref(PARAMETER_TYPE),
        "name": name,
        "description": description,
        "valueRequired": "True",
    }


def _file(name: str, data: bytes, configurations: Any, results: Any) -> dict[str, Any]:
    last = name.rpartition("/")[2]
    about = ABOUT.get(name) or KINDS.get(last) or "Croissant card of a data set"
    entity: dict[str, Any] = {
        "@id": name,
        "@type": "File",
        "name": name,
        "description": about,
        "encodingFormat": media_type(name),
        "contentSize": str(len(data)),
        "sha256": sha256(data).hexdigest(),
    }
    if name == "README.md":
        entity["about"] = _ref("./")
    if name in configurations:
        entity["exampleOfWork"] = _ref("#configuration")
    if name in results:
        entity["exampleOfWork"] = _ref("#result")
    return entity


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _start(contents: Contents) -> str:
    """When the first of the jobs began; times of jobs are those of their ends."""
    starts = [_time(str(job.meta["date"])) - timedelta(seconds=job.seconds) for job in contents.jobs.values()]
    starts = starts or [_time(contents.earliest)]
    return min(starts).replace(microsecond=0).isoformat()
