"""What clients send: arrays as one vector, with the checks that an answer must pass."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message
from jaxtyping import Float
from torch import Tensor

from mobench.core.loop import FAR
from mobench.errors import ConfigError

UNREADABLE = (ValueError, TypeError, OSError, EOFError, KeyError)  # what NumPy raises for broken bytes


@dataclass(frozen=True)
class Answer:
    """A client's model as a vector, and its loss."""

    vector: Float[Tensor, " P"]
    loss: float


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a model's arrays; those of floating-point numbers make up the vector.

    Fields: given: all arrays of the server's model, by name; names: of those in the vector; dtype: of the
    vector, the widest of its arrays.
    """

    given: dict[str, np.ndarray]
    names: tuple[str, ...]
    dtype: torch.dtype

    @staticmethod
    def of(arrays: ArrayRecord) -> Layout:
        """The layout of a model.

        Raises:
            ConfigError: it has no floating-point array, or one that is not finite.
        """
        given = {name: array.numpy() for name, array in arrays.items()}
        names = tuple(name for name, array in given.items() if np.issubdtype(array.dtype, np.floating))
        if not names:
            raise ConfigError("The model has no array of floating-point numbers; nothing could be trained.")
        bad = [name for name in names if not np.isfinite(given[name]).all()]
        if bad:
            raise ConfigError(f"The model's array {bad[0]!r} holds a number that is not finite.")
        wide = any(given[name].dtype == np.float64 for name in names)
        return Layout(given, names, torch.float64 if wide else torch.float32)

    def vector(self, arrays: ArrayRecord) -> Float[Tensor, " P"]:
        """The floating-point arrays in a row."""
        parts = [np.asarray(arrays[name].numpy()).reshape(-1) for name in self.names]
        return torch.cat([torch.from_numpy(np.array(part)).to(self.dtype) for part in parts])

    def arrays(self, vector: Float[Tensor, " P"]) -> ArrayRecord:
        """A model whose floating-point arrays are a vector's parts."""
        sizes = [self.given[name].size for name in self.names]
        parts = dict(zip(self.names, vector.split(sizes), strict=True))
        out = {}
        for name, array in self.given.items():
            if name in parts:
                array = parts[name].numpy().reshape(array.shape).astype(array.dtype)
            out[name] = Array(np.ascontiguousarray(array).reshape(array.shape))
        return ArrayRecord(out)

    def fault(self, arrays: ArrayRecord) -> str | None:
        """Why this is no such model; None if it is one."""
        missing = [name for name in self.given if name not in arrays]
        extra = [name for name in arrays if name not in self.given]
        if missing or extra:
            parts = [f"lacks {', '.join(missing)}"] if missing else []
            parts += [f"has {', '.join(extra)}, which the server's does not"] if extra else []
            return f"its model {' and '.join(parts)}"
        for name, own in self.given.items():
            try:
                array = arrays[name].numpy()
            except UNREADABLE as error:
                return f"its array {name!r} cannot be read: {error}"
            if array.shape != own.shape:
                return f"its array {name!r} has the shape {array.shape}; expected {own.shape}"
            if array.dtype != own.dtype:
                return f"its array {name!r} holds {array.dtype}; expected {own.dtype}"
            if name in self.names and not np.isfinite(array).all():
                return f"its array {name!r} holds a number that is not finite"
            if name in self.names and not np.abs(array, dtype=np.float64).sum() < FAR:
                return f"its array {name!r} is longer than {FAR:g}: it has diverged"
        return None


def read(
    replies: Iterable[Message], layout: Layout, clients: int, loss_key: str, client_key: str
) -> tuple[dict[int, Answer], dict[str, str]]:
    """The answers by the client's number, in rising order, and who was refused and why.

    A number that two nodes claim is nobody's: both are refused.
    """
    answers: dict[int, Answer] = {}
    nodes: dict[int, list[int]] = {}
    refused: dict[str, str] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        number, why = _number(reply, clients, client_key)
        who = f"node {node}" if number is None else f"client {number} (node {node})"
        if number is not None:
            nodes.setdefault(number, []).append(node)
        answer = None
        if why is None:
            answer, why = _answer(reply, layout, loss_key)
        if why is not None:
            refused[who] = why
        elif number is not None and answer is not None:
            answers[number] = answer
    for number, claimed in nodes.items():
        if len(claimed) > 1:
            answers.pop(number, None)
            for node in claimed:
                others = ", ".join(str(other) for other in claimed if other != node)
                why = f"node {others} says that it is client {number}, too"
                refused[f"client {number} (node {node})"] = why
    return dict(sorted(answers.items())), refused


def _number(reply: Message, clients: int, key: str) -> tuple[int | None, str | None]:
    """Which client has answered, and what speaks against it."""
    if reply.has_error():
        return None, f"it failed: {reply.error.reason}"
    metrics = _only(reply.content.metric_records)
    if metrics is None:
        return None, f"it sent {len(reply.content.metric_records)} MetricRecords; expected one"
    found = metrics.get(key)
    whole = isinstance(found, int | float) and float(found).is_integer()
    if not whole or not 0 <= found < clients:
        return None, (
            f"its {key!r} is {found!r}; expected a whole number from 0 to {clients - 1}, for example "
            f'MetricRecord({{"{key}": context.node_config["partition-id"], ...}})'
        )
    return int(found), None


def _answer(reply: Message, layout: Layout, loss_key: str) -> tuple[Answer | None, str | None]:
    """An answer, or what speaks against it."""
    loss = _only(reply.content.metric_records).get(loss_key)
    if not isinstance(loss, int | float) or not math.isfinite(loss):
        return None, f"its {loss_key!r} is {loss!r}; expected a finite number"
    arrays = _only(reply.content.array_records)
    if arrays is None:
        return None, f"it sent {len(reply.content.array_records)} ArrayRecords; expected one"
    fault = layout.fault(arrays)
    return (None, fault) if fault else (Answer(layout.vector(arrays), float(loss)), None)


def _only(records: Any) -> Any:
    """The one record there is; None if there are none or several."""
    found = list(records.values())
    return found[0] if len(found) == 1 else None
