"""Croissant cards (ML Commons, version 1.0): one of the rows of a bundle, and one of each data set.

The card of the rows lists every final.csv with its SHA-256 and describes its columns, so that tools which
read Croissant load them. A card of a data set says where the data come from, under which licence, and which
jobs used them; the data themselves are not in the bundle.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from mobench.bundle.contents import Contents, Rows

CARD = "croissant.json"
LICENSE = "https://spdx.org/licenses/MIT.html"
SOURCE = "https://github.com/mobench/mobench"
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
VERSION = "http://mlcommons.org/croissant/1.0"


@functools.cache
def origins() -> dict[str, dict[str, str]]:
    """What is known of data sets, by the name that jobs give them."""
    found: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("data_sets.yaml").read_text())
    return found


def _card(name: str, description: str, **fields: Any) -> dict[str, Any]:
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        "name": name,
        "description": description,
        **fields,
    }


def rows_card(contents: Contents, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Returns the card of the rows of a bundle.

    Args:
        contents: of the bundle.
        files: the bundle's files by name, from which hashes are taken.
    """
    ids = ", ".join(drawn.id for drawn in contents.artifacts)
    return _card(
        "mobench-rows",
        f"Final rows of {len(contents.jobs)} jobs, one per run and output rule, behind {ids}.",
        license=LICENSE,
        url=SOURCE,
        citeAs="The mobench developers. mobench: a benchmark of gradient-based multi-objective optimization.",
        datePublished=contents.latest[:10],
        version="1.0.0",
        creator={"@type": "sc:Organization", "name": "The mobench developers"},
        distribution=[_file(job, files[f"{job.base}/final.csv"]) for job in contents.jobs.values()],
        recordSet=[_records(job) for job in contents.jobs.values()],
    )


def _file(job: Rows, data: bytes) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": f"{job.key}-file",
        "name": job.key,
        "contentUrl": f"{job.base}/final.csv",
        "contentSize": f"{len(data)} B",
        "encodingFormat": "text/csv",
        "sha256": sha256(data).hexdigest(),
    }


def _records(job: Rows) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": job.key,
        "name": job.key,
        "description": "One row per run and output rule.",
        "field": [_field(job, str(name)) for name in job.final],
    }


def _field(job: Rows, name: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{job.key}/{name}",
        "name": name,
        "description": _meaning(name),
        "dataType": _type(job.final[name]),
        "source": {"fileObject": {"@id": f"{job.key}-file"}, "extract": {"column": name}},
    }


def _type(column: pd.Series) -> str:
    if pd.api.types.is_bool_dtype(column):
        return "sc:Boolean"
    if pd.api.types.is_integer_dtype(column):
        return "sc:Integer"
    return "sc:Float" if pd.api.types.is_float_dtype(column) else "sc:Text"


def _meaning(name: str) -> str:
    """What a column holds, as far as its name says it."""
    known = {
        "run": "number of the run within its job",
        "seed": "seed of the run",
        "output": "output rule: what is returned from the trajectory",
        "status": "how the run ended: done, diverged or solver_failed",
        "seconds": "training time of the job in seconds, divided by its runs",
        "solver_failures": "number of failed solves of subproblems",
        "kkt_residual_max": "largest relative KKT residual of the subproblems",
    }
    for pattern, words in (
        (r"preference_\d+", "weight of an objective in the preference"),
        (r"ray_\d+", "component of the ray of the preference"),
        (r"f_\d+", "objective value at the returned point"),
        (r"g_\d+", "constraint value at the returned point; feasible if <= 0"),
    ):
        if re.fullmatch(pattern, name):
            return words
    return known.get(name, f"measure {name} of the returned point")


def data_cards(contents: Contents) -> dict[str, dict[str, Any]]:
    """Returns a card for each data set that jobs used, by its file's name in the bundle."""
    used: dict[tuple[str, str, str], list[str]] = {}
    for key, job in contents.jobs.items():
        if job.meta.get("data") is None:
            continue
        name = str(job.meta["identity"]["problem"].get("data"))
        used.setdefault((name, str(job.meta["data"]), str(job.meta["data_sha256"])), []).append(key)
    return {
        f"data/{_slug(label)}-{digest[:8]}.json": _data_card(name, label, digest, keys)
        for (name, label, digest), keys in sorted(used.items())
    }


def _data_card(name: str, label: str, digest: str, keys: list[str]) -> dict[str, Any]:
    known = origins().get(name)
    description = (
        f"{label}. SHA-256 of the numbers as mobench reads them (not of a file): {digest}. Used by "
        f"{len(keys)} jobs of this bundle, the first of them {keys[0]}. The data are not in the bundle."
    )
    if known is None:  # made by mobench, or a set of a user's own
        return _card(_slug(label), description, license="not stated", url=SOURCE)
    return _card(
        _slug(label),
        f"{description} Origin: {known['from']}.",
        license=known["license"],
        url=known["url"],
        citeAs=known["cite"],
    )


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:60]
