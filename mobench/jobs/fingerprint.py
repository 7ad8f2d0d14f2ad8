"""Hashes what a function or class of the user's computes: its code and all that it refers to, by content.

    hash(function) = sha256(bytecode, constants, names, defaults, captured values, globals that it names)

and so on through the functions, classes and values that these hold. Bytecode, not text: a function typed at a
prompt has none, and a file may have been edited since it was imported. Another Python compiles to other
bytecode, so a job runs anew there. mobench's own classes count by name and `version`; torch, NumPy and
whatever else mobench computes with by name, as in any other job (their versions are in meta.json); other
installed packages by name and version. All other objects are what pickle stores of them. What cannot be
described in this way is `Opaque`, and its hash is never guessed.

Not part of it: files, the environment, and what a function looks up by a name that it makes while it runs
(`getattr`).
"""

from __future__ import annotations

import builtins
import copyreg
import dataclasses
import dis
import functools
import io
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from mobench.errors import MobenchError

# what these reach cannot be seen in the code
HIDING = frozenset({"eval", "exec", "globals", "open", "__import__", "import_module"})
# those that need an argument: `net.eval()` is a method of that name
NEEDING = frozenset({"eval", "exec"})
# what mobench itself computes with: their versions are in meta.json, and key no job
COMMON = {
    "cvxpy",
    "hydra",
    "matplotlib",
    "mobench",
    "moocore",
    "numpy",
    "omegaconf",
    "pandas",
    "scipy",
    "torch",
}
# what Python sets on each module or class: where it was written, and what says the same as the rest
OF_PYTHON = frozenset(
    {
        "__annotate_func__", "__annotations__", "__builtins__", "__cached__", "__dict__", "__doc__",
        "__file__", "__firstlineno__", "__loader__", "__module__", "__package__", "__path__", "__spec__",
        "__static_attributes__", "__type_params__", "__weakref__", "_abc_impl",
    }
)  # fmt: skip
CONSTANT = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset, type, types.FunctionType)


class Opaque(MobenchError):
    """Something that the function refers to cannot be described by content; the message says what."""


def fingerprint(value: object) -> str:
    """Returns 32 hex digits that change with what `value` computes: a function, or a container of functions
    and values.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Walk().digest(value).hex()[:32]


def of_class(cls: type) -> str:
    """Returns 32 hex digits that change with what a class that a configuration names computes.

    Such a class lies in files and is used for months, so its package is looked into wherever it lies, what it
    opens is data and no part of the hash (raise `version` when a file changes), and a container or array of a
    module counts as it was when this process first saw it: a cache that fills up makes no other job.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Walk(cls.__module__.partition(".")[0]).digest(cls).hex()[:32]


def is_own(cls: type) -> bool:
    """Tells whether a class is the user's: mobench's are keyed by their `version`."""
    top = cls.__module__.partition(".")[0]
    return top not in COMMON and top not in sys.stdlib_module_names


def _version_of(module: str | None) -> str | None:
    """Returns name and version of the installed package of a module; None for the user's code."""
    top = (module or "builtins").partition(".")[0]
    if top in sys.stdlib_module_names or top in COMMON:
        return top
    package = sys.modules.get(top)
    places = [getattr(package, "__file__", None) or "", *getattr(package, "__path__", [])]
    if not any(part in ("site-packages", "dist-packages") for place in places for part in Path(place).parts):
        return None
    return f"{top} {getattr(package, '__version__', '')}"


def _reachable(function: types.FunctionType) -> bool:
    """Tells whether the function is what its module has under its name: a closure made there is not."""
    value: object = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is function


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions and classes inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


# what makes up a sparse tensor, by its layout
PARTS: dict[torch.layout, tuple[Callable[[torch.Tensor], torch.Tensor], ...]] = {
    torch.sparse_coo: (torch.Tensor.indices, torch.Tensor.values),
    torch.sparse_csr: (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values),
    torch.sparse_bsr: (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values),
    torch.sparse_csc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values),
    torch.sparse_bsc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values),
}


def _tensor(value: torch.Tensor) -> tuple[object, ...]:
    """Returns what a tensor holds: bytes, or the tensors that a sparse or quantized one consists of.

    Raises:
        RuntimeError: torch gives no array of it.
    """
    about = f"{value.dtype} {tuple(value.shape)} {value.device}"
    if value.is_quantized:  # with the scale, which the integers do not tell
        return about, value.int_repr(), value.dequantize()
    if value.layout in PARTS:
        entries = value.coalesce() if value.layout == torch.sparse_coo else value
        return f"{about} {value.layout}", *(part(entries) for part in PARTS[value.layout])
    array = value.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return about, array.view(torch.uint8).numpy().tobytes()


HOOKS = frozenset(name for name in vars(torch.nn.Module()) if "_hooks" in name)


def _with_ranks_of_hooks(stored: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns what pickle stores of a module, whose hooks are numbered from 0.

    torch numbers them through the whole process, so that a module that is made again has other numbers.
    """
    state = stored[2] if len(stored) > 2 and isinstance(stored[2], dict) else {}
    hooks = {name: of for name, of in state.items() if name in HOOKS and of}
    ranks = {number: rank for rank, number in enumerate(sorted({n for of in hooks.values() for n in of}))}
    renumbered = {name: type(of)((ranks[n], h) for n, h in of.items()) for name, of in hooks.items()}
    return (*stored[:2], {**state, **renumbered}, *stored[3:]) if hooks else stored


def _looked_up(code: types.CodeType) -> Iterator[str]:
    """Yields the names that code looks up, without methods that cannot be Python's `eval` or `exec`."""
    # what 3.11 puts before a call says nothing of it
    steps = [step for step in dis.get_instructions(code) if step.opname != "PRECALL"]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.opcode not in dis.hasname:
            continue
        called_bare = after is not None and after.opname == "CALL" and after.arg == 0
        if not (step.argval in NEEDING and step.opname in ("LOAD_ATTR", "LOAD_METHOD") and called_bare):
            yield step.argval


_first: dict[int, tuple[object, bytes]] = {}  # data of modules, as this process first saw them


class _Walk:
    """Digests of one walk through what a function or class refers to.

    Args:
        top: the package of a class that a configuration names; empty for functions.
    """

    def __init__(self, top: str = "") -> None:
        self.top = top
        self.hiding = HIDING - {"open"} if top else HIDING
        self.known: dict[int, tuple[object, bytes]] = {}  # with the object, which keeps its address
        self.open: dict[int, int] = {}  # depth of what is being described
        self.functions = 0  # pieces of code met so far

    def digest(self, value: object) -> bytes:
        """Digests what pickle stores of a value."""
        stream = io.BytesIO()
        try:
            _Pickler(stream, self).dump(value)
        except (ValueError, RecursionError) as error:  # pickle's message names types of this file
            raise Opaque(
                "a value contains itself, or is nested too deeply, and cannot be described"
            ) from error
        except pickle.PicklingError as error:
            raise Opaque(f"a value of type {type(value).__name__} cannot be described ({error})") from error
        return sha256(stream.getvalue()).digest()

    def described(self, value: object) -> object:
        """Returns the digest of an object that pickle stores by name, or not at all; None for any other.

        One that is met inside of itself is named by how far outside it began.
        """
        key = id(value)
        if key in self.known:
            return self.known[key][1]
        if key in self.open:
            return f"met {len(self.open) - self.open[key]} outside"
        self.open[key] = len(self.open)
        try:
            parts = self._parts(value)
            if parts is None:
                return None
            self.known[key] = (value, self.digest((type(value).__name__, *parts)))
        finally:
            del self.open[key]
        return self.known[key][1]

    def library(self, module: str | None) -> str | None:
        """Returns the package of a module that is not looked into."""
        return None if self.top and (module or "").partition(".")[0] == self.top else _version_of(module)

    def _parts(self, value: Any) -> tuple[object, ...] | None:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.ModuleType):
            return self._module(value, frozenset(), frozenset())
        if isinstance(value, types.MethodType):
            return value.__func__, value.__self__
        if isinstance(value, types.BuiltinFunctionType):
            return value.__name__, value.__self__
        if isinstance(value, types.MemberDescriptorType):  # of a class with slots
            return (value.__name__,)
        if isinstance(value, staticmethod | classmethod):
            return (value.__func__,)
        if isinstance(value, property):
            return value.fget, value.fset, value.fdel
        if isinstance(value, functools.cached_property):
            return (value.func,)
        if isinstance(value, dataclasses.Field):
            return value.name, value.init, value.default, value.default_factory
        if type(value) in (set, frozenset):
            return tuple(sorted(map(self.digest, value)))
        if isinstance(value, torch.Tensor):
            try:
                return type(value), *_tensor(value.detach())
            except RuntimeError as error:  # nested tensors, those on "meta" and others hold no array
                raise Opaque(f"a tensor of layout {value.layout} cannot be described ({error})") from error
        if isinstance(value, RemovableHandle):  # its module has the hook
            return ()
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return f"{value.dtype.descr} {value.shape}", value.tobytes()
        return None

    def _code(self, code: types.CodeType) -> tuple[object, ...]:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return shape, names, code.co_code, code.co_exceptiontable, code.co_consts

    def _function(self, function: types.FunctionType) -> tuple[object, ...]:
        library = self.library(function.__module__)
        if library is not None and _reachable(function):
            return library, function.__module__, function.__qualname__
        self.functions += 1
        codes = list(_nested(function.__code__))
        names = frozenset(name for code in codes for name in code.co_names)
        used = {name for code in codes for name in _looked_up(code)} if names & self.hiding else set()
        if hiding := sorted(used & self.hiding):
            raise Opaque(
                f"{function.__qualname__} uses {', '.join(hiding)}: "
                "what it accesses this way cannot be determined from its code"
            )
        for code in codes:
            steps = list(dis.get_instructions(code))
            for level, _, step in zip(steps, steps[1:], steps[2:], strict=False):
                if step.opname == "IMPORT_NAME" and (level.argval or self.library(step.argval) is None):
                    raise Opaque(
                        f"{function.__qualname__} imports {step.argval or '.'!r} while it runs; import it at "
                        "the top of the file"
                    )
        seen = {n: function.__globals__[n] for n in names & function.__globals__.keys()}
        return (
            function.__code__,
            function.__defaults__,
            function.__kwdefaults__,
            function.__dict__,
            tuple(_content(cell) for cell in function.__closure__ or ()),
            self._attributes(seen, names, frozenset()),
        )

    def _attributes(self, values: dict[str, Any], names: frozenset[str], met: frozenset[str]) -> list[object]:
        """Returns what a module or class holds under names, with the parts of modules that code names."""
        out: list[object] = []
        for name, value in sorted(values.items()):
            if name in OF_PYTHON:
                continue
            if isinstance(value, types.ModuleType):
                out += [name, self._module(value, names, met)]
            else:
                out += [name, self._settled(value)]
        return out

    def _settled(self, value: object) -> object:
        """Returns an attribute, or its digest when this process first saw it."""
        if not self.top or isinstance(value, CONSTANT):
            return value
        first = _first.get(id(value))
        if first is not None and first[0] is value:
            return first[1]
        before = self.functions
        digest = self.digest(value)
        if self.functions == before:  # data alone: code that is edited in place must be seen
            _first[id(value)] = (value, digest)
        return digest

    def _module(
        self, module: types.ModuleType, names: frozenset[str], met: frozenset[str]
    ) -> tuple[object, ...]:
        """Describes a package by its version, a module of the user's by what the code may take from it."""
        name = module.__name__
        library = self.library(name)
        if library is not None or name in met:
            return library, name
        if not names:
            raise Opaque(f"the module {name} is passed as a value")
        inner = {key: value for key, value in vars(module).items() if key in names}
        return name, self._attributes(inner, names, met | {name})

    def _class(self, cls: type) -> tuple[object, ...]:
        library = self.library(cls.__module__)
        if library is not None or cls.__module__ == builtins.__name__:
            version = getattr(cls, "version", None) if library == "mobench" else None
            return library, cls.__module__, cls.__qualname__, version
        self.functions += 1
        inner = {name: v for name, v in vars(cls).items() if not _generated(v)}
        return cls.__qualname__, cls.__bases__, self._attributes(inner, frozenset(), frozenset())


class _Pickler(pickle.Pickler):
    """Writes what pickle stores, with digests in place of what it would store by name."""

    def __init__(self, stream: io.BytesIO, walk: _Walk) -> None:
        super().__init__(stream, protocol=4)
        self.fast = True  # values that are equal are written alike, whoever else holds them
        self.walk = walk

    def persistent_id(self, value: Any) -> Any:
        """Returns the digest of what is not to be pickled."""
        return self.walk.described(value)

    def reducer_override(self, value: Any) -> Any:
        """Returns what pickle would store of an object; one of a package is named by its package."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            stored = value.__reduce_ex__(4) if registered is None else registered(value)
        except Exception as error:
            raise Opaque(f"a value of type {type(value).__name__} cannot be described ({error})") from error
        if not isinstance(stored, str):
            return _with_ranks_of_hooks(stored) if isinstance(value, torch.nn.Module) else stored
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # a cached function
            return type(value), (wrapped,)
        module = getattr(value, "__module__", None) or type(value).__module__
        library = self.walk.library(module)
        if library is None or getattr(sys.modules.get(module), stored, None) is not value:
            raise Opaque(f"{stored} of type {type(value).__name__} is identified by its name only")
        return str, (library, module, stored)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return "empty"


def _generated(value: object) -> bool:
    """Tells whether `dataclass` or `namedtuple` made a method: the fields say the same."""
    function = value.__func__ if isinstance(value, staticmethod) else value
    made = isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"
    return made or type(value).__name__ == "_tuplegetter"  # `_fields` has their order
