"""Signals while a job runs: first a checkpoint, then what the process would have done anyway.

A handler only notes the signal; the loop looks between steps, so state is never half written. After the
checkpoint: INT and TERM stop the job; USR1 and USR2 let it go on. Where somebody else handles the signal
(submitit does: USR2 puts a job back into Slurm's queue, TERM is passed over because Slurm sends it along with
USR2), that handler decides.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

STOP = (signal.SIGINT, signal.SIGTERM)
SAVE = (signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """Signals that arrived."""

    def __init__(self) -> None:
        self.pending: list[int] = []
        self.before: Mapping[int, Any] = {}

    def note(self, number: int, frame: object = None) -> None:
        """The handler."""
        if number in STOP and number in self.pending and self._default(number):
            raise KeyboardInterrupt  # the second signal: do not wait for the end of a long step
        self.pending.append(number)

    def _default(self, number: int) -> bool:
        """Returns whether only Python's default handled the signal before."""
        before = self.before.get(number)
        return before is signal.default_int_handler or not callable(before)

    def deliver(self) -> bool:
        """Hand the signals on; True if the job has to stop. A handler may end the process."""
        arrived = self.pending
        self.pending = []
        for number in dict.fromkeys(arrived):
            if not self._default(number):
                handler: Callable[[int, object], Any] = self.before[number]
                handler(number, None)
        return self._stop(arrived)

    @property
    def stop(self) -> bool:
        """True if a signal that nobody else handles asks to stop; hands no signal on."""
        return self._stop(self.pending)

    def _stop(self, numbers: Sequence[int]) -> bool:
        return any(number in STOP and self._default(number) for number in numbers)


@contextlib.contextmanager
def caught() -> Iterator[Signals]:
    """Note signals instead of dying of them.

    Outside the main thread Python allows no handlers: nothing is caught there.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    signals.before = {number: signal.signal(number, signals.note) for number in (*STOP, *SAVE)}
    try:
        yield signals
    finally:
        for number, before in signals.before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
