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
from mobench.errors import StoreError
from mobench.jobs.store import JobFolder
from mobench.report.model import VERDICTS, Entry, Job, Paper, Site
from mobench.report.papers import paper_info
from mobench.report.tables import parsed
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
        gauges, jobs = (x if isinstance(x := record.get(key), list) else [] for key in ("gauges", "jobs"))
        claims.append(
            Claim(
                id=text(record.get("id") or f"claim-{i + 1}"),
                verdict="unreadable" if missing or verdict not in VERDICTS else cast("Verdict", verdict),
                reason=text(reason) if (reason := record.get("reason")) else "",
                timed=bool(record.get("timed")),
                leans=str(record.get("leans") or ""),
                jobs=tuple(text(name) for name in jobs),
                gauges=tuple(gauge for gauge in gauges if isinstance(gauge, dict)),
                **{name: text(record.get(name)) for name in words},
            )
        )
    return claims


def _entry(folder: Path, kept: bool) -> Entry:
    entry = Entry(folder.parent.name, folder.name, kept=kept)
    unfinished = "the drawing was interrupted; rerun the command of the artifact."
    claims = _json(folder / "claims.json", entry, list, unfinished)
    origin = _json(folder / "provenance.json", entry, dict, "the origin of the numbers is unknown.")
    entry.claims = _claims(claims or [], entry)
    entry.origin = origin or {}
    for name in ("figure.png", "figure.pdf", "table.csv"):
        try:
            data = (folder / name).read_bytes()
            if name == "figure.png":
                if not (data.startswith(b"\x89PNG\r\n") and b"IEND" in data[-16:]):
                    raise ValueError("it is not a PNG file, or a part of one")
                Image.open(io.BytesIO(data), formats=["PNG"]).verify()
            if name == "table.csv":
                parsed(data)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, SyntaxError, csv.Error) as error:  # Pillow's is a SyntaxError
            entry.problems.append(f"{name} could not be shown: {error}.")
        else:
            entry.files[name] = data
    for name, beside in (("figure.png", "figure.pdf"), ("table.csv", "table.md")):
        if (folder / beside).exists() and not (folder / name).exists():
            entry.problems.append(f"{name} is missing, although {beside} exists.")
    if not entry.files and (not entry.claims or entry.label.startswith(("Figure ", "Table "))):
        entry.problems.append("There is neither a figure nor a table.")
    return entry


def _natural(name: str) -> tuple[Any, ...]:
    """Returns a key that sorts fig2 before fig10, and figures before tables before our own additions."""
    group = 0 if re.match(r"fig\d", name) else 1 if re.match(r"table\d", name) else 2
    parts = [(0, int(x), "") if x.isdigit() else (1, 0, x) for x in re.split(r"(\d+)", name) if x]
    return (group, parts, name)


def _folders(base: Path) -> list[Path]:
    return [p for p in base.glob("*") if p.is_dir() and not p.name.startswith(".")]


def artifacts(root: Path, expected: Sequence[str] = ()) -> Site:
    """Reads artifact folders under `root`, and those drawn from kept rows (`root/kept`), but no jobs.

    Ids that are `expected` and have no folder are listed as not drawn.
    """
    drawn, kept = (
        [_entry(folder, is_kept) for paper in _folders(base / "artifacts") for folder in _folders(paper)]
        for base, is_kept in ((root, False), (root / KEPT, True))
    )
    missing = sorted(set(expected) - {entry.id for entry in drawn})
    waiting = [Entry(paper, name) for paper, name in (id.split("/", 1) for id in missing)]
    papers = []
    for id in sorted(
        {e.paper for e in (*drawn, *kept, *waiting)}, key=lambda id: (paper_info(id).position, id)
    ):
        info = paper_info(id)
        lists = (
            sorted((e for e in group if e.paper == id), key=lambda e: _natural(e.name))
            for group in (drawn, kept, waiting)
        )
        papers.append(Paper(id, info.short, info.title, info.pictures, *lists))
    return Site(papers)


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
    folders = _folders(root / "runs")
    # rows that come with the project serve artifacts that were never run here
    kept = results_root() / "runs"
    drawn = {key for entry in site.all.everything for key in entry.jobs.values()} - {p.name for p in folders}
    folders += [kept / key for key in drawn if Path(key).name == key and (kept / key).is_dir()]
    site.jobs = [_job(p, p.parent == kept) for p in sorted(folders, key=lambda p: p.name)]
    by_key = {job.key: job for job in site.jobs}
    for entry in site.all.everything:
        entry.folders = {key: by_key[key] for key in entry.jobs.values() if key in by_key}
    return site
