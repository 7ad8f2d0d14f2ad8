"""What a checkpoint must be for a job to continue from it: this job's, of this format, and of the form that
the job's state has.

The form is taken from the state before the first step: the same names at every level, tensors of the same
type and shape, values of the same kind. Only output rules hold tensors that grow; they say so
(`Output.grows`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from mobench.core import loop
from mobench.core.output import Output
from mobench.core.types import State
from mobench.jobs.job import Job
from mobench.jobs.record import completed
from mobench.jobs.store import UnfitError

if TYPE_CHECKING:  # it imports this module
    from mobench.jobs.train import Training

FORMAT = 2
"""Of what a checkpoint holds. It rises when that changes; a checkpoint of another format is not continued."""
PROCESS = {"git_sha", "git_dirty", "files", "versions", "device", "steps"}


def origin(job: Job) -> dict[str, Any]:
    """Returns what a checkpoint says of its job."""
    return {"format": FORMAT, "key": job.key, "dtype": job.config.dtype, "steps": job.steps}


def check(saved: Any, training: Training) -> None:
    """Checks what was read from a checkpoint.

    Args:
        saved: its content, on the CPU.
        training: of the job that is to continue from it, at its first step.

    Raises:
        UnfitError: the job cannot continue from it; with the reason.
    """
    _check_origin(saved, origin(training.job))
    steps = training.job.steps
    _check_names("it", saved, training.payload())
    number = saved["pass"]
    if type(number) is not int or not 0 <= number < training.passes:
        raise UnfitError(f"is at pass {_shown(number)}, but the job has {training.passes}")
    t = saved["state"].get("t") if isinstance(saved["state"], dict) else None
    if type(t) is not int or not 0 <= t <= steps:
        raise UnfitError(f"is at step {_shown(t)}, but its job has {steps}")
    _check_records(saved)
    first = dataclasses.replace(training)
    first.state = first.first_state()
    _check_history(saved["history"], first, steps if number else t, "ended" in first.state)
    if number:
        _check_carried(saved["carried"], first, number)
        first.number = number
        first.carried = _moved(saved["carried"], training.job.device)
        first.state = first.first_state()
    elif saved["carried"] != {}:
        raise UnfitError("carries values over from a pass before the first")
    _check_state(saved["state"], first)
    answers = dict.fromkeys(_answered(first.outputs, number), first.state["theta"])
    _check_form("answers", saved["answers"], answers)
    _check_finite(saved, answers)


def _check_origin(saved: Any, expected: Mapping[str, Any]) -> None:
    """Raises UnfitError unless a checkpoint is of this format, job, type and number of steps."""
    if not isinstance(saved, dict):
        raise UnfitError(f"holds {type(saved).__name__} in place of a checkpoint")
    if not _equal(saved.get("format"), FORMAT):
        was = _shown(saved["format"]) if "format" in saved else "none"
        raise UnfitError(f"was written by another version of mobench (format {was}; this one has {FORMAT})")
    if not _equal(saved.get("key"), expected["key"]):
        raise UnfitError(f"belongs to {_shown(saved.get('key'))}")
    for name in ("dtype", "steps"):
        if not _equal(saved.get(name), expected[name]):
            raise UnfitError(f"has {name}={_shown(saved.get(name))}, but its job has {expected[name]}")


def _check_records(saved: Mapping[str, Any]) -> None:
    """Raises UnfitError unless the clock and the processes of a checkpoint have their forms."""
    lists = ("clock", "processes")
    sound = {
        "seconds": _is_time(saved["seconds"]),
        "seconds_wall": _is_time(saved["seconds_wall"]),
        "devices": isinstance(saved["devices"], dict)
        and all(isinstance(k, str) and _is_time(v) for k, v in saved["devices"].items()),
        **{name: isinstance(saved[name], list) for name in lists},
    }
    if sound["clock"]:
        sound["clock"] = all(
            isinstance(entry, tuple) and len(entry) == 2 and all(map(_is_time, entry))
            for entry in saved["clock"]
        )
    if sound["processes"]:
        sound["processes"] = all(
            isinstance(one, dict) and one.keys() == PROCESS and isinstance(one["versions"], dict)
            for one in saved["processes"]
        )
    if wrong := [name for name, is_sound in sound.items() if not is_sound]:
        raise UnfitError(f"has no sound {wrong[0]}")


def _check_history(history: Any, first: Training, until: int, may_end: bool) -> None:
    """Raises UnfitError unless recorded steps are those before step `until`, or, where a stop rule may have
    ended all runs, some of them; and have the columns that the job records.
    """
    _check_names("history", history, {"steps": [], "columns": {}})
    steps = history["steps"]
    due = [t for t in range(until) if first.recorder.wants(t)]
    plain = isinstance(steps, list) and all(type(t) is int for t in steps)
    if plain and may_end:
        due = sorted(set(steps) & set(due))
    if not plain or steps != due:
        raise UnfitError(f"does not hold the steps that the job records before step {until}")
    columns = _columns(first) if steps else {}
    if not isinstance(history["columns"], dict) or list(history["columns"]) != list(columns):
        raise UnfitError(f"records other columns than the job, which has {', '.join(columns)}")
    expected = {name: value.expand(len(steps), *value.shape) for name, value in columns.items()}
    _check_form("history", history["columns"], expected)


def _columns(first: Training) -> dict[str, Tensor]:
    """The columns of the first step, as the history has them."""
    job = first.trained
    state = first.state
    point = loop.seen_by(job.algorithm, job.joined).at(state["theta"], state["oracle"], 0, 0)
    point.graph = not job.algorithm.derivative_free
    with torch.no_grad():
        values = point.values() if point.recorded is None else point.recorded
        found = completed(first.job, first.seen(state, point, values))
    return {name: value.detach().to("cpu", torch.float64) for name, value in found.items()}


def _check_carried(carried: Any, first: Training, number: int) -> None:
    """Raises UnfitError unless what the passes before hand over has its form."""
    later = {name: rule for name, rule in first.outputs.items() if rule.passes > number}
    theta = first.state["theta"]
    expected = {name: rule.blank(theta, first.job.steps) for name, rule in later.items()}
    _check_form("carried", carried, expected)


def _check_state(state: Mapping[str, Any], first: Training) -> None:
    """Raises UnfitError unless a state has the form of the first one of its pass."""
    _check_names("state", state, first.state)
    rules = first.rules()
    _check_names("state.out", state["out"], rules)
    for name, rule in rules.items():
        _check_output(f"state.out.{name}", state["out"][name], first.state["out"][name], rule, state["t"])
    rest = {key: value for key, value in first.state.items() if key not in ("out", "optimizer")}
    _check_form("state", {key: state[key] for key in rest}, rest)
    if first.stepper is not None:
        own = first.state["optimizer"]
        if state["t"]:  # torch makes most of it in the first step
            with torch.no_grad():
                _, own = first.stepper.step(first.state["theta"], torch.zeros_like(first.state["theta"]), own)
        # a learning rate of 1 may become one of 0.1
        found, expected = (tree_map_only((int, float), float, each) for each in (state["optimizer"], own))
        _check_form("state.optimizer", found, expected)


def _check_output(where: str, found: Any, expected: State, rule: Output, t: int) -> None:
    """Raises UnfitError unless the state of an output rule has its form after t steps."""
    _check_names(where, found, expected)
    rest = [name for name in expected if name not in rule.grows]
    _check_form(where, {name: found[name] for name in rest}, {name: expected[name] for name in rest})
    room: set[int] = set()
    for name in rule.grows:
        if not isinstance(found[name], Tensor) or found[name].ndim < 2:
            raise UnfitError(f"has {where}.{name} of another form")
        size = found[name].shape[1]
        room.add(size)
        grown = expected[name].new_zeros(expected[name].shape[0], size, *expected[name].shape[2:])
        _check_form(f"{where}.{name}", found[name], grown)
    used = found["used"] if "used" in found else torch.tensor(t)
    if rule.grows and (len(room) > 1 or int(used.max()) > min(room) or int(used.min()) < 0):
        raise UnfitError(f"has {where} of sizes that do not fit together")


def _check_finite(saved: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
    """Raises UnfitError if an iterate is not finite, which the loop never lets happen."""
    iterates = {"state.theta": saved["state"]["theta"], **{name: saved["answers"][name] for name in answers}}
    for where, theta in iterates.items():
        if not bool(theta.isfinite().all()):
            raise UnfitError(f"has values in {where} that are not finite")


def _check_form(where: str, found: Any, expected: Any) -> None:
    """Raises UnfitError unless a value has the form of another: names, types and shapes."""
    if isinstance(expected, Mapping):
        _check_names(where, found, expected)
        for key, value in expected.items():
            _check_form(f"{where}.{key}", found[key], value)
    elif isinstance(expected, Tensor):
        if not isinstance(found, Tensor) or found.layout != torch.strided or found.device.type != "cpu":
            raise UnfitError(f"has {where} of another form")
        if found.dtype != expected.dtype or found.shape != expected.shape:
            raise UnfitError(f"has {where} {_tensor(found)}, and the job {_tensor(expected)}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        if type(found) is not type(expected) or len(found) != len(expected):
            raise UnfitError(f"has {where} of another form")
        for k, value in enumerate(expected):
            _check_form(f"{where}.{k}", found[k], value)
    elif type(found) is not type(expected):
        raise UnfitError(f"has {where}={_shown(found)}, and the job {_shown(expected)}")


def _check_names(where: str, found: Any, expected: Mapping[str, Any]) -> None:
    """Raises UnfitError unless a mapping has these names."""
    if not isinstance(found, dict):
        raise UnfitError(f"has {where} of another form")
    if found.keys() != expected.keys():
        names = ", ".join(sorted(map(str, found.keys() ^ expected.keys())))
        raise UnfitError(f"does not fit the job's state: {where} differs in {names:.200}")


def _answered(outputs: Mapping[str, Output], number: int) -> Iterator[str]:
    """Names of the answers that the passes before have given."""
    for name, rule in outputs.items():
        if rule.passes <= number:
            yield name
    if number and "last" not in outputs:
        yield "last"


def _moved(saved: Any, device: torch.device) -> Any:
    return tree_map_only(Tensor, lambda x: x.to(device), saved)


def _tensor(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"


def _equal(found: Any, expected: Any) -> bool:
    return type(found) is type(expected) and bool(found == expected)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _shown(value: Any) -> str:
    return f"{value!s:.80}" if isinstance(value, (str, int, float)) else type(value).__name__
