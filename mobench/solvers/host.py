"""The solvers know the host only: programs of a GPU's runs are copied there once, and solutions back.

A solver for a few objectives is a chain of some hundred operations on a few thousand numbers: on a GPU it
takes the time of their launches (5 to 10 us each), whatever their size, and each check for convergence makes
the host wait. Compiled on the host a run takes a microsecond or ten. A formula stays where its numbers are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Solver = TypeVar("Solver", bound=Callable[..., Any])


def on_host(closed: Callable[..., bool] | None = None) -> Callable[[Solver], Solver]:
    """Decorates a solver of R subproblems, so that it gets tensors of the host and returns those of a GPU.

    The device of the first tensor among its arguments, or else inside of them, decides.

    Args:
        closed: tells from the solver's arguments whether it needs only a formula, which a GPU
            computes without a wait.
    """

    def decorated(solver: Solver) -> Solver:
        @functools.wraps(solver)
        def solve(*arguments: Any, **options: Any) -> Any:
            for first in arguments:  # tensors before containers: every solve on a CPU comes here
                if isinstance(first, Tensor):
                    break
            else:
                first = next(_tensors((arguments, options)))
            if not first.is_cuda or (closed is not None and closed(*arguments, **options)):
                return solver(*arguments, **options)
            here = iter(fetched(list(_tensors((arguments, options)))))
            return sent(solver(*_with(arguments, here), **_with(options, here)), first.device)

        return solve  # type: ignore[return-value]

    return decorated


def fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the tensors on the host; one copy brings all that are on the GPU."""
    away = [t for t in tensors if t.is_cuda]
    flat = torch.cat([t.detach().reshape(-1).double() for t in away]).cpu()
    parts = iter(flat.split([t.numel() for t in away]))
    return [next(parts).reshape(t.shape).to(t.dtype) if t.is_cuda else t for t in tensors]


def sent(answer: Any, device: torch.device) -> Any:
    """Returns a solver's answer with its tensors on a GPU, by one asynchronous copy."""
    here = list(_tensors(answer))
    flat = torch.cat([t.reshape(-1).double() for t in here]).pin_memory().to(device, non_blocking=True)
    parts = flat.split([t.numel() for t in here])
    there = [p.reshape(t.shape).to(t.dtype) for p, t in zip(parts, here, strict=True)]
    return _with(answer, iter(there))


def _tensors(node: Any) -> Iterator[Tensor]:
    """All tensors in tuples, mappings and dataclasses, in order."""
    if isinstance(node, Tensor):
        yield node
    else:
        for child in _children(node):
            yield from _tensors(child)


def _children(node: Any) -> Sequence[Any]:
    if isinstance(node, tuple | list):
        return node
    if isinstance(node, dict):
        return list(node.values())
    if dataclasses.is_dataclass(node):
        return [getattr(node, field.name) for field in dataclasses.fields(node)]
    return ()


def _with(node: Any, tensors: Iterator[Tensor]) -> Any:
    """Returns a copy of the node with the next of `tensors` in the place of each tensor."""
    if isinstance(node, Tensor):
        return next(tensors)
    if isinstance(node, dict):
        return {name: _with(child, tensors) for name, child in node.items()}
    if isinstance(node, tuple | list):
        children = [_with(child, tensors) for child in node]
        return type(node)(*children) if hasattr(node, "_fields") else type(node)(children)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        names = [field.name for field in dataclasses.fields(node)]
        return dataclasses.replace(node, **{name: _with(getattr(node, name), tensors) for name in names})
    return node
