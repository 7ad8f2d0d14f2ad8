"""Steps as CUDA graphs: one launch for a step that would take hundreds.

A step of a small problem costs a GPU a few microseconds of work and the host hundreds of launches. A graph
records the launches of one step once; to replay them is one launch, with the same kernels on the same
addresses. Only what runs on the device is recorded: a step that depends on its number, waits for the device,
draws on the host or keeps a state there would replay the numbers of its recording. The contract is that of an
Algorithm (all that a step remembers is in its state). Most breaches are noticed, and the step is then run
without a graph:

- its number is a `StepNumber`, a placeholder; reading it raises;
- PyTorch raises where the host waits for the device (torch.cuda.set_sync_debug_mode);
- all tensors of the state are on the device and keep their shapes, and its other entries keep their values;
- a graph keeps the memory of its step for itself: it is recorded only if the device has as much left;
- three replayed steps are compared with steps that were run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Never

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from mobench.core.types import State

TRIED = 3
"""Steps that are replayed and compared before a graph is used."""
RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest difference of a replayed state, relative to its largest entry: that of kernels that sum anew."""


class NotCapturable(Exception):
    """A step cannot be a graph; the message says why."""


class StepNumber:
    """Stands for the number of a step while it is recorded.

    `tensor` is the number on the device, which grows with each replay; t + 1 is another stand-in. Other uses
    raise NotCapturable, or a TypeError where PyTorch expects a number.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __hash__(self) -> int:
        return self._read()

    def __repr__(self) -> str:
        return self._read()

    def __add__(self, other: object) -> StepNumber:
        return StepNumber(self.tensor)

    def _read(self, *_: object) -> Never:
        raise NotCapturable("it depends on the number of the step")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _read
    __int__ = __float__ = __index__ = __str__ = __format__ = __neg__ = __abs__ = _read
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _read
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = _read


Step = Callable[[State, int | StepNumber], State]
"""A step of the loop: the state after it. It may write to the tensors of the state that it gets."""


class StepGraph:
    """A recorded step of one state's sizes.

    Args:
        step: one step; `step(state, t)`.
        state: from which it was tried; it is not changed.

    Raises:
        NotCapturable: the step cannot be recorded; the state is as it was.
    """

    def __init__(self, step: Step, state: State) -> None:
        leaves, self._spec = tree_flatten(_without_number(state))
        device = state["theta"].device
        if any(isinstance(x, Tensor) and x.device != device for x in leaves):
            raise NotCapturable("a part of its state is on the host")
        _check_room(leaves, device)
        self._number = torch.zeros((), dtype=torch.int64, device=device)
        self._others = [None if isinstance(x, Tensor) else x for x in leaves]
        try:
            # on copies: caches of the problem for these iterates must not be hit at the recording
            with _waits_raise():
                self._taken(step, _cloned(leaves))
            self._static = _cloned(leaves)
            self._graph = torch.cuda.CUDAGraph()
            # a stream of this device: PyTorch's default is that of the first device of the process
            with warnings.catch_warnings():
                # of a step that fails before its first kernel; the error of the step says why
                warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
                with torch.cuda.graph(self._graph, stream=torch.cuda.Stream(device)):
                    self._record(step)
            self._compare(step, state)
        except NotCapturable:
            raise
        except Exception as error:  # whatever a step of the plain path raises, it raises again there
            lines = str(error).splitlines() or [type(error).__name__]
            raise NotCapturable(f"its recording failed: {lines[0]}") from error

    def _record(self, step: Step) -> None:
        """Takes a step from the static tensors, and writes its result to them."""
        after = self._taken(step, self._static)
        moved = [b.clone() for a, b in zip(self._static, after, strict=True) if b is not a]
        changed = [a for a, b in zip(self._static, after, strict=True) if b is not a]
        for a, b in zip(changed, moved, strict=True):
            a.copy_(b)
        self._number.add_(1)

    def _taken(self, step: Step, tensors: list[Any]) -> list[Any]:
        """The leaves of the state after a step from `tensors`, of the same shapes, types and host values."""
        before = self._joined(tensors)
        after = step({**before, "t": StepNumber(self._number)}, StepNumber(self._number))
        leaves, spec = tree_flatten(_without_number(after))
        if spec != self._spec:
            raise NotCapturable("its state changes its parts")
        for old, new, other in zip(tensors, leaves, self._others, strict=True):
            if isinstance(new, Tensor) != isinstance(old, Tensor):
                raise NotCapturable("its state changes its parts")
            if isinstance(new, Tensor):
                if (new.shape, new.dtype, new.device) != (old.shape, old.dtype, old.device):
                    raise NotCapturable("its state changes its sizes")
            elif new != other:
                raise NotCapturable("its state counts on the host")
        return leaves

    def _joined(self, tensors: list[Any]) -> dict[str, Any]:
        state: dict[str, Any] = tree_unflatten(tensors, self._spec)
        return state

    def _compare(self, step: Step, state: State) -> None:
        """Raises NotCapturable if replayed steps give other numbers than steps that are run."""
        t = state["t"]
        run: State = self._joined(_cloned(tree_flatten(_without_number(state))[0])) | {"t": t}
        for k in range(TRIED):
            run = step(run, t + k)
        replayed = self.replay(state, TRIED)
        for a, b in zip(_tensors(run), _tensors(replayed), strict=True):
            if not _close(a, b):
                raise NotCapturable("replayed, it gives other numbers")

    def replay(self, state: State, steps: int) -> State:
        """The state `steps` steps after `state`, which has the recorded sizes and is not changed."""
        with torch.no_grad():
            for static, value in zip(self._static, tree_flatten(_without_number(state))[0], strict=True):
                if isinstance(static, Tensor):
                    static.copy_(value)
            self._number.fill_(state["t"])
            for _ in range(steps):
                self._graph.replay()
        # copies: nobody else may hold, or remember, the tensors that the next replay writes to
        return self._joined(_cloned(self._static)) | {"t": state["t"] + steps}


def _without_number(state: State) -> State:
    return {key: value for key, value in state.items() if key != "t"}


def _check_room(leaves: list[Any], device: torch.device) -> None:
    """Raises NotCapturable unless the device can hold a graph beside the steps that are run.

    A graph keeps two copies of the state and, in a private pool, the memory of its step: at most the peak of
    this process less its memory now. Steps that are run between replays need the same again.
    """
    held = torch.cuda.memory_allocated(device)
    step = torch.cuda.max_memory_allocated(device) - held
    state = sum(x.numel() * x.element_size() for x in leaves if isinstance(x, Tensor))
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - held
    if 2 * state + 2 * step > free:
        raise NotCapturable("the device has too little memory left for a recording")


def _cloned(leaves: list[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, Tensor) else x for x in leaves]


def _tensors(state: State) -> Iterator[Tensor]:
    return (x for x in tree_flatten(_without_number(state))[0] if isinstance(x, Tensor))


def _close(a: Tensor, b: Tensor) -> bool:
    """Returns whether two tensors are equal up to rounding and have NaN and infinities in the same places."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    scale = float(a.nan_to_num(0.0, 0.0, 0.0).abs().max()) if a.numel() else 0.0
    allowed = RELATIVE.get(a.dtype, 1e-2) * scale
    return torch.allclose(a, b, rtol=0.0, atol=allowed, equal_nan=True)


@contextmanager
def _waits_raise() -> Iterator[None]:
    """Inside the block, a wait of the host for the device raises NotCapturable."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        raise NotCapturable("the host waits for the device in it") from error
    finally:
        torch.cuda.set_sync_debug_mode(before)
