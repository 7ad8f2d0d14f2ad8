"""Computes the claims of a bundle again from its rows, as this version of mobench judges them.

    as recorded     every field of the claim is the same, in claims.json and with the artifact
    different       some field is not, the claim is not one of the artifact's, or its table is another
    not computed    rows that the artifact needs are not in the bundle, or its command makes other jobs in
                    this version

Rows, recorded steps and the name of the data set are taken as they stand; `verify` runs a sample of the rows
again. Figures, notes and README are not compared. The command of a bundle is composed, which builds classes:
it may choose names of mobench's own configuration and numbers, and no file and no class of somebody else.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mobench.artifacts.freshness import relevant
from mobench.artifacts.rows import JobRows
from mobench.bundle.build import as_listed
from mobench.bundle.verify import made
from mobench.config.overrides import key_of
from mobench.config.schema import choices, conf_dir
from mobench.errors import BundleError, MobenchError

AS_RECORDED = "as recorded"
DIFFERENT = "different"
NOT_COMPUTED = "not computed"
TABLE = "table.csv"
NAME = re.compile(r"[\w./+=,@-]+")  # of an artifact, a claim or a job; it is printed
KEY = re.compile(r"\+?[a-z_][\w.]*")
VALUE = re.compile(r"[\w.,+*\-\[\] ]*")  # no slash: it could leave the folder of a group


class Recorded(NamedTuple):
    """The record of an artifact in a bundle: its command, keys of jobs by name, claims by id, and table."""

    command: str
    jobs: dict[str, str]
    listed: dict[str, dict[str, Any]]
    drawn: dict[str, dict[str, Any]]
    table: bytes | None


def outcomes(files: Mapping[str, bytes], jobs: Mapping[str, JobRows]) -> Iterator[tuple[str, str, str, str]]:
    """Computes all claims, and yields for each its artifact, its id, an outcome, and where it differs.

    Args:
        files: of the bundle, by their names.
        jobs: of the bundle, by their keys.

    Raises:
        BundleError: claims.json is not one that `mobench bundle` writes.
    """
    try:
        artifacts = _artifacts(files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"The claims are not as `mobench bundle` writes them ({error!r}).") from error
    for drawing, recorded in artifacts.items():
        ids = sorted(recorded.listed | recorded.drawn)
        try:
            claims, table = _computed(drawing, recorded, jobs)
        except MobenchError as error:
            words = " ".join(str(error).split())
            if "history.parquet is missing" in words:
                words = "it needs recorded steps, which mobench bundle --history packs"
        except Exception as error:  # noqa: BLE001  drawing code meets whatever a bundle holds
            words = f"the rows cannot be drawn ({type(error).__name__}: {error})"
        else:
            for id in sorted(claims.keys() | set(ids)):
                now = claims.get(id)
                words = _difference(recorded.drawn.get(id), now) or _difference(
                    recorded.listed.get(id), now and as_listed(drawing, now, recorded.jobs)
                )
                yield drawing, id, DIFFERENT if words else AS_RECORDED, words
            if table != recorded.table:
                yield drawing, TABLE, DIFFERENT, "it is not what the rows give"
            continue
        yield from ((drawing, id, NOT_COMPUTED, words) for id in ids)


def _artifacts(files: Mapping[str, bytes]) -> dict[str, Recorded]:
    """Returns what the bundle says of each artifact.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the documents have another form.
    """
    document = json.loads(files["claims.json"])
    listed: dict[str, list[Any]] = {str(drawing): [] for drawing in document["artifacts"]}
    for claim in document["claims"]:
        listed[claim["artifact"]].append(claim)
    artifacts = {}
    for drawing, entry in document["artifacts"].items():
        drawn = json.loads(files[f"artifacts/{drawing}/claims.json"])
        names = {str(name): str(key) for name, key in entry["jobs"].items()}
        for name in (drawing, *names, *names.values()):
            _check_name(name)
        table = files.get(f"artifacts/{drawing}/{TABLE}")
        command = str(entry["command"])
        artifacts[drawing] = Recorded(command, names, _by_id(listed[drawing]), _by_id(drawn), table)
    return artifacts


def _by_id(claims: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns claims by their ids; raises ValueError if two have the same."""
    by_id = {str(claim["id"]): dict(claim) for claim in claims}
    if len(by_id) < len(claims):
        raise ValueError("two claims have the same id")
    for id in by_id:
        _check_name(id)
    return by_id


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name")


def _computed(
    drawing: str, recorded: Recorded, jobs: Mapping[str, JobRows]
) -> tuple[dict[str, dict[str, Any]], bytes | None]:
    """Returns the claims of an artifact by their ids, computed from the rows, and its table.

    Raises:
        MobenchError: they cannot be computed.
    """
    from mobench.sweep.draw import drawn_from

    words = _followed(recorded.command)
    if missing := [name for name, key in recorded.jobs.items() if key not in jobs]:
        raise BundleError(f"the bundle has no rows of {', '.join(missing)}")
    for key in recorded.jobs.values():
        made(jobs[key], "data")
    folders = {name: jobs[key].folder for name, key in recorded.jobs.items()}
    try:
        now = drawn_from(drawing, words, folders)
    except KeyError as error:
        raise BundleError(f"a job or a column is missing: {error}") from error
    if now.keys != recorded.jobs:
        other = sorted({name for name, _ in now.keys.items() ^ recorded.jobs.items()})
        raise BundleError(
            f"{', '.join(other)} would be another job in this version of mobench, or none: use the one in "
            "code/version.json"
        )
    return {claim["id"]: claim for claim in now.claims}, now.table


def _followed(command: str) -> list[str]:
    """Returns the words of a command that change a drawing.

    Raises:
        BundleError: a word might name something that is not mobench's.
    """
    try:
        words = [word for word in relevant(shlex.split(command)[1:]) if key_of(word) != "data_root"]
    except ValueError as error:
        raise BundleError(f"its command is none ({error})") from error
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    strange = []
    for word in words:
        key, _, value = word.partition("=")
        if key.lstrip("+") in groups:
            good = value in choices(key.lstrip("+"))
        else:
            good = bool(KEY.fullmatch(key) and VALUE.fullmatch(value)) and not value.endswith(".py")
            good = good and "_target_" not in word and not key.lstrip("+").startswith("hydra")
        if not good:
            strange.append(word)
    if strange:
        raise BundleError(f"its command has words that a bundle must not decide: {' '.join(strange)!r}")
    return words


def _difference(recorded: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str:
    """Returns in words where a recorded claim differs from the computed one; empty if nowhere."""
    if recorded is None or now is None:
        return "the artifact has no such claim" if now is None else "the claim is left out"
    for key in sorted(recorded.keys() | now.keys()):
        if recorded.get(key) != now.get(key):
            return f"{key} was {str(recorded.get(key))!r} and is {str(now.get(key))!r}"
    return ""
