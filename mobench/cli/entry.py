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
from mobench.system import allocator
from mobench.system.console import STOPPED, interrupted


def run(arguments: list[str]) -> int:
    """A command line; its exit code. Whatever goes wrong is one clear message."""
    from mobench.cli import application  # Hydra, and torch for some commands: they take a moment

    return application.run(arguments)


def called(arguments: list[str]) -> int:
    """Does what a command line says; its exit code."""
    if arguments and arguments[0] in COMMANDS:
        module, _, name = COMMANDS[arguments[0]].partition(":")
        code: int = getattr(importlib.import_module(module), name)(arguments[1:])
        return code
    if not arguments or {"-h", "--help"} & set(arguments):
        from mobench.cli import application

        return application.help(arguments)
    return run(arguments[1:] if arguments[0] == "run" else arguments)


class _Leaving:
    """What happens at the end of the process.

    Python ends with the signal, not with the exit code, where Ctrl-C came in the middle of an `exec`, as
    imports have many.
    """

    code = 0  # of this process, once it is known

    def __call__(self) -> None:
        if self.code == STOPPED:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(STOPPED)


def main() -> None:
    """Console entry point."""
    arguments = sys.argv[1:]
    leaving = _Leaving()
    if getattr(sys.modules["__main__"], "main", None) is main:  # a process of its own, no test's
        atexit.register(leaving)  # first of all, so that it is called last
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        allocator.use_huge_pages()
        leaving.code = called(arguments)
    except (KeyboardInterrupt, Exception) as error:  # any other error goes on
        if not interrupted(error):
            raise
        sys.stderr.write("mobench: error: Stopped before the first job started.\n")
        leaving.code = STOPPED
    sys.exit(leaving.code)
