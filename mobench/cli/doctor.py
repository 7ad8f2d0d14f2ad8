"""`mobench doctor`: versions, devices, data sets and the outputs folder of this machine."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mobench.errors import MobenchError
from mobench.system.console import say

# missing: something that can be done without
OK = "ok"
MISSING = "missing"
PROBLEM = "problem"


class Line(NamedTuple):
    """One line of the report: the thing examined, its state, the observation and the advice."""

    name: str
    state: str
    text: str


def packages() -> Iterator[Line]:
    """Yields the versions of Python and of the packages that numbers depend on, and the commit."""
    from mobench.system import provenance

    for name, version in provenance.versions().items():
        state = PROBLEM if version == "not installed" else OK
        yield Line(name, state, version + ("" if state == OK else f": `pip install {name}`"))
    code = provenance.code()
    changed = " (modified)" if code["git_dirty"] else ""
    yield Line("commit", OK, f"{code['git_sha'] or 'no checkout'}{changed}")


def devices() -> Iterator[Line]:
    """Yields the processor, and the CUDA devices with their memory."""
    import torch

    from mobench.system import provenance

    yield Line("cpu", OK, f"{provenance.device_name(torch.device('cpu'))}, {os.cpu_count()} cores")
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    names = ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus)
    yield Line("gpu", OK, f"{len(gpus)}: {names}; hardware=gpu" if gpus else "no CUDA device: hardware=cpu")


def outputs() -> Iterator[Line]:
    """Yields whether a job folder can be written and locked among the outputs."""
    from mobench.jobs.store import JobFolder
    from mobench.system.files import write_atomic
    from mobench.system.paths import outputs_root

    root = outputs_root().absolute()
    folder = next(path for path in (root, *root.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".mobench-doctor-", dir=folder) as scratch:
            job = JobFolder(Path(scratch) / "job")
            with job.locked():
                write_atomic(job.path / "file", bytes(4096))
    except (OSError, MobenchError) as error:
        yield Line("outputs", PROBLEM, f"{folder}: {error} (MOBENCH_OUTPUTS=DIR chooses another folder)")
    else:
        yield Line("outputs", OK, f"{root} is writable")


def data() -> Iterator[Line]:
    """Yields the data sets of the papers, present or not."""
    from mobench.data import celeba, river_flow, speech
    from mobench.data.files import absolute, default_root
    from mobench.data.images import OFFICIAL, folder_of, missing_files

    root = Path(absolute(default_root()))
    for name in (*OFFICIAL, "cifar100"):
        source = f"`mobench data {name}` downloads it" if name in OFFICIAL else "see docs/usage.md"
        yield _set(name, folder_of(name, root), missing_files(name, root), source)
    path = river_flow.find_file(root)
    rf1 = [] if path.is_file() else [path.name]
    yield _set("rf1", path.parent, rf1, "it must be copied there")
    yield _set("celeba", root / celeba.FOLDER, celeba.missing_files(root), "its authors give it away")
    for option, name in (("speech_small", "small"), ("librispeech_aishell", "librispeech_aishell")):
        yield _set(option, root, speech.missing_files(name, root), "see docs/speech.md")


def _set(name: str, folder: Path, missing: Sequence[str], source: str) -> Line:
    if not missing:
        return Line(name, OK, f"in {folder}")
    return Line(name, MISSING, f"no {missing[0]} in {folder}, which data={name} needs; {source}")


CHECKS = (packages, devices, outputs, data)


def main(arguments: Sequence[str]) -> int:
    """Prints a line for everything and returns 1 if there is a problem, else 0."""
    parser = argparse.ArgumentParser(
        prog="mobench doctor",
        description="Reports what this machine provides for mobench: versions, devices, a writable outputs "
        "folder, data sets. Exit code 1 if there is a problem; what is missing is optional.",
    )
    parser.parse_args(list(arguments))
    problems = []
    for check in CHECKS:
        try:
            lines = list(check())
        except (ImportError, RuntimeError, OSError, MobenchError) as error:  # a broken package or driver
            lines = [Line(check.__name__, PROBLEM, f"{error}; `pip install .` installs what mobench needs")]
        for line in lines:
            say(f"{line.name:20s} {line.state:8s} {' '.join(line.text.split())}")
            if line.state == PROBLEM:
                problems.append(line.name)
    say(f"There are problems with {', '.join(problems)}." if problems else "Jobs can run here.")
    return int(bool(problems))
