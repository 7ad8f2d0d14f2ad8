"""A pretend CUDA device: numbers on the CPU, and CUDA's rules about devices.

    import pretend_cuda
    with pretend_cuda.device(count=1):          # torch.cuda.is_available() is True inside
        x = torch.ones(3, device="cuda")        # x.device is cuda:0, x.is_cuda, x.numpy() raises
        x + torch.ones(3)                       # RuntimeError: Expected all tensors to be on the same device

A whole program runs unchanged: python pretend_cuda.py -m mobench hardware=gpu problem=zdt2 steps=5

Tensors are wrappers round CPU tensors. In C++ they have the device type PrivateUse1, so that autograd, views,
functorch and factory functions treat them as tensors on a device; in Python they say cuda:N. Whether an
operator has a CUDA kernel is checked only where torch has been built with CUDA.

The module raises what CUDA would raise: for operands on different devices (0-dimensional CPU operands are
let through where CUDA lets them through), `.numpy()` and `np.asarray`, CUDA indices into CPU tensors, integer
matrix products, operators without a CUDA kernel in this build of torch, and a saved tensor whose cuda:N does
not exist. `count=2` makes cuda:0 and cuda:1, whose tensors do not mix. While a graph is recorded, whatever
makes the host wait for the device raises, too: .item(), bool(), copies to the CPU, blocking copies to the
device (pageable memory), results whose shape depends on data (nonzero, boolean masks, unique), and
factorizations that check their result on the host.

It cannot show the kernels' own numerics and speed, TF32, atomics, asynchronous errors, memory limits or
streams. torch.inference_mode is replaced by no_grad inside.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import runpy
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._library import simple_registry
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

NAME = "pretend"
aten = torch.ops.aten

_local = types.SimpleNamespace()  # one for all threads: those of a backward pass make tensors, too


def _real(device: Any) -> torch.device | None:
    """cuda:N of a device, a string or a pretend device; None if it is something else."""
    if isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:
            return None
    if isinstance(device, torch.device) and device.type in ("cuda", NAME, "privateuseone"):
        return torch.device(
            "cuda", device.index if device.type == "cuda" and device.index is not None else _index()
        )
    return None


def _index() -> int:
    return getattr(_local, "index", 0)


class Wrapped(torch.Tensor):
    """A tensor of the pretend device; `inner` is the CPU tensor with its numbers."""

    inner: torch.Tensor
    place: int

    @staticmethod
    def __new__(cls, inner: torch.Tensor, place: int = 0) -> Wrapped:
        t = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=f"{NAME}:0",
            requires_grad=False,
        )
        t.inner, t.place = inner, place
        return t

    __torch_function__ = torch._C._disabled_torch_function_impl

    device = property(lambda self: torch.device("cuda", self.place))  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def __repr__(self, **_: Any) -> str:
        return f"pretend({self.inner!r}, cuda:{self.place})"

    def get_device(self) -> int:
        return self.place

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"can't convert cuda:{self.place} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        _wait("tolist")
        return self.inner.tolist()

    def pin_memory(self, *_: Any) -> Any:
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")

    def __reduce_ex__(self, _: Any) -> Any:
        _wait("torch.save")
        return _loaded, (self.inner.detach().clone(), self.place)

    def __deepcopy__(self, memo: Any) -> Any:
        return Wrapped(self.inner.clone(), self.place)

    @classmethod
    def __torch_dispatch__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _loaded(inner: torch.Tensor, place: int) -> torch.Tensor:
    """The tensor of the device that a saved one becomes."""
    target = getattr(_local, "map_location", None)
    if isinstance(target, dict):
        target = target.get(f"cuda:{place}")
    if target is not None:
        device = torch.device(target)
        if device.type == "cpu":
            return inner
        place = device.index or 0
    if place >= _state().count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {place} "
            f"but torch.cuda.device_count() is {_state().count}. "
            f"Please use torch.load with map_location to map your storages to an existing device."
        )
    return Wrapped(inner, place)


class Pretend:
    """The devices of a block, and the graph that is being recorded."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.recording: _CUDAGraph | None = None
        self.sync_debug = "default"


_active: list[Pretend] = []


def _state() -> Pretend:
    return _active[-1]


def _wait(what: str) -> None:
    """Raises where the host must not wait for the device."""
    state = _active[-1]
    if state.recording is not None:
        raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({what})")
    if state.sync_debug == "error":
        raise RuntimeError(f"called a synchronizing CUDA operation ({what})")


# data-dependent sizes, or an info that the host reads
WAITING = {
    "nonzero", "masked_select", "unique_dim", "_unique", "_unique2", "unique_consecutive",
    "unique_dim_consecutive", "equal", "bincount", "histc", "_linalg_check_errors", "_linalg_eigh",
    "linalg_eig", "_linalg_svd", "linalg_cholesky", "linalg_inv", "linalg_lstsq", "_ctc_loss", "is_nonzero",
    "nonzero_static", "allclose",
}  # fmt: skip
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "convolution", "addr"}
FREE = {
    "detach", "alias", "lift_fresh", "lift", "empty", "empty_like", "new_empty", "empty_strided",
    "new_empty_strided", "_unsafe_view", "_reshape_alias", "sym_size", "sym_stride", "sym_numel", "resize_",
    "set_", "_local_scalar_dense", "record_stream", "is_same_size", "_has_compatible_shallow_copy_type",
    "is_pinned", "_to_copy", "copy_", "_linalg_check_errors",
}  # fmt: skip
SCALAR_OK = {
    "where", "fill_", "fill", "masked_fill", "masked_fill_", "index_put_", "index_put", "_index_put_impl_",
    "copy_", "_to_copy", "index_fill_", "index_fill", "_foreach_copy_",
}  # fmt: skip
INDEX = {"index", "_unsafe_index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index_put"}


class Operator(NamedTuple):
    """Facts of an operator's schema. `mutable`: it writes to an operand; `in_place`: to its first one only,
    which it returns, with the shape that it had.
    """

    name: str
    view: bool
    mutable: bool
    in_place: bool
    pointwise: bool
    has_cuda: bool


@functools.cache
def _operator(func: Any) -> Operator:
    schema = func._schema
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    built = torch.backends.cuda.is_built() and func.namespace == "aten"
    return Operator(
        name=schema.name.partition("::")[2],
        view=func.is_view,
        mutable=schema.is_mutable,
        in_place=written[:1] == [True]
        and sum(written) == 1
        and len(schema.returns) == 1
        and torch.Tag.inplace_view not in func.tags,
        pointwise=torch.Tag.pointwise in func.tags,
        # whether this build of torch has a CUDA kernel; True where it has no CUDA at all
        has_cuda=not built or torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), "CUDA"),
    )


def _flat(value: Any, out: list[Any]) -> list[Any]:
    if isinstance(value, torch.Tensor):
        out.append(value)
    elif isinstance(value, list | tuple):
        for v in value:
            _flat(v, out)
    elif isinstance(value, dict):
        for v in value.values():
            _flat(v, out)
    return out


def _map(fn: Callable[[Any], Any], value: Any) -> Any:
    """The same of each leaf of what operators take and return; PyTorch's own way takes longer than a step."""
    if isinstance(value, tuple):
        made = [_map(fn, v) for v in value]
        return tuple(made) if type(value) is tuple else type(value)(*made)
    if isinstance(value, list):
        return [_map(fn, v) for v in value]
    if isinstance(value, dict):
        return {key: _map(fn, v) for key, v in value.items()}
    return fn(value)


def _fail(func: Any, text: str) -> RuntimeError:
    return RuntimeError(f"{text} (pretend CUDA, operator {func})")


def _check(func: Any, about: Operator, tensors: list[Any], args: Any) -> int | None:
    """The device of an operator; None: the CPU. Raises what CUDA would."""
    name = about.name
    places = {t.place for t in tensors if isinstance(t, Wrapped)}
    if not places:
        return None
    if name in ("copy_", "_to_copy"):
        return next(iter(places))
    if len(places) > 1:
        raise _fail(
            func,
            "Expected all tensors to be on the same device, "
            f"but found at least two devices, {sorted(places)}",
        )
    place = next(iter(places))
    indices: list[Any] = []
    if name in INDEX:
        indices = [t for t in args[1] if isinstance(t, torch.Tensor)]
        if not isinstance(args[0], Wrapped):
            if any(isinstance(i, Wrapped) for i in indices):
                raise _fail(
                    func, "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
                )
            raise _fail(func, "index_put_: self is on the CPU, values are on cuda")
        for i in indices:
            if not isinstance(i, Wrapped):
                _wait("CPU index")
            elif i.dtype in (torch.bool, torch.uint8):
                _wait("boolean mask")
    strays = [t for t in tensors if not isinstance(t, Wrapped) and not any(t is i for i in indices)]
    for t in strays:
        if t.ndim == 0 and (name in SCALAR_OK or about.pointwise):
            if name == "where" or (name in INDEX):
                _wait("0-dim CPU operand copied")
            continue
        raise _fail(
            func,
            f"Expected all tensors to be on the same device, "
            f"but found at least two devices, cuda:{place} and cpu! "
            f"(CPU operand {t.dtype} {tuple(t.shape)})",
        )
    if name in PRODUCTS and any(not t.dtype.is_floating_point and not t.dtype.is_complex for t in tensors):
        raise _fail(func, f'"{name}_cuda" not implemented for integers')
    if not about.has_cuda:
        raise _fail(func, "has no CUDA kernel")
    return place


def _unwrap(value: Any) -> Any:
    return value.inner if isinstance(value, Wrapped) else value


def _waits(about: Operator, args: Any, kwargs: Any, target: Any) -> None:
    """Notes an operator for which the host waits."""
    name = about.name
    if name == "_local_scalar_dense":
        _wait("item")
    elif name in WAITING or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _wait(name)
    elif name == "_to_copy":
        source = isinstance(args[0], Wrapped)
        if source and target is None and not kwargs.get("non_blocking"):
            _wait("copy to CPU")
        elif not source and not (kwargs.get("non_blocking") and getattr(args[0], "pinned_here", False)):
            _wait("copy to device")
    elif name == "copy_" and not (isinstance(args[0], Wrapped) and isinstance(args[1], Wrapped)):
        _wait("copy to device" if isinstance(args[0], Wrapped) else "copy to CPU")


def _record(func: Any, args: Any, kwargs: Any, out: Any, place: int | None) -> None:
    """Adds an operator to the graph that is being recorded; views and empty memory stay what they are."""
    about = _operator(func)
    if about.view or (about.name in FREE and about.name not in ("_to_copy", "copy_")):
        return
    recording = _state().recording
    assert recording is not None
    if place is not None and place != recording.place:
        raise RuntimeError(
            f"CUDA error: operation not permitted when stream is capturing (a launch on cuda:{place}, "
            f"a stream of cuda:{recording.place})"
        )
    fresh = [] if about.mutable else _flat(out, [])
    recording.calls.append((func, args, kwargs, fresh))


class _Stream:
    """torch.cuda.Stream: the device that it is of."""

    def __init__(self, device: Any = None) -> None:
        self.place = (_real(device or "cuda") or torch.device("cuda", 0)).index


class _CUDAGraph:
    """The operators of a recording, to be called again with results in the same memory."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.place = 0

    def replay(self) -> None:
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            for func, args, kwargs, fresh in self.calls:
                out = func(*args, **kwargs)
                for old, new in zip(fresh, _flat(out, []), strict=bool(fresh)):
                    if old is not new:
                        old.copy_(new)


@contextlib.contextmanager
def _graph(graph: _CUDAGraph, stream: _Stream | None = None, **_: Any) -> Iterator[None]:
    """Records what is called in the block. CUDA would compute none of it: what it made is spoiled.

    Without a stream, PyTorch takes one of the process's first device.
    """
    state = _state()
    graph.place = 0 if stream is None else stream.place
    state.recording = graph
    try:
        yield
    finally:
        state.recording = None
        for _func, _args, _kwargs, fresh in graph.calls:
            for made in fresh:
                if made.is_floating_point():
                    with torch._C._DisableTorchDispatch():
                        made.detach().fill_(float("nan"))


def _set_sync_debug(mode: str | int) -> None:
    _state().sync_debug = {0: "default", 1: "warn", 2: "error"}.get(mode, str(mode))  # type: ignore[call-overload]


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator with operands of the device, or that makes one there."""
    about = _operator(func)
    name = about.name
    target: Any = "same"
    if "device" in kwargs:
        target = _real(kwargs["device"]) if kwargs["device"] is not None else "same"
        kwargs = {**kwargs, "device": torch.device("cpu") if kwargs["device"] is not None else None}
    tensors = _flat(kwargs, _flat(args, []))
    place = _check(func, about, tensors, args)
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    _waits(about, args, kwargs, target)
    if target == "same":
        home: int | None = place
    else:
        home = None if target is None else target.index
    inner_args = _map(_unwrap, args)
    inner_kwargs = _map(_unwrap, kwargs) if kwargs else kwargs
    if name == "_to_copy" and "device" in kwargs:
        inner_kwargs = {k: v for k, v in inner_kwargs.items() if k != "non_blocking"}
    out = func(*inner_args, **inner_kwargs)
    if _active[-1].recording is not None:
        _record(func, inner_args, inner_kwargs, out, home)
    if home is None:
        return args[0] if about.mutable else out
    wrapped = _map(lambda t: Wrapped(t, home) if isinstance(t, torch.Tensor) else t, out)
    if not about.mutable:
        return wrapped
    for t in tensors:  # out= that was resized
        if isinstance(t, Wrapped) and t.shape != t.inner.shape:
            raise _fail(
                func, f"pretend device: an output was resized from {tuple(t.shape)} to {tuple(t.inner.shape)}"
            )
    if about.in_place:
        return args[0]
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


class _Dispatch(TorchDispatchMode):
    """Factories on the device."""

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(t, Wrapped) for t in _flat(kwargs, _flat(args, []))):
            return _run(func, args, kwargs)
        if kwargs.get("device") is not None and _real(kwargs["device"]) is not None:
            return _run(func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


# without the layer that keeps torch.compile out of modes, which nobody calls here
_Dispatch.__torch_dispatch__ = inspect.unwrap(_Dispatch.__torch_dispatch__)  # type: ignore[method-assign]

_DEVICE_GET = torch.Tensor.device.__get__  # type: ignore[attr-defined]
_IS_CUDA_GET = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
# attributes, which are read several times for each operator
_GETTERS = {
    member.__get__
    for name, member in vars(torch._C.TensorBase).items()
    if type(member) is types.GetSetDescriptorType and name not in ("device", "is_cuda", "is_cpu")
}
_TO = torch.Tensor.to
_CUDA = torch.Tensor.cuda
_PIN = torch.Tensor.pin_memory
_IS_PINNED = torch.Tensor.is_pinned


class _Function(TorchFunctionMode):
    """Names cuda:N become the device type that torch knows in C++, and back."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _GETTERS:
            return func(*args)
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        if func == _DEVICE_GET:
            parsed = func(*args)
            return torch.device("cuda", _place(args[0])) if parsed.type == NAME else parsed
        if func == _IS_CUDA_GET:
            return _DEVICE_GET(args[0]).type == NAME
        if func is _IS_PINNED:
            return False
        if func is _PIN and not isinstance(args[0], Wrapped):
            pinned = args[0].clone()
            pinned.pinned_here = True  # type: ignore[attr-defined]
            return pinned
        before = _index()
        if _active[-1].count > 1:
            for t in _flat(kwargs, _flat(args, [])):
                if isinstance(t, Wrapped):
                    _local.index = t.place
                    break
        try:
            if func is _CUDA:
                device = args[1] if len(args) > 1 else kwargs.get("device")
                device = (
                    torch.device("cuda", device)
                    if isinstance(device, int)
                    else device or torch.device("cuda", 0)
                )
                return args[0].to(device)
            if func in _FROM_DATA:
                return self._from_data(func, args, dict(kwargs))
            args = tuple([self._name(v) if isinstance(v, _DEVICES) else v for v in args])
            if kwargs:
                kwargs = {k: self._name(v) if isinstance(v, _DEVICES) else v for k, v in kwargs.items()}
            if func is _TO and isinstance(args[0], Wrapped):
                target = kwargs.get("device", args[1] if len(args) > 1 else None)
                other = target.place if isinstance(target, Wrapped) else None
                if isinstance(target, torch.device) and target.type == NAME:
                    other = _index()
                if other is not None and other != args[0].place:
                    _wait("copy between devices")
                    return Wrapped(args[0].inner.clone(), other)
            return func(*args, **kwargs)
        finally:
            _local.index = before

    def _from_data(self, func: Any, args: Any, kwargs: Any) -> Any:
        """torch.tensor and the like: made on the CPU, then copied (as CUDA does), outside of all modes."""
        data = args[1] if func is torch.Tensor.new_tensor else args[0]
        device = kwargs.pop("device", None)
        if device is None and func is torch.Tensor.new_tensor:
            device = args[0].device
        if isinstance(data, torch.Tensor) and func is not torch.Tensor.new_tensor:
            copied = data.detach().clone() if func is torch.tensor else data
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None) or copied.dtype
            return copied.to(device=self._name(device) if device is not None else None, dtype=dtype)
        if func is torch.Tensor.new_tensor:
            kwargs.setdefault("dtype", args[0].dtype)
            made = torch.tensor(data, **kwargs)
        else:
            made = func(*args, **kwargs)
        return made if device is None or _real(device) is None else made.to(self._name(_real(device)))

    @staticmethod
    def _name(value: Any) -> Any:
        if (isinstance(value, torch.device) and value.type == "cuda") or (
            isinstance(value, str) and value.startswith("cuda")
        ):
            device = torch.device(value)
            if (device.index or 0) >= _state().count:
                raise RuntimeError("CUDA error: invalid device ordinal")
            if device.index is not None:
                _local.index = device.index
            return torch.device(NAME, 0)
        return value


_DEVICES = (torch.device, str)
_FROM_DATA = {torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor}


def _place(t: torch.Tensor) -> int:
    return getattr(t, "place", 0)


class _Current(contextlib.nullcontext):  # type: ignore[type-arg]
    """torch.cuda.device(...)"""

    def __init__(self, *_: Any) -> None:
        super().__init__()


class _Event:
    """torch.cuda.Event: work is done when it is given."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.seconds = 0.0

    def record(self, *_: Any) -> None:
        self.seconds = time.monotonic()

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end.seconds - self.seconds)


class _Generators:
    """Enough of torch.cuda.default_generators."""

    def __getitem__(self, _: Any) -> torch.Generator:
        return torch.Generator()


class _Module:
    """The module that torch expects of a registered backend, from now on also outside of the blocks."""

    def __getattr__(self, name: str) -> Any:
        if name in ("is_initialized", "is_available"):
            return lambda *_: True
        if name in ("current_device", "_exchange_device", "_maybe_exchange_device"):
            return lambda *_: 0
        if name in ("_lazy_init", "manual_seed_all", "set_rng_state", "synchronize"):
            return lambda *_: None
        if name == "_is_in_bad_fork":
            return lambda: False
        if name == "device_count":
            return lambda: 1
        if name == "get_amp_supported_dtype":
            return lambda: [torch.float16, torch.bfloat16, torch.float32]
        if name == "get_rng_state":
            return lambda *_: torch.get_rng_state()
        if name == "device":
            return lambda *_: contextlib.nullcontext()
        raise AttributeError(name)


_registered = False


def register() -> None:
    """Makes PyTorch know of the device, before the first backward pass of a process: autograd counts devices
    then. A module of tests calls it when it is imported.
    """
    global _registered
    if not _registered:
        # some torch functions import it when first called, which must not see the patches below
        import torch._dynamo
        import torch._dynamo.trace_rules
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as setup

        torch._dynamo.trace_rules.get_torch_obj_rule_map()
        setup(NAME, backend_module=_Module())
        torch.serialization.add_safe_globals([_loaded])
        _registered = True


@contextlib.contextmanager
def device(count: int = 1) -> Iterator[Pretend]:
    """Pretend that there are `count` CUDA devices."""
    register()
    state = Pretend(count)
    gib = 1 << 30

    def properties(i: Any = 0) -> Any:
        return types.SimpleNamespace(
            name="Pretend GPU",
            uuid=f"pretend-{i}",
            total_memory=80 * gib,
            multi_processor_count=108,
            major=9,
            minor=0,
        )

    def load(f: Any, map_location: Any = None, **keys: Any) -> Any:
        if isinstance(map_location, str | torch.device | dict):
            _local.map_location = map_location
        try:
            plain = loading.temp_original  # what torch.load is outside of the block
            place = "cpu" if map_location is not None else None
            return plain(f, map_location=place, **{**keys, "weights_only": True})
        finally:
            _local.map_location = None

    loading = mock.patch.object(torch, "load", load)
    quiet = lambda *_, **__: None  # noqa: E731
    patches: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "get_device_properties": properties,
        "get_device_name": lambda *_: "Pretend GPU",
        "current_device": lambda: 0,
        "set_device": quiet,
        "_lazy_init": quiet,
        "is_initialized": lambda: True,
        "synchronize": lambda *_: _wait("synchronize"),
        "empty_cache": quiet,
        "max_memory_allocated": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": quiet,
        "mem_get_info": lambda *_: (80 * gib, 80 * gib),
        "manual_seed": quiet,
        "manual_seed_all": quiet,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": quiet,
        "device": _Current,
        "Event": _Event,
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
        "default_generators": _Generators(),
        "CUDAGraph": _CUDAGraph,
        "graph": _graph,
        "Stream": _Stream,
        "is_current_stream_capturing": lambda: state.recording is not None,
        "set_sync_debug_mode": _set_sync_debug,
        "get_sync_debug_mode": lambda: _state().sync_debug,
        "get_device_capability": lambda *_: (9, 0),
    }
    with contextlib.ExitStack() as stack:
        for name, value in patches.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value, create=True))
        stack.enter_context(loading)
        # a wrapper made in inference mode could be no view of one made outside: gradients are switched alike
        plain = lambda mode=True: torch.no_grad() if mode else torch.enable_grad()  # noqa: E731
        stack.enter_context(mock.patch.object(torch, "inference_mode", plain))
        # rules of operators' own for a class of tensors; PyTorch looks for one at every call, here in vain
        rules = mock.patch.object(simple_registry, "find_torch_dispatch_rule", quiet)
        stack.enter_context(rules)
        _active.append(state)
        stack.callback(_active.pop)
        stack.enter_context(_Dispatch())
        stack.enter_context(_Function())
        yield state


def main() -> None:
    """python pretend_cuda.py [-m MODULE | SCRIPT] ARGUMENTS"""
    arguments = sys.argv[1:]
    with device(int(os.environ.get("PRETEND_GPUS", "1"))):
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    # one module, not two: what is saved names it
    sys.modules["pretend_cuda"] = sys.modules["__main__"]
    _loaded.__module__ = Wrapped.__module__ = "pretend_cuda"
    main()
