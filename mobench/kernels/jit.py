"""How Numba compiles kernels: `entry` for those that Python calls, `kernel` for those that only they call."""

from __future__ import annotations

import inspect
from typing import Any

from numba import njit

Array = Any  # numpy.ndarray

KEPT = True  # False without a folder that can be written: Numba keeps nothing then, and each process compiles


def entry(function: Any) -> Any:
    """Called from Python: compiled at the first call, or loaded from Numba's cache."""
    global KEPT
    function = inspect.unwrap(function)  # Numba cannot look into what checks types
    try:
        return njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        KEPT = False
        return njit(error_model="numpy")(function)


INNER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Any, fastmath: Any = False) -> Any:
    """Called by kernels alone; division by zero gives inf or NaN as in NumPy. fastmath: what LLVM may do to
    its sums.
    """
    return njit(**INNER, fastmath=fastmath)(inspect.unwrap(function))
