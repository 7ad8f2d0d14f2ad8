"""`mobench`: a Hydra application. One job, a sweep, or an artifact; see `mobench --help`."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from hydra.types import HydraContext
from omegaconf import DictConfig

from mobench.cli import flags, usage
from mobench.config import hydra_adapter, overrides, searchpath
from mobench.config import schema as configuration
from mobench.config.compose import hydra_errors
from mobench.errors import ConfigError, Interrupted, MobenchError
from mobench.system import console
from mobench.system.console import STOPPED, interrupted

FAULT = 2  # exit code of a command that cannot be run


def single(config: dict[str, Any]) -> int:
    """Runs one job in this process and returns the exit code."""
    from mobench.cli import messages
    from mobench.jobs.run import run_job  # torch, for which `--help` need not wait

    overrides.check_single(config)
    return messages.single(run_job(config, title=_title(config)))


def worker(cfg: DictConfig) -> Any:
    """Runs one job in a launcher's worker and returns its outcome, or the reason why it cannot run.

    For a sweeper of somebody else's it returns the numbers that this sweeper optimises.
    """
    from mobench.jobs.run import run_job

    hydra_adapter.register()  # a new process does not know the resolvers
    node = HydraConfig.get()
    if node.sweeper["_target_"] != hydra_adapter.SWEEPER:
        from mobench.sweep import objective

        numbers, words = objective.of_job(configuration.plain(cfg), node.sweeper, list(node.overrides.task))
        console.say(words)
        return numbers
    try:
        config = configuration.plain(cfg)
        return run_job(config, title=_title(config))
    except MobenchError as error:
        return str(error)


def _title(config: dict[str, Any]) -> str:
    """Returns the name of a job in messages."""
    return f"{config['artifact']['id'] or ''} {config['artifact']['job'] or ''}".strip()


def sweep(config: DictConfig, context: HydraContext, arguments: list[str]) -> int:
    """Plans and runs a sweep, reports its outcomes, and returns the exit code."""
    from mobench.cli import messages
    from mobench.sweep.composer import Composer
    from mobench.sweep.launch import launch
    from mobench.sweep.launchers import adapter_of
    from mobench.sweep.planner import Planner, Use

    adapter = adapter_of(config, context, worker)
    use = Use.PROCESS if adapter.here else Use.FAR if adapter.far else Use.HERE
    loader = cast(hydra_adapter.Loader, context.config_loader)
    plan = Planner(Composer(loader, config), use).plan(arguments)
    messages.announce(plan)
    return messages.finish(plan, launch(plan, adapter, console.say))


def help(arguments: Sequence[str]) -> int:
    """Prints the text of `--help` and returns the exit code."""
    console.say(usage.text(arguments))
    return 0


def _mode_in_files(options: Sequence[str], rest: Sequence[str]) -> bool:
    """Says whether a file may set `hydra.mode`, as experiments do, which only composing shows."""
    chosen = any(re.match(r"\+{0,2}(experiment|hardware|hydra)\b", o) for o in rest)
    return chosen or "--config-dir" in options


def _run(arguments: Sequence[str]) -> int:
    """Runs a command line whose errors are still exceptions, and returns its exit code."""
    options, rest = flags.split(arguments)
    if "--version" in options:
        console.say(flags.versions())
        return 0
    console.check_folder()
    rest, several = overrides.expand_experiments(overrides.normalise(rest), searchpath.experiments(arguments))
    if several and "--multirun" not in options:
        if conflicting := [flag for flag in flags.ONE_JOB if flag in options]:
            raise ConfigError(f"{conflicting[0]} shows one job; name only one experiment.")
        options = ["--multirun", *options]
    folder = str(configuration.conf_dir())
    asks = _mode_in_files(options, rest)
    return hydra_adapter.command([*options, *rest], folder, single, sweep, worker, asks)


def run(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code; any error is one clear message."""
    try:
        with hydra_errors():
            return _run(arguments)
    except (KeyboardInterrupt, Exception) as error:  # an error without a message is raised again
        result = _message_and_code(error)
        if result is None:
            raise
        message, code = result
        if message:
            console.fail(message)
            if os.environ.get("HYDRA_FULL_ERROR") == "1" and code == FAULT:
                traceback.print_exc()
        return code


def _message_and_code(error: BaseException) -> tuple[str, int] | None:
    """Returns message and exit code of the error that ended a command; None for an error of the program."""
    if isinstance(error, Interrupted):
        return str(error), STOPPED
    if interrupted(error):
        return "Stopped. Repeat the command to resume; finished jobs are kept.", STOPPED
    if isinstance(error, MobenchError):
        return str(error) + getattr(error, "hint", ""), FAULT
    if isinstance(error, BrokenPipeError):
        # the reader of our output went away (mobench ... | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "", 0
    return None
