"""The archive of a bundle: a ZIP file whose `manifest.json` lists the SHA-256 of every other file.

Names are sorted, times are fixed and nothing is compressed, so the same files give the same bytes. Whoever
changes a file and its line of the manifest makes another bundle, with another digest (`digest`); compare that
with the digest that the authors published.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import PureWindowsPath
from typing import Any

from mobench.errors import BundleError

MANIFEST = "manifest.json"
FORMAT = 1
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a ZIP file
SHOWN = 20  # problems in a message
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)


def packed(files: Mapping[str, bytes]) -> bytes:
    """Returns the bytes of the archive of these files and of their manifest."""
    content = dict(files) if MANIFEST in files else {**files, MANIFEST: manifest(files)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(content):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content[name])
    return buffer.getvalue()


def manifest(files: Mapping[str, bytes]) -> bytes:
    """Returns the manifest of these files: for each its SHA-256 and its number of bytes."""
    return document({"format": FORMAT, "files": {name: _entry(files[name]) for name in sorted(files)}})


def _entry(data: bytes) -> dict[str, Any]:
    return {"sha256": sha256(data).hexdigest(), "bytes": len(data)}


def document(value: Any) -> bytes:
    """Returns indented JSON; NaN is refused, since it is not JSON."""
    return (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def digest(files: Mapping[str, bytes]) -> str:
    """Returns the SHA-256 of the manifest, which stands for all files."""
    return sha256(files[MANIFEST]).hexdigest()


def unpacked(raw: bytes) -> dict[str, bytes]:
    """Returns the files of an archive, the manifest among them, each as its manifest says.

    Raises:
        BundleError: it is no ZIP file, a name leaves the folder, or files were changed, removed or added; the
            message has their names.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except UNREADABLE as error:
        raise BundleError(
            f"This is no bundle: it is not a ZIP file, or the file is damaged ({error})."
        ) from error
    _refuse(f"{name!r} is a name that leaves the folder" for name in files if _leaves(name))
    _refuse(_manifest_problems(files))
    return files


def _leaves(name: str) -> bool:
    """Says whether a name would not stay in the folder that a bundle is unpacked into."""
    path = PureWindowsPath(name)  # it knows both separators, and drives
    return bool(path.anchor) or ".." in path.parts


def _refuse(problems: Iterable[str]) -> None:
    """Raises BundleError with all problems, if there are any."""
    messages = list(problems)
    if not messages:
        return
    more = f"\n  and {len(messages) - SHOWN} more" if len(messages) > SHOWN else ""
    raise BundleError("The bundle is refused:\n  " + "\n  ".join(messages[:SHOWN]) + more)


def parsed(name: str, data: bytes) -> Any:
    """Returns the value of a JSON file.

    Raises:
        BundleError: it is not JSON.
    """
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{name} is not valid JSON: {error}") from error


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
        if name in listed and listed[name] != _entry(data)
    ]
    return problems
