"""Values as texts, so that equal values are equal in whatever file and type: protocols, answers, carried columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from scorelake.hashing import hash_text, text_ids

LONG_TEXT = 256


def protocol_text(values: pl.Series) -> pl.Series:
    """A protocol value as it is written, so that equal values are equal in whatever file and type: 0, 0.0 and the
    text 0 are one; 1.5 and a 32-bit 1.5; true and the text true. Null is not the text null."""
    if (
        isinstance(values.dtype, pl.String | pl.Categorical | pl.Enum | pl.Binary | pl.Boolean)
        or values.dtype.is_integer()
    ):
        return values.cast(pl.String)
    if values.dtype == pl.Duration:
        return values.dt.total_nanoseconds().cast(pl.String)
    if values.dtype.is_temporal():  # in whatever unit: no zeros at the end of a fraction
        return values.cast(pl.String).str.replace(r"([.][0-9]*?)0+$", "$1").str.replace(r"[.]$", "")
    if values.dtype.is_float() and values.dtype != pl.Float64:
        values = values.cast(pl.String).cast(pl.Float64)  # by its own shortest spelling, not by that of a double
    return pl.Series([None if value is None else _spelled(value) for value in values.to_list()], dtype=pl.String)


def protocol_expr(column: pl.Expr) -> pl.Expr:
    """Return the protocol text of a column."""
    return column.map_batches(partial(per_distinct, function=protocol_text), pl.String)


def _spelled(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, list | dict):
        return json.dumps(_even(value), sort_keys=True, default=str)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 64:
        return str(int(value))
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))


def _even(value: Any) -> Any:
    """A nested value in which whole numbers are whole numbers."""
    if isinstance(value, dict):
        return {key: _even(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_even(inside) for inside in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def protocol_label(values: Mapping[str, str | None]) -> str:
    """One text for a whole protocol: JSON, in which what looks like a number or a truth value is one."""
    if not values:
        return ""
    return json.dumps(
        {name: _plain(text) for name, text in values.items()}, ensure_ascii=False, separators=(",", ":")
    )


def _plain(text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=lambda _: text)
    except (ValueError, RecursionError):
        return text
    same = isinstance(value, bool | int | float) and json.dumps(value) == text
    return value if same else text


def in_microseconds(kind: pl.DataType) -> pl.DataType:
    """The type of a time in one unit, so that files in two units agree."""
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", kind.time_zone)
    return pl.Duration("us") if isinstance(kind, pl.Duration) else kind


def per_distinct(values: pl.Series, function: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Apply a function to every value, computed once per distinct value."""
    if values.dtype.is_nested():
        return function(values)
    distinct = values.unique()  # a join: replace_strict of Polars 2.1 misses NaN among 32-bit -inf
    pairs = _join_keys(distinct).with_columns(function(distinct).alias("result"))
    rows = _join_keys(values)
    return rows.join(pairs, on=rows.columns, how="left", nulls_equal=True, maintain_order="left")["result"]


def _join_keys(values: pl.Series) -> pl.DataFrame:
    """Columns that are equal where values are: a join does not match NaN with NaN."""
    frame = values.to_physical().to_frame("value")
    if not values.dtype.is_float():
        return frame
    return frame.select(pl.col("value").fill_nan(None), nan=pl.col("value").is_nan())


def attempt_ids(texts: pl.Series) -> pl.Series:
    """64 bits that identify an attempt by its text: a whole number is itself."""

    def ids(distinct: pl.Series) -> pl.Series:
        number = distinct.cast(pl.Int64, strict=False)
        is_number = number.is_not_null() & (number.cast(pl.String) == distinct)
        hashes = pl.Series(hash_text(distinct).view(np.int64))
        return pl.select(pl.when(is_number).then(number).when(distinct.is_not_null()).then(hashes)).to_series()

    # ids rarely repeat, but 20 of 35,000 letters in 200,000 rows took 7 GB and minutes
    return per_distinct(texts, ids) if (texts.str.len_bytes() > LONG_TEXT).any() else ids(texts)


def answer_ids(values: pl.Series) -> pl.Series:
    """64 bits that tell an answer from others, null where there is none."""

    def ids(distinct: pl.Series) -> pl.Series:
        texts = answer_text(distinct)
        return pl.select(pl.when(texts.is_not_null()).then(pl.Series(text_ids(texts), dtype=pl.UInt64))).to_series()

    return per_distinct(values, ids)


def answer_text(values: pl.Series) -> pl.Series:
    """The text of an answer, by the rule of protocols: 42, 42.0 and the text 42 are one; null where there is none."""
    return protocol_text(values.fill_nan(None) if values.dtype.is_float() else values)
