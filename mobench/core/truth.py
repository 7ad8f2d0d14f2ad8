"""Facts that some problems know beyond their ideal and reference points, each as a protocol.

A problem that has the method knows the answer; nothing has to be inherited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from mobench.core.problem import Problem


@runtime_checkable
class KnownFront(Protocol):
    """Problems whose exact Pareto front can be sampled."""

    def front(self, k: int) -> Float[Tensor, "k2 M"] | None:
        """At most k points of the exact Pareto front, those not dominated; None if it is not known here."""


@runtime_checkable
class FrontDistance(Protocol):
    """Problems with a formula for the distance to their front."""

    def distance_to_front(self, F: Float[Tensor, "R M"]) -> Float[Tensor, " R"] | None:
        """Exact Euclidean distance of objective values to the front; None: not known here."""


@runtime_checkable
class ConstantPredictor(Protocol):
    """Problems with data for which a predictor that ignores its input is a yardstick."""

    @property
    def constant_losses(self) -> Float[Tensor, " M"]:
        """Returns the loss of the best constant predictor in each objective, float64."""


@runtime_checkable
class IdealByRuns(Protocol):
    """Problems whose ideal point may come from runs of an algorithm, which the maker of a job chooses."""

    def with_ideal_by(self, solve: Callable[[Problem, int], Float[Tensor, "I M"]]) -> Problem:
        """Returns a copy of this problem that takes its ideal point from `solve(problem, instances)`."""
