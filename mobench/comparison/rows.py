"""Rows of the comparison: one for each pair of method and problem, tuning study and reported seed.

Rows of a pair carry the names of the jobs that they were computed from, the commit, and a digest of their own
numbers. Files are CSV, compressed by gzip.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mobench.comparison.trials import STUDIES, reported
from mobench.errors import StoreError
from mobench.system.files import read_csv, write_atomic
from mobench.system.paths import results_root

VERSION = 1  # of the protocol
PAIR = ("replication", "board", "problem", "method")
KEY = (*PAIR, "study", "seed")
MEASURES = (
    "share",
    "score",
    "igd_plus",
    "epsilon",
    "gap",
    "angle",
    "feasible",
    "violation",
    "gradients",
    "seconds",
)
SETTING = ("step_size", "parameter", "value")  # of the study's winner: step size or lr; the main parameter
ORIGIN = ("jobs", "commit", "digest")
COLUMNS = ("version", *KEY, *SETTING, *MEASURES, *ORIGIN)
TEXT = ("board", "problem", "method", "parameter", "jobs", "commit", "digest")
DIGITS = 5  # significant ones that are kept

Pair = tuple[str, str, str]


def folder() -> Path:
    """Returns experiments/results/cross, the folder of the rows that come with the project."""
    return results_root() / "cross"


def joined_keys(keys: Iterable[str]) -> str:
    """Returns one name for all jobs of a pair: that of the only one, or a hash of several."""
    names = sorted(keys)
    if len(names) == 1:
        return names[0]
    return f"{len(names)}-{hashlib.sha256(','.join(names).encode()).hexdigest()[:10]}"


def kept(replication: int | None = None) -> pd.DataFrame:
    """Returns the rows that come with the project, of one replication or of all."""
    files = sorted(folder().glob("*.csv.gz"))
    if not files:
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.concat([_read_once(path, path.stat().st_mtime_ns) for path in files], ignore_index=True)
    return frame if replication is None else frame[frame["replication"] == replication]


@functools.lru_cache(maxsize=16)
def _read_once(path: Path, changed: int) -> pd.DataFrame:
    """Returns the rows of a file, which is read and checked once after each change."""
    return read(path)


def kept_pairs(replication: int) -> dict[Pair, str]:
    """Returns the jobs behind the kept rows of each pair."""
    pairs = kept(replication).drop_duplicates(list(PAIR))
    keys = zip(pairs["board"], pairs["problem"], pairs["method"], strict=True)
    return dict(zip(keys, pairs["jobs"], strict=True))


def _digests(frame: pd.DataFrame) -> dict[tuple[object, ...], str]:
    """Returns the digest of the rows of each pair, whatever their order.

    Raises:
        StoreError: a cell has a line break, so that rows are not lines of CSV.
    """
    rows = frame[[name for name in COLUMNS if name != "digest"]].sort_values(list(KEY))
    # all lines are written at once: a file has hundreds of pairs, and pandas takes milliseconds for each
    header, *lines = rows.to_csv(index=False).splitlines(keepends=True)
    if len(lines) != len(rows):
        raise StoreError(f"{len(rows)} rows are {len(lines)} lines of CSV: a cell has a line break.")
    texts: dict[tuple[object, ...], list[str]] = {}
    for *name, line in zip(*(rows[name] for name in PAIR), lines, strict=True):
        texts.setdefault(tuple(name), [header]).append(line)
    return {name: hashlib.sha256("".join(text).encode()).hexdigest()[:12] for name, text in texts.items()}


def stamped(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the same rows, rounded to `DIGITS` digits and sorted, each with the digest of its pair."""
    out = frame.assign(digest="")
    for name in (*MEASURES, "step_size", "value"):
        out[name] = [float(f"{x:.{DIGITS}g}") for x in out[name].astype(float)]
    out = out[list(COLUMNS)].sort_values(list(KEY), kind="stable").reset_index(drop=True)
    by_pair = _digests(out)
    out["digest"] = [by_pair[name] for name in zip(*(out[name] for name in PAIR), strict=True)]
    return out


def write(path: Path, frame: pd.DataFrame) -> None:
    """Writes rows; equal rows are equal bytes."""
    write_atomic(path, to_bytes(frame))


def to_bytes(frame: pd.DataFrame) -> bytes:
    """Returns the contents of a file of these rows."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(frame[list(COLUMNS)].to_csv(index=False).encode())
    return buffer.getvalue()


def read(path: Path) -> pd.DataFrame:
    """Reads rows and checks them.

    Raises:
        StoreError: the file cannot be read, or `check` says what is wrong with it.
    """
    try:
        types: dict[str, type] = dict.fromkeys(TEXT, str)
        empty = {name: [""] for name in (*MEASURES, "step_size", "value")}
        frame = read_csv(path, dtype=types, keep_default_na=False, na_values=empty)
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path} cannot be read as rows of the comparison: {error}") from error
    check(frame, str(path))
    return frame[list(COLUMNS)]


def check(frame: pd.DataFrame, where: str) -> None:
    """Raises StoreError unless rows are complete, of this version, and those that were written."""
    if list(frame.columns) != list(COLUMNS):
        missing = [name for name in COLUMNS if name not in frame.columns]
        further = [name for name in frame.columns if name not in COLUMNS]
        raise StoreError(
            f"{where}: the columns are not those of the comparison (missing: {', '.join(missing) or 'none'}; "
            f"unknown: {', '.join(further) or 'none'}); give a rows.csv.gz that +experiment=cross/zoo wrote."
        )
    versions = sorted({int(v) for v in frame["version"]})
    if versions not in ([], [VERSION]):
        raise StoreError(
            f"{where} holds rows of version {', '.join(map(str, versions))} of the protocol, but this code "
            f"compares version {VERSION}; run the pairs again with this code."
        )
    columns = {name: frame[name].to_numpy() for name in ("study", "seed", "digest", "feasible")}
    shares = frame[["share", "score", "feasible"]].to_numpy(dtype=float)
    places = frame.groupby(list(PAIR), sort=False).indices
    for name, true in _digests(frame).items():
        own = places[name]
        pair = f"{where}: {'.'.join(map(str, name[1:]))}"
        count = reported(str(name[1]))
        keys = set(zip(columns["study"][own].tolist(), columns["seed"][own].tolist(), strict=True))
        seeds = Counter(study for study, _ in keys)
        if len(own) != len(STUDIES) * count or seeds != dict.fromkeys(STUDIES, count):
            raise StoreError(
                f"{pair} has {len(own)} rows, but {len(STUDIES) * count} are expected, one for each of "
                f"{len(STUDIES)} studies and {count} seeds."
            )
        if (marks := set(columns["digest"][own])) != {true}:
            raise StoreError(
                f"{pair}: the rows do not belong to their digest ({', '.join(sorted(marks))}, but they have "
                f"{true}), so a number was changed after they were written; run the pair again."
            )
        some = shares[own]
        if not np.isfinite(some).all() or (some < 0).any() or (columns["feasible"][own] > 1).any():
            raise StoreError(f"{pair}: share, score and feasible must be finite and not negative.")


def merge(parts: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, list[str]]:
    """Joins rows of files, by their names, and returns a line about each file.

    Raises:
        StoreError: two files have different rows of one pair.
    """
    taken: dict[tuple[object, ...], tuple[str, pd.DataFrame]] = {}
    messages = []
    for where, frame in parts.items():
        new = equal = 0
        for key, pair in frame.groupby(list(PAIR), sort=False):
            if key not in taken:
                taken[key] = (where, pair)
                new += 1
                continue
            other, known = taken[key]
            if known["digest"].iloc[0] != pair["digest"].iloc[0]:
                raise StoreError(
                    f"{where} and {other} have different rows of {'.'.join(map(str, key[1:]))} (replication "
                    f"{key[0]}, jobs {pair['jobs'].iloc[0]} and {known['jobs'].iloc[0]}); keep one of them. "
                    f"If one of them is kept and shall go, add --replace {key[3]}."
                )
            equal += 1
        known_already = f", {equal} of them known already" if equal else ""
        messages.append(f"{where}: {new} pairs{known_already} ({', '.join(sorted(set(frame['method'])))})")
    if not taken:
        return pd.DataFrame(columns=list(COLUMNS)), messages
    joined = pd.concat([pair for _, pair in taken.values()], ignore_index=True)
    return joined.sort_values(list(KEY), kind="stable").reset_index(drop=True), messages


def digests(frame: pd.DataFrame, method: str) -> dict[tuple[object, ...], str]:
    """Returns the digest of each pair of a method."""
    pairs = frame[frame["method"] == method].drop_duplicates(list(PAIR))
    keys = pairs[list(PAIR)].itertuples(index=False, name=None)
    return dict(zip(keys, pairs["digest"], strict=True))


def without(frame: pd.DataFrame, pairs: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    """Returns the rows of all other pairs."""
    gone = set(pairs)
    keys = list(zip(*(frame[name] for name in PAIR), strict=True))
    return frame[[key not in gone for key in keys]]
