"""Problems whose user looks at each recorded step, and may end runs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Watched(Protocol):
    """A problem with a callback or a stop rule."""

    @property
    def callback(self) -> Callable[[int, Any], object] | None:
        """Called with the number of each recorded step and its rows, one for each run."""

    @property
    def stop(self) -> Callable[[Any], Any] | None:
        """Given the rows of all recorded steps so far, the runs that end here: booleans, in the order of the
        runs.
        """
