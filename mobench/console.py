"""Lines for a person, and the exit code of this process."""

from __future__ import annotations

import os
import sys
from typing import Any

exit_code = 0  # of this process; raised by failures, never lowered


def say(text: str, stream: Any = None) -> None:
    """Print a line. A reader that went away (mobench ... | head) does not stop the work."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(message: str, code: int = 1) -> None:
    """Print one clear message and remember the exit code."""
    global exit_code
    exit_code = max(exit_code, code)
    say(f"mobench: error: {message}", sys.stderr)
