"""Numba's kernels, for those who have Numba: `pip install '.[compiled]'`.

They are imported at the first solve that uses them, and compiled once on a machine: Numba keeps what it has
compiled below $MOBENCH_CACHE, else beside the package, else in the user's own cache folder. Without Numba, on
another device than the CPU, and with MOBENCH_COMPILED=0 the same formulas run as array operations; results
agree to rounding, and both compute the same certificates. Beside solvers there are Gram matrices (`gramian`)
and sweeps of LeNet's maps (`windows`).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from mobench.system.console import say

PREFIX = "mobench.kernels."


def _announce(module: ModuleType) -> None:
    """Says so, once in this process, before kernels of the module are compiled."""
    from numba.core import event

    from mobench.kernels import jit

    class Announcement(event.Listener):
        said = False

        def on_start(self, event: Any) -> None:
            function = getattr(event.data.get("dispatcher"), "py_func", None)
            if not self.said and function is not None and function.__module__ == module.__name__:
                self.said = True
                kept = "once on this machine" if jit.KEPT else "in each process, for want of a folder"
                say(f"mobench: compiling small solvers, less than a minute, {kept}", sys.stderr)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Announcement())


@functools.cache
def module(name: str) -> ModuleType | None:
    """mobench.kernels.<name>, to be compiled at its first call; None without Numba or if it is not wanted."""
    if os.environ.get("MOBENCH_COMPILED") == "0" or find_spec("numba") is None:
        return None
    try:
        config: Any = importlib.import_module("numba.core.config")
    except ImportError as error:  # such as a NumPy that is too new for it
        say(f"mobench: small solvers are not compiled, Numba cannot be imported: {error}", sys.stderr)
        return None
    folder = os.environ.get("MOBENCH_CACHE")
    before = config.CACHE_DIR
    try:
        if folder:
            config.CACHE_DIR = str(Path(folder).absolute() / "numba")
        found = importlib.import_module(PREFIX + name)
    finally:
        config.CACHE_DIR = before
    _announce(found)
    return found


def kernels(name: str, like: Tensor) -> ModuleType | None:
    """mobench.kernels.<name> for tensors on the device of `like`; None where there is no compiled path."""
    return module(name) if like.device.type == "cpu" else None
