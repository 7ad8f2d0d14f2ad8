"""The HTML pages of the report, each as its address and bytes.

Dates and the present commit stand on the overview alone: the other pages change only with the rows that they
show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from mobench.artifacts.style import METHODS
from mobench.report.boards import score_boards
from mobench.report.model import VERDICTS, DataSet, Entry, Paper, Site, mark
from mobench.report.runtime import runtime
from mobench.report.wall import wall
from mobench.report.words import commit, duration, fact, glue, moment, text
from mobench.system import provenance

OPEN_JOBS = 12  # a longer list of an artifact's jobs is folded
NAVIGATION = (
    ("index.html", "Overview"),
    ("boards.html", "Leaderboards"),
    ("claims.html", "Claims"),
    ("data.html", "Data"),
)
STATES = {"done": "✓", "running": "…", "failed": "✗"}


def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    env = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.filters |= {
        "text": text,
        "glue": glue,
        "duration": duration,
        "moment": moment,
        "commit": commit,
        "fact": fact,
        "url": quote,
        "mark": mark,
        # a method of somebody else's has no other name
        "proper": lambda name: METHODS[name].name if name in METHODS else name,
    }
    env.globals |= {
        "navigation": NAVIGATION,
        "verdicts": list(VERDICTS.values()),
        "states": STATES,
        "open_jobs": OPEN_JOBS,
    }
    return env


def styles() -> dict[str, bytes]:
    """Returns style sheet and script, which all pages share."""
    env = _environment()
    return {f"assets/{name}": env.get_template(name).render().encode() for name in ("style.css", "script.js")}


def pages(site: Site, thumbnails: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yields every page of the report; `thumbnails`: address of the small figure by artifact."""
    env = _environment()

    def page(address: str, template: str, **values: Any) -> tuple[str, bytes]:
        base = "../" * address.count("/")
        return address, env.get_template(template).render(site=site, base=base, **values).encode()

    commits = sorted({e.commit for e in site.everything if e.origin})
    scales = sorted({e.scale for e in site.everything if e.scale != "–"})
    head = {"commit": commit(provenance.code()), "commits": commits, "scales": scales}
    yield page(
        "index.html",
        "index.html",
        here="index.html",
        thumbnails=thumbnails,
        built=time.strftime("%Y-%m-%d %H:%M %z"),
        wall=Markup(wall(site, links="")) if site.best else "",  # noqa: S704 - its texts are escaped by `wall`
        **head,
    )
    yield page("boards.html", "boards.html", here="boards.html", boards=score_boards(site))
    yield page("claims.html", "claims.html", here="claims.html")
    yield page(
        "data.html",
        "data.html",
        here="data.html",
        thumbnails=thumbnails,
        without=sum(job.key not in site.data_of for job in site.jobs),
    )
    pages_of = {(e.kept, e.id): e.page for e in site.everything}
    for paper in site.papers:
        for group in (paper.entries, paper.kept):
            for i, entry in enumerate(group):
                around = (group[i - 1] if i else None, group[i + 1] if i + 1 < len(group) else None)
                other = pages_of.get((not entry.kept, entry.id))
                references = {
                    id: (pages_of.get((False, id)), claims) for id, claims in entry.references.items()
                }
                values = {
                    "paper": paper,
                    "e": entry,
                    "around": around,
                    "runtime": runtime(entry, site),
                    "group": group,
                }
                yield page(entry.file, "artifact.html", here="", other=other, references=references, **values)
    for data in site.data:
        yield page(
            data.page,
            "dataset.html",
            here="",
            data=data,
            sizes=_sizes(data),
            drawn=_by_paper(data.entries, site),
        )


def _sizes(data: DataSet) -> dict[str, list[tuple[str, str]]]:
    """Returns the facts that jobs record of their data, by SHA-256, each different value once."""
    out = {}
    for sha, jobs in data.versions.items():
        answers: dict[str, list[str]] = {}
        for job in jobs:
            for key, value in job.facts.items():
                # lists of lists describe what a job's seeds drew from the data, not the data
                drawn = "[" in fact(key, value)
                if key not in ("data", "embedded") and not key.endswith("_sha256") and not drawn:
                    values = answers.setdefault(key.replace("_", " "), [])
                    values += [words] if (words := fact(key, value)) not in values else []
        out[sha] = [
            (key, "; ".join(v[:4]) + (f"; and {len(v) - 4} more" if len(v) > 4 else ""))
            for key, v in answers.items()
        ]
    return out


def _by_paper(entries: list[Entry], site: Site) -> list[tuple[Paper, list[Entry]]]:
    pages = {e.page for e in entries}
    return [
        (p, drawn) for p in site.papers if (drawn := [e for e in (*p.entries, *p.kept) if e.page in pages])
    ]
