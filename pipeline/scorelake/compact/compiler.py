"""numba, loaded without the linear algebra that it looks for and nothing here uses: a third of a second.

And the one thing it cannot say: load a word from any byte of a buffer, which processors do in one step.
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


def _load(_: Any, words: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        place = builder.gep(start, [arguments[1]])
        value = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(words, types.int64), generate


load: Any = intrinsic(_load)
"""load(words, at): eight bytes from any place of a buffer of words. Whoever asks made sure that they are in it."""
