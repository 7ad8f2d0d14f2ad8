"""Configures Sphinx: the Markdown pages of this folder and a reference built by `reference.py`.

`make docs` builds the site, and every warning is an error. The pages must also read well as plain Markdown.
"""

import functools
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import reference  # noqa: E402
from sphinx.addnodes import pending_xref, toctree  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.environment import BuildEnvironment  # noqa: E402
from sphinx.transforms.post_transforms import SphinxPostTransform  # noqa: E402

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
# an extra that those who build the pages need not have
autodoc_mock_imports = [] if importlib.util.find_spec("flwr") else ["flwr"]
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # there are none; to look for them, every source is parsed again
maximum_signature_line_length = 100
add_module_names = False
# type names belong to other projects, whose inventories are not available offline
nitpicky = False

# Files outside this folder that are pages of the site -> their names in this folder
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "AGENTS.md": "agents.md",
}


def redirect_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Redirects links that leave this folder to a page of the site; others become their words."""
    text = source[0]
    if f"{page}.md" in PAGES.values():  # its links are relative to the top folder
        text = text.replace("](docs/", "](")
        for file, here in PAGES.items():
            text = text.replace(f"]({file}", f"]({here}")
    for file, here in PAGES.items():
        depth = "../" * page.count("/")
        text = text.replace(f"](../{depth}{file}", f"]({depth}{here}")
    source[0] = re.sub(
        r"\[([^\]]*)\]\((?:\.\./)*(?:conf|mobench|experiments|tests|data)/[^)]*\)", r"\1", text
    )


class OthersNames(SphinxPostTransform):
    """Takes names that no object of this project ends with, such as Tensor, for plain text.

    Sphinx would do so too, after it has compared each mention with each object: a sixth of the build.
    """

    default_priority = 5  # before references are resolved

    def run(self, **kwargs: Any) -> None:
        """Replaces the references of one page."""
        own = {name.rpartition(".")[2] for name in self.env.domains.python_domain.objects}
        for node in list(self.document.findall(pending_xref)):
            if node.get("refdomain") == "py" and node["reftarget"].rpartition(".")[2] not in own:
                node.replace_self(node.children)


@functools.cache
def titles(env: BuildEnvironment) -> dict[str, Any]:
    """Returns the contents of each page without its sections and objects."""
    tocs = {page: toc.deepcopy() for page, toc in env.tocs.items()}
    for entry in (entry for toc in tocs.values() for entry in toc.children):
        if len(entry) > 1 and not list(entry.findall(toctree)):
            entry.pop(1)
    return tocs


def navigation_of_titles(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Gives a page the titles alone to make its navigation of.

    Furo asks for no more, but Sphinx copies the contents of all pages for each: a third of the build.
    """
    resolved, whole = context["toctree"], app.env.tocs

    def of_titles(**options: Any) -> str:
        app.env.tocs = titles(app.env)
        try:
            return str(resolved(**options))
        finally:
            app.env.tocs = whole

    context["toctree"] = of_titles


def setup(app: Sphinx) -> dict[str, Any]:
    """Prepares the pages; Sphinx calls it before it reads anything."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for file, here in PAGES.items():
        text = (HERE.parent / file).read_text()
        reference.write(HERE / here, text + (HERE / "contents.txt").read_text() * (here == "index.md"))
    reference.build(HERE / "api")
    app.add_post_transform(OthersNames)
    app.connect("source-read", redirect_links)
    app.connect("autodoc-process-docstring", reference.docstring)
    app.connect("html-page-context", navigation_of_titles, priority=400)  # before Furo's
    return {"parallel_read_safe": True}
