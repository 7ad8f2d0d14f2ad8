"""`mobench doctor`: every state made to happen, the exit codes,
and what it says on this machine.
"""

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
from tests.conftest import environment

STATES = (OK, MISSING, PROBLEM)


def look(check: Check) -> dict[str, Line]:
    """name -> line; no name comes twice."""
    found = list(doctor.examined(check, check.__name__))
    assert len({line.name for line in found}) == len(found)
    assert all(line.state in STATES and line.text for line in found)
    return {line.name: line for line in found}


def states(check: Check) -> dict[str, str]:
    return {name: line.state for name, line in look(check).items()}


def raising(error: BaseException) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outputs folder, empty."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(folder))
    return folder


# --- outputs: space, writing, locks -------------------------------------------------------------------------


def test_a_sound_outputs_folder(root: Path) -> None:
    found = look(doctor.outputs)
    assert {name: line.state for name, line in found.items()} == {"disk": OK, "outputs": OK, "locks": OK}
    assert str(root) in found["outputs"].text
    assert list(root.iterdir()) == []


def test_an_outputs_folder_that_is_not_there_yet(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root / "a" / "b"))
    assert states(doctor.outputs) == {"disk": OK, "outputs": OK, "locks": OK}
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_an_outputs_folder_that_is_a_file_or_below_one(
    below: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_text("kept")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root / "file" / below))
    found = look(doctor.outputs)
    assert (found["outputs"].state, found["locks"].state) == (PROBLEM, PROBLEM)
    assert "Not a directory" in found["outputs"].text
    assert "MOBENCH_OUTPUTS=DIR" in found["outputs"].text
    assert (root / "file").read_text() == "kept"


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="the superuser writes everywhere")
def test_a_read_only_outputs_folder(root: Path) -> None:
    root.chmod(0o555)
    try:
        found = look(doctor.outputs)
    finally:
        root.chmod(0o755)
    assert "Permission denied" in found["outputs"].text


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "No space left"), (errno.EDQUOT, "quota exceeded")]
)
def test_a_file_that_cannot_be_written(
    number: int, words: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """os.access would not notice."""
    monkeypatch.setattr(os, "fsync", raising(OSError(number, os.strerror(number))))
    found = look(doctor.outputs)
    assert {name: line.state for name, line in found.items()} == {
        "disk": OK,
        "outputs": PROBLEM,
        "locks": PROBLEM,
    }
    assert words in found["outputs"].text
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(("gib", "state"), [(0.0, PROBLEM), (1.99, PROBLEM), (2.01, OK)])
def test_a_full_disk(gib: float, state: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(gib * 2**30)))
    found = look(doctor.outputs)
    assert {name: line.state for name, line in found.items()} == {"disk": state, "outputs": OK, "locks": OK}
    assert f"{gib:.1f} GiB" in found["disk"].text
    assert ("free space" in found["disk"].text) == (state == PROBLEM)


LOCKS = {
    "none": (raising(OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))), "No locks available"),
    "no_support": (raising(OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))), "not implemented"),
    "for_all": (lambda *_: None, "a second handle also acquired the lock"),
    "never": (raising(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))), "temporarily unavailable"),
}


@pytest.mark.parametrize("kind", list(LOCKS))
def test_locks_that_do_not_work(kind: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, words = LOCKS[kind]
    monkeypatch.setattr(fcntl, "flock", flock)
    found = look(doctor.outputs)
    assert {name: line.state for name, line in found.items()} == {"disk": OK, "outputs": OK, "locks": PROBLEM}
    assert words in found["locks"].text
    assert "MOBENCH_OUTPUTS=DIR" in found["locks"].text


# --- devices, optional parts, W&B ---------------------------------------------------------------------------


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
    found = look(doctor.devices)
    assert found["cpu"].state == OK
    assert found["gpu"].state == state
    assert words in found["gpu"].text


@pytest.mark.parametrize(
    "absent", [lambda _: None, raising(ModuleNotFoundError("No module named 'hydra_plugins'"))]
)
def test_optional_parts_that_are_not_installed(absent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", absent)
    found = look(doctor.optional)
    commands = {
        "joblib": "pip install '.[joblib]'",
        "submitit": "pip install '.[slurm]'",
        "learn2learn": "make learn2learn",
    }
    assert set(found) == {*commands, "W&B", "slurm"}
    for name, command in commands.items():
        assert found[name].state == MISSING
        assert f"`{command}`" in found[name].text


def test_a_launcher_needs_the_plugin_and_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "find_spec", lambda module: None if module == "submitit" else SimpleNamespace(origin="x")
    )
    found = states(doctor.optional)
    assert (found["joblib"], found["submitit"], found["learn2learn"]) == (OK, MISSING, OK)


def test_a_folder_of_the_same_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B leaves a folder wandb where it runs."""
    (tmp_path / "surely_no_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not doctor._found("surely_no_package")
    (tmp_path / "surely_a_package").mkdir()
    (tmp_path / "surely_a_package" / "__init__.py").touch()
    assert doctor._found("surely_a_package")
    assert not doctor._found("surely_no_package.inside.deeper")


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    from mobench.system import provenance

    monkeypatch.setattr(provenance, "versions", lambda: {"torch": "2.10", "moocore": "not installed"})
    found = look(doctor.packages)
    assert (found["torch"].state, found["moocore"].state) == (OK, PROBLEM)
    assert "`pip install moocore`" in found["moocore"].text


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


def test_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(doctor.optional)["slurm"].state == MISSING
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    assert look(doctor.optional)["slurm"].state == OK


# --- data ---------------------------------------------------------------------------------------------------


def files(name: str, kind: str) -> list[str]:
    """Paths of a set below the root, in words of this test."""
    idx = [f"{split}-{part}-ubyte" for split in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
    mosaics = {"cifar10": (25, 10), "cifar100": (18, 4)}
    if kind == "mosaics":
        counts = dict(zip(("train", "test"), mosaics[name], strict=True))
        pictures = [f"{name}/{split}_{k:02d}.webp" for split, count in counts.items() for k in range(count)]
        return [*pictures, f"{name}/{name}_labels.npz"]
    if name == "cifar10":
        return [
            *(f"cifar-10-batches-py/data_batch_{k}" for k in range(1, 6)),
            "cifar-10-batches-py/test_batch",
        ]
    if name == "cifar100":
        return ["cifar-100-python/train", "cifar-100-python/test"]
    folder = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}[name]
    return [f"{folder}/raw/{file}{'.gz' if kind == 'packed' else ''}" for file in idx]


SETS = [
    ("mnist", "packed"),
    ("mnist", "unpacked"),
    ("fashion_mnist", "packed"),
    ("cifar10", "batches"),
    ("cifar10", "mosaics"),
    ("cifar100", "batches"),
    ("cifar100", "mosaics"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$MOBENCH_DATA, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MOBENCH_DATA", str(folder))
    return folder


def wanted_by_the_loader(name: str, root: Path) -> bool:
    """Whether reading fails for want of a file; files of no content fail otherwise."""
    with pytest.raises(DataError) as caught:
        (load_fewshot if name == "cifar100" else load_images)(name, root)
    return f"data={name} needs" in str(caught.value)


def test_no_data(here: Path) -> None:
    found = look(doctor.data)
    assert found.pop("digits") == Line(
        "digits", OK, "data=digits always works: digits, digits_hard are embedded"
    )
    assert list(found) == [*OFFICIAL, "cifar100", "rf1", "celeba", "speech_small", "librispeech_aishell"]
    for name in ("rf1", "celeba", "speech_small", "librispeech_aishell"):
        line = found.pop(name)
        assert line.state == MISSING
        assert f"data={name} needs it" in line.text
        assert f"in {here}" in line.text
        assert "problem.data=" in line.text  # what works without
    for name, line in found.items():
        assert line.state == MISSING
        assert f"data={name} needs it" in line.text
        assert str(here) in line.text
        assert f"`mobench data {name}`" in line.text or "CIFAR100(" in line.text
        assert wanted_by_the_loader(name, here)


def test_a_data_folder_that_is_not_there(here: Path) -> None:
    here.rmdir()
    assert set(states(doctor.data).values()) == {OK, MISSING}


@pytest.mark.parametrize(("name", "kind"), SETS)
def test_a_set_is_present_or_not_as_its_loader_finds_it(name: str, kind: str, here: Path) -> None:
    paths = [here / path for path in files(name, kind)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    found = look(doctor.data)
    assert {n: line.state for n, line in found.items() if line.state == OK} == {"digits": OK, name: OK}
    assert f"in {paths[0].parent}" in found[name].text
    assert ("subset" in found[name].text or "of 600" in found[name].text) == (kind == "mosaics")
    assert not wanted_by_the_loader(name, here)
    for path in (paths[0], paths[-1]):
        path.unlink()
        line = look(doctor.data)[name]
        assert line.state == MISSING
        assert path.name in line.text
        assert wanted_by_the_loader(name, here)
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "files", "folder"),
    [
        ("rf1", ["river_flow/rf1.arff"], "river_flow"),
        ("rf1", ["rf1.arff"], "."),
        (
            "celeba",
            [
                "celeba/list_attr_celeba.txt",
                "celeba/list_eval_partition.txt",
                "celeba/img_align_celeba/000001.jpg",
            ],
            "celeba",
        ),
        ("speech_small", ["speech/english_digits.npz", "speech/mandarin_words.npz"], "."),
        (
            "librispeech_aishell",
            [
                "LibriSpeech/train-clean-100/SPEAKERS",
                "LibriSpeech/test-clean/SPEAKERS",
                "data_aishell/transcript/aishell_transcript_v0.8.txt",
                "data_aishell/wav/train/SPEAKERS",
                "data_aishell/wav/test/SPEAKERS",
            ],
            ".",
        ),
    ],
)
def test_files_that_nobody_downloads(name: str, files: list[str], folder: str, here: Path) -> None:
    for file in files:
        assert look(doctor.data)[name].state == MISSING
        (here / file).parent.mkdir(parents=True, exist_ok=True)
        (here / file).write_bytes(b"")
    line = look(doctor.data)[name]
    assert (line.state, f"in {here / folder}" in line.text) == (OK, True)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_broken_whole_set_is_no_reason_for_the_subset(name: str, here: Path) -> None:
    for path in (*files(name, "mosaics"), files(name, "batches")[0]):
        (here / path).parent.mkdir(exist_ok=True)
        (here / path).write_bytes(b"")
    line = look(doctor.data)[name]
    assert line.state == MISSING
    assert str((here / files(name, "batches")[0]).parent) in line.text
    assert wanted_by_the_loader(name, here)


def test_several_missing_files_are_counted(here: Path) -> None:
    (here / "cifar10").mkdir()
    assert "no train_00.webp and 35 more in" in look(doctor.data)["cifar10"].text


def test_digits_need_scikit_learn(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    line = look(doctor.data)["digits"]
    assert line.state == PROBLEM
    assert "`pip install scikit-learn`" in line.text


# --- the whole ----------------------------------------------------------------------------------------------


def fine() -> Iterator[Line]:
    """Everything that a job needs"""
    for name in doctor.VITAL:
        yield Line(name, OK, "fine")


@pytest.mark.parametrize("name", doctor.VITAL)
@pytest.mark.parametrize("state", [MISSING, PROBLEM, "no line"])
def test_exit_code_and_reason(
    name: str, state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def ill() -> Iterator[Line]:
        for line in fine():
            if line.name != name:
                yield line
            elif state != "no line":
                yield Line(name, state, "ill")

    monkeypatch.setattr(doctor, "CHECKS", (ill,))
    assert doctor.main([]) == 1
    assert capsys.readouterr().out.endswith(f"\nJobs cannot run here because of problems with {name}.\n")


def test_what_is_no_need_of_jobs_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def others() -> Iterator[Line]:
        yield Line("disk", PROBLEM, "full")
        yield Line("slurm", MISSING, "not here")

    def lost() -> Iterator[Line]:
        yield from ()
        raise ImportError("No module\nnamed 'torchvision'")

    monkeypatch.setattr(doctor, "CHECKS", (fine, others, lost))
    assert doctor.main([]) == 0
    out = capsys.readouterr().out
    assert "lost           problem  No module named 'torchvision': `pip install .`" in out
    assert out.endswith(
        "\nJobs can run here; what is missing is optional, such as the data sets of papers.\n"
    )


def test_an_unknown_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        doctor.main(["--fast"])
    assert stop.value.code == 2
    assert "--fast" in capsys.readouterr().err


def run(root: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, where there is no data."""
    env = environment(root, MOBENCH_DATA=str(root / "none"), **extra)
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=root
    )


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
    assert last == "Jobs can run here; what is missing is optional, such as the data sets of papers."
    found = {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines}
    assert len(found) == len(lines)
    for name in (
        "python",
        "torch",
        "commit",
        "cpu",
        "gpu",
        "disk",
        "outputs",
        "locks",
        "digits",
        "W&B",
    ):
        assert found[name][0] == OK, found[name]
    assert {
        "joblib",
        "submitit",
        "learn2learn",
        "slurm",
        *OFFICIAL,
        "cifar100",
        "rf1",
        "celeba",
        "speech_small",
        "librispeech_aishell",
    } <= set(found)
    for name, (state, text) in found.items():
        assert state in STATES
        assert state == OK or any(hint in text for hint in ("`", "=")), (
            f"{name} does not say what to do: {text}"
        )
    assert list(root.iterdir()) == []


def test_a_torch_that_cannot_be_imported(root: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('lib.so is broken')")
    done = run(root, "-m", "mobench", "doctor", PYTHONPATH=str(tmp_path / "broken"))
    assert (done.returncode, done.stderr) == (1, ""), done
    assert "problem  lib.so is broken: `pip install .`" in done.stdout
    assert done.stdout.endswith("\nJobs cannot run here because of problems with torch.\n")
