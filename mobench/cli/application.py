"""`mobench`: a Hydra application. One job, a sweep, or an artifact; see `mobench --help`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from mobench.cli import completion, flags, usage
from mobench.cli.entry import STOPPED, interrupted
from mobench.config import hydra_plugin, overrides, searchpath, yaml_errors
from mobench.config import schema as configuration
from mobench.config.compose import explain
from mobench.errors import ConfigError, Interrupted, MobenchError
from mobench.sweep import plugin
from mobench.system import console

FAULT = 2  # exit code of a command that cannot be run

plugin.register()


def task(cfg: DictConfig) -> Any:
    """The Outcome of one job; also what launchers run in their workers."""
    from mobench.jobs.run import run_job  # torch: `--help` need not wait for it

    config = configuration.plain(cfg)
    return run_job(
        config, title=f"{config['artifact']['id'] or ''} {config['artifact']['job'] or ''}".strip()
    )


# of the job function: Hydra would print a line of its own about an exception
_raised: list[MobenchError] = []


def _single(cfg: DictConfig) -> Any:
    """One job in this process, or in a launcher's worker."""
    node = HydraConfig.get()
    if node.mode is RunMode.MULTIRUN and node.sweeper["_target_"] != hydra_plugin.SWEEPER:
        from mobench.sweep import objective

        return objective.of_job(configuration.plain(cfg), node.sweeper, list(node.overrides.task))
    try:
        if node.mode is RunMode.RUN:
            overrides.check_single(configuration.plain(cfg))
        outcome = task(cfg)
    except MobenchError as error:
        if node.mode is RunMode.MULTIRUN:  # in a launcher's worker: the sweeper reports it
            return str(error)
        _raised.append(error)
        return None
    if node.mode is RunMode.RUN:
        from mobench.sweep import messages

        messages.single(outcome)
    return outcome


def help(arguments: Sequence[str]) -> int:
    """Print what `--help` shows; the exit code."""
    console.say(usage.text(arguments))
    return console.exit_code


def _answered(given: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether a flag that needs no Hydra was all that was asked."""
    if "--version" in given:
        console.say(flags.versions())
        return True
    found = completion.answer(rest) if "--shell-completion" in given else None
    if found is not None:
        console.say(found)
    return found is not None


def _run(arguments: list[str]) -> None:
    given, rest = flags.split(arguments)
    if _answered(given, rest):
        return
    console.check_folder()
    rest, several = overrides.expand_experiments(
        overrides.normalise(rest), searchpath.experiments(searchpath.folders(arguments))
    )
    if several and "--multirun" not in given:
        if shown := [flag for flag in flags.ONE_JOB if flag in given]:
            raise ConfigError(f"{shown[0]} shows one job: name one experiment.")
        given = ["--multirun", *given]
    sys.argv[1:] = [*given, *rest]
    folder = str(configuration.conf_dir())
    hydra.main(version_base="1.3", config_path=folder, config_name="config")(_single)()
    if _raised:
        raise _raised[0]


def run(arguments: list[str]) -> int:
    """A command line; its exit code. Whatever goes wrong is one clear message."""
    own_trace = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions reach us, and become one clear message below
    _raised.clear()
    try:
        _run(arguments)
    except (KeyboardInterrupt, Exception) as error:  # what has no message goes on
        told = _told(error, arguments)
        if told is None:
            raise
        message, code = told
        if message:
            console.fail(message, code=code)
            if own_trace and code == FAULT:
                traceback.print_exc()
    return console.exit_code


def _told(error: BaseException, arguments: Sequence[str]) -> tuple[str, int] | None:
    """Message and exit code of what ended a command; None for an error of the program's own."""
    if isinstance(error, Interrupted):
        return str(error), STOPPED
    if interrupted(error):
        return "Stopped. The same command continues; finished jobs are kept.", STOPPED
    if isinstance(error, MobenchError):
        return str(error), FAULT
    if isinstance(error, BrokenPipeError):
        # the reader of our output went away (mobench ... | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "", 0
    if isinstance(error, HydraException | OmegaConfBaseException):
        return yaml_errors.described(error, _places(arguments)) or explain(error), FAULT
    if isinstance(error, yaml.YAMLError | ValueError | OSError):
        message = yaml_errors.described(error, _places(arguments))
        return None if message is None else (message, FAULT)
    return None


def _places(arguments: Sequence[str]) -> list[Path]:
    """Folders of configuration that a command line reads."""
    return [*searchpath.folders(arguments), configuration.conf_dir()]
