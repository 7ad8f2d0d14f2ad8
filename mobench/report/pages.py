"""From outputs/ to a static site that opens from disk. Reads artifact and job folders, computes nothing new.

    outputs/report/index.html              papers and their artifacts; beside it claims.html, boards.html
                                           and data.html
    outputs/report/artifacts/<id>.html     a page per artifact; kept/<id>.html per artifact that is drawn from
                                           kept rows
    outputs/report/assets/                 style, script, copies of figures and tables: the folder can be
                                           zipped and sent

The same inputs give the same bytes, and only what changed is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from mobench.artifacts.style import METHODS
from mobench.report.model import VERDICTS, Site, count, mark
from mobench.report.reading import collect
from mobench.report.tables import boards, sheet
from mobench.report.wall import wall
from mobench.report.words import commit, rich, text
from mobench.system import provenance
from mobench.system.files import write_atomic
from mobench.system.paths import outputs_root

TEMPLATES = Path(__file__).parent / "templates"
NAVIGATION = {
    "index.html": "Overview",
    "boards.html": "Leaderboards",
    "claims.html": "Claims",
    "data.html": "Data",
}


def build(root: Path | None = None, expected: Sequence[str] = ()) -> Path:
    """Writes report/ under the outputs folder; returns the path of its first page.

    `expected`: ids that the overview lists as not drawn yet when they have no folder.
    """
    root = root or outputs_root()
    return write(collect(root, expected), root / "report")


def write(site: Site, target: Path) -> Path:
    """Writes the pages of a site into a folder; returns the path of the first one."""
    files = {f"assets/{name}": (TEMPLATES / name).read_bytes() for name in ("style.css", "script.js")}
    files |= {f"{e.assets}/{name}": data for e in site.all.everything for name, data in e.files.items()}
    files |= dict(_pages(site))
    for name, data in files.items():
        path = target / name
        if not path.is_file() or path.read_bytes() != data:
            write_atomic(path, data, durable=False)
    for part in ("assets", "artifacts", "kept", "data"):  # of artifacts that are gone, and of older reports
        for path in sorted((target / part).rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
            elif path.is_file() and path.relative_to(target).as_posix() not in files:
                path.unlink(missing_ok=True)
    return target / "index.html"


def _pages(site: Site) -> Iterator[tuple[str, bytes]]:
    """Yields the address and the bytes of every page."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"text": text, "rich": rich, "url": quote, "mark": mark}
    # a method of somebody else's has no other name
    env.filters["proper"] = lambda name: METHODS[name].name if name in METHODS else name
    env.globals |= {
        "site": site,
        "count": count,
        "navigation": NAVIGATION,
        "verdicts": list(VERDICTS.values()),
    }

    def page(address: str, template: str, **values: Any) -> tuple[str, bytes]:
        values |= {"here": address, "base": "../" * address.count("/")}
        return address, env.get_template(template).render(values).encode()

    yield page(
        "index.html",
        "index.html",
        commit=commit(provenance.code()),
        wall=Markup(wall(site, links="")) if site.all.best else "",  # noqa: S704 - its texts are escaped by `wall`
    )
    yield page("boards.html", "boards.html", boards=boards(site))
    yield page("claims.html", "claims.html")
    yield page("data.html", "data.html")
    addresses = {(e.kept, e.id): e.page for e in site.all.everything}
    for paper in site.papers:
        for group in (paper.entries, paper.kept):
            for before, e, after in zip([None, *group], group, [*group[1:], None], strict=False):
                yield page(
                    e.file,
                    "artifact.html",
                    e=e,
                    paper=paper,
                    around=(before, after),
                    table=sheet(e.files["table.csv"]) if "table.csv" in e.files else None,
                    other=addresses.get((not e.kept, e.id)),
                    references={id: (addresses.get((False, id)), c) for id, c in e.references.items()},
                )
