"""One GPU for each job, by locks in a folder of the machine.

Jobs of any process or launcher never share a GPU by accident. The operating system takes a lock back when its
process ends, however it ends. Under Slurm the scheduler hands out GPUs (`gres`); only several in one
allocation are locked.

Other users and other programs take no such locks. What they hold shows in a GPU's free memory, which
`nvidia-smi` reports where it is installed: of GPUs with as many jobs of ours, the one with the most free
memory is taken, and none with less than LEAST.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from mobench.errors import StoreError

WAIT = 1.0  # seconds between looks
LEAST = 1024  # MiB that are free on a GPU that a job takes
QUERY = ("nvidia-smi", "--query-gpu=uuid,memory.free", "--format=csv,noheader,nounits")
QUERY_SECONDS = 10.0


def folder() -> Path:
    """Locks of this user on this machine: never on a file system that other machines share."""
    return Path(tempfile.gettempdir()) / f"mobench-slots-{os.getuid()}"


def visible() -> list[str]:
    """Returns an identifier of each CUDA device that this process sees, in its order.

    An identifier stays the same whatever the order in CUDA_VISIBLE_DEVICES.
    """
    devices = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return [str(getattr(p, "uuid", i)) for i, p in enumerate(devices)]


def free_memory() -> dict[str, int]:
    """Returns the free MiB of each GPU of the machine by its identifier; empty without `nvidia-smi`."""
    if shutil.which(QUERY[0]) is None:
        return {}
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, check=True, timeout=QUERY_SECONDS)
        lines = [line.split(",") for line in done.stdout.splitlines() if line.strip()]
        return {name.strip().removeprefix("GPU-"): int(free) for name, free in lines}
    except (OSError, subprocess.SubprocessError, ValueError):  # a GPU can do without it
        return {}


def _order(ids: Sequence[str], free: Mapping[str, int], by_number: bool) -> list[tuple[int, str]]:
    """Number and name of the devices that a job may take, from the most free memory on."""
    enough = [(i, name) for i, name in enumerate(ids) if by_number or free.get(name, LEAST) >= LEAST]
    return sorted(enough, key=lambda place: -free.get(place[1], 0))


@contextlib.contextmanager
def take(
    ids: Sequence[str], each: int = 1, title: str = "", root: Path | None = None, by_number: bool = False
) -> Iterator[int]:
    """The number of a device in `ids` that fewer than `each` jobs hold, until the end of the block.

    Waits for one.

    The devices are tried from the least used on: with each = 2 no GPU gets a second job while another has
    none. Of those with as many, the one with the most free memory comes first; one with less than LEAST MiB
    is not taken, unless the user chose it `by_number`.
    """
    base = root or folder()
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The lock files of the GPUs cannot be stored in {base}: {error.strerror}. Set TMPDIR to your "
            "own folder."
        ) from error
    announced = False
    while True:
        free = free_memory()
        usable = _order(ids, free, by_number)
        for place in range(each):
            for number, name in usable:
                handle = (base / f"{name}.{place}.lock").open("a")
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    handle.close()
                    continue
                try:
                    yield number
                finally:
                    handle.close()
                return
        if not announced:
            announced = True
            where = f"{len(ids)} GPU{'s are' if len(ids) > 1 else ' is'} in use (locks in {base}"
            left_out = set(ids) - {name for _, name in usable}
            full = [f"{free[name]} MiB on GPU {name}" for name in sorted(left_out)]
            if full:
                where += f"; other programs leave less than {LEAST} MiB free: {', '.join(full)}"
            print(f"{title or 'job'}: waiting because {where})", file=sys.stderr, flush=True)
        time.sleep(WAIT)


@contextlib.contextmanager
def device(name: str, each: int = 1, title: str = "") -> Iterator[str]:
    """The device of a job: `cuda` becomes a free `cuda:N`; a job that names `cuda:N` waits for that one.

    `cpu` stays, and so does `cuda` where Slurm gave the job one GPU.
    """
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 0
    if count == 0 or (count == 1 and "SLURM_JOB_ID" in os.environ) or int(number or 0) >= count:
        yield name  # whoever moves the job there says what is wrong with it
        return
    ids = visible()
    if number:
        with take([ids[int(number)]], each, title, by_number=True):
            yield name
        return
    with take(ids, each, title) as free:
        yield f"cuda:{free}"
