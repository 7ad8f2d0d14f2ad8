"""Measures of a user's own for any problem: mobench.run(..., measures={"norm": lambda x: x.norm()}).

    column (R,),  row r: the function at x_r (P,), the decision variables as `solutions` has them

A configuration cannot hold a function. It holds `record.code`, the hash of what all measures compute, and the
functions are served under that name (`mobench.core.served`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.served import served

Measure = Callable[[Tensor], Any]


def of(code: str | None) -> Mapping[str, Measure]:
    """Returns the measures of a job by name, given its `record.code`.

    Raises:
        ConfigError: the program that defined them has ended.
    """
    found: Mapping[str, Measure] = {} if code is None else served(code, "record.code")
    return found


def measured(measures: Mapping[str, Measure], x: Float[Tensor, "R P"]) -> dict[str, Float[Tensor, " R"]]:
    """The columns of all measures."""
    return {name: torch.func.vmap(fn)(x).detach().double() for name, fn in measures.items()}


def fault(fn: Measure, x: Float[Tensor, "1 P"]) -> str:
    """What is wrong with a measure at x; "" if nothing is."""
    wanted = f"expected a tensor () of real numbers for one x of shape ({x.shape[1]},)."
    try:
        value = torch.func.vmap(fn)(x)
    except Exception as error:  # noqa: BLE001  whatever a user's function raises is what is wrong
        return f"it fails at the start: {type(error).__name__}: {str(error).splitlines()[0]}; {wanted}"
    if not isinstance(value, Tensor):
        return f"it returns {type(value).__name__}; {wanted}"
    if value.shape != (1,):
        return f"it returns the shape {tuple(value.shape[1:])}; {wanted}"
    return f"it returns {value.dtype}; {wanted}" if value.is_complex() else ""
