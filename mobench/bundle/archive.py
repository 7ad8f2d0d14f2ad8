"""The archive of a bundle: a ZIP file each byte of which follows from the files that it holds.

Names are sorted, times are fixed, nothing is compressed, and `manifest.json` lists the SHA-256 of every other
file. So the same rows give the same bytes, any changed bit is noticed, and nothing can expand while it is
read. Whoever changes a file and its line of the manifest makes another bundle, with another digest
(`digest`); compare that with the digest that the authors published.

Files are read in memory. Nothing is written to a path that comes from an archive.
"""

from __future__ import annotations

import io
import json
import re
import stat
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from mobench.errors import BundleError

MANIFEST = "manifest.json"
FORMAT = 1
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a ZIP file
UNIX = 3
MODE = stat.S_IFREG | 0o644
PART = r"[A-Za-z0-9_@=,+-][A-Za-z0-9_@=,+.-]*"
NAME = re.compile(rf"{PART}(/{PART})*")
SUFFIXES = frozenset(
    ("csv", "diff", "json", "md", "npz", "parquet", "pdf", "png", "sh", "tex", "txt", "yaml")
)
LARGEST = 2**31  # bytes
SHOWN = 20  # problems in a message
UNREADABLE = (
    zipfile.BadZipFile,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
    LookupError,
)


def packed(files: Mapping[str, bytes]) -> bytes:
    """Returns the bytes of the archive of these files and of their manifest.

    Raises:
        BundleError: a name that no bundle may hold, or 2 GiB or more in all.
    """
    content = dict(files) if MANIFEST in files else {**files, MANIFEST: manifest(files)}
    refuse(problem for name in content if (problem := _name_problem(name)) is not None)
    total = sum(map(len, content.values()))
    if total >= LARGEST:
        raise BundleError(
            f"The files of the bundle have {total / 2**30:.1f} GiB, and 2 GiB is the limit. Bundle fewer "
            "artifacts, or leave out the histories."
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(content):
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = UNIX
            info.external_attr = MODE << 16
            archive.writestr(info, content[name])
    return buffer.getvalue()


def manifest(files: Mapping[str, bytes]) -> bytes:
    """Returns the manifest of these files: for each its SHA-256 and its number of bytes."""
    listed = {name: {"sha256": sha256(files[name]).hexdigest(), "bytes": len(files[name])} for name in files}
    return document({"format": FORMAT, "files": dict(sorted(listed.items()))})


def document(value: Any) -> bytes:
    """Returns indented JSON; NaN is refused, since it is not JSON."""
    return (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def digest(files: Mapping[str, bytes]) -> str:
    """Returns the SHA-256 of the manifest, which stands for all files."""
    return sha256(files[MANIFEST]).hexdigest()


def unpacked(raw: bytes) -> dict[str, bytes]:
    """Returns the files of an archive, the manifest among them, each as its manifest says.

    Raises:
        BundleError: anything else, with the names of the files that differ: changed, missing, added,
            duplicate, compressed, encrypted, or a link; names that are absolute or leave the folder; bytes of
            the archive that belong to no file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            entries = archive.infolist()
            count = Counter(entry.orig_filename for entry in entries)
            refuse(f"{name!r} comes {n} times in the archive" for name, n in count.items() if n > 1)
            refuse(
                f"{entry.filename} is compressed; a bundle stores its files as they are, so that nothing "
                "expands while it is read"
                for entry in entries
                if entry.compress_type != zipfile.ZIP_STORED
            )
            total = sum(entry.file_size for entry in entries)
            if total > len(raw):  # entries that share bytes
                refuse([f"its files say that they have {total} bytes, but the archive has {len(raw)}"])
            files: dict[str, bytes] = {}
            damaged: list[str] = []
            for entry in entries:
                try:
                    files[entry.filename] = archive.read(entry)
                except UNREADABLE as error:
                    damaged.append(f"{entry.filename} cannot be read from the archive: {error}")
            refuse(damaged)
    except UNREADABLE as error:
        raise BundleError(
            f"This is no bundle: it is not a ZIP file, or the table of its files is damaged ({error})."
        ) from error
    refuse(_manifest_problems(files))
    again = packed(files)
    if again != raw:
        raise BundleError(f"{_other_bytes(raw, again)}. The files themselves are as the manifest says.")
    return files


def refuse(problems: Iterable[str]) -> None:
    """Raises BundleError with all problems, if there are any."""
    messages = list(problems)
    if not messages:
        return
    more = f"\n  and {len(messages) - SHOWN} more" if len(messages) > SHOWN else ""
    raise BundleError("The bundle is refused:\n  " + "\n  ".join(messages[:SHOWN]) + more)


def parsed(name: str, data: bytes) -> Any:
    """Returns the value of a JSON file; a key that comes twice, of which readers would see one, is an error.

    Raises:
        BundleError: it is not JSON.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        if twice:
            raise ValueError(f"the key {twice[0]!r} comes twice")
        return dict(pairs)

    try:
        return json.loads(data.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{name} is not valid JSON: {error}") from error


def _name_problem(name: str) -> str | None:
    """Returns why a bundle may not hold a file of this name; None if it may."""
    if NAME.fullmatch(name) and name.rpartition(".")[2] in SUFFIXES:
        return None
    return (
        f"{name!r:.120} is not a name that a bundle may hold: a relative path of letters, digits, "
        f"_ @ = , + - and . that ends with {', '.join(sorted(SUFFIXES))}"
    )


def _manifest_problems(files: Mapping[str, bytes]) -> list[str]:
    """Returns the differences between the files and their manifest."""
    if MANIFEST not in files:
        return [f"{MANIFEST} is missing"]
    content = parsed(MANIFEST, files[MANIFEST])
    listed = content.get("files") if isinstance(content, dict) else None
    if not isinstance(listed, dict):
        return [f"{MANIFEST} does not list files"]
    if content.get("format") != FORMAT:
        return [f"{MANIFEST} has format {content.get('format')!r}; this version of mobench reads {FORMAT}"]
    present = {name: data for name, data in files.items() if name != MANIFEST}
    problems = [f"{name} was added: {MANIFEST} does not list it" for name in sorted(present.keys() - listed)]
    problems += [
        f"{name} is missing, although {MANIFEST} lists it" for name in sorted(listed.keys() - present)
    ]
    problems += [
        f"{name} differs from what {MANIFEST} says: SHA-256 and size are "
        f"{sha256(data).hexdigest()[:16]}... and {len(data)} bytes"
        for name, data in sorted(present.items())
        if name in listed and listed[name] != {"sha256": sha256(data).hexdigest(), "bytes": len(data)}
    ]
    if not problems and manifest(present) != files[MANIFEST]:
        problems.append(f"{MANIFEST} is written in another way than by mobench")
    return problems


def _other_bytes(raw: bytes, again: bytes) -> str:
    """Returns the places in which an archive differs from the one that its files determine."""
    if len(raw) != len(again):
        return (
            f"The archive has {len(raw)} bytes where its files make {len(again)}: something was added "
            "before, between or after them"
        )
    place = next(i for i, (one, other) in enumerate(zip(raw, again, strict=True)) if one != other)
    with zipfile.ZipFile(io.BytesIO(again)) as archive:
        before = [entry.filename for entry in archive.infolist() if entry.header_offset <= place]
        table = place >= archive.start_dir
    where = "in the table of its files" if table else f"in the header of {before[-1]}"
    return f"The archive differs at byte {place}, {where}: a time, an attribute or a comment was changed"
