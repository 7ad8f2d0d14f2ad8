"""`mobench doctor`: every state made to happen, the exit codes, and what it says on this machine."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mobench.cli import doctor
from mobench.cli.doctor import MISSING, OK, PROBLEM, Check, Line
from mobench.data.fewshot import load_fewshot
from mobench.data.images import OFFICIAL, load_images
from mobench.errors import DataError
from tests.conftest import environment, process

OTHERS = ("cifar100", "rf1", "celeba", "speech_small", "librispeech_aishell")


def look(check: Check) -> dict[str, Line]:
    """name -> line; no name comes twice."""
    lines = list(doctor.examined(check, check.__name__))
    assert len({line.name for line in lines}) == len(lines)
    assert all(line.state in (OK, MISSING, PROBLEM) and line.text for line in lines)
    return {line.name: line for line in lines}


def raising(error: BaseException) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


def failing(number: int) -> Any:
    return raising(OSError(number, os.strerror(number)))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outputs folder, empty."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(folder))
    return folder


# outputs: space, writing, locks


@pytest.mark.parametrize(
    ("where", "patched", "ill", "words"),
    [
        ("", None, {}, ""),
        ("not/there/yet", None, {}, ""),
        ("file/below", None, {"outputs", "locks"}, "Not a directory"),
        ("", (os, "fsync", failing(errno.ENOSPC)), {"outputs", "locks"}, "No space left"),
        ("", (shutil, "disk_usage", lambda _: SimpleNamespace(free=int(1.99 * 2**30))), {"disk"}, "2.0 GiB"),
        ("", (shutil, "disk_usage", lambda _: SimpleNamespace(free=int(2.01 * 2**30))), {}, ""),
        ("", (fcntl, "flock", failing(errno.ENOLCK)), {"locks"}, "No locks available"),
        ("", (fcntl, "flock", lambda *_: None), {"locks"}, "a second handle also acquired the lock"),
    ],
)
def test_the_outputs_folder(
    where: str, patched: Any, ill: set[str], words: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By writing and locking, which os.access would not notice; nothing is left behind."""
    (root / "file").write_text("kept")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root / where))
    if patched is not None:
        monkeypatch.setattr(*patched)
    lines = look(doctor.outputs)
    expected = {name: PROBLEM if name in ill else OK for name in ("disk", "outputs", "locks")}
    assert {name: line.state for name, line in lines.items()} == expected
    problems = [lines[name].text for name in ill if words in lines[name].text]
    assert bool(problems) == bool(ill), lines
    assert all("MOBENCH_OUTPUTS=DIR" in text or "free space" in text for text in problems)
    assert [path.name for path in root.iterdir()] == ["file"]


# devices, optional parts, W&B


def gpu(_: int) -> Any:
    return SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30)


@pytest.mark.parametrize(
    ("count", "properties", "state", "words"),
    [
        (0, gpu, OK, "no CUDA device: hardware=cpu"),
        (2, gpu, OK, "2: NVIDIA H200 (140 GiB), NVIDIA H200 (140 GiB); hardware=gpu"),
        (1, raising(RuntimeError("CUDA driver is too old\nlong story")), PROBLEM, "(CUDA driver is too old"),
    ],
)
def test_devices(
    count: int, properties: Any, state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    lines = look(doctor.devices)
    assert (lines["cpu"].state, lines["gpu"].state) == (OK, state)
    assert words in lines["gpu"].text


def test_packages_and_optional_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with the command that installs them; a folder of the same name is no package."""
    from mobench.system import provenance

    monkeypatch.setattr(provenance, "versions", lambda: {"torch": "2.10", "moocore": "not installed"})
    lines = look(doctor.packages)
    assert (lines["torch"].state, lines["moocore"].state) == (OK, PROBLEM)
    assert "`pip install moocore`" in lines["moocore"].text
    (tmp_path / "surely_no_package").mkdir()  # as W&B leaves one where it runs
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not doctor._installed("surely_no_package")
    monkeypatch.setattr(
        doctor, "find_spec", lambda name: None if name == "submitit" else SimpleNamespace(origin="x")
    )
    lines = look(doctor.optional)
    states = {name: lines[name].state for name in ("joblib", "submitit", "learn2learn")}
    assert states == {"joblib": OK, "submitit": MISSING, "learn2learn": OK}
    assert "`pip install '.[slurm]'`" in lines["submitit"].text


@pytest.mark.parametrize("where", ["environment", "netrc", ""])
def test_the_key_of_wandb_is_found_and_never_shown(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = secrets.token_hex(20)
    for name in ("WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", key)  # at the wrong place
    if where == "environment":
        monkeypatch.setenv("WANDB_API_KEY", key)
    elif where == "netrc":
        (tmp_path / ".netrc").write_text(f"machine api.wandb.ai\n  login user\n  password {key}\n")
        (tmp_path / ".netrc").chmod(0o600)
    line = look(doctor.optional)["W&B"]
    assert line.state == (OK if where else MISSING)
    assert key not in line.text


# data


def mosaics(name: str, train: int, test: int) -> list[str]:
    pictures = [f"{name}/train_{k:02d}.webp" for k in range(train)]
    return [*pictures, *(f"{name}/test_{k:02d}.webp" for k in range(test)), f"{name}/{name}_labels.npz"]


IDX = [f"{split}-{part}-ubyte" for split in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
BATCHES = [
    f"cifar-10-batches-py/{name}" for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
]
# files below $MOBENCH_DATA, by the name of their data set
SETS = [
    ("mnist", [f"MNIST/raw/{name}.gz" for name in IDX]),
    ("fashion_mnist", [f"FashionMNIST/raw/{name}" for name in IDX]),
    ("cifar10", [*BATCHES, "cifar-10-batches-py/batches.meta"]),
    ("cifar10", mosaics("cifar10", 25, 10)),
    ("cifar100", [f"cifar-100-python/{name}" for name in ("train", "test", "meta")]),
    ("cifar100", mosaics("cifar100", 18, 4)),
    ("rf1", ["river_flow/rf1.arff"]),
    (
        "celeba",
        [
            *("celeba/list_attr_celeba.txt", "celeba/list_eval_partition.txt"),
            "celeba/img_align_celeba/000001.jpg",
        ],
    ),
    ("speech_small", ["speech/english_digits.npz", "speech/mandarin_words.npz"]),
    (
        "librispeech_aishell",
        [
            *("LibriSpeech/train-clean-100/SPEAKERS", "LibriSpeech/test-clean/SPEAKERS"),
            "data_aishell/transcript/aishell_transcript_v0.8.txt",
            *("data_aishell/wav/train/SPEAKERS", "data_aishell/wav/test/SPEAKERS"),
        ],
    ),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$MOBENCH_DATA, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MOBENCH_DATA", str(folder))
    return folder


def wanted_by_the_loader(name: str, root: Path) -> bool:
    """Tells whether reading fails for want of a file; files of no content fail otherwise."""
    with pytest.raises(DataError) as caught:
        (load_fewshot if name == "cifar100" else load_images)(name, root)
    return f"data={name} needs" in str(caught.value)


@pytest.mark.parametrize("there", [True, False])
def test_no_data(there: bool, here: Path) -> None:
    if not there:
        here.rmdir()
    lines = look(doctor.data)
    assert lines.pop("digits").state == OK
    assert list(lines) == [*OFFICIAL, *OTHERS]
    for name, line in lines.items():
        assert line.state == MISSING
        assert f"data={name} needs it" in line.text
        assert str(here) in line.text
        # what fetches it, or what works without
        assert any(w in line.text for w in (f"`mobench data {name}`", "CIFAR100(", "problem.data="))


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


@pytest.mark.parametrize(("name", "files"), SETS)
def test_a_set_is_present_or_not_as_its_loader_finds_it(name: str, files: list[str], here: Path) -> None:
    paths = [here / file for file in files]
    for path in paths:
        assert len(paths) > 9 or look(doctor.data)[name].state == MISSING
        touch(path)
    assert {n for n, line in look(doctor.data).items() if line.state == OK} == {"digits", name}
    if name not in (*OFFICIAL, "cifar100"):
        return
    assert not wanted_by_the_loader(name, here)
    for path in (paths[0], paths[-1]):
        path.unlink()
        line = look(doctor.data)[name]
        assert (line.state, path.name in line.text) == (MISSING, True)
        assert wanted_by_the_loader(name, here)
        touch(path)


def test_a_broken_whole_set_is_no_reason_for_the_subset(here: Path) -> None:
    touch(here / mosaics("cifar10", 25, 10)[0])
    assert "no train_01.webp and 34 more in" in look(doctor.data)["cifar10"].text
    for file in (*mosaics("cifar10", 25, 10), BATCHES[0]):
        touch(here / file)
    line = look(doctor.data)["cifar10"]
    assert line.state == MISSING
    assert str((here / BATCHES[0]).parent) in line.text
    assert wanted_by_the_loader("cifar10", here)


# the whole


@pytest.mark.parametrize("name", [*doctor.VITAL, None])
@pytest.mark.parametrize("state", [MISSING, PROBLEM, "no line"])
def test_exit_code_and_reason(
    name: str | None, state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 where one of the lines that jobs need is not ok; any other, and a check that fails, is only said."""

    def vital() -> Iterator[Line]:
        for line in doctor.VITAL:
            if line != name:
                yield Line(line, OK, "fine")
            elif state != "no line":
                yield Line(line, state, "ill")

    def others() -> Iterator[Line]:
        yield Line("disk", PROBLEM, "full")
        raise ImportError("No module\nnamed 'torchvision'")

    monkeypatch.setattr(doctor, "CHECKS", (vital, others))
    assert doctor.main([]) == (name is not None)
    out = capsys.readouterr().out
    assert "others         problem  No module named 'torchvision': `pip install .`" in out
    last = out.splitlines()[-1]
    assert last.startswith("Jobs can run here") == (name is None)
    assert name is None or last == f"Jobs cannot run here because of problems with {name}."


def run(root: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, where there is no data."""
    env = environment(root, MOBENCH_DATA=str(root / "none"), **extra)
    return process([sys.executable, *arguments], env=env, cwd=root)


def test_this_machine(root: Path) -> None:
    """It can run jobs, since it runs these tests. Slow imports are left out, and the key is never shown."""
    key = secrets.token_hex(20)
    code = (
        "import sys; from mobench.cli import doctor; code = doctor.main([]); "
        "slow = {'wandb', 'torchvision', 'cvxpy', 'learn2learn', 'matplotlib', 'sklearn'}; "
        "sys.exit(code or ', '.join(slow & set(sys.modules)) or 0)"
    )
    done = run(root, "-c", code, WANDB_API_KEY=key, WANDB_MODE="offline")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert key not in done.stdout
    *lines, last = done.stdout.splitlines()
    assert last.startswith("Jobs can run here")
    states = {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines}
    for name in ("python", "torch", "commit", "cpu", "gpu", "disk", "outputs", "locks", "digits", "W&B"):
        assert states[name][0] == OK, states[name]
    assert {"joblib", "submitit", "learn2learn", "slurm", *OFFICIAL, *OTHERS} <= set(states)
    for name, (state, text) in states.items():
        assert state == OK or any(hint in text for hint in ("`", "=")), f"{name} says not what to do: {text}"
    assert list(root.iterdir()) == []


def test_a_torch_that_cannot_be_imported(root: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('lib.so is broken')")
    done = run(root, "-m", "mobench", "doctor", PYTHONPATH=str(tmp_path / "broken"))
    assert (done.returncode, done.stderr) == (1, ""), done
    assert "problem  lib.so is broken: `pip install .`" in done.stdout
    assert done.stdout.endswith("\nJobs cannot run here because of problems with torch.\n")
