"""Decides if an artifact would come out as it lies there: then nothing is composed, run or drawn.

It is unchanged if it was drawn by the same command, from the same rows, by the same code: all files of the
configuration and of the package, the package of the paper in `experiments/`, which imports no other one, and
the versions of the packages that numbers depend on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mobench.config import overrides
from mobench.config.schema import conf_dir
from mobench.errors import StoreError
from mobench.jobs.store import JobFolder
from mobench.system import forms
from mobench.system.paths import experiments, outputs_root, package, results_root
from mobench.system.provenance import digest, versions

OTHER = "other_settings"  # folder of drawings with other seeds or settings than the artifact's
ROWS = ("final.csv", "history.parquet", "solutions.npz", "meta.json")
CLAIM: dict[str, forms.Kinds] = dict.fromkeys(
    ("id", "statement", "source", "published", "measured", "tolerance", "scale", "verdict", "reason"), str
)
"""Fields of a claim in claims.json, and their kinds."""
# overrides that do not change the drawing
ASIDE = re.compile(
    r"(hydra/launcher|(progress|logger|hydra|checkpoint)(\.[\w.]+)?)=.*|scale=laptop|hardware=cpu", re.DOTALL
)


@functools.cache
def _library() -> str:
    """Returns a hash of configuration, package and versions."""
    # the report shows drawings, it draws none
    code = (
        p
        for p in package().rglob("*.py")
        if p.relative_to(package()).parts[0] not in ("experiments", "report")
    )
    parts = [
        digest(code, package()),
        digest(conf_dir().rglob("*.yaml"), conf_dir()),
        json.dumps(versions()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def code(paper: str) -> str:
    """Returns a hash of everything but the rows that decides how an artifact of the paper looks."""
    rows_files = (path for path in (results_root() / paper).rglob("*") if path.is_file())
    sources = (p for p in (experiments() / paper).rglob("*") if p.suffix in (".py", ".yaml", ".csv"))
    parts = [_library(), digest(sources, experiments()), digest(rows_files, results_root())]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def rows(keys: Iterable[str], root: Path | None = None) -> str | None:
    """Returns a hash of sizes and times of the jobs' rows; None if a job is not finished, or failed later."""
    out = hashlib.sha256()
    places = ((root or outputs_root()) / "runs", results_root() / "runs")
    for key in sorted(set(keys)):
        folder = next((place / key for place in places if JobFolder(place / key).done), None)
        if folder is None:
            return None
        for name in ROWS:
            path = folder / name
            if path.exists():
                stat = path.stat()
                out.update(f"{key}/{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return out.hexdigest()


def relevant(command: Sequence[str]) -> list[str]:
    """Returns the overrides that change the drawing."""
    return sorted(o for o in command if not ASIDE.fullmatch(o))


def drawing_id(id: str, command: Sequence[str]) -> str:
    """Returns PAPER/NAME, or PAPER/NAME+SETTINGS for other settings than the artifact's, unique to them."""
    changed = overrides.changed(command)
    if not changed or id.startswith("cross/"):  # whose methods and problems are its user's choice
        return id
    plain = re.sub(r"[^A-Za-z0-9_.,=-]+", "-", re.sub(r"[\[\]'\"]", "", overrides.as_typed(changed)))
    short = plain[:40].strip("-.,")
    return f"{id}+{short}-{hashlib.sha256(json.dumps(relevant(command)).encode()).hexdigest()[:6]}"


def artifact_folder(id: str, root: Path | None = None) -> Path:
    """Returns outputs/artifacts/PAPER/NAME; for PAPER/NAME+SETTINGS the same in outputs/other_settings."""
    return (root or outputs_root()) / (OTHER if "+" in id else "artifacts") / id


def others(id: str, root: Path | None = None) -> list[str]:
    """Returns the ids of an artifact's drawings with other settings."""
    place = artifact_folder(f"{id}+", root).parent
    paths = place.glob(f"{id.partition('/')[2]}+*/claims.json")
    return sorted(f"{id.partition('/')[0]}/{path.parent.name}" for path in paths)


def inputs(
    id: str, command: Sequence[str], jobs: Mapping[str, str], root: Path | None = None
) -> dict[str, Any]:
    """Returns the facts that decide about a drawing. jobs: the name of each job's folder."""
    return {
        "command": relevant(command),
        "code": code(id.split("/")[0]),
        "rows": rows(jobs.values(), root),
    }


def claims(folder: Path) -> list[dict[str, Any]]:
    """Returns the claims of a drawn artifact.

    Raises:
        FileNotFoundError: it was not drawn to its end.
        StoreError: claims.json has another form.
    """
    path = folder / "claims.json"
    records = forms.read_json(path)
    if not isinstance(records, list):
        raise StoreError(f"{path} is {forms.shown(records)}; expected a list of claims.")
    return [forms.fields(f"{path}, claim {i}", claim, CLAIM) for i, claim in enumerate(records)]


def unchanged(id: str, command: Sequence[str], root: Path | None = None) -> str | None:
    """Returns the date of the drawing if it would come out the same; else None.

    root: where kept rows are drawn, with the settings they were kept with; None: the outputs.
    """
    folder = artifact_folder(drawing_id(id, command) if root is None else id, root)
    try:
        origin = forms.read_json(folder / "provenance.json")
        then = origin["inputs"]
        claims(folder)
        whole = all((folder / name).stat().st_size == size for name, size in then["files"].items())
        now = inputs(id, command, origin["jobs"], root)
        same = whole and now["rows"] is not None and now == {key: then.get(key) for key in now}
    except (OSError, StoreError, KeyError, TypeError, AttributeError):
        return None  # never drawn to its end, by an older version, or damaged: it is drawn (again)
    return str(origin.get("date")) if same else None
