"""The flags of the command line, which are Hydra's: moved to the front, and refused in plain words.

Hydra's parser takes no flag between two overrides.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from mobench.errors import ConfigError, suggest

INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
# a flag, its short form, and an example of the value that must follow
KNOWN = (
    ("--help", "-h", ""),
    ("--hydra-help", "", ""),
    ("--version", "", ""),
    ("--cfg", "-c", "job"),
    ("--resolve", "", ""),
    ("--package", "-p", "algorithm"),
    ("--run", "-r", ""),
    ("--multirun", "-m", ""),
    ("--shell-completion", "-sc", ""),
    ("--config-dir", "-cd", "mine/conf"),
    ("--info", "-i", ""),  # one of INFO may follow
)
VALUED = {name: example for name, _, example in KNOWN if example}
SHORT = {short: name for name, short, _ in KNOWN if short}
ONE_JOB = ("--cfg", "--info")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns flags in their long form with their values, and overrides.

    Raises:
        ConfigError: an unknown flag, one whose value is missing, or several that exclude each other.
    """
    flags: list[str] = []
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        name = _long(flag)
        flags.append(name)
        if name in VALUED:
            if not equals and (not rest or rest[0].startswith("-")):
                raise ConfigError(f"{name} needs a value, e.g. {name} {VALUED[name]}.")
            flags.append(value if equals else rest.pop(0))
        elif name == "--info" and (equals or (rest[:1] and rest[0] in INFO)):
            flags.append(value if equals else rest.pop(0))
        elif equals:
            raise ConfigError(f"{name} does not take a value; found {argument}.")
    _check(flags)
    return flags, overrides


def _long(flag: str) -> str:
    """Returns the long form of a flag, of its short form, or of a beginning that only one flag has."""
    long = [name for name, _, _ in KNOWN]
    if flag in long:
        return flag
    if flag in SHORT:
        return SHORT[flag]
    begun = [name for name in long if flag.startswith("--") and len(flag) > 2 and name.startswith(flag)]
    if len(begun) == 1:
        return begun[0]
    near = begun or (long if flag.startswith("--") else list(SHORT))
    raise ConfigError(f"{flag} is not a flag; the flags are {', '.join(long)}.{suggest(flag, near)}")


def _check(flags: Sequence[str]) -> None:
    single_job = [name for name in ONE_JOB if name in flags]
    if single_job and "--multirun" in flags:
        raise ConfigError(
            f"{single_job[0]} shows one job, but --multirun (-m) runs several; omit -m "
            "and give one value for each key."
        )
    if "--run" in flags and "--multirun" in flags:
        raise ConfigError("--run and --multirun (-m) exclude each other; give only one of them.")
    if "--resolve" in flags and "--cfg" not in flags:
        raise ConfigError("--resolve is only valid with --cfg: mobench --cfg job --resolve.")


def versions() -> str:
    """Returns "mobench 0.1.0 (Hydra 1.3.2, Python 3.11.7)"."""
    from importlib.metadata import version  # it looks for installed packages, which takes a moment

    from mobench import __version__

    return f"mobench {__version__} (Hydra {version('hydra-core')}, Python {platform.python_version()})"
