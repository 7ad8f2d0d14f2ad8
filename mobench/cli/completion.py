"""Completion of commands, which Hydra does not know, and of artifacts: they lie in folders of folders, where
Hydra's completion finds none of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mobench.cli import COMMANDS
from mobench.config import searchpath
from mobench.config.schema import choices

NAMING = ("bundle", "keep", "status")  # commands whose words are artifacts
WORD = re.compile(r"(\+?experiment=)((?:[^,]*,)*)([^,]*)")


def answer(overrides: Sequence[str]) -> str | None:
    """Returns the completions for `mobench -sc query=SHELL`, or None where Hydra answers."""
    shells = [o.partition("=")[2] for o in overrides if o.startswith("query=")]
    line = os.environ.get("COMP_LINE", "")
    if not shells or not line:
        return None
    arguments = line.split()
    word = "" if line[-1].isspace() else arguments[-1]
    if len(arguments) > 1 and arguments[1] in COMMANDS and word != arguments[1]:
        words: list[str] | None = artifacts(word) if arguments[1] in NAMING else []
    else:
        words = matches(word, arguments[:-1]) if word else None
        if words is None and len(arguments) == 2:
            words = [command for command in COMMANDS if command.startswith(word)] or None
    return None if words is None else ("\n" if shells[0] == "fish" else " ").join(words)


def artifacts(word: str) -> list[str]:
    """Returns the artifacts that begin with a word."""
    return [name for name in choices("experiment") if name.startswith(word)]


def matches(word: str, before: Sequence[str] = ()) -> list[str] | None:
    """Returns continuations of a word that begins with `+experiment=`, of a list's last name; else None."""
    parts = WORD.fullmatch(word)
    if parts is None:
        return [f"{word[: word.startswith('+')]}experiment="] if re.fullmatch(r"\+?exp\w*", word) else None
    key, listed, begun = parts.groups()
    known = choices("experiment", *searchpath.folders(before))
    papers = sorted({name.rpartition("/")[0] for name in known if "/" in name})
    every = [*known, *(f"{paper}/all" for paper in papers), "all"]
    return [f"{key}{listed}{name}" for name in every if name.startswith(begun)]
