"""Functions of arrays and numbers as machine code: numba compiles them once, later runs only load what it made.

numba takes 1.2 s to load, also when everything is compiled already: as much as counting ten million rows. So its
machine code is kept in a file per function and kinds of arguments, and llvmlite, the part of numba that can load such
a file, is all that a later run needs (0.1 s). A file is named by all it was made from: the function and those it
calls, the kinds of its arguments, the version of numba, and the processor. One that is damaged is made again.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from threading import Lock
from types import FunctionType
from typing import Any, TypeAlias

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np

U = np.uint64
Kinds: TypeAlias = tuple[str, ...]
"""Of arguments: a number by its type; an array by its type, dimensions and layout, such as `uint64 2 C`."""
_FORMAT = 1
"""Raise when files of an older version must not be loaded."""
_DIGEST, _MOST = 32, 8
"""A file is a digest of what follows, the types of at most so many results, and an object file."""


class Function:
    """A function that is compiled when it is called, and leaves the interpreter to other threads while it works.

    It may call others of its sort. It gives nothing, a number or a few numbers; it makes no array and raises nothing.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        assert isinstance(function, FunctionType)
        self.function = function
        self._lock, self._loaded = Lock(), dict[Kinds, _Loaded]()

    def __call__(self, *arguments: Any) -> Any:
        kinds = tuple(_kind(argument) for argument in arguments)
        loaded = self._loaded.get(kinds)
        if loaded is None:
            with self._lock:
                loaded = self._loaded.get(kinds) or _Loaded(*self._made(kinds))
                self._loaded[kinds] = loaded
        return loaded(*arguments)

    @property
    def named(self) -> dict[str, Any]:
        """What the function refers to by name."""
        known = self.function.__globals__
        return {name: known[name] for name in self.function.__code__.co_names if name in known}

    def made_from(self) -> Iterator[str]:
        """All that its machine code depends on, besides arguments and machine."""
        code = self.function.__code__
        yield repr((code.co_code, code.co_consts, code.co_names, code.co_varnames))
        for name, each in self.named.items():
            yield name
            if isinstance(each, Function):
                yield from each.made_from()
            elif isinstance(each, (int, np.generic)):
                yield repr(each)

    @cache  # noqa: B019 - functions live as long as the process
    def for_numba(self) -> Any:
        """The function, and all that it calls, as numba wants them."""
        from numba import njit  # noqa: PLC0415 - takes long, and is needed only where something is compiled

        known = {name: each.for_numba() for name, each in self.named.items() if isinstance(each, Function | _Load)}
        function = self.function
        twin = FunctionType(function.__code__, {**function.__globals__, **known}, function.__name__)
        twin.__module__ = function.__module__
        options: dict[str, Any] = {"nogil": True, "_nrt": False}  # references are not counted: the caller holds them
        return njit(**options)(twin)

    def _made(self, kinds: Kinds) -> tuple[str, bytes]:
        """The machine code for such arguments, and its name: from its file, or made now."""
        told = "\n".join([_machine(), *kinds, *self.made_from()])
        name = f"{self.function.__name__.strip('_')}_{sha256(told.encode()).hexdigest()[:40]}"
        for home in _homes():
            with suppress(OSError):
                code = (home / f"{name}.o").read_bytes()
                if sha256(code[_DIGEST:]).digest() == code[:_DIGEST]:
                    return name, code[_DIGEST:]
        code = _compile(self.for_numba(), kinds, name)
        for home in _homes():
            with suppress(OSError):
                _keep(home, f"{name}.o", sha256(code).digest() + code)
                break
        return name, code


compiled = Function


class _Load:
    """load(array, at): eight bytes from any place of an array of bytes, in one step. Whoever asks made sure that they
    are in it. Byte by byte, looking up a problem id takes twice as long."""

    def __call__(self, array: Any, at: Any) -> Any:
        raise NotImplementedError("there is no such step in Python; compiled functions have it")

    @cache  # noqa: B019
    def for_numba(self) -> Any:
        from llvmlite import ir  # noqa: PLC0415
        from numba import types  # noqa: PLC0415
        from numba.extending import intrinsic  # noqa: PLC0415

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [arguments[1]])
            value = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
            value.align = 1
            return value

        def load(_: Any, array: Any, at: Any) -> Any:
            return types.uint64(array, types.uint64), generate

        return intrinsic(load)


load = _Load()


class _Loaded:
    """Machine code in memory. It is called as numba's functions call each other: where to put results, where to put
    an exception, then numbers as they are and arrays field by field; it gives 0 unless it raised."""

    def __init__(self, name: str, code: bytes) -> None:
        self.results = code[:_MOST].decode().strip()
        """A letter for each, as numpy calls their types."""
        target = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(code[_MOST:]))
        self.engine.finalize_object()
        self.call = ctypes.CFUNCTYPE(ctypes.c_int32)(self.engine.get_function_address(name))

    def __call__(self, *arguments: Any) -> Any:
        results, raised = (ctypes.c_uint64 * _MOST)(), ctypes.c_void_p()
        fields = [field for argument in arguments for field in _fields(argument)]
        if self.call(results, ctypes.byref(raised), *fields):
            raise AssertionError("compiled code raised something")
        told = [ctypes.c_int64(one).value if kind == "q" else U(one) for kind, one in zip(self.results, results)]  # noqa: B905
        return told[0] if len(told) == 1 else tuple(told) or None


def _kind(argument: Any) -> str:
    if not isinstance(argument, np.ndarray):
        return "uint64" if isinstance(argument, np.uint64) else "int64"
    return f"{argument.dtype} {argument.ndim} {'C' if argument.flags.c_contiguous else 'A'}"


def _fields(argument: Any) -> Iterator[Any]:
    """A number; or of an array its owner, twice; items, bytes of an item, where they are; shape and strides."""
    if not isinstance(argument, np.ndarray):
        yield ctypes.c_uint64(int(argument))
        return
    yield from (None, None, ctypes.c_int64(argument.size), ctypes.c_int64(argument.itemsize))
    yield ctypes.c_void_p(argument.ctypes.data)
    yield from map(ctypes.c_int64, argument.shape + argument.strides)


@cache
def _machine() -> str:
    return repr((_FORMAT, version("numba"), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()))


@cache
def _homes() -> list[Path]:
    """Where machine code is kept: beside Python's own, or, where that cannot be written, in the user's cache."""
    homes = [Path(__file__).parent / "__pycache__"]
    with suppress(RuntimeError):  # no home
        homes.append(Path(os.environ.get("SCORELAKE_CACHE") or "~/.cache/scorelake").expanduser() / "compiled")
    return homes


def _keep(home: Path, name: str, code: bytes) -> None:
    """A file that is there is whole, whoever else is writing it."""
    home.mkdir(parents=True, exist_ok=True)
    part = home / f"{name}.{token_hex(4)}"
    try:
        part.write_bytes(code)
        os.replace(part, home / name)
    finally:
        part.unlink(missing_ok=True)


def _compile(jitted: Any, kinds: Kinds, name: str) -> bytes:
    """The types of the results, and an object file with one function of this name."""
    given = tuple(_type(kind) for kind in kinds)
    jitted.compile(given)
    made = jitted.overloads[given]
    module = llvm.parse_assembly(jitted.inspect_llvm(given))
    function = module.get_function(made.fndesc.llvm_func_name)
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != function.name:
            each.linkage = "internal"  # what the function does not need goes, such as ways to call it from Python
    function.name = name
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple().create_target_machine(cpu, features, opt=3, jit=True)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    foreign = [each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")]
    if foreign:
        raise TypeError(f"{name} needs {', '.join(foreign)}, which only numba has")
    results: bytes = "".join(_letters(made.signature.return_type)).encode().ljust(_MOST)
    return results + bytes(target.emit_object(module))


def _type(kind: str) -> Any:
    from numba import from_dtype, types  # noqa: PLC0415

    item, *layout = kind.split(" ")
    scalar: Any = from_dtype(np.dtype(item))
    form: Any = types.Array
    return form(scalar, int(layout[0]), layout[1]) if layout else scalar


def _letters(returned: Any) -> Iterator[str]:
    from numba import types  # noqa: PLC0415

    known = {types.int64: "q", types.uint64: "Q"}
    for each in () if returned == types.none else getattr(returned, "types", (returned,)):
        if each not in known:
            raise TypeError(f"it gives {each}; whole numbers of 64 bits are all it may give")
        yield known[each]


llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
