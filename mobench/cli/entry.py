"""The console entry point `mobench`.

It imports nothing heavy, so that Ctrl-C is answered from the first moment.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading

from mobench.cli import COMMANDS
from mobench.system import workers
from mobench.system.console import STOPPED, interrupted


def called(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code."""
    if arguments and arguments[0] in COMMANDS:
        module, _, name = COMMANDS[arguments[0]].partition(":")
        code: int = getattr(importlib.import_module(module), name)(arguments[1:])
        return code
    from mobench.cli import application  # Hydra, and torch for some commands: they take a moment

    if not arguments or {"-h", "--help"} & set(arguments):
        return application.help(arguments)
    return application.run(arguments[1:] if arguments[0] == "run" else arguments)


def main() -> None:
    """Runs the command line of this process and exits."""
    arguments = sys.argv[1:]
    code: list[int] = []  # of this process, once it is known
    if getattr(sys.modules["__main__"], "main", None) is main:  # a process of its own, no test's
        atexit.register(_leave, code)  # first of all, so that it is called last
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        workers.use_huge_pages()
        code.append(called(arguments))
    except (KeyboardInterrupt, Exception) as error:  # any other error goes on
        if not interrupted(error):
            raise
        sys.stderr.write("mobench: error: Stopped before the first job started.\n")
        code.append(STOPPED)
    sys.exit(code[0])


def _leave(code: list[int]) -> None:
    """Ends the process with the exit code of a stop.

    Python would end it with the signal where Ctrl-C came within an `exec`, of which imports have many.
    """
    if code == [STOPPED]:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(STOPPED)
