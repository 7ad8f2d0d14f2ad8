"""Reads artifact and job folders into the model of the report.

A file that cannot be read is shown with the reason; nothing is dropped.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from PIL import Image

from mobench.artifacts.claims import Claim, Verdict
from mobench.cli.status import look
from mobench.errors import MobenchError, StoreError
from mobench.jobs.store import JobFolder
from mobench.report.model import VERDICTS, Entry, Figure, Job, Paper, Site
from mobench.report.papers import paper_info
from mobench.report.sheets import sheet
from mobench.report.words import text
from mobench.system.forms import read_json
from mobench.system.paths import KEPT, results_root


def _json(path: Path, entry: Entry, kind: type, why: str) -> Any:
    """Returns the file's value, or None after noting a problem of the entry."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        entry.problems.append(f"{path.name} is missing: {why}")
    except StoreError as error:
        entry.problems.append(f"{path.name} could not be loaded ({error}).")
    else:
        if isinstance(value, kind):
            return value
        expected = "a list of claims" if kind is list else "an object"
        entry.problems.append(f"{path.name} contains {type(value).__name__}, but expected {expected}.")
    return None


def _claims(value: Sequence[Any], entry: Entry) -> list[Claim]:
    """Returns the records of claims.json as claims; one that is damaged is unreadable, and says why."""
    claims = []
    for i, raw in enumerate(value):
        record = raw if isinstance(raw, dict) else {}
        missing = [k for k in ("id", "statement", "published", "measured", "verdict") if k not in record]
        verdict = str(record.get("verdict"))
        if not isinstance(raw, dict):
            entry.problems.append(f"claims.json: claim {i + 1} is not an object.")
        elif missing:
            entry.problems.append(f"claims.json: claim {i + 1} lacks {', '.join(missing)}.")
        elif verdict not in VERDICTS:
            entry.problems.append(f"claims.json: claim {i + 1} has the unknown verdict {verdict!r}.")
        words = ("statement", "source", "published", "measured", "tolerance", "scale")
        gauges = record.get("gauges")
        claims.append(
            Claim(
                id=text(record.get("id") or f"claim-{i + 1}"),
                verdict="unreadable" if missing or verdict not in VERDICTS else cast("Verdict", verdict),
                reason=text(reason) if (reason := record.get("reason")) else "",
                timed=bool(record.get("timed")),
                leans=str(record.get("leans") or ""),
                jobs=tuple(text(name) for name in record.get("jobs") or ()),
                # artifacts that were drawn before there were gauges have none
                gauges=tuple(g for g in gauges if isinstance(g, dict)) if isinstance(gauges, list) else (),
                **{name: text(record.get(name)) for name in words},
            )
        )
    return claims


def png_size(data: bytes) -> tuple[int, int]:
    """Returns width and height; raises ValueError if the bytes are no PNG, or a damaged one."""
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        raise ValueError("it is not a PNG file")
    if b"IEND" not in data[-16:]:
        raise ValueError("the file is truncated")
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            image.verify()
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's word for a broken checksum is SyntaxError
        raise ValueError(f"the file is damaged ({error})") from error
    return width, height


def _entry(folder: Path, id: str, assets: dict[str, bytes], kept: bool = False) -> Entry:
    paper, _, name = id.partition("/")
    entry = Entry(paper, name, kept=kept)
    unfinished = "the drawing was interrupted; rerun the command of the artifact."
    claims = _json(folder / "claims.json", entry, list, unfinished)
    origin = _json(folder / "provenance.json", entry, dict, "the origin of the numbers is unknown.")
    entry.claims = _claims(claims or [], entry)
    entry.origin = origin or {}
    entry.title = text(entry.origin["title"]) if entry.origin.get("title") else ""
    notes = entry.origin.get("notes")
    entry.notes = [text(n) for n in notes] if isinstance(notes, list) else [text(notes)] if notes else []
    files: dict[str, bytes] = {}
    for file in ("figure.png", "figure.pdf", "table.csv"):
        try:
            files[file] = (folder / file).read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            entry.problems.append(f"{file} could not be loaded ({error}).")
    base = entry.assets
    if "figure.png" in files:
        try:
            width, height = png_size(files["figure.png"])
        except ValueError as error:
            entry.problems.append(f"figure.png could not be shown: {error}.")
        else:
            pdf = f"{base}/figure.pdf" if "figure.pdf" in files else None
            entry.figure = Figure(f"{base}/figure.png", pdf, width, height)
    elif "figure.pdf" in files:
        entry.problems.append("figure.png is missing, although figure.pdf exists.")
    if "table.csv" in files:
        entry.csv = f"{base}/table.csv"
        try:
            entry.table = sheet(files["table.csv"].decode())
        except (ValueError, csv.Error) as error:
            entry.problems.append(f"table.csv could not be shown: {error}.")
    elif (folder / "table.md").exists():
        entry.problems.append("table.csv is missing, although table.md exists.")
    if not files and (not entry.claims or entry.label.startswith(("Figure ", "Table "))):
        entry.problems.append("There is neither a figure nor a table.")
    assets.update({f"{base}/{file}": data for file, data in files.items()})
    return entry


def _unbuilt(id: str) -> Entry:
    paper, _, name = id.partition("/")
    return Entry(paper, name, built=False)


def _natural(name: str) -> tuple[Any, ...]:
    """Returns a key that sorts fig2 before fig10, and figures before tables before our own additions."""
    group = 0 if re.match(r"fig\d", name) else 1 if re.match(r"table\d", name) else 2
    parts = [(0, int(x), "") if x.isdigit() else (1, 0, x) for x in re.split(r"(\d+)", name) if x]
    return (group, parts, name)


def _folders(base: Path) -> dict[str, Path]:
    """Returns artifact folders by id: <paper>/<name>, and other folders under artifacts/ that hold files."""
    folders = {}
    for folder in base.rglob("*") if base.is_dir() else ():
        parts = folder.relative_to(base).parts
        if not folder.is_dir() or any(p.startswith(".") for p in parts):
            continue
        children = [c for c in folder.iterdir() if not c.name.startswith(".")]
        if any(c.is_file() for c in children) or (not children and len(parts) > 1):
            folders["/".join(parts)] = folder
    return folders


def artifacts(root: Path, expected: Sequence[str] = ()) -> Site:
    """Reads artifact folders under `root`, and those drawn from kept rows (`root/kept`), but no jobs.

    Ids that are `expected` and have no folder are listed as not drawn.
    """
    assets: dict[str, bytes] = {}
    folders = _folders(root / "artifacts")
    entries = [_entry(folder, id, assets) for id, folder in folders.items()]
    kept = [
        _entry(folder, id, assets, kept=True) for id, folder in _folders(root / KEPT / "artifacts").items()
    ]
    waiting = [_unbuilt(id) for id in sorted(set(expected) - set(folders))]
    ids = {e.paper for e in entries + waiting + kept}
    papers = []
    for id in sorted(ids, key=lambda id: (paper_info(id).position, id)):
        info = paper_info(id)
        built, missing, from_kept = (
            sorted((e for e in group if e.paper == id), key=lambda e: _natural(e.name))
            for group in (entries, waiting, kept)
        )
        papers.append(Paper(id, info.short, info.title, built, missing, from_kept))
    return Site(papers, [], assets)


def _job(path: Path, kept: bool) -> Job:
    state = look(JobFolder(path))
    job = Job(path.name, state.state, "" if state.state == "done" else state.words, kept=kept)
    try:
        meta = read_json(path / "meta.json")
        job.origin = meta if isinstance(meta, dict) else {}
    except FileNotFoundError:
        pass
    except StoreError as error:
        job.detail = job.detail or f"meta.json could not be loaded ({error})"
    return job


def collect(root: Path, expected: Sequence[str] = ()) -> Site:
    """Reads artifact and job folders under `root`, and kept rows that artifacts draw.

    Ids that are `expected` and have no folder are listed as not drawn.
    """
    site = artifacts(root, expected)
    base = root / "runs"
    folders = (
        [p for p in base.iterdir() if p.is_dir() and not p.name.startswith(".")] if base.is_dir() else []
    )
    # rows that come with the project serve artifacts that were never run here
    kept = results_root() / "runs"
    drawn = {key for entry in site.everything for key in entry.jobs.values()} - {p.name for p in folders}
    folders += [kept / key for key in drawn if Path(key).name == key and (kept / key).is_dir()]
    site.jobs = [_job(p, p.parent == kept) for p in sorted(folders, key=lambda p: p.name)]
    for entry in site.everything:
        for key in entry.jobs.values():
            if key in site.by_key:
                site.by_key[key].used.append(entry)
    return site


def declared() -> list[str]:
    """Returns the ids of all artifacts in the configuration: conf/experiment/<paper>/<name>.yaml."""
    from mobench.config.schema import conf_dir

    try:
        base = conf_dir() / "experiment"
    except MobenchError:
        return []
    ids = (f"{p.parent.name}/{p.stem}" for p in base.glob("*/*.yaml"))
    return sorted(id for id in ids if not id.endswith("/all") and not id.split("/")[1].startswith("_"))
