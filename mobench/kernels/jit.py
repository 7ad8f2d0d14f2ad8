"""Compiles kernels by Numba: `entry` for functions that Python calls, `kernel` for functions inside them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from mobench.system.files import alone

Array = Any  # numpy.ndarray

CACHES = True  # False without a folder that can be written: each process compiles then


def entry(function: Any) -> Any:
    """A function for Python, compiled at the first call or loaded from Numba's cache."""
    global CACHES
    function = inspect.unwrap(function)  # Numba cannot compile the wrapper that checks types
    try:
        dispatcher: Any = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        CACHES = False
        return njit(error_model="numpy")(function)
    compiled = dispatcher.compile
    file = Path(dispatcher.stats.cache_path, f"{function.__module__}.{function.__name__}.o")

    def once(signature: Any) -> Any:
        # processes that begin together, as those of a sweep, would all compile it, for half a minute
        with global_compiler_lock, alone(file):
            return compiled(signature)

    dispatcher.compile = once
    return dispatcher


INNER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Any, fastmath: Any = False) -> Any:
    """A function for kernels alone; division by zero gives inf or NaN as in NumPy.

    fastmath: liberties of LLVM with its sums.
    """
    return njit(**INNER, fastmath=fastmath)(inspect.unwrap(function))
