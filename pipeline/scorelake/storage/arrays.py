"""Convert between numpy, Python and Arrow without loading pandas.

`pa.array` and `to_numpy` import pandas if it is installed, which takes 0.8 s: as long as counting five million
attempts. Polars and plain buffers do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray


def arrow(values: NDArray[Any]) -> Any:
    """Return numbers as an Arrow array, without a copy if they are contiguous."""
    assert values.dtype != bool, "Arrow packs eight booleans into a byte"
    buffer: Any = pa.py_buffer(np.ascontiguousarray(values))  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, buffer])


def numbers(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[Any]:
    """Return Arrow numbers or booleans without nulls as a numpy array, without a copy where possible."""
    return pl.Series(values=column).to_numpy()


def texts(values: Sequence[str | None]) -> pa.Array[Any]:
    """Return texts as an Arrow array."""
    return pl.Series(values, dtype=pl.String).to_arrow(compat_level=pl.CompatLevel.oldest())
