"""The flags of the command line, which are Hydra's: found wherever they stand, refused in plain words where
they cannot be used.

Hydra's parser takes no flag between two overrides; so they are moved to the front.
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
    ("--config-path", "-cp", "FOLDER"),
    ("--config-name", "-cn", "config"),
    ("--config-dir", "-cd", "mine/conf"),
    ("--info", "-i", ""),  # one of INFO may follow
)
VALUED = {name: example for name, _, example in KNOWN if example}
SHORT = {short: name for name, short, _ in KNOWN if short}
ONE_JOB = ("--cfg", "--info")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags in their long form with their values, and overrides.

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
        given, equals, value = argument.partition("=")
        name = _long(given)
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


def _long(given: str) -> str:
    """The flag that was meant: itself, a short form, or a beginning that only one flag has."""
    long = [name for name, _, _ in KNOWN]
    if given in long:
        return given
    if given in SHORT:
        return SHORT[given]
    begun = [name for name in long if given.startswith("--") and len(given) > 2 and name.startswith(given)]
    if len(begun) == 1:
        return begun[0]
    near = begun or (long if given.startswith("--") else list(SHORT))
    raise ConfigError(f"{given} is not a flag; the flags are {', '.join(long)}.{suggest(given, near)}")


def _check(flags: Sequence[str]) -> None:
    shown = [name for name in ONE_JOB if name in flags]
    if shown and "--multirun" in flags:
        raise ConfigError(
            f"{shown[0]} shows one job, but --multirun (-m) runs several; omit -m "
            "and give one value for each key."
        )
    if "--run" in flags and "--multirun" in flags:
        raise ConfigError("--run and --multirun (-m) exclude each other; give only one of them.")
    if "--resolve" in flags and "--cfg" not in flags:
        raise ConfigError("--resolve is only valid with --cfg: mobench --cfg job --resolve.")


def versions() -> str:
    """mobench 0.1.0 (Hydra 1.3.2, Python 3.11.7)."""
    from importlib.metadata import version  # it looks for what is installed, which takes a moment

    from mobench import __version__

    return f"mobench {__version__} (Hydra {version('hydra-core')}, Python {platform.python_version()})"
