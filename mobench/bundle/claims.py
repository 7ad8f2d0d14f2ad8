"""Computes the claims of a bundle again from its rows, as this version of mobench judges them.

    as recorded     statement, published and measured value, tolerance, verdict and reason are the same words
    different       some are not, or the claim is not one of the artifact's
    not computed    rows that the artifact needs are not in the bundle, or its command makes other jobs in
                    this version

Whether the rows are those of a run is another question, which `verify` asks. The command of a bundle is
composed, which builds classes; one that could name a class of somebody else's is refused.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from mobench.artifacts.freshness import relevant
from mobench.artifacts.rows import JobRows
from mobench.bundle.verify import runnable
from mobench.errors import BundleError, MobenchError, StoreError

AS_RECORDED = "as recorded"
DIFFERENT = "different"
NOT_COMPUTED = "not computed"
COMPARED = ("statement", "published", "measured", "tolerance", "verdict", "reason")
# words that choose settings, and name no class, function or resolver
PLAIN = re.compile(r"(?!.*_target_)(?!\+?hydra\b)\+?[a-z_][\w./@]*=[\w.,+*\-\[\] /]*")


def outcomes(files: Mapping[str, bytes], jobs: Mapping[str, JobRows]) -> Iterator[tuple[str, str, str, str]]:
    """Computes all claims, and yields for each its artifact, its id, an outcome, and where it differs.

    Args:
        files: of the bundle, by their names.
        jobs: of the bundle, by their keys.

    Raises:
        BundleError: claims.json is not one that `mobench bundle` writes.
    """
    try:
        document = json.loads(files["claims.json"])
        artifacts = {
            str(drawing): (str(entry["command"]), dict(entry["jobs"]), json.loads(files[_claims_of(drawing)]))
            for drawing, entry in document["artifacts"].items()
        }
        recorded: dict[str, dict[str, Any]] = {drawing: {} for drawing in artifacts}
        for claim in document["claims"]:
            recorded[claim["artifact"]][str(claim["id"])] = claim
        drawn = {
            drawing: {str(claim["id"]): claim for claim in claims}
            for drawing, (_, _, claims) in artifacts.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"The claims are not as `mobench bundle` writes them ({error!r}).") from error
    for drawing, (command, names, _) in artifacts.items():
        try:
            now = _computed(drawing, command, names, jobs)
        except MobenchError as error:
            words = " ".join(str(error).split())
            if isinstance(error, StoreError) and not any(name.endswith("/history.parquet") for name in files):
                words = "it needs recorded steps, which mobench bundle --history packs"
            yield from ((drawing, id, NOT_COMPUTED, words) for id in recorded[drawing])
            continue
        for id in sorted(recorded[drawing] | drawn[drawing] | now):
            words = _difference(recorded[drawing].get(id), now.get(id)) or _difference(
                drawn[drawing].get(id), now.get(id)
            )
            yield drawing, id, DIFFERENT if words else AS_RECORDED, words


def _claims_of(drawing: str) -> str:
    return f"artifacts/{drawing}/claims.json"


def _computed(
    drawing: str, command: str, names: Mapping[str, str], jobs: Mapping[str, JobRows]
) -> dict[str, dict[str, Any]]:
    """Returns the claims of an artifact by their ids, computed from the rows.

    Raises:
        MobenchError: they cannot be computed.
    """
    from mobench.sweep.draw import drawn_from

    words = relevant(shlex.split(command)[1:])
    if strange := [word for word in words if not PLAIN.fullmatch(word)]:
        raise BundleError(f"its command has words that a bundle must not decide: {' '.join(strange)}")
    if missing := [name for name, key in names.items() if key not in jobs]:
        raise BundleError(f"the bundle has no rows of {', '.join(missing)}")
    for key in names.values():
        runnable(jobs[key].config)
    folders = {name: jobs[key].folder for name, key in names.items()}
    try:
        now = drawn_from(drawing, words, folders)
    except KeyError as error:
        raise BundleError(f"a job or a column is missing: {error}") from error
    if other := [name for name, key in now.keys.items() if names.get(name) != key]:
        raise BundleError(
            f"{', '.join(other)} would be another job in this version of mobench: use the one in "
            "code/version.json"
        )
    return {claim["id"]: claim for claim in now.claims}


def _difference(recorded: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str:
    """Returns in words where a recorded claim differs from the computed one; empty if nowhere."""
    if recorded is None or now is None:
        return "the artifact has no such claim" if now is None else "the claim is left out"
    for key in COMPARED:
        if recorded.get(key) != now[key]:
            return f"{key} was {str(recorded.get(key))!r} and is {str(now[key])!r}"
    return ""
