"""The products of some work alone: no other way to compute it with these products can take less time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {
    aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.baddbmm, aten.baddbmm_, aten.mv, aten.dot,
    aten.convolution, aten.convolution_backward,
}  # fmt: skip


class Seen(TorchDispatchMode):
    """Products that are called, with stand-ins of their operands.

    Calls with operands of one layout share the stand-ins, so that these lie in the cache where they can.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[Any], dict[str, Any]]] = []
        self.stand_ins: dict[Any, Tensor] = {}

    def _stand_in(self, place: object, value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        key = place, value.shape, value.stride(), value.dtype
        if key not in self.stand_ins:
            last = sum((n - 1) * apart for n, apart in zip(value.shape, value.stride(), strict=True))
            memory = torch.randn(last + 1, dtype=value.dtype)
            self.stand_ins[key] = memory.as_strided(value.shape, value.stride())
        return self.stand_ins[key]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # in inference mode `@` and convolutions arrive whole
            whole = func.decompose(*args, **kwargs)
        if whole is not NotImplemented:
            return whole
        out = func(*args, **kwargs)
        if func.overloadpacket in PRODUCTS:
            operands = [self._stand_in((func, i), value) for i, value in enumerate(args)]
            self.calls.append(
                (func, operands, {k: self._stand_in((func, k), value) for k, value in kwargs.items()})
            )
        return out


def products(work: Callable[[], object]) -> Callable[[], object]:
    """What does the matrix products and convolutions of `work`, in its order, and nothing else."""
    recorded = Seen()
    with recorded:
        work()
    calls = recorded.calls

    def again() -> object:
        with torch.inference_mode():  # operands of work done in that mode cannot be written to out of it
            for func, args, kwargs in calls:
                func(*args, **kwargs)
        return calls

    return again
