"""Rows of the comparison from several people:  mobench cross merge FILE... [--out FILE]

Joins the files `rows.csv.gz` that `mobench +experiment=cross/zoo` wrote with the rows that come with the
project, a file for each board, so that the boards show them. With --out, the files alone become one file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mobench.comparison import rows
from mobench.errors import ConfigError
from mobench.system.console import say


def merge(files: Sequence[str], out: str | None) -> int:
    """Joins files of rows and says what was found in each; the exit code.

    Raises:
        StoreError: a file cannot be read, has rows of another version of the protocol, rows that were
            changed, or rows that contradict those of another file. Nothing is written then.
    """
    parts = {name: rows.read(Path(name)) for name in files}
    if out is not None:
        joined, said = rows.merge(parts)
        rows.write(Path(out), joined)
        places = [out]
    else:
        kept = {str(path): rows.read(path) for path in sorted(rows.folder().glob("*.csv.gz"))}
        joined, said = rows.merge({**kept, **parts})
        said = said[len(kept) :]
        places = []
        for board, own in joined.groupby("board", sort=False):
            path = rows.folder() / f"{board}.csv.gz"
            rows.write(path, own)
            places.append(str(path))
    for line in said:
        say(line)
    pairs = len(joined.drop_duplicates(list(rows.PAIR)))
    say(f"{pairs} pairs of method and problem, {joined['method'].nunique()} methods, in {', '.join(places)}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Returns the parser of what follows `mobench cross merge`."""
    found = argparse.ArgumentParser(prog="mobench cross merge", description=(__doc__ or "").split("\n\n")[1])
    found.add_argument("files", nargs="+", metavar="FILE", help="rows.csv.gz of a drawn cross/zoo")
    found.add_argument("--out", metavar="FILE", help="write the joined rows of these files here instead")
    return found


def run(arguments: Sequence[str]) -> int:
    """What follows `mobench cross`; the exit code.

    Raises:
        ConfigError: an unknown command, or no file.
    """
    if not arguments or arguments[0] != "merge":
        raise ConfigError(
            f"mobench cross {' '.join(arguments)}".rstrip() + " is unknown; use mobench cross merge FILE..."
        )
    given = parser().parse_args(list(arguments[1:]))
    return merge(given.files, given.out)
