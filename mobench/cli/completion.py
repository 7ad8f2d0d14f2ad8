"""Completion of `+experiment=`, whose choices lie in folders of folders:
Hydra's completion finds none of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mobench.config import searchpath
from mobench.config.schema import choices

WORD = re.compile(r"(\+?experiment=)((?:[^,]*,)*)([^,]*)")


def answer(overrides: Sequence[str]) -> str | None:
    """What the shell gets for `mobench -sc query=SHELL`, or None where Hydra answers."""
    shells = [o.partition("=")[2] for o in overrides if o.startswith("query=")]
    line = os.environ.get("COMP_LINE", "")
    if not shells or not line or line[-1].isspace():
        return None
    arguments = line.split()
    found = matches(arguments[-1], arguments[:-1])
    return None if found is None else ("\n" if shells[0] == "fish" else " ").join(found)


def matches(word: str, before: Sequence[str] = ()) -> list[str] | None:
    """Continuations of a word that begins with `+experiment=` (a list's last name is continued);
    None for other words.
    """
    parts = WORD.fullmatch(word)
    if parts is None:
        return [f"{word[: word.startswith('+')]}experiment="] if re.fullmatch(r"\+?exp\w*", word) else None
    key, listed, begun = parts.groups()
    known = choices("experiment", *searchpath.folders(before))
    papers = sorted({name.rpartition("/")[0] for name in known if "/" in name})
    every = [*known, *(f"{paper}/all" for paper in papers), "all"]
    return [f"{key}{listed}{name}" for name in every if name.startswith(begun)]
