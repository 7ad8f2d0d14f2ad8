"""Decides whether a job can continue from a checkpoint.

It can if the checkpoint is this job's, of this format, and of a state of the form that the job's state has.

The form is that of the state before the first step: its names at every level, types and shapes of tensors. A
checkpoint carries the form that its job had, so another version of a method, whose state is another one, is
noticed by comparing the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mobench.jobs.store import UnfitError

if TYPE_CHECKING:  # it imports this module
    from mobench.jobs.train import Training

FORMAT = 3
"""Of what a checkpoint holds. It rises when that changes; a checkpoint of another format is not continued."""


def origin(training: Training) -> dict[str, Any]:
    """Returns what a checkpoint says of its job."""
    return {"format": FORMAT, "key": training.job.key, "form": training.form}


def check(saved: Any, training: Training) -> None:
    """Checks what was read from a checkpoint.

    Args:
        saved: its content.
        training: of the job that is to continue from it, at its first step.

    Raises:
        UnfitError: the job cannot continue from it; with the reason.
    """
    if not isinstance(saved, dict):
        raise UnfitError(f"holds {type(saved).__name__} in place of a checkpoint")
    if type(saved.get("format")) is not int or saved["format"] != FORMAT:
        was = _shown(saved["format"]) if "format" in saved else "none"
        raise UnfitError(f"was written by another version of mobench (format {was}; this one has {FORMAT})")
    training.form = form(training.first_state())
    expected = training.payload()
    if saved.get("key") != expected["key"]:
        raise UnfitError(f"belongs to {_shown(saved.get('key'))}")
    if other := sorted(saved.keys() ^ expected.keys()):
        raise UnfitError(f"does not fit the job: it differs in {', '.join(other):.200}")
    was, now = saved["form"], training.form
    if was != now:
        name = next(name for name in {**now, **was} if was.get(name) != now.get(name))
        raise UnfitError(
            f"does not fit the job's state: {name} is {was.get(name, 'absent')}, and the job's "
            f"{now.get(name, 'absent')}"
        )


def form(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the type of each value of a state, and the shapes of tensors, by their places."""
    return dict(_leaves(state, ""))


def _leaves(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{where}.{name}".lstrip("."))
    elif isinstance(value, Tensor):
        yield where, f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{where}.{place}")
    else:
        yield where, type(value).__name__


def _shown(value: Any) -> str:
    return f"{value!s:.80}" if isinstance(value, (str, int, float)) else type(value).__name__
