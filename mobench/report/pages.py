"""The HTML pages of the report, each as its address and bytes: an overview, and a page for each artifact.

Dates and the present commit stand on the overview alone: the other pages change only with the rows that they
show.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from mobench.report.model import VERDICTS, Mark, Site, cost, mark
from mobench.report.wall import wall
from mobench.report.words import commit, moment, text
from mobench.system import provenance

TEMPLATES = jinja2.FileSystemLoader(Path(__file__).parent / "templates")


def pages(site: Site) -> Iterator[tuple[str, bytes]]:
    """Yields every page of the report, and the style that they share."""
    env = jinja2.Environment(
        loader=TEMPLATES,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"text": text, "prose": prose, "moment": moment, "url": quote, "mark": mark}
    env.filters["cost"] = partial(cost, site)
    env.globals |= {"verdicts": list(VERDICTS.values()), "badge": _badge}

    def page(address: str, template: str, **values: Any) -> tuple[str, bytes]:
        base = "../" * address.count("/")
        return address, env.get_template(template).render(site=site, base=base, **values).encode()

    yield page("assets/style.css", "style.css")
    yield page(
        "index.html",
        "index.html",
        commit=commit(provenance.code()),
        commits=sorted({e.commit for e in site.everything if e.origin}),
        built=time.strftime("%Y-%m-%d %H:%M %z"),
        wall=Markup(wall(site, links="")) if site.best else "",  # noqa: S704 - its texts are escaped by `wall`
    )
    pages_of = {(e.kept, e.id): e.page for e in site.everything}
    for paper in site.papers:
        for entry in (*paper.entries, *paper.kept):
            other = pages_of.get((not entry.kept, entry.id))
            shown = {id: (pages_of.get((False, id)), claims) for id, claims in entry.references.items()}
            yield page(entry.file, "artifact.html", paper=paper, e=entry, other=other, shown=shown)


def prose(value: str) -> Markup:
    """Escapes text; what is in backticks is code."""
    parts = [Markup.escape(part) for part in re.split(r"`([^`]+)`", value)]
    return Markup("").join(Markup("<code>{}</code>").format(p) if k % 2 else p for k, p in enumerate(parts))


def _badge(verdict: Mark) -> Markup:
    return Markup('<span class="chip v-{}">{} {}</span>').format(verdict.key, verdict.symbol, verdict.name)
