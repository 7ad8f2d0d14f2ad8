"""Rows of the comparison from several people:  mobench cross merge FILE... [--replace METHOD] [--out FILE]

Joins the files `rows.csv.gz` that `mobench +experiment=cross/zoo` wrote with the rows that come with the
project, a file for each board, so that the boards show them. Rows that contradict kept ones are refused, but
for those of a METHOD that --replace names, which take the place of the kept ones. With --out, the files alone
become one file. Before rows of another library's problem are merged, `mobench check-problem` says whether it
is mobench's.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from mobench.cli import one_message
from mobench.comparison import rows
from mobench.errors import ConfigError, suggest
from mobench.system.console import say


def merge(files: Sequence[str], out: str | None, replace: Sequence[str] = ()) -> int:
    """Joins files of rows, prints a line for each, and returns the exit code.

    Args:
        files: to join.
        out: where the rows of the files alone go; None: they are joined with the kept ones.
        replace: methods whose rows take the place of kept ones that they contradict.

    Raises:
        ConfigError: no file has rows of a method to replace, or no kept rows are joined.
        StoreError: a file cannot be read, has rows of another version of the protocol, rows that were
            changed, or rows that contradict those of another file. Nothing is written then.
    """
    parts = {name: rows.read(Path(name)) for name in files}
    _check_replace(replace, parts, out)
    replaced: list[str] = []
    if out is not None:
        joined, messages = rows.merge(parts)
        rows.write(Path(out), joined)
        places = [out]
    else:
        kept = {str(path): rows.read(path) for path in sorted(rows.folder().glob("*.csv.gz"))}
        new_rows = pd.concat(parts.values())
        replaced = [_replace(method, kept, new_rows) for method in replace]
        joined, messages = rows.merge({**kept, **parts})
        messages = messages[len(kept) :]
        places = []
        for board, board_rows in joined.groupby("board", sort=False):
            path = rows.folder() / f"{board}.csv.gz"
            rows.write(path, board_rows)
            places.append(str(path))
    for line in [*messages, *replaced]:
        say(line)
    pairs = len(joined.drop_duplicates(list(rows.PAIR)))
    say(f"{pairs} pairs of method and problem, {joined['method'].nunique()} methods, in {', '.join(places)}")
    return 0


def _check_replace(replace: Sequence[str], parts: Mapping[str, pd.DataFrame], out: str | None) -> None:
    """Raises ConfigError unless kept rows are joined, and the files have rows of all methods to replace."""
    if replace and out is not None:
        raise ConfigError(
            f"--replace {replace[0]} replaces kept rows, but --out {out} joins the given files alone; leave "
            "one of them out."
        )
    methods = sorted({method for frame in parts.values() for method in frame["method"]})
    for method in replace:
        if method not in methods:
            raise ConfigError(
                f"--replace {method}: the files have no rows of it, but of {', '.join(methods)}."
                f"{suggest(method, methods)}"
            )


def _replace(method: str, kept: dict[str, pd.DataFrame], new_rows: pd.DataFrame) -> str:
    """Removes the kept rows of a method that new rows contradict, and says which went and which stay."""
    new = rows.digests(new_rows, method)
    count = 0
    rest = []
    for name, frame in kept.items():
        old = rows.digests(frame, method)
        gone = [pair for pair, mark in old.items() if new.get(pair, mark) != mark]
        rest += [pair for pair in old if pair not in new]
        kept[name] = rows.without(frame, gone)
        count += len(gone)
    text = f"{method}: {count} pairs in place of the kept ones"
    if not rest:
        return text
    # a score would mix what two versions of the method did
    listed = ", ".join(f"{board}.{problem} (replication {number})" for number, board, problem, _ in rest)
    return f"{text}; no file has its rows of {listed}, so the kept ones stay"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the arguments of `mobench cross merge`."""
    merge_parser = argparse.ArgumentParser(
        prog="mobench cross merge", description=(__doc__ or "").split("\n\n")[1]
    )
    merge_parser.add_argument("files", nargs="+", metavar="FILE", help="rows.csv.gz of a drawn cross/zoo")
    merge_parser.add_argument(
        "--replace",
        metavar="METHOD",
        action="append",
        default=[],
        help="rows of this method take the place of kept ones that they contradict (may be given again)",
    )
    merge_parser.add_argument(
        "--out", metavar="FILE", help="write the joined rows of these files here instead"
    )
    return merge_parser


@one_message
def main(arguments: Sequence[str]) -> int:
    """Runs `mobench cross ARGUMENTS` and returns the exit code."""
    return run(arguments)


def run(arguments: Sequence[str]) -> int:
    """Runs `mobench cross ARGUMENTS` and returns the exit code.

    Raises:
        ConfigError: an unknown command, or no file.
    """
    if arguments and arguments[0] in ("-h", "--help"):
        arguments = ["merge", "--help"]
    if not arguments or arguments[0] != "merge":
        raise ConfigError(
            f"mobench cross {' '.join(arguments)}".rstrip() + " is unknown; use mobench cross merge FILE..."
        )
    args = parser().parse_args(list(arguments[1:]))
    return merge(args.files, args.out, args.replace)
