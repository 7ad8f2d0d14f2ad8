"""Data are read as data, and an API key is written nowhere.

Ruff's rules S look for the rest in the code; tests/test_bundle.py and tests/test_forms.py hold what
comes from others.
"""

from __future__ import annotations

import base64
import io
import os
import secrets
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tests.conftest import shell

# API keys


def records(path: Path) -> Iterator[Any]:
    """The protobuf records of an offline run: 7 bytes of header, then LevelDB's log in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    assert data.startswith(b":W&B")
    position = 7
    parts = []
    while position + 7 <= len(data):
        room = 32768 - position % 32768
        if room < 7:  # what is left of a block is padding
            position += room
            continue
        _, size, kind = struct.unpack("<IHB", data[position : position + 7])
        parts.append(data[position + 7 : position + 7 + size])
        position += 7 + size
        if kind in (1, 4):  # whole, or last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file; what is inside, where they are compressed or cut into blocks."""
    raw = path.read_bytes()
    yield raw
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif path.suffix == ".parquet":
        yield pd.read_parquet(path).to_csv().encode()
    elif path.suffix == ".wandb":
        yield from (record.SerializeToString() for record in records(path))


def leaks(folder: Path, key: str) -> list[str]:
    """Files whose path or content has the key, as it is or as HTTP sends it."""
    forms = (key.encode(), base64.b64encode(f"api:{key}".encode()).rstrip(b"="))
    files = [p for p in folder.rglob("*") if p.is_file()]
    return [str(p) for p in files if any(f in part for f in forms for part in (os.fsencode(p), *contents(p)))]


def test_the_key_is_written_nowhere(tmp_path: Path) -> None:
    key = secrets.token_hex(20)
    root = tmp_path / "outputs"
    env = {"WANDB_API_KEY": key, "WANDB_MODE": "offline", "TMPDIR": str(tmp_path)}
    done = shell(root, "algorithm=ls", "preferences=2", "steps=3", "logger=auto", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(root.glob("wandb/offline-run-*/*.wandb"))  # so the key was seen
    assert list(root.glob("runs/*/final.csv"))
    assert key not in done.stdout
    assert leaks(tmp_path, key) == []
