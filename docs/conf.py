"""Sphinx: the Markdown pages of this folder and a reference made of docstrings and configuration files
(`reference.py`).

`make docs` builds it; every warning is an error. Pages also have to read well where they lie, as plain
Markdown.
"""

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import reference  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

project = "mobench"
author = "The mobench developers"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 3
myst_links_external_new_tab = True

highlight_language = "text"

html_theme = "furo"
html_title = "mobench"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_static_path = ["site.css"]
html_css_files = ["site.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
add_module_names = False
# names of types come from other projects, whose pages are not on this machine
nitpicky = False

# Files outside of this folder that are pages of the site: where they lie, what they are called here
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
REPOSITORY = "https://github.com/mobench/mobench/blob/main/"


def elsewhere(app: Sphinx, page: str, source: list[str]) -> None:
    """Links that leave this folder: to a page of the site if the file is one, else to the repository."""
    text = source[0]
    if f"{page}.md" in PAGES.values():  # its links are those of the top folder
        text = text.replace("](docs/", "](")
        for file, here in PAGES.items():
            text = text.replace(f"]({file}", f"]({here}")
    for file, here in PAGES.items():
        depth = "../" * page.count("/")
        text = text.replace(f"](../{depth}{file}", f"]({depth}{here}")
    for folder in ("conf/", "mobench/", "experiments/", "tests/", "data/"):
        text = text.replace(f"](../{folder}", f"]({REPOSITORY}{folder}").replace(
            f"]({folder}", f"]({REPOSITORY}{folder}"
        )
    source[0] = text


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx before anything is read."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for file, here in PAGES.items():
        text = (HERE.parent / file).read_text()
        reference.write(HERE / here, text + (HERE / "contents.txt").read_text() * (here == "index.md"))
    reference.build(HERE / "api")
    app.connect("source-read", elsewhere)
    app.connect("autodoc-process-docstring", reference.docstring)
    return {"parallel_read_safe": True}
