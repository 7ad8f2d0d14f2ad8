"""The text of `mobench --help`: the template of conf/config.yaml with the choices of every group.

Hydra can do it as well, but copies the search path once for each group: seconds."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from mobench.config import searchpath
from mobench.config.schema import conf_dir


def _natural(name: str) -> str:
    """Puts fig9 before fig10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


def _groups(bases: Sequence[Path]) -> Iterator[str]:
    """A line for each group that a person chooses from; files below `tuned` follow from other choices."""
    found: dict[str, set[str]] = {}
    for base in bases:
        for path in base.rglob("*.yaml"):
            group = path.parent.relative_to(base).as_posix()
            if group.split("/")[0] not in (".", "tuned"):
                found.setdefault(group, set()).add(path.stem)
    for group in sorted(found):
        yield f"{group}: {', '.join(sorted(found[group], key=_natural))}"


def text(arguments: Sequence[str] = ()) -> str:
    """What `--help` prints; `arguments` may name plug-in folders."""
    template = OmegaConf.load(conf_dir() / "config.yaml").hydra.help
    groups = "\n".join(_groups([conf_dir(), *searchpath.folders(arguments)]))
    return string.Template(template.template).substitute(APP_CONFIG_GROUPS=groups)
