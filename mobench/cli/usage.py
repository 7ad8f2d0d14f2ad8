"""Renders `mobench --help`: the template in conf/config.yaml with the options of every configuration group.

Hydra can render it too, but it copies the search path once per group, which takes seconds.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from mobench.config import searchpath
from mobench.config.schema import conf_dir


def _natural(name: str) -> str:
    """Returns a sort key that puts fig9 before fig10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


def _groups(bases: Sequence[Path]) -> Iterator[str]:
    """Yields one line per group that users select from; files in `tuned` follow from other choices."""
    stems: dict[str, set[str]] = {}
    for base in bases:
        for path in base.rglob("*.yaml"):
            group = path.parent.relative_to(base).as_posix()
            if group.split("/")[0] not in (".", "tuned"):
                stems.setdefault(group, set()).add(path.stem)
    for group in sorted(stems):
        yield f"{group}: {', '.join(sorted(stems[group], key=_natural))}"


def text(arguments: Sequence[str] = ()) -> str:
    """Returns the text of `--help`.

    Args:
        arguments: the command line, which may name further configuration folders.
    """
    template = OmegaConf.load(conf_dir() / "config.yaml").hydra.help
    groups = "\n".join(_groups(searchpath.places(arguments)))
    return string.Template(template.template).substitute(APP_CONFIG_GROUPS=groups)
