"""How a problem executes the axis of runs; results do not depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

if TYPE_CHECKING:
    from mobench.core.problem import Problem


@runtime_checkable
class ChoosesExecution(Protocol):
    """Problems that execute the runs of a batch in one of several ways."""

    def strategy(self, device: torch.device) -> str:
        """The name of the way on this device, for the record."""


def execution_of(problem: Problem, device: torch.device) -> str:
    """The way in which a problem executes its runs on a device:
    "stacked" (one tensor axis) unless it chooses.
    """
    return problem.strategy(device) if isinstance(problem, ChoosesExecution) else "stacked"
