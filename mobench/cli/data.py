"""Downloads official files and checks them (mnist), or writes pictures that are made of them (multi_mnist);
--list: names, and which are found.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mobench.data.files import default_root
from mobench.data.images import (
    EMBEDDED,
    LABELS,
    OFFICIAL,
    Images,
    download,
    folder_of,
    load_images,
    missing_files,
)
from mobench.data.multi import FAMILY, multi_images
from mobench.errors import DataError, MobenchError, choose
from mobench.system.files import write_atomic


def _description(data: Images) -> str:
    part = f", {data.label}" if data.subset else ""
    return f"{len(data.train)} + {len(data.test)} images, sha256 {data.digest[:16]}{part}"


def _line(name: str, root: Path) -> str:
    """Returns the state of one set, after reading and checking its files."""
    if name in EMBEDDED:
        return f"embedded, {_description(load_images(name, root))}"
    missing = missing_files(name, root)
    if missing:
        return f"not found: {', '.join(missing)} missing in {folder_of(name, root)}"
    try:
        return f"found in {folder_of(name, root)}, {_description(load_images(name, root))}"
    except DataError as error:
        return f"damaged: {error}"


def _make(name: str, root: Path) -> str:
    """Writes pictures of two images, after the files that they are made of have been brought."""
    for base in FAMILY[name]:
        _bring(base, root)
    data = multi_images(*FAMILY[name], root)
    kinds = ("train", "train_labels", "test", "test_labels")
    written = io.BytesIO()
    np.savez_compressed(written, **{kind: getattr(data, kind).numpy() for kind in kinds})
    path = root / f"{name}.npz"
    write_atomic(path, written.getvalue())
    return f"written to {path}: {len(data.train)} + {len(data.test)} pictures, sha256 {data.digest[:16]}"


def _bring(name: str, root: Path) -> str:
    if name in FAMILY:
        return _make(name, root)
    if name in EMBEDDED:
        return f"embedded, nothing to download: {_description(load_images(name, root))}"
    try:
        data = load_images(name, root)
        whole = not data.subset  # who asks for a set wants all of it
    except DataError:
        whole = False
    if not whole:
        download(name, root)
        data = load_images(name, root)
    return f"in {folder_of(name, root)}, checked: {_description(data)}"


def main(arguments: Sequence[str]) -> int:
    """Runs `mobench data ARGUMENTS` and returns the exit code."""
    parser = argparse.ArgumentParser(prog="mobench data", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"data sets to download: {', '.join(OFFICIAL)}; to make of them: {', '.join(FAMILY)}",
    )
    parser.add_argument(
        "--root", type=Path, help="the folder of data files (default: $MOBENCH_DATA, else data)"
    )
    parser.add_argument(
        "--list", action="store_true", help="list all names and whether their files are found"
    )
    args = parser.parse_args(list(arguments))
    root = args.root or default_root()
    if not (args.names or args.list):
        parser.error(f"name a data set ({', '.join((*OFFICIAL, *FAMILY))}) or use --list.")
    try:
        for name in args.names:
            choose("data", name, (*LABELS, *FAMILY))
        for name in args.names:
            print(f"{name:19s} {_bring(name, root)}")
        if args.list:
            for name in LABELS:
                print(f"{name:19s} {_line(name, root)}")
            for name, parts in FAMILY.items():
                made = root / f"{name}.npz"
                written = f"written to {made}" if made.is_file() else "not written"
                print(f"{name:19s} made of {' and '.join(dict.fromkeys(parts))}; {written}")
    except MobenchError as error:
        print(f"mobench data: error: {error}", file=sys.stderr)
        return 1
    return 0
