"""From outputs/ to a static site that opens from disk. Reads artifact and job folders, computes nothing new.

    outputs/report/index.html              papers and their artifacts
    outputs/report/artifacts/<id>.html     a page per artifact; kept/<id>.html per artifact that is drawn from
                                           kept rows
    outputs/report/assets/                 style, copies of figures and tables: the folder can be sent

The same inputs give the same bytes, except for the line of index.html with the build date. Only what changed
is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mobench.report.model import Site
from mobench.report.pages import pages
from mobench.report.reading import collect
from mobench.system.files import write_atomic
from mobench.system.paths import outputs_root


def build(root: Path | None = None, expected: Sequence[str] = ()) -> Path:
    """Writes report/ under the outputs folder; returns the path of its first page.

    `expected`: ids that the overview lists as not drawn yet when they have no folder
    (see `reading.declared`).
    """
    root = root or outputs_root()
    return write(collect(root, expected), root / "report")


def write(site: Site, target: Path) -> Path:
    """Writes the pages of a site into a folder; returns the path of the first one."""
    files = site.assets | dict(pages(site))
    for name, data in files.items():
        path = target / name
        if not path.is_file() or path.read_bytes() != data:
            write_atomic(path, data, durable=False)
    # of artifacts that are gone; `runs` and `data` are what reports once had
    for part in ("assets", "artifacts", "kept", "runs", "data"):
        for path in sorted((target / part).rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.relative_to(target).as_posix() not in files:
                path.unlink(missing_ok=True)
    return target / "index.html"
