"""Hashes what a function or class of the user's computes: its code and all that it refers to, by content.

    hash(function) = sha256(bytecode, constants, names, defaults, captured values, globals that it names)

and so on through the functions, classes and values that these hold. Bytecode, not text: two lambdas share a
line of source, and a function typed at a prompt has none. Comments, docstrings and annotations do not count;
another Python compiles to other bytecode, so a job runs anew there. mobench's own classes count by name and
`version`; torch, NumPy and whatever else mobench computes with by name, as in any other job (their versions
are in meta.json); other installed packages by name and version. Other objects are described by what pickle
would store of them. Two functions have the same hash only if they agree in all of this; what cannot be
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
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path, PurePath

import numpy as np
import torch

from mobench.errors import MobenchError

PLAIN = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType, types.NotImplementedType)
# what these reach cannot be seen in the code
HIDING = frozenset({"eval", "exec", "globals", "open", "__import__", "import_module"})
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
# of a module
WHERE = frozenset({"__builtins__", "__cached__", "__file__", "__loader__", "__path__", "__spec__"})
# of a class: where it was written, and what Python adds to each
SHELL = {
    "__annotate_func__",
    "__annotations__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__static_attributes__",
    "__type_params__",
    "__weakref__",
    "_abc_impl",
}


class Opaque(MobenchError):
    """Something that the function refers to cannot be described by content; the message says what."""


def fingerprint(value: object) -> str:
    """Returns 32 hex digits that change with what `value` computes: a function, or a container of functions
    and values.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Walk()(value).hex()[:32]


def of_class(cls: type) -> str:
    """Returns 32 hex digits that change with what a class that a configuration names computes.

    Such a class lies in files and is used for months, so its package is looked into wherever it lies, what it
    opens is data and no part of the hash (raise `version` when a file changes), and a container or array of a
    module counts as it was when this process first saw it: a cache that fills up makes no other job.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Walk(cls)(cls).hex()[:32]


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


_first: dict[int, tuple[object, bytes]] = {}  # data of modules, as this process first saw them


class _Walk:
    """Digests of one walk.

    Each object is met once: one that is met inside of itself is named by how far outside it began.
    """

    def __init__(self, cls: type | None = None) -> None:
        self.known: dict[int, bytes] = {}
        self.alive: list[object] = []  # an address must not be given to another object meanwhile
        self.open: dict[int, int] = {}  # depth of what is being described
        self.functions = 0  # pieces of code met so far
        self.settled = cls is not None
        self.hiding = HIDING - {"open"} if cls is not None else HIDING
        self.top = cls.__module__.partition(".")[0] if cls is not None else ""
        place = getattr(sys.modules.get(self.top), "__file__", None)
        self.folder = str(Path(place).parent) if place else ""

    def __call__(self, value: object) -> bytes:
        key = id(value)
        if key in self.open:
            return b"met %d outside" % (len(self.open) - self.open[key])
        if key not in self.known:
            self.alive.append(value)
            self.open[key] = len(self.open)
            try:
                self.known[key] = _joined(self._parts(value))
            finally:
                del self.open[key]
        return self.known[key]

    def _library(self, module: str | None) -> str | None:
        return None if self.top and (module or "").partition(".")[0] == self.top else _version_of(module)

    def _attribute(self, value: object) -> bytes:
        """Digests what a module, class or closure holds under a name."""
        constant = isinstance(value, (*PLAIN, tuple, frozenset, type, types.FunctionType))
        if not self.settled or constant or id(value) in self.known:
            return self(value)
        first = _first.get(id(value))
        if first is not None and first[0] is value:
            return first[1]
        before = self.functions
        digest = self(value)
        if self.functions == before:  # data alone: code that is edited in place must be seen
            _first[id(value)] = (value, digest)
        return digest

    def _each(self, values: Iterable[object]) -> list[bytes]:
        return [self(value) for value in values]

    def _parts(self, value: object) -> list[bytes]:
        kind = type(value).__name__.encode()
        if isinstance(value, PurePath):
            return [b"path", self._inside(str(value)).encode()]
        if type(value) is str:
            return [b"str", self._inside(value).encode()]
        if isinstance(value, PLAIN):
            return [kind, repr(value).encode(), *([] if type(value) in PLAIN else [self(type(value))])]
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return [kind, *self._each(value)]
        if isinstance(value, set | frozenset) and type(value) in (set, frozenset):
            return [kind, *sorted(self._each(value))]
        if isinstance(value, dict) and type(value) is dict:
            return [kind, *(part for pair in value.items() for part in self._each(pair))]
        if isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous()
            about = f"{value.dtype} {tuple(value.shape)} {value.device}"
            return [self(type(value)), about.encode(), data.reshape(-1).view(torch.uint8).numpy().tobytes()]
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return [kind, f"{value.dtype.descr} {value.shape}".encode(), value.tobytes()]
        if isinstance(value, types.CodeType):
            return [kind, *self._code(value)]
        if isinstance(value, types.FunctionType):
            return [kind, *self._function(value)]
        if isinstance(value, type):
            return [b"class", *self._class(value)]
        if isinstance(value, types.MethodType):
            return [kind, self(value.__func__), self(value.__self__)]
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            return [kind, value.__name__.encode(), self(value.__self__)]
        if isinstance(
            value, types.WrapperDescriptorType | types.MethodDescriptorType | types.GetSetDescriptorType
        ):
            return [kind, value.__name__.encode(), self(value.__objclass__)]
        if isinstance(value, types.MemberDescriptorType):  # of a class with slots
            return [kind, value.__name__.encode()]
        if isinstance(value, types.ModuleType):
            return [kind, self._module(value, frozenset(), set())]
        if isinstance(value, staticmethod | classmethod):
            return [kind, self(value.__func__)]
        if isinstance(value, property):
            return [kind, *self._each((value.fget, value.fset, value.fdel))]
        if isinstance(value, functools.cached_property):
            return [kind, self(value.func)]
        if isinstance(value, dataclasses.Field):
            values = (value.default, value.default_factory)
            spelled = repr((value.name, value.init, value.kw_only is True)).encode()  # MISSING in a ClassVar
            return [spelled, *(b"none" if v is dataclasses.MISSING else self._attribute(v) for v in values)]
        return [kind, *self._stored(value)]

    def _inside(self, text: str) -> str:
        """Returns a path below the folder of the code without that folder: it may lie elsewhere tomorrow."""
        inside = bool(self.folder) and (text + os.sep).startswith(self.folder + os.sep)
        return f"...{text[len(self.folder) :]}" if inside else text

    def _stored(self, value: object) -> list[bytes]:
        """Digests what pickle would store."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            stored = value.__reduce_ex__(4) if registered is None else registered(value)
        except Exception as error:
            raise Opaque(f"a value of type {type(value).__name__} cannot be described ({error})") from error
        if isinstance(stored, str):
            return self._named(value, stored)
        made, arguments, *rest = stored
        return [self(made), self(arguments), *(self(list(r) if isinstance(r, Iterator) else r) for r in rest)]

    def _named(self, value: object, name: str) -> list[bytes]:
        """Digests what pickle would find again by its name: a cached function, or an object of a package."""
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:
            return [self(type(value)), self(wrapped)]
        module = getattr(value, "__module__", None) or type(value).__module__
        library = self._library(module)
        if library is None or getattr(sys.modules.get(module), name, None) is not value:
            raise Opaque(f"{name} of type {type(value).__name__} is identified by its name only")
        return [f"{library} {module}.{name}".encode()]

    def _code(self, code: types.CodeType) -> list[bytes]:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        tables = (code.co_code, getattr(code, "co_exceptiontable", b""))
        return [repr((shape, names)).encode(), *tables, *self._each(_constants(code))]

    def _function(self, function: types.FunctionType) -> list[bytes]:
        library = self._library(function.__module__)
        if library is not None and _reachable(function):
            return [f"{library} {function.__module__}.{function.__qualname__}".encode()]
        self.functions += 1
        codes = list(_nested(function.__code__))
        names = frozenset(name for code in codes for name in code.co_names)
        if hiding := sorted(names & self.hiding):
            raise Opaque(
                f"{function.__qualname__} uses {', '.join(hiding)}: "
                "what it accesses this way cannot be determined from its code"
            )
        parts = [self(function.__code__), *self._each((function.__defaults__, function.__kwdefaults__))]
        parts += self._each((function.__dict__,))
        visible = {n: function.__globals__[n] for n in names - WHERE if n in function.__globals__}
        visible |= _captured(function)
        for code in codes:
            steps = list(dis.get_instructions(code))
            for level, wanted, step in zip(steps, steps[1:], steps[2:], strict=False):
                if step.opname == "IMPORT_NAME":
                    name = "." * int(level.argval) + str(step.argval)
                    visible[f"imported {name}"] = self._imported(name, wanted.argval or (), function)
        for name in sorted(visible):
            value = visible[name]
            if isinstance(value, types.ModuleType):
                parts += [name.encode(), self._module(value, names, set())]
            else:
                parts += [name.encode(), self._attribute(value)]
        return parts

    def _imported(self, name: str, wanted: Iterable[str], function: types.FunctionType) -> object:
        """Returns a module that the function imports while it runs; a name may begin with dots."""
        if not name.startswith(".") and self._library(name):
            return name
        try:
            full = importlib.util.resolve_name(name, function.__globals__.get("__package__") or "")
            module = importlib.import_module(full)
            for part in wanted:
                if not hasattr(module, part):
                    importlib.import_module(f"{full}.{part}")
        except Exception as error:  # whatever a user's module raises
            raise Opaque(f"{function.__qualname__} imports {name!r} at run time ({error})") from error
        return module

    def _module(self, module: types.ModuleType, names: frozenset[str], met: set[str]) -> bytes:
        """Digests a package by its version, a module of the user's by what the code may take from it."""
        name = module.__name__
        library = self._library(name)
        if library is not None or name in met:
            return f"{library} {name}".encode()
        if not names:
            raise Opaque(f"the module {name} is passed as a value")
        parts = [name.encode()]
        for key in sorted(names & vars(module).keys()):
            value = vars(module)[key]
            inner = (
                self._module(value, names, met | {name})
                if isinstance(value, types.ModuleType)
                else self._attribute(value)
            )
            parts += [key.encode(), inner]
        return _joined(parts)

    def _class(self, cls: type) -> list[bytes]:
        library = self._library(cls.__module__)
        if library is not None or cls.__module__ == builtins.__name__:
            version = getattr(cls, "version", None) if library == "mobench" else None
            return [f"{library} {cls.__module__}.{cls.__qualname__} {version!r}".encode()]
        self.functions += 1
        parts = [cls.__qualname__.encode(), *self._each(cls.__bases__)]
        for name in sorted(vars(cls).keys() - SHELL):
            value = vars(cls)[name]
            if name == "__dataclass_params__":
                parts += [
                    name.encode(),
                    repr([getattr(value, key) for key in ("eq", "order", "frozen")]).encode(),
                ]
            elif not _generated(value):
                parts += [name.encode(), self._attribute(value)]
        return parts


def _constants(code: types.CodeType) -> tuple[object, ...]:
    """Returns the constants without the docstring, which is the first one of a function that has one."""
    if sys.version_info >= (3, 13):
        documented = bool(code.co_flags & 0x4000000)  # inspect.CO_HAS_DOCSTRING
    else:  # there the first constant of a function is its docstring or None
        function = bool(code.co_flags & inspect.CO_NEWLOCALS) and not code.co_name.startswith("<")
        documented = function and isinstance(code.co_consts[0], str)
    return code.co_consts[1:] if documented else code.co_consts


def _captured(function: types.FunctionType) -> dict[str, object]:
    """Returns what a closure holds."""
    out: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            out[f"captured {name}"] = cell.cell_contents
        except ValueError:  # not yet assigned
            out[f"captured {name}"] = "empty"
    return out


def _generated(value: object) -> bool:
    """Tells whether `dataclass` or `namedtuple` made a method: the fields say the same."""
    function = value.__func__ if isinstance(value, staticmethod) else value
    made = isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"
    return made or type(value).__name__ == "_tuplegetter"  # `_fields` has their order


def _joined(parts: list[bytes]) -> bytes:
    """One digest; lengths go in as well, so that no two lists of parts run together."""
    total = sha256(b"%d" % len(parts))
    for part in parts:
        total.update(b"|%d|" % len(part))
        total.update(part)
    return total.digest()
