"""The program `mobench`: jobs, sweeps and artifacts, and the commands that `COMMANDS` lists.

Nothing imports it but the entry points.

May import: artifacts, bundle, comparison, config, data, jobs, study, sweep, system, errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from mobench.errors import Interrupted, MobenchError
from mobench.system.console import STOPPED, fail

# the function that `mobench WORD ...` calls with the words that follow, and that returns the exit code; all
# other commands are flags and overrides, and so jobs
COMMANDS = {
    "status": "mobench.cli.status:main",
    "keep": "mobench.cli.keep:main",
    "report": "mobench.report.__main__:main",
    "bundle": "mobench.cli.bundle:bundle",
    "verify": "mobench.cli.bundle:verify",
    "cross": "mobench.cli.cross:main",
    "check-problem": "mobench.cli.check_problem:main",
    "data": "mobench.cli.data:main",
    "doctor": "mobench.cli.doctor:main",
}

Main = Callable[[Sequence[str]], int]


def one_message(main: Main) -> Main:
    """Makes any error that a command raises one clear message, and returns the exit code."""

    @functools.wraps(main)
    def run(arguments: Sequence[str]) -> int:
        try:
            return main(arguments)
        except (Interrupted, KeyboardInterrupt) as error:
            return fail(str(error) or "Stopped.", STOPPED)
        except MobenchError as error:
            return fail(str(error), code=2)

    return run
