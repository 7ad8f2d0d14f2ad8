"""The configuration of one job, composed in any Python process as by Hydra's command line.

No state is left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from mobench.config import hydra_adapter, schema, searchpath
from mobench.config import overrides as conveniences
from mobench.errors import ConfigError, unknown, unknown_key

WORD = re.compile(r"[A-Za-z_][\w./-]*")
# Hydra keeps one store, one version and one set of resolvers for the whole process; jobs, too, have random
# streams of others' code
ALONE = threading.RLock()
GROUPS = ("problem", "algorithm", "oracle", "protocol", "hardware", "data", "scale", "logger")
ELSEWHERE = {  # what a key is called by people who have not read this project's pages
    "step_size": "algorithm.step_size",
    "lr": "algorithm.step_size",
    "learning_rate": "algorithm.step_size",
    "optimizer": "algorithm.optimizer",
    "outputs": "algorithm.outputs",
    "batch_size": "oracle.batch_size",
    "epochs": "steps",
    "iterations": "steps",
    "device": "hardware",
    "weights": "preferences.weights",
    "seed": "seeds",
}
SPECIAL = {"null", "true", "false", "nan", "inf"}  # words that are no text to Hydra


def explain(error: Exception) -> str:
    """Returns Hydra's message; of an unknown key or choice one with the nearest known."""
    text = str(error).strip()
    if isinstance(error, OverrideParseException) and "=" in error.override:
        return _unreadable(error.override, text)
    if isinstance(error, OverrideParseException):
        groups = [group for group in GROUPS if error.override in schema.choices(group)]
        if groups:
            return f"{error.override} has no key; write {groups[0]}={error.override}."
    if isinstance(error.__cause__, OmegaConfBaseException):
        text += f"\n{str(error.__cause__).strip()}"
    if missing := re.search(r"Could not find '([\w/-]+)/([^'/]*)'", text):
        group, name = missing.groups()
        if group == "hydra/launcher" and name.startswith("submitit"):
            return "hardware=slurm needs the submitit launcher; install it with `pip install '.[slurm]'`."
        listed = text.partition("Config search path")[0]  # with the choices of plug-in folders
        return unknown(group, name, re.findall(r"^\t(.+)$", listed, re.MULTILINE))
    if key := re.search(r"(?:Key '([^']+)' (?:is )?not in|Could not override '([^']+)')", text):
        full = re.search(r"full_key: (\S+)", text)
        name = full[1] if full else key[1] or key[2]
        if not name.startswith("hydra."):
            return _unknown_key(name)
    if merging := re.search(r"Error merging override ((\w+)=.+)\n.*is not a ListConfig", text):
        value = merging[1].partition("=")[2]
        return f"{merging[1]} has the wrong type: {merging[2]} is a list; give {merging[2]}=[{value}]."
    return text


def _unknown_key(key: str) -> str:
    group = key.rpartition(".")[0]
    groups = {p.name for p in schema.conf_dir().iterdir() if p.is_dir() and p.name != "tuned"}
    known = sorted({*schema.Root.__dataclass_fields__, *groups} - {"tuned"})
    if group == "preferences":
        from mobench.core.preferences import KEYS

        known = list(KEYS)
    elif hasattr(schema, f"{group.capitalize()}Config"):
        known = sorted(getattr(schema, f"{group.capitalize()}Config").__dataclass_fields__)
    if key in ELSEWHERE:
        return f"{key} is unknown; known keys are {', '.join(known)}. Did you mean {ELSEWHERE[key]!r}?"
    return unknown_key(key, known)


def _unreadable(override: str, why: str) -> str:
    """The message for an override that Hydra's grammar does not take."""
    name, _, value = override.partition("=")
    if any(value.count(left) != value.count(right) for left, right in ("[]", "{}", "()")):
        return (
            f"{override} has a bracket without its partner. If the shell cut it at a space, put the whole of "
            f"it between quotes: '{name}=[0, 1]'."
        )
    return (
        f"{override} cannot be read: {why.splitlines()[0]}. A text with one of the signs = , : ( ) [ ] {{ }} "
        f'needs quotes of its own inside of the shell\'s: \'{name}=["a=b", "c"]\'.'
    )


def text(value: Any, key: str = "value") -> str:
    """Returns a Python value in Hydra's grammar: `[0, 1]`, `null`, `'a b'`.

    Values of NumPy and torch become lists and numbers.

    Raises:
        ConfigError: a configuration cannot hold it.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        if WORD.fullmatch(value) and value.lower() not in SPECIAL:
            return value
        # a backslash is special in front of a quote only
        inner = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + (r"\'" if match[2] else ""), value)
        return f"'{inner}'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_word(k, key)}:{text(v, key)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple | range):
        return "[" + ",".join(text(v, key) for v in value) + "]"
    raise ConfigError(
        f"{key}={value!r} ({type(value).__name__}) cannot be stored in a configuration; give numbers, text, "
        "lists or mappings."
    )


def _word(name: object, key: str) -> str:
    if not isinstance(name, str) or not WORD.fullmatch(name):
        raise ConfigError(f"{key} has the key {name!r}; keys must be words.")
    return name


@contextlib.contextmanager
def hydra_errors() -> Iterator[None]:
    """Raises errors of Hydra and OmegaConf as a ConfigError with the command line's message."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error


def _one_job(arguments: Sequence[str]) -> None:
    """Raises ConfigError for arguments that make several jobs, or none."""
    for argument in arguments:
        if argument.startswith("-"):
            raise ConfigError(
                f"{argument} is a command-line flag; give overrides such as 'algorithm.step_size=0.05'."
            )
    for override in hydra_adapter.parsed_overrides(arguments):
        if override.is_sweep_override():
            raise ConfigError(
                f"{override.input_line} describes several jobs: call run once for each value, "
                f"or use `mobench -m {override.input_line}` in a shell."
            )


def compose(arguments: Sequence[str]) -> dict[str, Any]:
    """The plain configuration of `mobench ARGUMENTS`, the same dict that the command line runs.

    Raises:
        ConfigError: an unknown key or choice, a value that does not fit, several jobs; with the command
            line's messages.
    """
    with hydra_errors(), ALONE, hydra_adapter.apart():
        normal = conveniences.normalise(arguments)
        _one_job(normal)
        loader = hydra_adapter.loader(str(schema.conf_dir()))
        config, hydra = loader.job(_experiment(normal))
        _check_one_job_here(hydra)
        conveniences.check_single(config)
        return config


def _experiment(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with the user's experiment, which may be one job; an artifact never is.

    Raises:
        ConfigError: it is an artifact, unknown, or there are several.
    """
    chosen = [argument for argument in arguments if argument.startswith(("+experiment=", "experiment="))]
    artifacts = schema.choices("experiment") if chosen else []
    for argument in chosen:
        name = argument.partition("=")[2]
        if name in artifacts or name.endswith("all"):
            raise ConfigError(
                f"{argument} is an artifact, not a single job; use `mobench {argument}` in a shell to run "
                "and draw it."
            )
    out, several = conveniences.expand_experiments(arguments, searchpath.experiments(arguments))
    if several:
        raise ConfigError(
            "Several experiments were given, but run() makes one job; call it once for each experiment."
        )
    return out


def _check_one_job_here(hydra: DictConfig) -> None:
    """Raises ConfigError for a sweep, or a job for another process, by a file's choice."""
    launcher = str(hydra.runtime.choices.get("hydra/launcher"))
    if hydra.mode is RunMode.MULTIRUN or launcher != "basic":
        raise ConfigError(
            f"This is a sweep or has the launcher {launcher}, but run() makes one job in this process; use "
            "`mobench` in a shell."
        )
