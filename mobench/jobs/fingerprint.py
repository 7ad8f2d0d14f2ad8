"""What a Python function computes, as a hash: its code and all that it refers to, by content.

    hash(function) = sha256(bytecode, constants, names, defaults, captured values, globals that it names)

and so on through the functions, classes and values found there. Bytecode, not text: two lambdas share a line
of source, and a function typed at a prompt has none; comments do not count. Code of installed packages is
named with the version of its package and not looked into. Other objects are described by what pickle would
store of them. Two functions have the same hash only if they agree in all of this; what cannot be described
in this way is `Opaque`; its hash is never guessed.

Not part of it: files, the environment, and what a function looks up by a name that it makes while it runs
(`getattr`).

Classes outside of mobench that a configuration names by `_target_` are keyed by the same walk (`of_class`),
made for code that lies in files and is used for months:

- code is described by its syntax tree, which is the same in every Python, wherever its file still says what
  runs, else by bytecode;
- mobench's own classes count by name and `version`, and torch, NumPy and the other packages that mobench
  itself computes with by name, as in any other job (their versions are in meta.json); the package that the
  class lives in is looked into wherever it lies;
- a container or array counts as it was when it was first met in this process: a cache that fills up makes no
  other job;
- files that the code opens are data, and no part of it: raise `version` when they change.
"""

from __future__ import annotations

import ast
import builtins
import copyreg
import dataclasses
import dis
import enum
import functools
import importlib
import importlib.util
import linecache
import os
import sys
import types
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

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
    """32 hex digits that change with what `value` (a function, or a container of functions and values)
    computes.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Walk()(value).hex()[:32]


def of_class(cls: type) -> str:
    """32 hex digits that change with what a class of the user's own computes, and with nothing else.

    Raises:
        Opaque: part of it cannot be described.
    """
    return _Parts(cls)(cls).hex()[:32]


def is_own(cls: type) -> bool:
    """Whether a class is the user's own: mobench's are keyed by their `version`."""
    top = cls.__module__.partition(".")[0]
    return top not in COMMON and top not in sys.stdlib_module_names


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
    """Digests of one walk.

    Each object is met once: one that is met inside of itself is named by how far outside it began.
    """

    hiding = frozenset(HIDING)

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}
        self.kept: list[object] = []  # an address must not be given to another object meanwhile
        self.open: dict[int, int] = {}  # depth of what is being described

    def __call__(self, value: object) -> bytes:
        key = id(value)
        if key in self.open:
            return b"met %d outside" % (len(self.open) - self.open[key])
        if key not in self.known:
            self.kept.append(value)
            self.open[key] = len(self.open)
            try:
                self.known[key] = self._digest(value)
            finally:
                del self.open[key]
        return self.known[key]

    def _digest(self, value: object) -> bytes:
        return _joined(self._parts(value))

    def _library(self, module: str | None) -> str | None:
        return _library(module)

    def _attribute(self, value: object) -> bytes:
        """What a module, class or closure holds under a name."""
        return self(value)

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
        """What pickle would find again by its name: a function that is cached,
        or something of an installed package.
        """
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
        return [repr((shape, names)).encode(), *tables, *self._each(code.co_consts)]

    def _function(self, function: types.FunctionType) -> list[bytes]:
        library = self._library(function.__module__)
        if library is not None and _reachable(function):
            return [f"{library} {function.__module__}.{function.__qualname__}".encode()]
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
        """A module that the function imports while it runs, `from name import wanted`;
        dots before the name are relative.
        """
        if not name.startswith(".") and self._library(name):
            return name
        try:
            full = importlib.util.resolve_name(name, function.__globals__.get("__package__") or "")
        except ImportError:
            full = name
        return self._found(full, wanted, function)

    def _found(self, name: str, wanted: Iterable[str], function: types.FunctionType) -> types.ModuleType:
        if name not in sys.modules:
            raise Opaque(f"{function.__qualname__} imports {name!r} at run time")
        return sys.modules[name]

    def _module(self, module: types.ModuleType, names: frozenset[str], met: set[str]) -> bytes:
        """A package by its version, a module of the user's own by what the code may take from it."""
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
            return [f"{library} {cls.__module__}.{cls.__qualname__}".encode()]
        parts = [cls.__qualname__.encode(), *self._each(cls.__bases__)]
        for name in sorted(vars(cls).keys() - SHELL):
            parts += [name.encode(), self._attribute(vars(cls)[name])]
        return parts


_first: dict[int, tuple[object, bytes]] = {}  # data under a name, as they were first met in this process


class _Parts(_Walk):
    """The walk of a class that a configuration names; see the module."""

    hiding = frozenset(HIDING - {"open"})

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.top = cls.__module__.partition(".")[0]
        found = sys.modules.get(self.top)
        place = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", [])), "")
        folder = Path(place).parent if place else None
        self.folder = str(
            folder.parent if folder is not None and hasattr(found, "__path__") else folder or ""
        )
        self.codes = 0  # pieces of the user's code met so far
        self.coded: set[int] = set()  # what holds some

    def __call__(self, value: object) -> bytes:
        if id(value) in self.coded or id(value) in self.open:
            self.codes += 1
        return super().__call__(value)

    def _digest(self, value: object) -> bytes:
        before = self.codes
        self.codes += isinstance(value, types.FunctionType | types.CodeType)
        digest = super()._digest(value)
        if self.codes > before:
            self.coded.add(id(value))
        return digest

    def _library(self, module: str | None) -> str | None:
        top = (module or "builtins").partition(".")[0]
        if top == self.top:
            return None
        return top if top in COMMON else _library(module)

    def _attribute(self, value: object) -> bytes:
        if isinstance(value, (*PLAIN, tuple, frozenset, type, types.FunctionType)):
            return self(value)
        first = _first.get(id(value))
        if first is not None and first[0] is value:
            return first[1]
        before = self.codes
        digest = self(value)
        if self.codes == before:  # data alone: code that is edited in place must be seen
            _first[id(value)] = (value, digest)
        return digest

    def _parts(self, value: object) -> list[bytes]:
        if isinstance(value, PurePath):
            return [b"path", self._inside(str(value)).encode()]
        if type(value) is str:
            return [b"str", self._inside(value).encode()]
        return super()._parts(value)

    def _inside(self, text: str) -> str:
        """A path below the folder of the code, without that folder: it may lie elsewhere tomorrow."""
        inside = bool(self.folder) and (text + os.sep).startswith(self.folder + os.sep)
        return f"...{text[len(self.folder) :]}" if inside else text

    def _code(self, code: types.CodeType) -> list[bytes]:
        tree = _tree(code)
        return super()._code(code) if tree is None else [b"tree", _shape(tree).encode()]

    def _function(self, function: types.FunctionType) -> list[bytes]:
        library = self._library(function.__module__)
        if library is None:
            return super()._function(function)
        parts = [f"{library} {function.__module__}.{function.__qualname__}".encode()]
        if not _reachable(function):  # a closure of the package: what it wraps may be the user's
            parts += self._each((function.__defaults__, function.__kwdefaults__, function.__dict__))
            for name, value in sorted(_captured(function).items()):
                parts += [name.encode(), self._attribute(value)]
        return parts

    def _found(self, name: str, wanted: Iterable[str], function: types.FunctionType) -> types.ModuleType:
        try:
            module = importlib.import_module(name)
            for part in wanted:
                if not hasattr(module, part):
                    importlib.import_module(f"{name}.{part}")
        except Exception as error:  # whatever a user's module raises
            raise Opaque(f"{function.__qualname__} imports {name!r} at run time ({error})") from error
        return module

    def _class(self, cls: type) -> list[bytes]:
        if self._library(cls.__module__) is not None:
            version = getattr(cls, "version", None) if cls.__module__.partition(".")[0] == "mobench" else None
            return [*super()._class(cls), repr(version).encode()]
        self.codes += 1
        parts = [cls.__qualname__.encode(), *self._each(cls.__bases__)]
        members = (
            {name: m.value for name, m in cls.__members__.items()} if issubclass(cls, enum.Enum) else None
        )
        if members is not None:
            parts.append(self(members))
        for name in sorted(vars(cls).keys() - SHELL - {"__replace__", "__repr__"}):
            value = vars(cls)[name]
            if _generated(value) or (members is not None and not self._method(value)):
                continue
            if name == "__dataclass_fields__":
                inner = _joined([part for f in dataclasses.fields(cls) for part in self._field(f)])
            elif name == "__dataclass_params__":
                inner = repr([getattr(value, key) for key in ("eq", "order", "frozen")]).encode()
            else:
                inner = self._attribute(value)
            parts += [name.encode(), inner]
        return parts

    def _method(self, value: object) -> bool:
        """Whether a member of an enumeration's class is a method that the user wrote."""
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        written = isinstance(function, types.FunctionType) and self._library(function.__module__) is None
        return written or isinstance(value, property)

    def _field(self, field: dataclasses.Field[Any]) -> list[bytes]:
        values = (field.default, field.default_factory)
        about = repr((field.name, field.init, field.kw_only)).encode()
        return [about, *(b"none" if v is dataclasses.MISSING else self._attribute(v) for v in values)]


def _captured(function: types.FunctionType) -> dict[str, object]:
    """What a closure holds."""
    out: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            out[f"captured {name}"] = cell.cell_contents
        except ValueError:  # not yet assigned
            out[f"captured {name}"] = "empty"
    return out


def _generated(value: object) -> bool:
    """Whether the method of a class was made by `dataclass` or `namedtuple`,
    whose code differs from Python to Python.
    """
    function = value.__func__ if isinstance(value, staticmethod) else value
    made = isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"
    return made or type(value).__name__ == "_tuplegetter"  # `_fields` has their order


Place = tuple[str, int]  # name and first line


@functools.lru_cache(maxsize=64)
def _parsed(text: str, file: str) -> tuple[dict[Place, list[ast.AST]], dict[Place, list[types.CodeType]]]:
    """Functions of a file: their trees by name and line, their code by qualified name and line."""
    trees: dict[Place, list[ast.AST]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            trees.setdefault((node.name, first), []).append(node)
        elif isinstance(node, ast.Lambda):
            trees.setdefault(("<lambda>", node.lineno), []).append(node)
    codes: dict[Place, list[types.CodeType]] = {}
    for code in _nested(compile(text, file, "exec", dont_inherit=True)):
        codes.setdefault((code.co_qualname, code.co_firstlineno), []).append(code)
    return trees, codes


def _tree(code: types.CodeType) -> ast.AST | None:
    """The syntax tree of a function, if its file still says what runs and leaves no doubt which function
    it is.
    """
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    try:
        trees, codes = _parsed(text, code.co_filename)
    except (SyntaxError, ValueError):
        return None
    # the file may have been edited since it was imported: then the old code runs
    found = codes.get((code.co_qualname, code.co_firstlineno), [])
    if not any(_Walk()(other) == _Walk()(code) for other in found):
        return None
    nodes = trees.get((code.co_name, code.co_firstlineno), [])
    if len(nodes) > 1:  # lambdas of one line
        places = {(line, column) for line, _, column, _ in code.co_positions()}
        bodies = [(node, node.body) for node in nodes if isinstance(node, ast.Lambda)]
        nodes = [node for node, body in bodies if (body.lineno, body.col_offset) in places]
    return nodes[0] if len(nodes) == 1 else None


def _shape(node: object) -> str:
    """A syntax tree as text that is the same in every Python: without places, comments,
    docstrings and annotations.
    """
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__} {node.value!r}"
    if isinstance(node, ast.AST):
        parts = []
        for name, value in ast.iter_fields(node):
            if value is None or value == [] or name in ("annotation", "returns", "type_comment"):
                continue
            if name == "body" and isinstance(value, list):
                value = [line for line in value if not _remark(line)]
            if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty text between parts
                value = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
            parts.append(f"{name}={_shape(value)}")
        return f"{type(node).__name__}({', '.join(parts)})"
    if isinstance(node, list):
        return f"[{', '.join(map(_shape, node))}]"
    return repr(node)


def _remark(line: ast.stmt) -> bool:
    """A docstring, or any text that stands alone."""
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


def _joined(parts: list[bytes]) -> bytes:
    """One digest; lengths go in as well, so that no two lists of parts run together."""
    total = sha256(b"%d" % len(parts))
    for part in parts:
        total.update(b"|%d|" % len(part))
        total.update(part)
    return total.digest()
