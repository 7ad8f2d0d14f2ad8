"""Files of a configuration that cannot be read: which one, where in it, and what is wrong there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

INVALID = "Invalid loaded object type"
DEFAULTS = re.compile(r"Invalid defaults list in '([^']+)', (.+)", re.DOTALL)


def described(error: BaseException, places: Sequence[Path]) -> str | None:
    """Returns a message about the file that an error of Hydra, OmegaConf or PyYAML comes from, if any.

    places: folders of configuration. Where an error does not name its file they are searched for one with the
    same fault.
    """
    cause: BaseException | None = error
    while cause is not None:
        message = _described(cause, places)
        if message is not None:
            return message
        cause = cause.__cause__
    return None


def _described(error: BaseException, places: Sequence[Path]) -> str | None:
    if isinstance(error, yaml.YAMLError):
        return _not_yaml(error)
    if isinstance(error, UnicodeDecodeError):
        return _not_text(places)
    if isinstance(error, GrammarParseError):
        reason = str(error).strip().splitlines()[0]
        return next((f"{path}: {reason}." for path in _with_fault(error, places)), None)
    if isinstance(error, OSError) and INVALID in str(error):
        return next(
            (
                f"{path} contains a single value; write `key: value` lines."
                for path in _with_fault(error, places)
            ),
            None,
        )
    if isinstance(error, OSError) and str(error.filename or "").endswith(".yaml"):
        return f"{error.filename} could not be read: {error.strerror}."
    wrong = DEFAULTS.search(str(error))
    if isinstance(error, ValueError) and wrong:
        path = next(
            (p for p in (place / f"{wrong[1]}.yaml" for place in places) if p.exists()), Path(wrong[1])
        )
        return f"{path}: {wrong[2]}. Write one entry per line, e.g. `- override /algorithm: epo`."
    return None


def _not_yaml(error: yaml.YAMLError) -> str | None:
    """Returns where the parser stopped, and why; a sign that YAML forbids has a position and no mark."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        what = ", ".join(
            part for part in (getattr(error, "problem", None), getattr(error, "context", None)) if part
        )
        advice = " Indent YAML with spaces, not tabs." if "\\t" in what else ""
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {what}.{advice}"
    position = getattr(error, "position", None)
    if position is None:
        return None
    return (
        f"{getattr(error, 'name', 'a file')} is not valid YAML: "
        f"{getattr(error, 'reason', '')} (character {position + 1})."
    )


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        yield from sorted(place.rglob("*.yaml"))


def _not_text(places: Sequence[Path]) -> str | None:
    """Returns the message about the first file that is not UTF-8."""
    for path in _files(places):
        try:
            path.read_bytes().decode()
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            return f"{path} is not UTF-8 text: byte {error.start + 1} is 0x{byte:02x}. Save it as UTF-8."
        except OSError:
            continue
    return None


def _with_fault(error: Exception, places: Sequence[Path]) -> Iterator[Path]:
    """Returns the files that OmegaConf refuses in the same words."""
    for path in _files(places):
        try:
            OmegaConf.load(path)
        except (OmegaConfBaseException, yaml.YAMLError, OSError, ValueError) as other:
            if type(other) is type(error) and str(other) == str(error):
                yield path
