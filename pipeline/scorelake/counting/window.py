"""Windows: only the newest rows of a lake count, by a column or folder key of dates, times or whole numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.counting.scan import to_polars
from scorelake.errors import DataError
from scorelake.settings import Settings
from scorelake.storage import parquet

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def rows_outside(
    path: str, metadata: pq.FileMetaData, hive: Mapping[str, str | None], settings: Settings, names: Mapping[str, str]
) -> NDArray[Any]:
    """Return the rising positions of the rows of a file that are not in the window; null is not.

    `names` maps columns of the lake to those of the file.
    """
    name, since = settings.window.column, settings.window.since
    rows = np.arange(metadata.num_rows)
    if name is None or since is None:
        return rows[:0]
    if name in hive:
        value = hive[name]
        return rows[:0] if value is not None and _number(value) >= _number(since) else rows
    if names.get(name, name) not in metadata.schema.to_arrow_schema().names:
        return rows
    outside, first = [], 0
    for values in _columns(path, metadata, names.get(name, name)):
        is_inside = pl.select(pl.lit(values) >= _literal(since, values.dtype)).to_series().fill_null(value=False)
        outside.append(first + np.flatnonzero(~is_inside.to_numpy()))
        first += len(values)
    return np.concatenate([rows[:0], *outside])


def first_inside(newest: Iterable[Any], last: str) -> str:
    """Return the first value of a window of a length, 7d, 12h, 2w or 3 (numbers), that ends with the newest value."""
    values = [value for value in newest if value is not None]
    if not values:
        raise DataError("no file has a value in the column of [window]", hint="name another column")
    end = max(_number(str(value)) if isinstance(value, str) else value for value in values)
    amount, unit = re.fullmatch(r"(\d+)([hdw]?)", last).groups()  # type: ignore[union-attr]
    if isinstance(end, int) and not unit:
        return str(end - int(amount) + 1)
    if not isinstance(end, date) or not unit:
        what = f"[window] last = {last!r} does not fit the column, whose newest value is {end}"
        raise DataError(what, hint='"7d", "12h" or "2w" for dates and times, "3" for whole numbers')
    begin = end - timedelta(**{_UNITS[unit]: int(amount)})
    return (begin if isinstance(end, datetime) else begin + timedelta(days=1)).isoformat()


def newest_value(path: str, metadata: pq.FileMetaData, hive: Mapping[str, str | None], name: str) -> Any:
    """Return the largest value of a column, by the footer if it has one, or the folder key; None if there is none."""
    if name in hive:
        return hive[name]
    names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    if name not in names:
        return None
    j = names.index(name)
    statistics: list[Any] = [metadata.row_group(i).column(j).statistics for i in range(metadata.num_row_groups)]
    if all(each is not None and each.has_min_max for each in statistics):
        return max((each.max for each in statistics), default=None)
    largest: list[Any] = [values.max() for values in _columns(path, metadata, name)]
    return max((value for value in largest if value is not None), default=None)


def _columns(path: str, metadata: pq.FileMetaData, name: str) -> Iterator[pl.Series]:
    """Yield the values of a column, batch by batch."""
    for groups in parquet.units(metadata):
        for batch in parquet.batches(path, metadata, groups, [name]):
            column: Any = batch.column(0)
            yield to_polars(column.dictionary_decode() if hasattr(column, "dictionary_decode") else column)


def _number(text: str) -> Any:
    """Return a whole number, a date or a time of a text, or the text."""
    for kind in (int, date.fromisoformat, datetime.fromisoformat):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _literal(since: str, kind: pl.DataType) -> pl.Expr:
    """Return the begin of a window as an expression of the column's type."""
    if kind == pl.String:
        return pl.lit(since)
    value = _number(since)
    if isinstance(kind, pl.Datetime) and isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        return pl.lit(moment).cast(pl.Datetime(kind.time_unit)).dt.replace_time_zone(kind.time_zone)
    return pl.lit(value)
