"""`mobench`: a Hydra application. One job, a sweep, or an artifact; see `mobench --help`."""

from __future__ import annotations

import os
import re
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
from mobench.errors import Interrupted, MobenchError, suggest

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


def _explain(error: Exception) -> str:
    """Hydra's message, with the nearest known key or choice."""
    text = str(error).strip()
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException):
        text += f"\n{str(cause).strip()}"
    missing = re.search(r"Could not find '([\w/-]+)/([^'/]*)'", text)
    key = re.search(r"Key '([^']+)' (?:is )?not in", text) or re.search(r"Could not override '([^']+)'", text)
    groups = sorted(p.name for p in configuration.conf_dir().iterdir() if p.is_dir() and p.name != "tuned")
    if missing:
        listed = text.partition("Config search path")[0]
        known = re.findall(r"^\t(.+)$", listed, re.MULTILINE)  # with the choices of plug-in folders
        if missing[1] == "hydra/launcher" and missing[2].startswith("submitit"):
            return "hardware=slurm needs the submitit launcher; install it with `pip install mobench[slurm]`."
        return f"{missing[1]}={missing[2]!r} is unknown; choose one of {', '.join(known)}.{suggest(missing[2], known)}"
    if key:
        name = key[1]
        full = re.search(r"full_key: (\S+)", text)
        known = sorted({*configuration.Root.__dataclass_fields__, *groups} - {"tuned"})
        where = name if full is None else full[1]
        if where.startswith("hydra."):
            return f"{where} is unknown; `mobench --cfg hydra` lists Hydra's own keys."
        if "." in where:
            group = where.split(".")[0]
            node = getattr(configuration, f"{group.capitalize()}Config", None)
            if node is not None:
                known = sorted(node.__dataclass_fields__)
            elif group == "preferences":
                from mobench.core.preferences import KEYS

                known = list(KEYS)
        return f"{where} is unknown; known keys are {', '.join(known)}.{suggest(name, known)}"
    if merging := re.search(r"Error merging override (.+)\n(.+)", text):
        return (
            f"{merging[1]} does not fit: {merging[2].rstrip('.')}. `mobench --cfg job` shows a value of the right type."
        )
    return text


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
