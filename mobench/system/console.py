"""Lines for a person."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mobench.errors import ConfigError

# what a terminal without Unicode shows instead
PLAIN = str.maketrans(
    {"±": "+-", "–": "-", "…": "...", "✓": "+", "◐": "~", "✗": "x", "○": "o", "×": "x", "≤": "<=", "≥": ">="}
)

STOPPED = 130  # exit code of a process that Ctrl-C stopped
LINE = 5.0  # seconds between lines of progress, at least


def say(text: str, stream: Any = None) -> None:
    """Print a line.

    A reader that went away (mobench ... | head) does not stop the work, nor does a terminal that lacks a
    sign.
    """
    stream = stream or sys.stdout
    try:
        try:
            print(text, file=stream, flush=True)
        except UnicodeEncodeError:
            known = stream.encoding or "ascii"
            print(text.translate(PLAIN).encode(known, "replace").decode(known), file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(message: str, code: int = 1) -> int:
    """Prints one clear message and returns the exit code that it calls for."""
    say(f"mobench: error: {message}", sys.stderr)
    return code


def duration(seconds: float) -> str:
    """3 s, 12 min, 4.5 h, 2.1 days."""
    for size, unit in ((86400.0, "days"), (3600.0, "h")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{max(seconds, 0):.0f} s"


def progress(label: str, start: int, total: int) -> Callable[[int], None]:
    """Returns what is to be called with each step that has been reached; it prints a line every few seconds.

    Args:
        label: what lines call the job.
        start: the step that training continues from.
        total: the last step.
    """
    began = time.monotonic()
    last = began

    def line(t: int) -> None:
        nonlocal last
        if time.monotonic() - last > LINE and t < total:
            last = time.monotonic()
            left = (last - began) * (total - t) / max(t - start, 1)
            print(f"{label}: step {t} of {total}, about {duration(left)} left", file=sys.stderr, flush=True)

    return line


def check_folder() -> None:
    """Raise ConfigError if the working folder has been deleted: Hydra and relative paths need it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            "The working folder no longer exists. Change to another one (cd ~), or enter it again if it "
            "was recreated (cd .)."
        ) from None


def interrupted(error: BaseException | None) -> bool:
    """Says whether Ctrl-C is behind an error: what runs while it arrives may make another error of it."""
    seen = 0
    while error is not None and seen < 100:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
        seen += 1
    return False
