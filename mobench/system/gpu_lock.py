"""One GPU for each job, by locks in a folder of the machine.

Jobs of any process or launcher never share a GPU by accident. The operating system takes a lock back when its
process ends, however it ends. Under Slurm the scheduler hands out GPUs (`gres`); only several in one
allocation are locked.

Other users and other programs take no such locks: CUDA_VISIBLE_DEVICES leaves their GPUs out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from mobench.errors import StoreError

WAIT = 1.0  # seconds between looks


def folder() -> Path:
    """Locks of this user on this machine: never on a file system that other machines share."""
    return Path(tempfile.gettempdir()) / f"mobench-slots-{os.getuid()}"


def visible() -> list[str]:
    """Returns an identifier of each CUDA device that this process sees, in its order.

    An identifier stays the same whatever the order in CUDA_VISIBLE_DEVICES.
    """
    devices = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return [str(getattr(p, "uuid", i)) for i, p in enumerate(devices)]


@contextlib.contextmanager
def take(ids: Sequence[str], each: int = 1, title: str = "", root: Path | None = None) -> Iterator[int]:
    """The number of a device in `ids` that fewer than `each` jobs hold, until the end of the block.

    Waits for one. The devices are tried from the least used on: with each = 2 no GPU gets a second job while
    another has none.
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
        for place in range(each):
            for number, name in enumerate(ids):
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
            where = f"{len(ids)} GPU{'s are' if len(ids) > 1 else ' is'} in use (locks in {base})"
            print(f"{title or 'job'}: waiting because {where}", file=sys.stderr, flush=True)
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
        with take([ids[int(number)]], each, title):
            yield name
        return
    with take(ids, each, title) as free:
        yield f"cuda:{free}"
