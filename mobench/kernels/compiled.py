"""Imports Numba's kernels of small solvers, Gram matrices, hypervolumes and sweeps of LeNet's maps.

They are imported at the first call that uses them, and compiled once on a machine: Numba stores compiled code
below $MOBENCH_CACHE, else beside the package, else in the user's cache folder.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from mobench.errors import ConfigError
from mobench.system.console import say

PREFIX = "mobench."


def _announce(module: ModuleType) -> None:
    """Prints a line, once in this process, before kernels of the module are compiled."""
    from numba.core import event

    from mobench.kernels import jit

    class Announcement(event.Listener):
        said = False

        def on_start(self, event: Any) -> None:
            function = getattr(event.data.get("dispatcher"), "py_func", None)
            if not self.said and function is not None and function.__module__ == module.__name__:
                self.said = True
                once = "once for each kind on this machine"
                often = once if jit.CACHES else "in each process, for want of a folder"
                say(f"mobench: compiling small solvers, less than a minute, {often}", sys.stderr)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Announcement())


@functools.cache
def module(name: str) -> ModuleType:
    """Imports mobench.<name>, to be compiled at its first call.

    Raises:
        ConfigError: Numba cannot be imported.
    """
    try:
        config: Any = importlib.import_module("numba.core.config")
    except ImportError as error:  # such as a NumPy that is too new for it
        raise ConfigError(
            f"The small solvers are compiled by Numba, which cannot be imported: {error}. Install a version "
            "that fits Python and NumPy: pip install --upgrade numba"
        ) from error
    folder = os.environ.get("MOBENCH_CACHE")
    before = config.CACHE_DIR
    try:
        if folder:
            config.CACHE_DIR = str(Path(folder).absolute() / "numba")
        kernels = importlib.import_module(PREFIX + name)
    finally:
        config.CACHE_DIR = before
    _announce(kernels)
    return kernels


def compiled_solver(name: str) -> ModuleType:
    """Returns mobench.solvers.kernels.<name>."""
    return module(f"solvers.kernels.{name}")


def on_cpu(name: str, like: Tensor) -> ModuleType | None:
    """Returns mobench.<name> for tensors on the device of `like`; None on a GPU."""
    return module(name) if like.device.type == "cpu" else None
