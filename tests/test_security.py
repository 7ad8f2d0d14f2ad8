"""Data are read as data, and an API key is written nowhere.

Ruff's rules S look for the rest in the code; tests/test_bundle.py and tests/test_forms.py hold what
comes from others.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pickle
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mobench.data import images
from mobench.errors import DataError
from tests.conftest import shell
from tests.test_wandb import records


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_build_arrays_alone(tmp_path: Path, protocol: int) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    for k, content in enumerate(({"data": np.arange(6, dtype=np.uint8), "labels": [1, 2]}, {"data": Trap()})):
        path = tmp_path / str(k)
        path.write_bytes(pickle.dumps(content, protocol=protocol))
        md5 = hashlib.md5(path.read_bytes()).hexdigest()
        if k == 0:
            contents = images.unpickled(path, md5, "")
            assert contents["data"].tolist() == [0, 1, 2, 3, 4, 5]
            assert contents["labels"] == [1, 2]
        else:
            with pytest.raises(DataError, match="which is not an array"):
                images.unpickled(path, md5, "")
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    """As the official files are: made by Python 2 and the NumPy of its time."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I3\ntcnumpy\ndtype\n"
        b"(S'u1'\nI0\nI1\ntR"
    )
    state = b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x01\\x02\\xff'\ntb"
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"(dS'data'\n" + array + state + b"sS'labels'\n(lI5\nas.")
    contents = images.unpickled(path, hashlib.md5(path.read_bytes()).hexdigest(), "")
    assert contents["data"].tolist() == [1, 2, 255]
    assert contents["labels"] == [5]


# API keys


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
