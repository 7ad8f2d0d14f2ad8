"""The contents of a bundle: drawn artifacts, and the finished jobs that they rest on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from mobench.artifacts.drawing import read
from mobench.artifacts.freshness import artifact_folder, others
from mobench.artifacts.freshness import rows as rows_hash
from mobench.artifacts.rows import JobRows
from mobench.config.schema import choices
from mobench.errors import BundleError, suggest
from mobench.jobs.store import JobFolder, portable_config, portable_status
from mobench.system.paths import KEPT, outputs_root, results_root

DRAWN = ("figure.png", "figure.pdf", "table.csv", "table.md", "table.tex")
BOARDS = ("zoo", "ranks", "profiles")  # artifacts of `cross` that are drawn from experiments/results/cross


@dataclass(frozen=True)
class Drawn:
    """A drawn artifact: its documents, its files by their names in the bundle, and the folder of its rows."""

    id: str
    claims: list[dict[str, Any]]
    origin: dict[str, Any]
    files: dict[str, bytes]
    root: Path

    @property
    def jobs(self) -> dict[str, str]:
        """Keys of its jobs by name."""
        return dict(self.origin["jobs"])

    @property
    def command(self) -> str:
        """The command that draws it."""
        return re.sub(r" (logger|progress)=\S+", "", str(self.origin["command"]))

    def job_command(self, name: str) -> str:
        """The command that runs one of its jobs alone."""
        return f"{self.command} 'artifact.only=[{name}]'"


class Rows(JobRows):
    """A finished job, and where the bundle has its files.

    Attributes:
        used: the artifacts that use it, with its name in each.
    """

    def __init__(self, folder: JobFolder) -> None:
        super().__init__(folder)
        self.used: list[tuple[Drawn, str]] = []

    @property
    def key(self) -> str:
        """Name of its folder."""
        return self.folder.key

    @property
    def base(self) -> str:
        """Its folder in the bundle."""
        return f"runs/{self.key}"

    def files(self, history: bool) -> dict[str, bytes]:
        """Returns its files by their names in the bundle."""
        # portable: without this machine's folder of data
        contents = {"config.yaml": yaml.safe_dump(portable_config(self.config), sort_keys=False).encode()}
        names = ["final.csv", "meta.json", "solutions.npz", *(["history.parquet"] if history else [])]
        for name in names:
            path = self.folder.path / name
            if path.exists():
                self.folder.check(name)
                contents[name] = path.read_bytes()
        digests = {name: sha256(data).hexdigest() for name, data in sorted(contents.items())}
        status = portable_status(self.folder.status(), digests)
        contents["status.json"] = (json.dumps(status, indent=2) + "\n").encode()
        return {f"{self.base}/{name}": data for name, data in contents.items()}


@dataclass(frozen=True)
class Contents:
    """Artifacts and jobs of a bundle."""

    artifacts: list[Drawn]
    jobs: dict[str, Rows]


def expanded(ids: Sequence[str]) -> list[str]:
    """Returns the artifacts that `PAPER/all` and `all` name.

    Raises:
        BundleError: there is no such artifact.
    """
    known = [id for id in choices("experiment") if "/" in id]
    known = [
        id for id in known if id.rpartition("/")[2] != "all" and not id.rpartition("/")[2].startswith("_")
    ]
    artifacts: dict[str, None] = {}
    for id in ids:
        paper, _, name = id.rpartition("/")
        several = [k for k in known if name == "all" and (not paper or k.startswith(f"{paper}/"))]
        if not several and id.partition("+")[0] not in known:
            raise BundleError(f"{id} is no artifact.{suggest(id, known) or ' `mobench --help` lists them.'}")
        artifacts |= dict.fromkeys(several or [id])
    return list(artifacts)


def collected(ids: Sequence[str], kept: bool = False) -> Contents:
    """Returns drawn artifacts with the rows of their jobs.

    Args:
        ids: PAPER/NAME, PAPER/all or all; of several, those that have been drawn.
        kept: take drawings of kept rows (outputs/kept) rather than those of rows that were run here.

    Raises:
        BundleError: one that is named has not been drawn, its rows have changed since, or none was drawn.
    """
    root = outputs_root() / KEPT if kept else outputs_root()
    drawn: list[Drawn] = []
    for id in expanded(ids):
        explicit = id in ids
        if explicit and _elsewhere(id):
            raise BundleError(
                f"The rows of {id} are not those of jobs but lie in {_elsewhere(id)}, which comes with the "
                "repository. A bundle holds jobs and their rows only; name another artifact."
            )
        if explicit or ((artifact_folder(id, root) / "claims.json").exists() and not _elsewhere(id)):
            drawn.append(_drawn(id, root, kept))
    if not drawn:
        raise BundleError(
            f"None of {', '.join(ids)} has been drawn in {root}. Draw it: mobench +experiment=..."
        )
    jobs: dict[str, Rows] = {}
    for one in drawn:
        for name, key in one.jobs.items():
            jobs.setdefault(key, Rows(_folder(key, one))).used.append((one, name))
    return Contents(drawn, dict(sorted(jobs.items())))


def _elsewhere(id: str) -> Path | None:
    """Returns the folder of an artifact's rows that belong to no job, such as those of `cross/zoo`."""
    paper, _, name = id.partition("/")
    folder = results_root() / paper
    return folder if folder.is_dir() and paper == "cross" and name in BOARDS else None


def _drawn(id: str, root: Path, kept: bool) -> Drawn:
    folder = artifact_folder(id, root)
    again = f"make kept ID={id}" if kept else f"mobench +experiment={id.partition('+')[0]}"
    alternatives = others(id, root) if "+" not in id else []
    hint = (
        f" Drawn with other settings: {', '.join(alternatives)}; name that to pack it."
        if alternatives
        else ""
    )
    try:
        documents = read(folder)
        claims, origin = documents["claims"], documents["provenance"]
        jobs = [str(key) for key in origin["jobs"].values()]
        then = origin["inputs"]["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{id} has not been drawn in {root}. Draw it first: {again}.{hint}") from error
    places = dict.fromkeys((root, outputs_root()))
    rows = next((place for place in places if rows_hash(jobs, place) == then), None)
    if rows is None:
        raise BundleError(
            f"Rows of {id} have changed since it was drawn, so its claims may not follow from them. "
            f"Draw it again: {again}"
        )
    base = f"artifacts/{id}"
    files = {f"{base}/{name}": (folder / name).read_bytes() for name in DRAWN if (folder / name).exists()}
    for name in ("claims.json", "provenance.json"):
        files[f"{base}/{name}"] = (folder / name).read_bytes()
    return Drawn(id, claims, origin, files, rows)


def _folder(key: str, drawn: Drawn) -> JobFolder:
    """Returns a job's finished folder, beside the artifact's rows or among the kept ones."""
    for place in (drawn.root / "runs", results_root() / "runs"):
        if (folder := JobFolder(place / key)).done:
            return folder
    raise BundleError(f"The rows of {key}, which {drawn.id} rests on, are missing. Run: {drawn.command}")
