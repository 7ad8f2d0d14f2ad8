"""What a Python function computes, as a hash: its code and all that it refers to, by content.

    hash(function) = sha256(bytecode, constants, names, defaults, captured values, globals that it names)

and so on through the functions, classes and values found there. Bytecode, not text: two lambdas share a line of source, and
a function typed at a prompt has none; comments do not count. Code of installed packages is named with the version of its
package and not looked into. Other objects are described by what pickle would store of them. Two functions have the same
hash only if they agree in all of this; whoever cannot be described so is `Opaque`, and never guessed.

Not part of it: files, the environment, and what a function looks up by a name that it makes while it runs (`getattr`).
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch

from mobench.errors import MobenchError

PLAIN = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType, types.NotImplementedType)
HIDING = {
    "eval",
    "exec",
    "globals",
    "open",
    "__import__",
    "import_module",
}  # what they reach cannot be seen in the code
# of a class: where it was written, and what Python adds to each
SHELL = {
    "__annotate_func__",
    "__annotations__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}


class Opaque(MobenchError):
    """Something that the function refers to cannot be described by content; the message says what."""


def fingerprint(value: object) -> str:
    """32 hex digits that change with what `value` (a function, or a container of functions and values) computes.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Walk()(value).hex()[:32]


def _library(module: str | None) -> str | None:
    """Name and version of the installed package that a module belongs to; None for code of the user's own."""
    top = (module or "builtins").partition(".")[0]
    if top in sys.stdlib_module_names:
        return top
    found = sys.modules.get(top)
    places = [getattr(found, "__file__", None) or "", *getattr(found, "__path__", [])]
    if not any(part in ("site-packages", "dist-packages") for place in places for part in Path(place).parts):
        return None
    return f"{top} {getattr(found, '__version__', '')}"


def _reachable(function: types.FunctionType) -> bool:
    """Whether the function is what its module has under its name: a closure made there is not."""
    found: object = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions and classes inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


class _Walk:
    """Digests of one walk. Each object is met once: one that is met inside of itself is named by when it was met."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}
        self.kept: list[object] = []  # an address must not be given to another object meanwhile

    def __call__(self, value: object) -> bytes:
        key = id(value)
        if key not in self.known:
            self.kept.append(value)
            self.known[key] = b"met %d" % len(self.known)
            self.known[key] = _joined(self._parts(value))
        return self.known[key]

    def _each(self, values: Iterable[object]) -> list[bytes]:
        return [self(value) for value in values]

    def _parts(self, value: object) -> list[bytes]:
        kind = type(value).__name__.encode()
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
        if isinstance(value, types.WrapperDescriptorType | types.MethodDescriptorType | types.GetSetDescriptorType):
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
        return [kind, *self._stored(value)]

    def _stored(self, value: object) -> list[bytes]:
        """What pickle would store."""
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
        """What pickle would find again by its name: a function that is cached, or something of an installed package."""
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:
            return [self(type(value)), self(wrapped)]
        module = getattr(value, "__module__", None) or type(value).__module__
        library = _library(module)
        if library is None or getattr(sys.modules.get(module), name, None) is not value:
            raise Opaque(f"{name} of type {type(value).__name__} is known by its name only")
        return [f"{library} {module}.{name}".encode()]

    def _code(self, code: types.CodeType) -> list[bytes]:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        tables = (code.co_code, getattr(code, "co_exceptiontable", b""))
        return [repr((shape, names)).encode(), *tables, *self._each(code.co_consts)]

    def _function(self, function: types.FunctionType) -> list[bytes]:
        library = _library(function.__module__)
        if library is not None and _reachable(function):
            return [f"{library} {function.__module__}.{function.__qualname__}".encode()]
        codes = list(_nested(function.__code__))
        names = frozenset(name for code in codes for name in code.co_names)
        if hiding := sorted(names & HIDING):
            raise Opaque(
                f"{function.__qualname__} uses {', '.join(hiding)}: what that reaches cannot be seen in its code"
            )
        parts = [self(function.__code__), *self._each((function.__defaults__, function.__kwdefaults__))]
        parts += self._each((function.__dict__,))
        visible: dict[str, object] = {n: function.__globals__[n] for n in names if n in function.__globals__}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                visible[f"captured {name}"] = cell.cell_contents
            except ValueError:  # not yet assigned
                visible[f"captured {name}"] = "empty"
        for code in codes:
            for step in dis.get_instructions(code):
                if step.opname == "IMPORT_NAME":
                    visible[f"imported {step.argval}"] = self._imported(str(step.argval), function)
        for name in sorted(visible):
            value = visible[name]
            if isinstance(value, types.ModuleType):
                parts += [name.encode(), self._module(value, names, set())]
            else:
                parts += [name.encode(), self(value)]
        return parts

    def _imported(self, name: str, function: types.FunctionType) -> object:
        """A module that the function imports while it runs."""
        if _library(name or "."):
            return name
        if name not in sys.modules:
            raise Opaque(f"{function.__qualname__} imports {name or 'a neighbour'!r} while it runs")
        return sys.modules[name]

    def _module(self, module: types.ModuleType, names: frozenset[str], met: set[str]) -> bytes:
        """A package by its version, a module of the user's own by what the code may take from it."""
        name = module.__name__
        library = _library(name)
        if library is not None or name in met:
            return f"{library} {name}".encode()
        if not names:
            raise Opaque(f"the module {name} is handed on as a value")
        parts = [name.encode()]
        for key in sorted(names & vars(module).keys()):
            value = vars(module)[key]
            inner = self._module(value, names, met | {name}) if isinstance(value, types.ModuleType) else self(value)
            parts += [key.encode(), inner]
        return _joined(parts)

    def _class(self, cls: type) -> list[bytes]:
        library = _library(cls.__module__)
        if library is not None or cls.__module__ == builtins.__name__:
            return [f"{library} {cls.__module__}.{cls.__qualname__}".encode()]
        parts = [cls.__qualname__.encode(), *self._each(cls.__bases__)]
        for name in sorted(vars(cls).keys() - SHELL):
            parts += [name.encode(), self(vars(cls)[name])]
        return parts


def _joined(parts: list[bytes]) -> bytes:
    """One digest; lengths go in as well, so that no two lists of parts run together."""
    total = sha256(b"%d" % len(parts))
    for part in parts:
        total.update(b"|%d|" % len(part))
        total.update(part)
    return total.digest()
