"""Problems whose user looks at each recorded step, and may end runs, or keep an iterate, there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Watched(Protocol):
    """A problem with a callback or a stop rule."""

    @property
    def callback(self) -> Callable[[int, Any], object] | None:
        """Called with the number of each recorded step and its rows, one for each run."""

    @property
    def stop(self) -> Callable[[Any], Any] | None:
        """Called with the rows of all recorded steps so far; returns for each run whether it ends here."""


@runtime_checkable
class Keeping(Protocol):
    """A problem whose runs may end with their best recorded iterate in the place of the last one."""

    @property
    def keep(self) -> str | None:
        """Names the number that decides; None: the last iterate is the answer."""

    @property
    def patience(self) -> int | None:
        """A run ends after so many recorded steps without a better one; None: none does."""

    def deciding(self, columns: Mapping[str, Tensor], weights: Float[Tensor, "R M"]) -> Float[Tensor, " R"]:
        """The number that decides, of each run: the smallest is the best.

        Args:
            columns: of a recorded step, by their names in the rows.
            weights: the preferences.
        """
