"""Types that several modules share, and the types of numbers that tensors may have."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mobench.errors import ConfigError

Real = float | int
"""A number in a YAML file: `1` is as good as `1.0`."""

State = dict[str, Any]
"""The state of a method, an oracle, an output rule or a job between steps: tensors by name, R first."""

HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float64, torch.float32, *HALF)


def check_dense(what: str, x: Tensor, cure: str = "call .to_dense() first") -> None:
    """Raises ConfigError if a tensor, which messages call `what`, has a sparse or another layout."""
    if x.layout is not torch.strided:
        raise ConfigError(f"{what} has the layout {x.layout}; expected a dense tensor: {cure}.")


def check_real(what: str, x: Tensor, types: Sequence[torch.dtype] | None = FLOATS) -> None:
    """Raises ConfigError unless a tensor is dense and has real numbers of one of the types (None: of any).

    PyTorch's optimizers take a complex number for two real ones, inner products of gradients do not.
    """
    check_dense(what, x)
    if x.is_complex():
        raise ConfigError(
            f"{what} is complex ({x.dtype}); expected real numbers. Keep real and imaginary parts in a real "
            "tensor (torch.view_as_real), and compute with torch.view_as_complex of it; of a loss or a "
            "measure take .real or .abs()."
        )
    if types is not None and x.dtype not in types:
        raise ConfigError(
            f"{what} is of type {x.dtype}; expected one of {', '.join(map(str, types))}: convert it, by "
            ".float() for example."
        )


def check_minimizes(optimizer: torch.optim.Optimizer) -> None:
    """Raises ConfigError if a group of an optimizer maximizes: the direction -d would be turned round.

    A method weighs losses and constraints as those that shall fall.
    """
    if any(group.get("maximize", False) for group in optimizer.param_groups):
        raise ConfigError(
            f"{type(optimizer).__name__} has maximize=True, which would turn the method's direction round: "
            "losses are minimized here, and constraints kept <= 0. Leave it out, and give the negative of "
            "what shall rise."
        )
