"""Clients' answers: trained arrays as one vector, the others beside it, and the checks of an answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message
from jaxtyping import Float
from torch import Tensor

from mobench.core.loop import FAR
from mobench.errors import ConfigError, suggest

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of PyTorch's batch and instance normalisations."""
TRAINABLE = "trainable=[name for name, _ in net.named_parameters()]"
UNREADABLE = (ValueError, TypeError, OSError, EOFError, KeyError)  # what NumPy raises for broken bytes


@dataclass(frozen=True)
class Answer:
    """The answer of a client.

    Attributes:
        vector: the trained arrays of its model, (P,).
        others: the other arrays, by name.
        loss: its mean loss.
        samples: its number of samples; None if it sent none.
    """

    vector: Float[Tensor, " P"]
    others: dict[str, np.ndarray]
    loss: float
    samples: float | None


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a model's arrays; the trained ones make up the vector.

    Attributes:
        given: all arrays of the server's model, by name.
        names: names of the trained arrays.
        dtype: type of the vector, the widest of its arrays.
    """

    given: dict[str, np.ndarray]
    names: tuple[str, ...]
    dtype: torch.dtype

    @staticmethod
    def of(arrays: ArrayRecord, trainable: Sequence[str] | None = None) -> Layout:
        """Returns the layout of a model.

        Args:
            arrays: the model.
            trainable: names of the trained arrays; None: all of floating-point numbers but those that are
                buffers by their name (`is_buffer`).

        Raises:
            ConfigError: nothing is trained, a trained array is not real or not finite, or a name is unknown.
        """
        model = {name: array.numpy() for name, array in arrays.items()}
        if trainable is None:
            names = tuple(
                name
                for name, array in model.items()
                if np.issubdtype(array.dtype, np.inexact) and not is_buffer(name, model)
            )
        else:
            unknown = [name for name in trainable if name not in model]
            if unknown:
                raise ConfigError(
                    f"trainable names {unknown[0]!r}, which the model does not have."
                    f"{suggest(unknown[0], list(model))}"
                )
            names = tuple(name for name in model if name in set(trainable))
        if not names:
            raise ConfigError("The model has no array of floating-point numbers; nothing could be trained.")
        for name in names:
            if not np.issubdtype(model[name].dtype, np.floating):
                raise ConfigError(
                    f"The model's array {name!r} holds {model[name].dtype}; trained arrays must be of real "
                    "floating-point numbers. Send complex ones by torch.view_as_real, or leave out what is "
                    f"not trained: {TRAINABLE}."
                )
            if not np.isfinite(model[name]).all():
                raise ConfigError(
                    f"The model's array {name!r} holds a number that is not finite. If it is not trained (a "
                    f"mask, for example), name the arrays that are: {TRAINABLE}."
                )
        wide = any(model[name].dtype == np.float64 for name in names)
        return Layout(model, names, torch.float64 if wide else torch.float32)

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the arrays that are not trained."""
        return tuple(name for name in self.given if name not in self.names)

    def averaged(self, answers: Sequence[Answer]) -> Layout:
        """Returns the same layout with the mean of the clients' other arrays, weighted by their numbers of
        samples; with equal weights if one of them sent no number.

        Whole numbers stay whole, masks of truth values stay as they are, and where all agree, so does the
        mean, to the last bit.
        """
        counts = [answer.samples for answer in answers if answer.samples is not None]
        if len(counts) < len(answers):
            counts = [1.0] * len(answers)
        weights = [count / sum(counts) for count in counts]
        means = {}
        for name in self.others:
            dtype = self.given[name].dtype
            if dtype == np.bool_:
                continue
            arrays = [answer.others[name] for answer in answers]
            exact = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
            first = arrays[0].astype(exact)
            with np.errstate(invalid="ignore"):  # infinities that all of them share are not used
                mean = first + sum(w * (array - first) for w, array in zip(weights, arrays, strict=True))
                if np.issubdtype(dtype, np.integer):
                    mean = np.rint(mean)
                agree = np.all([array == arrays[0] for array in arrays], axis=0)
                means[name] = np.where(agree, arrays[0], mean.astype(dtype))
        return replace(self, given=self.given | means)

    def vector(self, arrays: ArrayRecord) -> Float[Tensor, " P"]:
        """Returns the trained arrays in a row."""
        parts = [np.asarray(arrays[name].numpy()).reshape(-1) for name in self.names]
        return torch.cat([torch.from_numpy(np.array(part)).to(self.dtype) for part in parts])

    def arrays(self, vector: Float[Tensor, " P"]) -> ArrayRecord:
        """Returns the model whose trained arrays are a vector's parts."""
        sizes = [self.given[name].size for name in self.names]
        parts = dict(zip(self.names, vector.split(sizes), strict=True))
        out = {}
        for name, array in self.given.items():
            if name in parts:
                array = parts[name].numpy().reshape(array.shape).astype(array.dtype)
            out[name] = Array(np.ascontiguousarray(array).reshape(array.shape))
        return ArrayRecord(out)

    def fault(self, arrays: ArrayRecord) -> str | None:
        """Returns the reason why arrays are not those of such a model; None if they are."""
        missing = [name for name in self.given if name not in arrays]
        extra = [name for name in arrays if name not in self.given]
        if missing or extra:
            parts = [f"lacks {', '.join(missing)}"] if missing else []
            parts += [f"has {', '.join(extra)}, which the server's does not"] if extra else []
            return f"its model {' and '.join(parts)}"
        for name, expected in self.given.items():
            try:
                array = arrays[name].numpy()
            except UNREADABLE as error:
                return f"its array {name!r} cannot be read: {error}"
            if array.shape != expected.shape:
                return f"its array {name!r} has the shape {array.shape}; expected {expected.shape}"
            if array.dtype != expected.dtype:
                return f"its array {name!r} holds {array.dtype}; expected {expected.dtype}"
            # a mask may hold infinities, which no client changes
            same = array == expected if name not in self.names else False
            if not (np.isfinite(array) | same).all():
                return f"its array {name!r} holds a number that is not finite"
            if name in self.names and not np.abs(array, dtype=np.float64).sum() < FAR:
                return f"its array {name!r} is longer than {FAR:g}: it has diverged"
        return None


def is_buffer(name: str, names: Iterable[str]) -> bool:
    """Returns whether an array of PyTorch's state dicts is a buffer rather than a parameter, as far as names
    tell: statistics of batch and instance normalisations, and the vectors of spectral normalisations.
    """
    base, suffix = name[:-2], name[-2:]
    return (
        name.rpartition(".")[2] in STATISTICS
        or re.search(r"(^|\.)parametrizations\..+\._[uv]$", name) is not None
        or (suffix in ("_u", "_v") and f"{base}_orig" in names)
    )


def read(
    replies: Iterable[Message],
    layout: Layout,
    clients: int,
    loss_key: str,
    client_key: str,
    samples_key: str,
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
            answer, why = _answer(reply, layout, loss_key, samples_key)
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
    """Returns the number of the client that replied, or the reason why there is none."""
    if reply.has_error():
        return None, f"it failed: {reply.error.reason}"
    metrics = _only(reply.content.metric_records)
    if metrics is None:
        return None, f"it sent {len(reply.content.metric_records)} MetricRecords; expected one"
    number = metrics.get(key)
    whole = isinstance(number, int | float) and float(number).is_integer()
    if not whole or not 0 <= number < clients:
        return None, (
            f"its {key!r} is {number!r}; expected a whole number from 0 to {clients - 1}, for example "
            f'MetricRecord({{"{key}": context.node_config["partition-id"], ...}})'
        )
    return int(number), None


def _answer(
    reply: Message, layout: Layout, loss_key: str, samples_key: str
) -> tuple[Answer | None, str | None]:
    """Returns the client's answer, or the reason why it is refused."""
    metrics = _only(reply.content.metric_records)
    loss = metrics.get(loss_key)
    if not isinstance(loss, int | float) or not math.isfinite(loss):
        return None, f"its {loss_key!r} is {loss!r}; expected a finite number"
    arrays = _only(reply.content.array_records)
    if arrays is None:
        return None, f"it sent {len(reply.content.array_records)} ArrayRecords; expected one"
    samples = metrics.get(samples_key)
    if samples is not None and not (isinstance(samples, int | float) and 0 < samples < math.inf):
        return None, f"its {samples_key!r} is {samples!r}; expected a finite number > 0"
    fault = layout.fault(arrays)
    if fault:
        return None, fault
    others = {name: np.asarray(arrays[name].numpy()) for name in layout.others}
    return Answer(layout.vector(arrays), others, float(loss), samples), None


def _only(records: Any) -> Any:
    """The one record there is; None if there are none or several."""
    values = list(records.values())
    return values[0] if len(values) == 1 else None
