"""The HTML pages of the report, each as its address and bytes.

Dates and the present commit stand on the overview alone: the other pages change only with the rows that they
show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from mobench.config.method_names import NAMES
from mobench.report.boards import boards, score_boards
from mobench.report.gauges import compared
from mobench.report.model import VERDICTS, DataSet, Entry, Job, Paper, Site
from mobench.report.runtime import runtime
from mobench.report.sheets import Sheet
from mobench.report.wall import wall
from mobench.report.words import commit, duration, fact, glue, moment, text
from mobench.system import provenance

OPEN_JOBS = 12  # a longer list of an artifact's jobs is folded
NAVIGATION = (
    ("index.html", "Overview"),
    ("boards.html", "Leaderboards"),
    ("compared.html", "Published and measured"),
    ("claims.html", "Claims"),
    ("runs.html", "Runs"),
    ("data.html", "Data"),
)
SETTINGS = 5  # by which a job is told apart, in the table of jobs
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
        "body": body,
        "url": quote,
        "proper": lambda name: NAMES.get(name, name),  # a method of somebody else's has no other name
    }
    env.globals |= {
        "navigation": NAVIGATION,
        "verdicts": list(VERDICTS.values()),
        "states": STATES,
        "open_jobs": OPEN_JOBS,
    }
    return env


def body(table: Sheet) -> Markup:
    """Rows of a job.

    A thousand jobs must stay small and quick: cells are numbers unless said otherwise, and HTML lets their
    end tags be left out.
    """
    starts = ["<td>" if column.numeric else "<td class=words>" for column in table.columns]

    def cell(start: str, text: str) -> str:
        return start + text.replace("&", "&amp;").replace("<", "&lt;")  # ten times as quick as Markup.escape

    rows = ("".join(cell(start, c.text) for start, c in zip(starts, row, strict=True)) for row in table.rows)
    return Markup("\n".join(f"<tr>{row}" for row in rows))  # noqa: S704 - its cells are escaped


def styles() -> dict[str, bytes]:
    """What all pages share."""
    env = _environment()
    return {f"assets/{name}": env.get_template(name).render().encode() for name in ("style.css", "script.js")}


def pages(site: Site, thumbnails: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Every page of the report; `thumbnails`: address of the small figure by artifact."""
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
    ran = {job.algorithm for job in site.jobs}
    tables = {"boards": boards(site), "scored": score_boards(site), "ran": ran}
    yield page("boards.html", "boards.html", here="boards.html", **tables)
    yield page("compared.html", "compared.html", here="compared.html", papers=compared(site))
    yield page("claims.html", "claims.html", here="claims.html")
    yield page(
        "runs.html", "runs.html", here="runs.html", choices=_choices(site), told=_told_apart(site.jobs)
    )
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
                shown = {id: (pages_of.get((False, id)), claims) for id, claims in entry.references.items()}
                own = {
                    "paper": paper,
                    "e": entry,
                    "around": around,
                    "runtime": runtime(entry, site),
                    "group": group,
                }
                yield page(entry.file, "artifact.html", here="", other=other, shown=shown, **own)
    settings = {
        e.page: _settings(site.by_key[k] for k in e.jobs.values() if k in site.by_key)
        for e in site.everything
    }
    for job in site.jobs:
        yield page(f"runs/{job.key}.html", "job.html", here="", job=job, apart=_apart(job, settings))
    for data in site.data:
        yield page(
            data.page,
            "dataset.html",
            here="",
            data=data,
            sizes=_sizes(data),
            drawn=_by_paper(data.entries, site),
        )


# what is said on the pages


def _choices(site: Site) -> dict[str, list[tuple[str, str]]]:
    """What the run browser can be filtered by: (value, label) per attribute."""

    def plain(values: Iterable[str]) -> list[tuple[str, str]]:
        return [(v, v) for v in sorted(set(values) - {"", "–"})]

    used = {entry.id for job in site.jobs for entry in job.entries}
    return {
        "problem": plain(job.problem for job in site.jobs),
        "algorithm": plain(job.algorithm for job in site.jobs),
        "scale": plain(job.scale for job in site.jobs),
        "artifact": list(
            {
                e.id: (e.id, f"{p.short}: {e.label}")
                for p in site.papers
                for e in (*p.entries, *p.kept)
                if e.id in used
            }.values()
        ),
        "data": [(data.slug, data.label) for data in site.data],
    }


def _told_apart(jobs: Iterable[Job]) -> dict[str, str]:
    """By key of a job, the settings in which it differs from others of the same problem and algorithm."""
    groups: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for job in jobs:
        groups.setdefault((job.problem, job.algorithm), {})[job.key] = _identity(job, 10**9)
    out = {}
    for alike in groups.values():
        values: dict[str, set[str | None]] = {}
        for name in {name for settings in alike.values() for name in settings}:
            values[name] = {settings.get(name) for settings in alike.values()}
        differing = sorted(
            (name for name, seen in values.items() if len(seen) > 1),
            key=lambda name: (len(values[name]), name),
        )
        for key, settings in alike.items():
            said = [f"{_last(name)}={_brief(settings[name])}" for name in differing if name in settings]
            out[key] = ", ".join(said[:SETTINGS]) + (
                f", {len(said) - SETTINGS} more" * (len(said) > SETTINGS)
            )
    return out


def _last(name: str) -> str:
    """`algorithm.step_size` without its group."""
    return name.split(".", 1)[-1]


def _brief(value: str) -> str:
    """A list as its length, so that a line has room for settings."""
    if value.startswith("["):
        return f"{len(json.loads(value))} values"
    return value if len(value) <= 24 else f"{value[:22]} …"


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{at}.{key}" if at else str(key))
    else:
        yield at.removesuffix(".class"), value


def _identity(job: Job, longest: int = 120) -> dict[str, str]:
    """What determines a job's rows, a line per setting."""
    identity = job.origin.get("identity")
    flat = _flat(identity) if isinstance(identity, dict) else ()
    said = {
        k: v.rsplit(".", 1)[-1] if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
        for k, v in flat
        if not k.startswith("versions.")
    }
    return {k: v if len(v) <= longest else f"{v[: longest - 10]} …" for k, v in said.items()}


def _apart(job: Job, settings: dict[str, dict[str, set[str]]]) -> tuple[Entry, list[tuple[str, str]]] | None:
    """What sets a job apart from the others of an artifact:
    of the one with whose jobs it has most in common.
    """
    own = _identity(job)
    found = [(e, [(k, v) for k, v in own.items() if settings[e.page][k] != {v}]) for e in job.entries]
    return min((f for f in found if f[1]), key=lambda f: len(f[1]), default=None)


def _settings(jobs: Iterable[Job]) -> dict[str, set[str]]:
    """Per setting, the values that those of these jobs have that have it."""
    values: dict[str, set[str]] = {}
    for job in jobs:
        for key, value in _identity(job).items():
            values.setdefault(key, set()).add(value)
    return values


def _sizes(data: DataSet) -> dict[str, list[tuple[str, str]]]:
    """Per SHA-256, what its jobs say of it: train_size and the like, each different answer once."""
    out = {}
    for sha, jobs in data.versions.items():
        said: dict[str, list[str]] = {}
        for job in jobs:
            for key, value in job.facts.items():
                # lists of lists: what a job's seeds made of the data, not the data
                drawn = "[" in fact(key, value)
                if key not in ("data", "embedded") and not key.endswith("_sha256") and not drawn:
                    seen = said.setdefault(key.replace("_", " "), [])
                    seen += [shown] if (shown := fact(key, value)) not in seen else []
        out[sha] = [
            (key, "; ".join(v[:4]) + (f"; and {len(v) - 4} more" if len(v) > 4 else ""))
            for key, v in said.items()
        ]
    return out


def _by_paper(entries: list[Entry], site: Site) -> list[tuple[Paper, list[Entry]]]:
    pages = {e.page for e in entries}
    return [(p, mine) for p in site.papers if (mine := [e for e in (*p.entries, *p.kept) if e.page in pages])]
