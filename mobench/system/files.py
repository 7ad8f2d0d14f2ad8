"""Files that are written whole or not at all, and tables that keep every bit of their numbers."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mobench.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd


def cannot_write(error: OSError, path: Path) -> StoreError:
    """The error of a failed write, with its reason and what can be done."""
    reasons = {13: "permission denied", 30: "the file system is read-only", 28: "no space left on the device"}
    why = reasons.get(error.errno or 0, error.strerror or str(error))
    return StoreError(
        f"Cannot write {path}: {why}. Free space, fix permissions, or choose another folder with "
        "MOBENCH_OUTPUTS=DIR. Finished results are not affected; "
        "repeat the command, which resumes from the last checkpoint, if there is one."
    )


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replaces `path` by `data`: readers see the old file or the new one, never a part.

    `durable`: it survives a power cut, too. What can be made again in no time need not wait for the disk.

    Raises:
        StoreError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as f:
            f.write(data)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(error, path) from error


def write_json(path: Path, value: Any) -> None:
    """Indented JSON, atomically. NaN is refused: it is not JSON."""
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds a lock beside `path`: other processes wait until its content is made.

    The lock ends with its process; where none can be written, nobody waits.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(path.with_suffix(".lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_csv(path: Path | io.BytesIO, **options: Any) -> pd.DataFrame:
    """`pandas.read_csv`, in which each number is the floating-point number nearest to its text.

    That is the default of pandas since 3.1, which deprecates the option; older versions change the last bit
    of some numbers without it.
    """
    import pandas as pd

    major, minor = pd.__version__.split(".")[:2]
    if (int(major), int(minor)) < (3, 1):
        options["float_precision"] = "round_trip"
    table: pd.DataFrame = pd.read_csv(path, **options)
    return table
