"""Functions on plain memory as machine code that a process loads in .08 s; Numba compiles them once.

Importing Numba and loading its cache takes a second in each process, a third of a short command. So a file of
such functions is compiled into an object file, which LLVM alone loads; and nothing is compiled or loaded
before the `PATIENCE`-th call in a process: until then formulas in arrays give the same numbers. The file
imports no Numba: `outer` and `inner` mark its functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from mobench.errors import StoreError
from mobench.system.console import say
from mobench.system.files import write_atomic

Function = TypeVar("Function", bound=Callable[..., Any])
Calls = Mapping[str, Callable[..., object]]

NUMBERS = "float64*"
TRUTHS = "uint8*"
INTEGERS = "int64*"
NUMBER = "float64"
SIZE = "int64"
C_TYPES: dict[str, Any] = {NUMBER: ctypes.c_double, SIZE: ctypes.c_int64}  # the rest are addresses

FLAGS = Path(__file__).with_name("jit.py")  # has the flags of compilation; importing it imports Numba

PATIENCE = 1000  # calls: their formulas take as long as loading does
DIGEST_SIZE = hashlib.sha256().digest_size

_calls_before: dict[str, int] = {}
_engines: list[Any] = []  # as long as they live, so does the machine code


def outer(*kinds: str) -> Callable[[Function], Function]:
    """Marks a function that Python calls, with the kinds of its arguments; it returns nothing."""

    def marked(function: Function) -> Function:
        function.__dict__["kinds"] = kinds
        return function

    return marked


def inner(function: Function) -> Function:
    """Marks a function that only these functions call."""
    function.__dict__["kinds"] = None
    return function


def native(name: str) -> Calls | None:
    """Returns the functions of mobench.<name>, by name; None before `PATIENCE` calls, and without Numba."""
    calls = _calls_before.get(name, 0)
    if calls >= PATIENCE:
        return load(name)
    _calls_before[name] = calls + 1
    return None


@functools.cache
def load(name: str) -> Calls | None:
    """Loads the functions of mobench.<name>, compiled before or now; None, and a message, without Numba."""
    module = importlib.import_module(f"mobench.{name}")
    try:
        import llvmlite
        import llvmlite.binding as llvm

        with contextlib.suppress(RuntimeError):  # not needed since 0.45
            llvm.initialize()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        source = b"".join(Path(str(file)).read_bytes() for file in (module.__file__, __file__, FLAGS))
        key = hashlib.sha256(source + repr((llvmlite.__version__, *_machine(llvm))).encode()).hexdigest()[:16]
        code = _stored(f"{name.rpartition('.')[2]}-{key}.o", lambda: compiled(module))
    except ImportError as error:  # such as a NumPy that is too new for Numba
        say(f"mobench: small solvers are not compiled, and slower: {error}", sys.stderr)
        return None
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    unused = ctypes.create_string_buffer(64)  # Numba's functions have addresses for an answer and an error
    _engines.append((engine, unused))
    place = ctypes.addressof(unused)
    calls: dict[str, Callable[..., object]] = {}
    for label, function in _functions(module).items():
        if function.kinds is not None:
            types = [C_TYPES.get(kind, ctypes.c_void_p) for kind in function.kinds]
            prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *types)
            calls[label] = functools.partial(prototype(engine.get_function_address(label)), place, place + 32)
    return calls


def _folders() -> list[Path]:
    """Returns the folders of object files, as Numba's: the user's, else beside the package or at home."""
    if folder := os.environ.get("MOBENCH_CACHE"):
        return [Path(folder).absolute() / "native"]
    folders = [Path(__file__).with_name("__pycache__")]
    with contextlib.suppress(RuntimeError):  # a user without a home
        folders.append(Path.home() / ".cache" / "mobench")
    return folders


def _stored(file: str, make: Callable[[], bytes]) -> bytes:
    """Returns the code in a file, which is made anew where it is missing or damaged.

    Its hash stands before it: damaged code would end the process that loads it, without a word.
    """
    for folder in _folders():
        with contextlib.suppress(OSError):
            content = (folder / file).read_bytes()
            code = content[DIGEST_SIZE:]
            if content[:DIGEST_SIZE] == hashlib.sha256(code).digest():
                return code
    code = make()
    for folder in _folders():
        with contextlib.suppress(StoreError):
            write_atomic(folder / file, hashlib.sha256(code).digest() + code)
            say("mobench: compiled small solvers, once on this machine", sys.stderr)
            return code
    say("mobench: compiled small solvers for this process alone, for want of a folder", sys.stderr)
    return code


def compiled(module: ModuleType) -> bytes:
    """Compiles the functions of a module into one object file."""
    import llvmlite.binding as llvm
    from numba import types

    from mobench.kernels.jit import kernel

    kinds = {
        NUMBERS: types.CPointer(types.float64),
        TRUTHS: types.CPointer(types.uint8),
        INTEGERS: types.CPointer(types.int64),
        NUMBER: types.float64,
        SIZE: types.int64,
    }
    names = dict(vars(module))  # Numba's functions take the places of those that others call
    whole = llvm.parse_assembly("")
    for name, function in _functions(module).items():
        made = kernel(FunctionType(function.__code__, names, name))
        names[name] = made
        if function.kinds is not None:
            signature = tuple(kinds[kind] for kind in function.kinds)
            made.compile(signature)
            part = llvm.parse_assembly(made.inspect_llvm(signature))
            part.get_function(made.overloads[signature].fndesc.llvm_func_name).name = name
            whole.link_in(part)
    return bytes(_target(llvm).emit_object(whole))


def _machine(llvm: Any) -> tuple[str, str, str]:
    """Kind, processor and features of this machine."""
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _target(llvm: Any) -> Any:
    """Returns LLVM's compiler for this machine."""
    triple, cpu, features = _machine(llvm)
    kind = llvm.Target.from_triple(triple)
    return kind.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", jit=True)


def _functions(module: ModuleType) -> dict[str, Any]:
    """The marked functions of a module, in their order."""
    return {name: value for name, value in vars(module).items() if hasattr(value, "kinds")}
