"""`mobench doctor`: data sets, the outputs folder, a broken package, and what it says on this machine."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mobench.cli import doctor
from mobench.cli.doctor import MISSING, OK, PROBLEM
from mobench.data.images import OFFICIAL


def raising(error: BaseException) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


def failing(number: int) -> Any:
    return raising(OSError(number, os.strerror(number)))


@pytest.mark.parametrize(
    ("where", "patched", "words"),
    [
        ("", None, ""),
        ("not/there/yet", None, ""),
        ("file/below", None, "Not a directory"),
        ("", (os, "fsync", failing(errno.ENOSPC)), "No space left|no space left"),
        ("", (fcntl, "flock", failing(errno.ENOLCK)), "No locks available|lock"),
    ],
)
def test_the_outputs_folder(
    where: str, patched: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By writing and locking, which os.access would not notice; nothing is left behind."""
    (tmp_path / "file").write_text("kept")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / where))
    if patched is not None:
        monkeypatch.setattr(*patched)
    (line,) = doctor.outputs()
    assert line.state == (PROBLEM if words else OK)
    assert not words or any(word in line.text for word in words.split("|")), line.text
    assert not words or "MOBENCH_OUTPUTS=DIR" in line.text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def gpu(_: int) -> Any:
    return SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30)


@pytest.mark.parametrize(
    ("count", "properties", "code", "words"),
    [
        (0, gpu, 0, "no CUDA device: hardware=cpu"),
        (2, gpu, 0, "2: NVIDIA H200 (140 GiB), NVIDIA H200 (140 GiB); hardware=gpu"),
        (
            1,
            raising(RuntimeError("CUDA driver is too old\nlong story")),
            1,
            "CUDA driver is too old long story",
        ),
        (1, raising(ImportError("lib.so is broken")), 1, "lib.so is broken; `pip install .`"),
    ],
)
def test_devices_and_exit_code(
    count: int,
    properties: Any,
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A check that raises becomes a line of its own, and the other checks follow."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert doctor.main([]) == code
    out = capsys.readouterr().out
    assert words in out
    assert f"outputs              ok       {tmp_path} is writable" in out
    assert out.endswith("There are problems with devices.\n" if code else "Jobs can run here.\n")


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from mobench.system import provenance

    monkeypatch.setattr(provenance, "versions", lambda: {"torch": "2.10", "moocore": "not installed"})
    lines = {line.name: line for line in doctor.packages()}
    assert (lines["torch"].state, lines["moocore"].state) == (OK, PROBLEM)
    assert "`pip install moocore`" in lines["moocore"].text


SETS = {
    "mnist": [
        f"MNIST/raw/{split}-{part}-ubyte.gz"
        for split in ("train", "t10k")
        for part in ("images-idx3", "labels-idx1")
    ],
    "cifar100": [f"cifar-100-python/{name}" for name in ("train", "test", "meta")],
    "rf1": ["river_flow/rf1.arff"],
    "celeba": [
        "celeba/list_attr_celeba.txt",
        "celeba/list_eval_partition.txt",
        "celeba/img_align_celeba/000001.jpg",
    ],
    "speech_small": ["speech/english_digits.npz", "speech/mandarin_words.npz"],
}


def test_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_DATA", str(tmp_path / "data"))
    before = {line.name: line for line in doctor.data()}
    assert list(before) == [*OFFICIAL, "cifar100", "rf1", "celeba", "speech_small", "librispeech_aishell"]
    for name, line in before.items():
        assert (line.state, f"data={name} needs" in line.text) == (MISSING, True)
    for files in SETS.values():
        for file in files:
            path = tmp_path / "data" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
    assert {line.name for line in doctor.data() if line.state == OK} == set(SETS)
