"""Files of data sets: their folder, checksums of their contents, and one message where they are missing,
damaged or other ones.

A loader names its files to `require`, reads them within `reading`, and gives what it has read to `verify`.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mobench.errors import DataError

FETCH = {  # of each set: how its files are had, below the data folder {root}
    "mnist": "`mobench data mnist --root {root}` downloads them",
    "fashion_mnist": "`mobench data fashion_mnist --root {root}` downloads them",
    "cifar10": "`mobench data cifar10 --root {root}` downloads them, once an incomplete folder is deleted",
    "cifar100": "they are downloaded by "
    "`python -c \"from torchvision.datasets import CIFAR100; CIFAR100('{root}', download=True)\"`",
    "rf1": "the file belongs to Mulan's multi-target data sets and must be copied there",
    "celeba": "its authors give them away for non-commercial research, see "
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html; unpack the images there",
    "speech_small": "copy both files there",
    "librispeech_aishell": "unpack the archives of https://openslr.org/12 and https://openslr.org/33 there",
}
INSTEAD = {  # embedded data that serve in the place of a set
    "rf1": "generated",
    "celeba": "celeba_synth",
    "speech_small": "generated",
    "librispeech_aishell": "generated",
}
SHA256 = {  # of the arrays of a set (`digest_of`)
    "mnist": "1e35582d42a90940c55b956deb61875c020b567ed20e3c5b174f52bf7809ed9b",
    "fashion_mnist": "ece172613115fb18b120bec8f6c02271af90b8b8f0a5af5c51cbd5ceed68e619",
    "cifar10 subset": "666eff18d994f40daec4a918d112a41718bbc77c50677377325cc21ea5416a0f",
    "cifar100 subset": "72ed2b00c561d3bea01512dd0d2f758fe64711d57f77a72ceb24440fc41212c3",
}
# all that Pillow, NumPy, torchvision and SciPy raise for a file that is cut short or of another format
DAMAGE = (
    OSError, EOFError, KeyError, IndexError, RuntimeError, StopIteration, SyntaxError, TypeError, ValueError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def _damage() -> tuple[type[Exception], ...]:
    """Returns the errors of a damaged file, with Pillow's for a picture that says it is enormous."""
    from PIL import Image

    return (*DAMAGE, Image.DecompressionBombError)


LISTED = 8  # names of missing files in a message


def default_root() -> Path:
    """The folder of data files: $MOBENCH_DATA, else `data`; as in conf/config.yaml."""
    return Path(os.environ.get("MOBENCH_DATA") or "data")


def absolute(root: str | Path) -> str:
    """Key of caches: a relative path means another folder after a change of the working directory."""
    return str(Path(root).expanduser().absolute())


def digest_of(*arrays: np.ndarray) -> str:
    """sha256 of the bytes of all arrays, in this order; the same on every machine."""
    total = hashlib.sha256()
    for a in arrays:
        total.update(np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")).data)
    return total.hexdigest()


def missing_in(folder: Path, files: Sequence[str]) -> list[str]:
    """Returns the files that the folder lacks; a name that ends with / is a folder in it."""
    return [
        file
        for file in files
        if not ((folder / file).is_dir() if file.endswith("/") else (folder / file).is_file())
    ]


def require(name: str, root: str | Path, folder: Path, missing: Sequence[str]) -> None:
    """Raises DataError where files of the set `name` are missing in a folder below `root`."""
    if missing:
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        raise DataError(
            f"data={name} needs {', '.join(missing[:LISTED])}{more} in {folder}, which could not be found. "
            "The environment "
            f"variable MOBENCH_DATA or data_root sets the folder {root}; {advice(name, root)}"
        )


@contextmanager
def reading(name: str, root: str | Path, path: Path) -> Iterator[None]:
    """Turns what a library raises for a damaged or unreadable file of the set `name` into DataError."""
    try:
        yield
    except _damage() as error:  # asked only where something was raised
        # Pillow appends the address of an object to some messages
        reason = " ".join(str(error).split("<")[0].split()) or type(error).__name__
        raise DataError(
            f"{path} could not be read as a file of data={name}: {reason.rstrip('.')}. If it is incomplete "
            f"or another file, delete it; {advice(name, root)}"
        ) from error


def verify(name: str, root: str | Path, folder: Path, digest: str) -> None:
    """Raises DataError where the contents of a set have another checksum than the official ones.

    Args:
        name: of the set; for a part of the official files, followed by the word subset. A set whose
            checksum is not known passes.
    """
    expected = SHA256.get(name, digest)
    if digest != expected:
        raise DataError(
            f"The contents of the files of data={name} in {folder} have sha256 {digest}, but the official "
            f"ones have {expected}. Some were modified or replaced; delete them, then "
            f"{advice(name.split()[0], root)}"
        )


def advice(name: str, root: str | Path) -> str:
    """Returns the end of a message: how the files are had, and the data that need none."""
    return (
        f"{FETCH[name].format(root=root)}. "
        f"problem.data={INSTEAD.get(name, 'digits')} is embedded and needs no file."
    )
