"""The columns of a batch as values: texts once per dictionary, outcomes by the canonical query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counting.columns import Canonical
from scorelake.storage.arrays import numbers
from scorelake.storage.parquet import DamagedError

Spelling: TypeAlias = Callable[[pl.Series], pl.Series]


def outcomes(batch: pa.RecordBatch, canonical: Canonical) -> pl.DataFrame:
    """The canonical query over the columns of outcomes: the kind of every row, and its reward."""
    names = set(canonical.kind.meta.root_names())
    names |= set(canonical.score.meta.root_names()) if canonical.score is not None else set()
    frame = pl.DataFrame({name: _whole(batch.column(name)) for name in sorted(names)})
    wanted = [canonical.kind.alias("kind")] + (
        [canonical.score.alias("score")] if canonical.score is not None else []
    )
    if not names:
        frame = pl.DataFrame({"_": np.zeros(batch.num_rows, np.uint8)})
    return frame.lazy().select(wanted).collect()


def _whole(column: pa.Array[Any]) -> pl.Series:
    """A value for every row; a verdict in words comes as a dictionary."""
    if not isinstance(column, pa.DictionaryArray):
        return series(column)
    place, values = distinct(column)
    return series(values) if place is None else series(values).gather(place)


def distinct(column: pa.Array[Any]) -> tuple[NDArray[Any] | None, pa.Array[Any]]:
    """For every row its place among the values; None where every row has a value of its own."""
    if not isinstance(column, pa.DictionaryArray):
        if is_text(column.type) or pa.types.is_nested(column.type):
            return None, column
        column = column.dictionary_encode()
    indices, values = column.indices, column.dictionary
    if indices.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        indices = indices.fill_null(len(values) - 1)
    place = numbers(indices)
    if place.size and not (place.min() >= 0 and place.max() < len(values)):
        raise DamagedError("a value is none of its dictionary's")
    return place, values


def is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def strings(values: pa.Array[Any], text: Spelling) -> pa.Array[Any]:
    """Values as the texts they are to us; texts are not looked at."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values
    return text(series(values)).to_arrow(compat_level=pl.CompatLevel.oldest())


def series(column: pa.Array[Any]) -> pl.Series:
    """The same for Polars, which believes that texts are UTF-8."""
    if is_text(column.type):
        column.validate(full=True)
    return pl.Series(values=column)
