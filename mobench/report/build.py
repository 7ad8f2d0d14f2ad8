"""From outputs/ to a static site that opens from disk. Reads artifact and job folders, computes nothing new.

    outputs/report/index.html              papers and their artifacts; beside it claims.html, boards.html
                                           and data.html
    outputs/report/artifacts/<id>.html     a page per artifact; kept/<id>.html per artifact that is drawn from
                                           kept rows
    outputs/report/data/<name>.html        a page per data set
    outputs/report/assets/                 style, script, copies of figures and tables: the folder can be
                                           zipped and sent

The same inputs give the same bytes, except for the line of index.html with the build date. Only what changed
is written.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from PIL import Image

from mobench.report.model import Site
from mobench.report.pages import pages, styles
from mobench.report.reading import collect
from mobench.system.files import write_atomic
from mobench.system.paths import outputs_root

THUMBNAIL = 480  # pixels: shown at half of it


def build(root: Path | None = None, expected: Sequence[str] = ()) -> Path:
    """Writes report/ under the outputs folder; returns the path of its first page.

    `expected`: ids that the overview lists as not drawn yet when they have no folder
    (see `reading.declared`).
    """
    root = root or outputs_root()
    return write(collect(root, expected), root / "report")


def write(site: Site, target: Path) -> Path:
    """Writes the pages of a site into a folder; returns the path of the first one."""
    names = _thumbnails(site)
    written = [_write(target, name, data) for name, data in (styles() | site.assets).items()]
    for page, name in names.items():
        if not (target / name).is_file():  # its name holds the figure's digest: an existing file is right
            (entry,) = (e for e in site.everything if e.page == page)
            _write(target, name, _thumbnail(site.assets[f"{entry.assets}/figure.png"]))
        written.append(name)
    written += [_write(target, name, data) for name, data in pages(site, names)]
    _remove_stale(target, written)
    return target / "index.html"


def _write(target: Path, name: str, data: bytes) -> str:
    """Writes a file unless it is there already, and returns its name."""
    path = target / name
    if not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data, durable=False)
    return name


def _thumbnails(site: Site) -> dict[str, str]:
    """Returns the address of each artifact's small figure, by the artifact's page."""
    drawn = {e.page: e for e in site.everything if e.figure}
    digests = {
        page: sha256(site.assets[f"{e.assets}/figure.png"]).hexdigest()[:12] for page, e in drawn.items()
    }
    return {page: f"{e.assets}/small-{digests[page]}.webp" for page, e in drawn.items()}


def _thumbnail(png: bytes) -> bytes:
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB")
        small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS, reducing_gap=3.0)
        small.save(buffer, "WEBP", quality=80, method=4)
    return buffer.getvalue()


def _remove_stale(target: Path, written: Iterable[str]) -> None:
    """Removes pages and files of artifacts that are gone, and pages of jobs, which older reports had."""
    known = set(written)
    for part in ("assets", "artifacts", "kept", "runs", "data"):
        for path in sorted((target / part).rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.relative_to(target).as_posix() not in known:
                path.unlink(missing_ok=True)
