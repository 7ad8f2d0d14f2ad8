"""Problems with an optimizer of their user's, which the loop steps with along a method's direction.

(theta', s') = step(theta, d, s)   in the place of   theta' = theta + alpha_t d
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm
from mobench.core.oracle import Spec
from mobench.core.sets import Box, Free, Intervals
from mobench.core.types import State


@runtime_checkable  # tests check types at run time
class Stepper(Protocol):
    """A step of R runs, each of which moves as it would alone."""

    def first(self, theta: Float[Tensor, "R P"]) -> State:
        """Returns the stepper's part of the state before the first step."""

    def step(
        self, theta: Float[Tensor, "R P"], d: Float[Tensor, "R P"], state: State
    ) -> tuple[Float[Tensor, "R P"], State]:
        """The next iterates, before any projection, and the stepper's part of the next state.

        It may write to the tensors of `state`, as torch's optimizers do.
        """


@runtime_checkable
class Stepped(Protocol):
    """A problem that may have a stepper."""

    def stepper(self) -> Stepper | None:
        """Returns a new stepper; None: the loop's step."""


def misfits(spec: Spec, algorithm: Algorithm) -> list[str]:
    """Why an optimizer cannot step along the direction of a method on this oracle; empty if it can."""
    reasons = []
    if algorithm.own_step:
        reasons.append(algorithm.own_step)
    elif algorithm.together or algorithm.replaces or algorithm.derivative_free:
        reasons.append(
            "it chooses points for all preferences of a seed together, not a direction of each run"
        )
    if not isinstance(spec.X, Free | Box | Intervals):
        reasons.append(
            f"a projection onto a {type(spec.X).__name__} after steps of another length in each coordinate "
            "would have to be one in another metric; bounds of the coordinates are possible"
        )
    if spec.blocks > 1:
        reasons.append("the averages of coordinates that rest would go on; set oracle.block_move=all")
    return reasons
