"""numba, loaded without the linear algebra that it looks for and nothing here uses: a third of a second.

And what it cannot say: load a word from any byte of an array, or store one, which processors do in one step.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

if "scipy.linalg" not in sys.modules:
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]  # "not installed", for one look
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules["scipy.linalg"]

compiled = njit(cache=True, nogil=True)
"""A function compiled once for all runs, which leaves the interpreter to other threads while it works."""


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Where a word begins, given an array and a byte of it."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(64).as_pointer())


def _load(_: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_place(context, builder, signature, arguments))
        value.align = 1
        return value

    return types.uint64(array, types.int64), generate


def _store(_: Any, array: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(context, builder, signature, arguments)).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


load: Any = intrinsic(_load)
"""load(array, at): eight bytes from any place of an array. Whoever asks made sure that they are in it."""
store: Any = intrinsic(_store)
"""store(array, at, value): eight bytes to any place, likewise."""
