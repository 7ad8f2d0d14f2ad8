"""`mobench`: a Hydra application. One job, a sweep, or an artifact; see `mobench --help`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from mobench import console, overrides, plugin, usage
from mobench import schema as configuration
from mobench.compose import explain as _explain
from mobench.errors import Interrupted, MobenchError

plugin.register()


def task(cfg: DictConfig) -> Any:
    """The Outcome of one job; also what launchers run in their workers."""
    from mobench.runner import run_job  # torch: `--help` need not wait for it

    config = configuration.plain(cfg)
    return run_job(config, title=f"{config['artifact']['id'] or ''} {config['artifact']['job'] or ''}".strip())


_raised: list[MobenchError] = []  # of the job function: Hydra would print a line of its own about an exception


def _single(cfg: DictConfig) -> Any:
    """One job in this process, without a sweep."""
    try:
        outcome = task(cfg)
    except MobenchError as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:  # in a launcher's worker: the sweeper reports it
            return str(error)
        _raised.append(error)
        return None
    if HydraConfig.get().mode is RunMode.RUN:
        from mobench import session

        session.single(outcome)
    return outcome


def run(arguments: list[str]) -> int:
    """A command line; its exit code. Whatever goes wrong is one clear message."""
    own_trace = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions reach us, and become one clear message below
    try:
        arguments, several = overrides.expand_experiments(overrides.normalise(arguments))
        if several or {"-m", "--multirun"} & set(arguments):
            # in front: Hydra's parser takes no flag between two overrides
            arguments = ["-m", *(a for a in arguments if a not in ("-m", "--multirun"))]
        sys.argv[1:] = arguments
        hydra.main(version_base="1.3", config_path=str(configuration.conf_dir()), config_name="config")(_single)()
        if _raised:
            raise _raised[0]
    except Interrupted as error:
        console.fail(str(error), code=130)
    except KeyboardInterrupt:
        console.fail("Stopped. The same command continues; finished jobs are kept.", code=130)
    except MobenchError as error:
        console.fail(str(error), code=2)
        if own_trace:
            traceback.print_exc()
    except (HydraException, OmegaConfBaseException) as error:
        console.fail(_explain(error), code=2)
        if own_trace:
            traceback.print_exc()
    except BrokenPipeError:
        # the reader of our output went away (mobench ... | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return console.exit_code


def main() -> None:
    """Console entry point."""
    arguments = sys.argv[1:]
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if {"-h", "--help"} & set(arguments):
        console.say(usage.text(arguments))
        sys.exit(0)
    sys.exit(run(arguments))
