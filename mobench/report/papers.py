"""The papers: short name, title, order and pictures, from `experiments/<paper>/paper.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from mobench.errors import ConfigError
from mobench.system import paths

ENTRIES = {"short": str, "title": str, "position": int, "pictures": list}


@dataclass(frozen=True)
class PaperInfo:
    """The contents of paper.yaml.

    Args:
        short: its name in tables and menus.
        title: the paper's title, or the subject of the comparison.
        position: its place among the others, from 1; papers without a file come last.
        pictures: the artifacts whose figures its page in the documentation shows.
    """

    short: str
    title: str
    position: int
    pictures: Sequence[str] = ()


@functools.cache
def papers() -> dict[str, PaperInfo]:
    """Returns the papers that have a paper.yaml by the name of their package, in their order.

    Raises:
        ConfigError: A file lacks an entry, has another one, or one of another type.
    """
    import yaml

    by_name: dict[str, PaperInfo] = {}
    for path in paths.experiments().glob("*/paper.yaml"):
        values = yaml.safe_load(path.read_text())
        if not isinstance(values, dict) or {k: type(v) for k, v in values.items()} != ENTRIES:
            raise ConfigError(
                f"{path} needs the entries short and title (text), position (integer) and pictures (list)."
            )
        by_name[path.parent.name] = PaperInfo(**values)
    return dict(sorted(by_name.items(), key=lambda item: item[1].position))


def paper_info(id: str) -> PaperInfo:
    """Returns the entry of one paper; one without a file is called by its id."""
    return papers().get(id, PaperInfo(id, "", len(papers()) + 1))
