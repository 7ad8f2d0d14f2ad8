"""Data are read as data, and an API key is written nowhere. Ruff's rules S look for the rest in the code."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import pickle
import re
import secrets
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import mobench
from mobench.data import images
from mobench.data.fewshot import load_fewshot
from mobench.data.images import load_images
from mobench.errors import DataError
from tests.conftest import shell
from tests.test_wandb import records

PACKAGE = Path(mobench.__file__).resolve().parent
THIS = Path(__file__).name  # its snippets break every rule
OURS = ("mobench", "experiments")
TEXT = (".yaml", ".yml", ".md", ".toml", ".cfg", ".sh", "Makefile")


# --- sources ------------------------------------------------------------------------------------------------


def listed() -> tuple[Path, list[str]]:
    """The root and the paths below it: what git tracks or would track, else the files that are there."""
    root = PACKAGE.parent
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            return root, sorted({p for p in done.stdout.split("\0") if p and (root / p).is_file()})
    found = list(PACKAGE.rglob("*"))
    if (root / "pyproject.toml").is_file():  # else this is a folder of all packages
        found += [*root.glob("*.*"), root / "Makefile"]
        found += [p for top in ("experiments", "conf", "tests", "docs") for p in (root / top).rglob("*")]
    return root, sorted(str(p.relative_to(root)) for p in found if p.is_file())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """path -> text of all sources but this one."""
    root, paths = listed()
    wanted = [p for p in paths if p.endswith((".py", *TEXT)) and Path(p).name != THIS]
    found = {p: (root / p).read_text(encoding="utf-8") for p in wanted}
    if not any(p.endswith(".py") for p in found):
        pytest.skip(f"there are no sources below {root}")
    return found


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
            found = images.unpickled(path, md5, "")
            assert found["data"].tolist() == [0, 1, 2, 3, 4, 5]
            assert found["labels"] == [1, 2]
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
    found = images.unpickled(path, hashlib.md5(path.read_bytes()).hexdigest(), "")
    assert found["data"].tolist() == [1, 2, 255]
    assert found["labels"] == [5]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_file_exchanged_after_its_checksum_is_not_unpickled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write into the data folder must not win a race against the check."""
    from torchvision import datasets

    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    kind = getattr(datasets, name.upper())
    path = tmp_path / kind.base_folder / kind.train_list[0][0]
    path.parent.mkdir()
    images = np.zeros((100, 3072), dtype=np.uint8)
    entry = {"data": images, **{key: list(range(100)) for key in ("labels", "fine_labels", "coarse_labels")}}
    path.write_bytes(pickle.dumps(entry, protocol=2))
    monkeypatch.setattr(kind, "train_list", [[path.name, hashlib.md5(path.read_bytes()).hexdigest()]])
    monkeypatch.setattr(kind, "test_list", [])
    right = hashlib.md5
    exchanged = []

    class Exchanging:
        """hashlib.md5, whose result comes when the file has just been exchanged."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.sum = right(*given, **options)

        def update(self, part: bytes) -> None:
            self.sum.update(part)

        def hexdigest(self) -> str:
            path.write_bytes(pickle.dumps(Trap()))
            exchanged.append(path)
            return self.sum.hexdigest()

    monkeypatch.setattr(hashlib, "md5", Exchanging)
    with contextlib.suppress(TypeError, ValueError):  # no test images; what is made of the trap is no batch
        (load_fewshot if name == "cifar100" else load_images)(name, tmp_path)
    assert exchanged
    assert not (tmp_path / "sprung").exists()


WORDS = re.compile(
    r"\b(c?[pP]ickle|dill|cloudpickle|marshal)\.loads?\b|\bread_pickle\b|allow_pickle\s*=\s*True|"
    r"weights_only\s*=\s*False|\byaml\.(unsafe_|full_)?load\b|!!python/|shell\s*=\s*True|\bos\.system\b|"
    r"\btorch\.load\((?!.*weights_only=True)|\bextractall\b|(curl|wget)\b[^\n]*\|\s*(ba|z)?sh\b"
)


@pytest.mark.parametrize(
    "text",
    [
        "python -c 'import pickle; pickle.load(f)'",
        "a: !!python/object/apply:os.system [ls]",
        "`yaml.load(text)`",
        "torch.load(path, weights_only=False)",
        "torch.load(path)",
        "\tcurl -s https://example.org/install | bash",
    ],
)
def test_the_search_sees(text: str) -> None:
    assert WORDS.search(text)


def test_nothing_is_unpickled_or_run(texts: dict[str, str]) -> None:
    """In code, Makefile, YAML and documents; the tests break the rules on purpose."""
    ours = {p: text for p, text in texts.items() if Path(p).parts[0] != "tests"}
    assert {"mobench/jobs/store.py", "Makefile"} <= set(ours)
    found = [f"{p}: {hit.group()}" for p, text in ours.items() for hit in WORDS.finditer(text)]
    assert found == []


def targets(node: Any) -> Iterator[str]:
    """Values of all keys `_target_`."""
    if isinstance(node, dict):
        yield from (str(value) for key, value in node.items() if key == "_target_")
        node = list(node.values())
    for child in node if isinstance(node, list) else []:
        yield from targets(child)


def test_configuration_makes_objects_of_this_package_alone(texts: dict[str, str]) -> None:
    assert list(targets({"a": [{"_target_": "os.system"}]})) == ["os.system"]
    conf = {
        p: yaml.safe_load(text)
        for p, text in texts.items()
        if "conf" in Path(p).parts and p.endswith(".yaml")
    }
    found = [(path, target) for path, node in conf.items() for target in targets(node)]
    assert len(found) > 20
    assert [entry for entry in found if not entry[1].startswith("mobench.")] == []


# --- API keys -----------------------------------------------------------------------------------------------


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


def test_a_leak_is_found(tmp_path: Path) -> None:
    key = secrets.token_hex(20)
    assert leaks(tmp_path, key) == []
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "plain").write_bytes(b"\0\xff" + key.encode())
    (tmp_path / "http").write_bytes(base64.b64encode(f"api:{key}".encode()))
    (tmp_path / f"name-{key}").touch()
    with zipfile.ZipFile(tmp_path / "zip.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", key * 10)
    pd.DataFrame({"a": [key] * 10}).to_parquet(tmp_path / "table.parquet", compression="gzip")
    (tmp_path / "clean").write_text(secrets.token_hex(20))
    found = {Path(p).name for p in leaks(tmp_path, key)}
    assert found == {"plain", "http", f"name-{key}", "zip.npz", "table.parquet"}


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
