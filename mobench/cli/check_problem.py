"""Compares a problem of somebody else with ours:  mobench check-problem NAME FILE [OVERRIDE...]

FILE is a CSV file with columns x_1 ... x_n (in the variables of mobench's problem) and f_1 ... f_M.
Overrides such as problem.n=10 set the size. The exit code is 0 for the same problem and for an affine map of
it, and 1 for another problem. docs/conventions.md lists what is known of libraries.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mobench.cli import one_message
from mobench.errors import ConfigError
from mobench.system.console import say


def check(name: str, source: str, overrides: Sequence[str]) -> int:
    """Compares values with those of a problem, prints the verdict, and returns the exit code.

    Raises:
        ConfigError: there is no such problem or file, or the values cannot be compared.
    """
    from mobench.comparison import definitions
    from mobench.config.compose import compose
    from mobench.jobs.targets import instantiate

    problem = instantiate(compose([f"problem={name}", *overrides])["problem"], "problem")
    if not Path(source).is_file():
        raise ConfigError(
            f"There is no file {source}; give a CSV file with columns x_1 to x_{problem.dim} and f_1 to "
            f"f_{problem.n_objectives}."
        )
    verdict = definitions.check_file(problem, Path(source))
    say(f"{source} and mobench's {problem.name}: {verdict}.")
    return int(verdict.kind == "another")


@one_message
def main(arguments: Sequence[str]) -> int:
    """Runs `mobench check-problem ARGUMENTS` and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="mobench check-problem",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name")
    parser.add_argument("source", metavar="FILE")
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args(list(arguments))
    return check(args.name, args.source, args.overrides)
