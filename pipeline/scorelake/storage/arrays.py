"""Arrow's arrays from numpy's and from Python's, and back, without pandas.

Arrow asks pandas, if it is installed, whether a list or an array is one of its own, and in `to_numpy` too. Loading
pandas takes 0.8 s, as long as counting five million attempts, and nothing of its own ever comes here. Polars and
plain buffers ask nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray


def arrow(values: NDArray[Any]) -> Any:
    """Numbers as an array of Arrow's, not copied."""
    assert values.dtype != bool, "Arrow has eight of them in a byte"
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, buffer(values)])


def buffer(values: NDArray[Any]) -> Any:
    """The bytes of an array, not copied unless they are scattered."""
    return pa.py_buffer(np.ascontiguousarray(values))  # type: ignore[arg-type]


def numbers(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[Any]:
    """Numbers or booleans of Arrow's, none of them null, as an array; not copied where numpy has them alike."""
    return pl.Series(values=column).to_numpy()


def texts(values: Sequence[str | None]) -> pa.Array[Any]:
    """Texts as an array of Arrow's."""
    return pl.Series(values, dtype=pl.String).to_arrow(compat_level=pl.CompatLevel.oldest())
