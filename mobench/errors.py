"""Errors that a user can act on: what was found, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MobenchError(Exception):
    """Base class. The command line prints the message without a traceback and exits with a non-zero code."""


class ConfigError(MobenchError):
    """A key, choice or value of the configuration cannot be used."""


class PreferenceError(ConfigError):
    """A preference is not in the open simplex, or does not fit the number of objectives."""


class CompatibilityError(MobenchError, TypeError):
    """Problem, oracle, algorithm and output rule do not fit together; the message lists every reason.

    Attributes:
        hint: a further line in the message about one pair, which tables of many pairs leave out.
    """

    hint: str = ""


class SolverError(MobenchError):
    """A linear system of a method is not the one it needs, so nothing of the batch can go on.

    (A run whose subproblem fails is no error: it ends there, and its row says so.)
    """


class StoreError(MobenchError):
    """A run folder cannot be written or read."""


class BundleError(MobenchError):
    """A bundle is damaged, was changed, or holds what no bundle may hold; the message names each file."""


class Interrupted(MobenchError):
    """A signal asked to stop; the checkpoint is on disk."""


class DataError(MobenchError):
    """A data file is missing or corrupt."""


def suggest(word: str, choices: Iterable[str]) -> str:
    """Returns `" Did you mean 'epo'?"` for the nearest of the choices, else an empty string."""
    matches = difflib.get_close_matches(word, list(dict.fromkeys(choices)), n=3, cutoff=0.55)
    alike = [difflib.SequenceMatcher(None, word, choice).ratio() for choice in matches]
    near = [choice for choice, ratio in zip(matches, alike, strict=True) if ratio > alike[0] - 0.05]
    return f" Did you mean {' or '.join(repr(c) for c in near)}?" if near else ""


MANY = 10  # choices that a message lists at most


def unknown(what: str, value: str, choices: Iterable[str]) -> str:
    """Returns the sentences about a value that is none of the choices; of many, the nearest come first."""
    options = list(choices)
    near = suggest(str(value), options)
    if len(options) <= MANY:
        return f"{what}={value!r} is unknown; choose one of {', '.join(options)}.{near}"
    some = f"{', '.join(options[:MANY])} and {len(options) - MANY} others, which `mobench --help` lists"
    return f"{what}={value!r} is unknown.{near} {'Else' if near else 'Please'} choose one of {some}."


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Returns the sentences about a key that is none of those known; the nearest by its last part."""
    names = list(known)
    return f"{key} is unknown; known keys are {', '.join(names)}.{suggest(key.rpartition('.')[2], names)}"


def choose(what: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of the choices, else raise ConfigError that lists them."""
    options = list(choices)
    if value not in options:
        raise ConfigError(unknown(what, value, options))
    return value


def check_batch_runs(value: int | None, otherwise: str = "all runs at once") -> None:
    """Raise ConfigError unless `hardware.max_batch_runs` is null (which means `otherwise`) or at least 1."""
    if value is not None and value < 1:
        raise ConfigError(f"hardware.max_batch_runs={value} must be at least 1 (null means {otherwise}).")
