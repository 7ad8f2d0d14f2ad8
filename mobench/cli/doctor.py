"""`mobench doctor`: what this machine has for mobench, what is missing, and what to do about it.

Nothing that takes long to import is imported before the check that needs it: a package that is missing costs
one line of the report, not all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mobench.errors import MobenchError, StoreError
from mobench.system.console import say

# missing: something that can be done without
OK = "ok"
MISSING = "missing"
PROBLEM = "problem"

VITAL = ("torch", "outputs", "locks")  # no job runs unless each of these lines is ok
LEAST = 2.0  # GiB free
OPTIONAL = {  # modules, what they are for, how to get them
    "joblib": (
        ("hydra_plugins.hydra_joblib_launcher", "joblib"),
        "hydra/launcher=joblib",
        "pip install '.[joblib]'",
    ),
    "submitit": (
        ("hydra_plugins.hydra_submitit_launcher", "submitit"),
        "hardware=slurm",
        "pip install '.[slurm]'",
    ),
    "learn2learn": (("learn2learn",), "problem.episodes=learn2learn", "make learn2learn"),
}


class Line(NamedTuple):
    """One line of the report: the thing examined, its state, the observation and the advice."""

    name: str
    state: str
    text: str


Check = Callable[[], Iterator[Line]]


def packages() -> Iterator[Line]:
    """Versions of Python and of the packages that numbers depend on; commit"""
    import torch  # noqa: F401  a broken installation is found here, not in the first job

    from mobench.system import provenance

    for name, version in provenance.versions().items():
        state = PROBLEM if version == "not installed" else OK
        yield Line(name, state, version + ("" if state == OK else f": `pip install {name}`"))
    code = provenance.code()
    yield Line(
        "commit", OK, f"{code['git_sha'] or 'no checkout'}{' (modified)' if code['git_dirty'] else ''}"
    )


def devices() -> Iterator[Line]:
    """Processor and CUDA devices with their memory"""
    import torch

    from mobench.system import provenance

    yield Line("cpu", OK, f"{provenance.device_name(torch.device('cpu'))}, {os.cpu_count()} cores")
    try:
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    except RuntimeError as error:
        yield Line(
            "gpu",
            PROBLEM,
            f"CUDA does not start ({error}). Check the driver; hardware=cpu works without a GPU",
        )
        return
    names = ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus)
    yield Line("gpu", OK, f"{len(gpus)}: {names}; hardware=gpu" if gpus else "no CUDA device: hardware=cpu")


# optional parts


def _installed(module: str) -> bool:
    """Says whether a module is installed, without importing it, which may take seconds."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # nor is the package around it
        return False
    return spec is not None and spec.origin is not None  # of a mere folder of that name there is no origin


def optional() -> Iterator[Line]:
    """Launchers (joblib, submitit), Slurm, learn2learn; W&B: whether a key was found (it is never shown)"""
    from mobench.jobs.wandb_log import has_key

    for name, (modules, use, command) in OPTIONAL.items():
        lacking = [module for module in modules if not _installed(module)]
        yield Line(name, MISSING, f"{use} needs it: `{command}`") if lacking else Line(name, OK, f"for {use}")
    if has_key():
        yield Line("W&B", OK, "API key configured: logger=auto logs to W&B")
    else:
        text = "no API key, so logger=auto logs locally: `wandb login`, or logger=wandb, which logs offline"
        yield Line("W&B", MISSING, text)
    if shutil.which("sbatch") is None:
        yield Line("slurm", MISSING, "no sbatch on the PATH: hardware=slurm needs Slurm's commands")
    else:
        yield Line("slurm", OK, "for hardware=slurm")


# data


def data() -> Iterator[Line]:
    """Data sets, present or not"""
    from mobench.data import celeba, river_flow, speech
    from mobench.data.cifar import SUBSETS
    from mobench.data.files import absolute, default_root
    from mobench.data.images import EMBEDDED, OFFICIAL, folder_of, missing_files

    root = Path(absolute(default_root()))
    if _installed("sklearn"):
        yield Line("digits", OK, f"data=digits always works: {', '.join(EMBEDDED)} are embedded")
    else:
        yield Line("digits", PROBLEM, "data=digits needs scikit-learn: `pip install scikit-learn`")
    # every set has a folder of its own; torchvision knows their files, but takes seconds to import
    empty = not any(path.is_dir() for path in root.glob("*"))
    code = f"from torchvision.datasets import CIFAR100; CIFAR100({json.dumps(str(root))}, download=True)"
    by_hand = f"problem=few_shot data=cifar100 needs it: `python -c {shlex.quote(code)}`"
    for name in (*OFFICIAL, "cifar100"):
        missing = ["file"] if empty else missing_files(name, root)
        folder = root if empty else folder_of(name, root)
        part = f", {SUBSETS[name].label}" if folder.name == name else ""
        option = "problem=federated problem.data=cifar10" if name == "cifar10" else f"data={name}"
        how = by_hand if name == "cifar100" else f"{option} needs it: `mobench data {name}`"
        yield _set(name, folder, missing, how, part)
    path = river_flow.find_file(root)
    lost = [] if path.is_file() else [path.name]
    yield _set(
        "rf1", path.parent, lost, "problem=river_flow data=rf1 needs it: copy it there", "", "generated"
    )
    how = "problem=face_attributes data=celeba needs it: unpack the official files there"
    yield _set("celeba", root / celeba.FOLDER, celeba.missing_files(root), how, "", "celeba_synth")
    for option, name in (("speech_small", "small"), ("librispeech_aishell", "librispeech_aishell")):
        how = f"problem=speech data={option} needs it: unpack it there"
        yield _set(option, root, speech.missing_files(name, root), how, "", "generated")


def _set(name: str, folder: Path, missing: list[str], how: str, part: str = "", without: str = "") -> Line:
    """Returns the line of a set. how: its use and its source; without: data that serve instead."""
    if not missing:
        return Line(name, OK, f"in {folder}{part}; `mobench data --list` also checks file contents")
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    instead = f"; problem.data={without} works without it" if without else ""
    return Line(name, MISSING, f"no {missing[0]}{more} in {folder}; {how}, or MOBENCH_DATA=DIR{instead}")


# outputs


def outputs() -> Iterator[Line]:
    """The outputs folder: space, a file that is really written, locks that really hold"""
    from mobench.system.files import write_atomic
    from mobench.system.paths import outputs_root

    root = outputs_root().absolute()
    folder = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(folder).free / 2**30
    space = f"{free:.1f} GiB free for {root}"
    elsewhere = "choose another folder with MOBENCH_OUTPUTS=DIR"
    if free < LEAST:
        yield Line("disk", PROBLEM, f"{space}, less than {LEAST:g} GiB: free space, or {elsewhere}")
    else:
        yield Line("disk", OK, space)
    try:
        with tempfile.TemporaryDirectory(prefix=".mobench-doctor-", dir=folder) as scratch:
            write_atomic(Path(scratch) / "file", bytes(4096))
            reason = _locks(Path(scratch) / "job")
    except (OSError, StoreError) as error:
        yield Line("outputs", PROBLEM, f"cannot write in {folder} ({error.__cause__ or error}): {elsewhere}")
        yield Line("locks", PROBLEM, "not tested, because nothing can be written")
        return
    yield Line("outputs", OK, f"{root} is writable")
    if reason is None:
        yield Line("locks", OK, "a second process on the same job is refused")
    else:
        local = "job folders need flock: choose a folder on a local disk with MOBENCH_OUTPUTS=DIR"
        yield Line("locks", PROBLEM, f"file locks do not work in {folder} ({reason}); {local}")


def _locks(path: Path) -> str | None:
    """Returns why a job folder there would not be safe from a second process; None: it would be."""
    from mobench.jobs.store import JobFolder

    with ExitStack() as held:

        def refusal() -> BaseException | None:
            try:
                held.enter_context(JobFolder(path).locked())
            except StoreError as error:
                return error.__cause__
            return None

        first = refusal()
        second = refusal()
    if first is None and isinstance(second, BlockingIOError):
        return None
    return str(first or second or "a second handle also acquired the lock")


CHECKS: tuple[Check, ...] = (
    packages,
    devices,
    optional,
    outputs,
    data,
)


def examined(check: Check, name: str) -> Iterator[Line]:
    """Yields the lines of a check; an error that stops it is a line as well."""
    try:
        yield from check()
    except ImportError as error:
        yield Line(name, PROBLEM, f"{error}: `pip install .` (in a checkout: `make install`) installs it")
    except (OSError, MobenchError) as error:
        yield Line(
            name,
            PROBLEM,
            f"cannot be checked ({error}): fix this, then rerun `mobench doctor`",
        )


def main(arguments: Sequence[str]) -> int:
    """Prints a line for everything and returns 0 if jobs can run here, else 1."""
    parser = argparse.ArgumentParser(
        prog="mobench doctor",
        description="Reports what this machine provides for mobench: ok, missing (optional) or problem, "
        "and what to do about it.",
        epilog="Checks:\n"
        + "".join(f"  {check.__doc__}\n" for check in CHECKS)
        + f"\nExit code 0 if jobs can run here ({', '.join(VITAL)} are ok), else 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(list(arguments))
    good = set()
    for check in CHECKS:
        for line in examined(check, check.__name__):
            say(
                f"{line.name:14s} {line.state:8s} {' '.join(line.text.split())}"
            )  # a package's own message may have many lines
            if line.state == OK:
                good.add(line.name)
    wrong = [name for name in VITAL if name not in good]
    say(
        f"Jobs cannot run here because of problems with {', '.join(wrong)}."
        if wrong
        else "Jobs can run here; what is missing is optional, such as the data sets of papers."
    )
    return 1 if wrong else 0
