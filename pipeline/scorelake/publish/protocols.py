"""The protocols of a lake as a table: a label that people read, and one column per key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from scorelake.schemas import PROTOCOL_KEY, protocol_label

GRADERS = ("grader", "judge")
"""A protocol column whose name has one of these words in it says who graded."""


def protocols(known: Sequence[str]) -> tuple[pl.DataFrame, dict[str, str]]:
    """One row per protocol, and the names that the keys have as columns: names have no case, and some are taken."""
    told = [json.loads(protocol) if protocol else {} for protocol in known]
    keys = list(dict.fromkeys(key for each in told for key in each))
    names = dict(zip(keys, _free(keys, list(PROTOCOL_KEY.columns)), strict=True))
    graders = [key for key in keys if any(word in key.lower() for word in GRADERS)]
    frame = pl.DataFrame(
        {
            "protocol": list(known),
            "label": [protocol_label(protocol) for protocol in known],
            "_grader": [_part(each, graders) for each in told],
            "_other": [_part(each, [key for key in keys if key not in graders]) for each in told],
        },
        schema=PROTOCOL_KEY.schema,
    )
    return frame.with_columns(_column(names[key], [each.get(key) for each in told]) for key in keys), names


def _part(told: dict[str, Any], keys: Sequence[str]) -> str | None:
    """Some keys of a protocol and their values; of one key only its value."""
    some = {key: told[key] for key in keys if key in told}
    if len(some) == 1:
        (value,) = some.values()
        return value if isinstance(value, str) else json.dumps(value)
    return protocol_label(json.dumps(some)) if some else None


def _free(keys: Sequence[str], taken: list[str]) -> list[str]:
    out: list[str] = []
    for key in keys:
        name = key or "_"
        while name.lower() in {other.lower() for other in (*taken, *out)}:
            name += "_"
        out.append(name)
    return out


def _column(name: str, values: list[Any]) -> pl.Series:
    """Numbers as numbers, truths as truths; of several sorts, or texts, as texts."""
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, bool) for value in given):
        return pl.Series(name, values, pl.Boolean)
    if given and all(_is_number(value) for value in given):
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, pl.String)


def _is_number(value: Any) -> bool:
    """A number that is the same as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= 2**53
