"""The protocols of a lake as a table: a readable label, and one column per key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from scorelake.publish.views import PROTOCOL_KEY
from scorelake.schemas import protocol_label

GRADERS = ("grader", "judge")
"""A protocol key whose name contains one of these words names the grader."""


def protocol_table(protocols: Sequence[str]) -> pl.DataFrame:
    """Return one row per protocol (as JSON), with one column per key."""
    values = [json.loads(protocol) if protocol else {} for protocol in protocols]
    keys = list(dict.fromkeys(key for row in values for key in row))
    graders = [key for key in keys if any(word in key.lower() for word in GRADERS)]
    frame = pl.DataFrame(
        {
            "protocol": list(protocols),
            "label": [protocol_label(protocol) for protocol in protocols],
            "_grader": [_joined(row, graders) for row in values],
            "_other": [_joined(row, [key for key in keys if key not in graders]) for row in values],
        },
        schema=PROTOCOL_KEY.schema,
    )
    names = list(frame.columns)
    for key in keys:  # column names are case-insensitive in DuckDB, and some are taken
        name = key or "_"
        while name.lower() in {other.lower() for other in names}:
            name += "_"
        names.append(name)
    columns = zip(names[len(frame.columns) :], keys, strict=True)
    return frame.with_columns(_column(name, [row.get(key) for row in values]) for name, key in columns)


def _joined(row: dict[str, Any], keys: Sequence[str]) -> str | None:
    """Return the label of some keys of a protocol; of a single key only the value."""
    values = {key: row[key] for key in keys if key in row}
    if len(values) == 1:
        (value,) = values.values()
        return value if isinstance(value, str) else json.dumps(value)
    return protocol_label(json.dumps(values)) if values else None


def _column(name: str, values: list[Any]) -> pl.Series:
    """Return booleans or numbers as such if all values are, else texts."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, bool) for value in present):
        return pl.Series(name, values, pl.Boolean)
    if present and all(_is_exact_float(value) for value in present):
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, pl.String)


def _is_exact_float(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= 2**53)
