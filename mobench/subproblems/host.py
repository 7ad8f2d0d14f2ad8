"""Small subproblems of a GPU's runs are solved on the host: one copy there, one back.

A solver for a few objectives is a chain of some hundred operations on a few thousand numbers: on a GPU it
costs what launching them costs (5 to 10 us each), whatever their size, and each look at what has converged
makes the host wait. On the host the same batch takes a microsecond or ten for a run, compiled or in NumPy.

The batch goes to the host if the estimate of that time is below that of the launches, and stays where it is
if it is large: many references of PMTL, thousands of runs. Which of the two it is depends on shapes alone, so
the same job always takes the same way; results agree to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

LAUNCHES = 3000.0  # us of a solver's launches on a GPU: 430 of 7 us
NUMBERS = 1_000_000  # that are copied at most: 8 MB, about half a millisecond
Solver = TypeVar("Solver", bound=Callable[..., Any])


def on_host(closed: Callable[..., bool] | None = None, always: bool = False) -> Callable[[Solver], Solver]:
    """Decorates a solver of R subproblems, whose tensors have R as their first axis. The device of the first
    tensor among its arguments, or else inside of them, decides.

    Args:
        closed: of the solver's arguments, whether it needs no more than a formula, which a GPU computes
            without a wait.
        always: the solver knows the host only.
    """

    def decorated(solver: Solver) -> Solver:
        @functools.wraps(solver)
        def solve(*given: Any, **options: Any) -> Any:
            for first in given:  # tensors before what contains tensors: every solve on a CPU comes here
                if isinstance(first, Tensor):
                    break
            else:
                first = next(_tensors((given, options)))
            if not first.is_cuda or (closed is not None and closed(*given, **options)):
                return solver(*given, **options)
            inputs = list(_tensors((given, options)))
            if not (always or worthwhile(inputs)):
                return solver(*given, **options)
            here = iter(fetched(inputs))
            return sent(solver(*_with(given, here), **_with(options, here)), first.device)

        return solve  # type: ignore[return-value]

    return decorated


def worthwhile(tensors: Sequence[Tensor]) -> bool:
    """Whether the host solves such a batch in less time than a GPU takes for the launches.

    A run of n variables takes the host about 1.2 + 0.055 n^2 us (measured: min_norm and qp, n = 3 to 20).
    """
    R = max(len(t) for t in tensors if t.ndim)
    n = max((t.shape[1] for t in tensors if t.ndim > 1), default=1)
    return R * (1.2 + 0.055 * n * n) < LAUNCHES and sum(t.numel() for t in tensors) < NUMBERS


def fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors on the host, by one copy of those that are on the GPU."""
    away = [t for t in tensors if t.is_cuda]
    flat = torch.cat([t.detach().reshape(-1).double() for t in away]).cpu()
    parts = iter(flat.split([t.numel() for t in away]))
    return [next(parts).reshape(t.shape).to(t.dtype) if t.is_cuda else t for t in tensors]


def sent(found: Any, device: torch.device) -> Any:
    """A solver's answer with its tensors on a GPU, by one copy that nobody waits for."""
    here = list(_tensors(found))
    flat = torch.cat([t.reshape(-1).double() for t in here]).pin_memory().to(device, non_blocking=True)
    parts = flat.split([t.numel() for t in here])
    there = [p.reshape(t.shape).to(t.dtype) for p, t in zip(parts, here, strict=True)]
    return _with(found, iter(there))


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
    """The same with other tensors in their places."""
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
