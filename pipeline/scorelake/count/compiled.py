"""numba, where there may be no place to keep what it compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

U = np.uint64


def compiled(function: Callable[..., Any]) -> Any:
    """A function compiled once for all runs, which leaves the interpreter to other threads while it works.

    On a read-only installation without a home there is no place for compiled code: it is compiled for this run only.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


def _load(_: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [arguments[1]])
        value = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(array, types.uint64), generate


load: Any = intrinsic(_load)
"""load(array, at): eight bytes from any place of an array of bytes, in one step. Whoever asks made sure that they are
in it. Byte by byte, looking up a problem id takes twice as long."""
