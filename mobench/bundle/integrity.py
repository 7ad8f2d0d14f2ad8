"""Checks that the files of a bundle belong together, beyond what their hashes say.

Hashes show that a file was changed, not who changed it: whoever changes rows and writes the manifest anew has
another bundle whose hashes are right. The values that are computed here from several files must agree in such
a bundle, too; the published digest, and running the rows again, find other changes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import yaml

from mobench.bundle.archive import parsed, refuse
from mobench.bundle.claims import FORMAT
from mobench.errors import BundleError
from mobench.jobs.store import META, config_hash
from mobench.system.files import read_csv
from mobench.system.forms import fields

NEEDED = ("config.yaml", "final.csv", "meta.json", "status.json")
SETTINGS = ("seeds", "steps", "dtype", "max_failure_share")  # as plain in a configuration as in an identity


def check(files: Mapping[str, bytes]) -> None:
    """Raises BundleError where files contradict each other, with the names of these files."""
    claims = parsed("claims.json", _needed(files, "claims.json"))
    malformed = (KeyError, TypeError, AttributeError, ValueError)
    try:
        problems = [*_claims_problems(claims, files)]
        jobs = dict(claims["jobs"])
    except malformed as error:
        raise BundleError(
            f"claims.json does not have the form of claims.schema.json ({type(error).__name__}: {error})."
        ) from error
    for key, record in jobs.items():
        try:
            problems += _job_problems(key, record, files)
        except malformed as error:
            raise BundleError(
                f"What claims.json or runs/{key} says of the job {key} does not have the form of a job "
                f"({type(error).__name__}: {error})."
            ) from error
    refuse(problems)


def _needed(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise BundleError(f"{name} is missing.")
    return files[name]


def _claims_problems(document: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    """Returns entries of claims.json that the bundle lacks, and claims that differ from the artifacts'."""
    if document["format"] != FORMAT:
        yield f"claims.json has format {document['format']!r}; this version of mobench reads {FORMAT}"
        return
    jobs = document["jobs"]
    folders = {name.split("/")[1] for name in files if name.startswith("runs/")}
    for key in sorted(folders ^ set(jobs)):
        yield f"runs/{key} and the jobs of claims.json do not match"
    for id, artifact in document["artifacts"].items():
        missing = [name for name in artifact["files"] if name not in files]
        if missing:
            yield f"claims.json names {missing[0]} of {id}, which is missing"
            continue
        drawn = parsed(f"artifacts/{id}/claims.json", files[f"artifacts/{id}/claims.json"])
        listed = [claim for claim in document["claims"] if claim["artifact"] == id]
        for key in ("id", "statement", "published", "measured", "tolerance", "verdict", "reason"):
            if [claim[key] for claim in drawn] != [claim[key] for claim in listed]:
                yield f"claims.json and artifacts/{id}/claims.json differ in {key!r}"
    for claim in document["claims"]:
        if unknown := [key for key in claim["jobs"] if key not in jobs]:
            yield f"claims.json: {claim['artifact']} {claim['id']} rests on {unknown[0]}, which is missing"


def _job_problems(key: str, record: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    """Returns the faults of the files of one job."""
    base = f"runs/{key}"
    missing = [name for name in NEEDED if f"{base}/{name}" not in files]
    if missing:
        yield f"{base}/{missing[0]} is missing"
        return
    name = f"{base}/meta.json"
    meta = fields(name, parsed(name, files[name]), META, BundleError)
    identity = meta["identity"]
    if meta["dtype"] not in ("float32", "float64"):
        yield f"{name} has dtype={meta['dtype']!r}; expected float32 or float64"
    if not re.fullmatch(rf"[\w-]+-{config_hash(identity)}", key):
        yield (
            f"{base}/meta.json: the hash of its identity is {config_hash(identity)}, and the name of the job "
            "ends otherwise"
        )
    config = configuration(files, key)
    for name in SETTINGS:
        if config.get(name) != identity.get(name):
            yield (
                f"{base}/config.yaml has {name}={config.get(name)}, and {base}/meta.json has "
                f"{identity.get(name)}"
            )
    for part in ("problem", "algorithm", "oracle"):
        configured = str(
            fields(f"{base}/config.yaml: {part}", config.get(part), {}, BundleError).get("_target_")
        )
        known = str(fields(f"{base}/meta.json: {part}", identity.get(part), {}, BundleError).get("class"))
        if configured.rpartition(".")[2] != known.rpartition(".")[2]:
            yield f"{base}/config.yaml names {configured} as its {part}, and {base}/meta.json names {known}"
    rows = final(files, key)
    if lost := [name for name in ("run", "seed", "output", "status") if name not in rows]:
        yield f"{base}/final.csv has no column {lost[0]}"
    elif rows["run"].dtype.kind not in "iu":
        yield f"{base}/final.csv: the column run must hold whole numbers"
    if len(rows) != record["count"] or len(rows) != meta.get("final_rows", len(rows)):
        yield f"{base}/final.csv has {len(rows)} rows, and {record['count']} are expected"


def configuration(files: Mapping[str, bytes], key: str) -> dict[str, Any]:
    """Returns the configuration of a job; YAML that would build objects is an error."""
    name = f"runs/{key}/config.yaml"
    try:
        # an alias could stand for itself, or for more than fits into memory; mobench writes none
        if any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(files[name], Loader=yaml.SafeLoader)
        ):
            raise BundleError(f"{name} has YAML aliases, which are not read.")
        config = yaml.safe_load(files[name])
    except yaml.YAMLError as error:
        raise BundleError(f"{name} is not plain YAML: {error}") from error
    if not isinstance(config, dict):
        raise BundleError(f"{name} is not a mapping.")
    return config


def final(files: Mapping[str, bytes], key: str) -> pd.DataFrame:
    """Returns the final rows of a job."""
    name = f"runs/{key}/final.csv"
    try:
        return read_csv(io.BytesIO(files[name]))
    except (ValueError, pd.errors.ParserError) as error:
        raise BundleError(f"{name} cannot be read: {error}") from error
