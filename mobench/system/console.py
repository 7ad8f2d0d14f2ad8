"""Lines for a person, and the exit code of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mobench.errors import ConfigError

exit_code = 0  # of this process; raised by failures, never lowered


# what a terminal without Unicode shows instead
PLAIN = str.maketrans(
    {"±": "+-", "–": "-", "…": "...", "✓": "+", "◐": "~", "✗": "x", "○": "o", "×": "x", "≤": "<=", "≥": ">="}
)


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


def fail(message: str, code: int = 1) -> None:
    """Print one clear message and remember the exit code."""
    global exit_code
    exit_code = max(exit_code, code)
    say(f"mobench: error: {message}", sys.stderr)


def check_folder() -> None:
    """Raise ConfigError if the working folder has been deleted: Hydra and relative paths need it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            "The working folder does not exist any more. Change to another one (cd ~), or leave and enter "
            "this one again if it was made anew (cd .)."
        ) from None
