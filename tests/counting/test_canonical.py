"""Thresholds and levels in the precision of a column, and texts of protocols; test_differential counts all types."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import polars as pl
import pytest

from scorelake.counting.canonical import (
    FAILED,
    PASSED,
    REJECTED,
    UNGRADED,
    canonical,
)
from scorelake.counting.protocols import protocol_label, protocol_text
from scorelake.settings import Settings

KEYS = {"model": pl.String(), "problem_id": pl.String()}


def kinds(values: list[Any], kind: Any, column: str = "passed", **settings: Any) -> list[int]:
    """The kind of every row of a column of outcomes."""
    columns = canonical(Settings.model_validate(settings), {**KEYS, column: kind}, {})
    frame = pl.DataFrame({column: pl.Series(values, dtype=kind, strict=False)})
    return frame.select(columns.kind).to_series().to_list()


def scores(values: list[Any], kind: Any, **settings: Any) -> list[float | None]:
    columns = canonical(Settings.model_validate(settings), {**KEYS, "score": kind}, {})
    assert columns.score is not None
    frame = pl.DataFrame({"score": pl.Series(values, dtype=kind)})
    return frame.select(columns.score.alias("score")).to_series().to_list()


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.7, 0.9, 1 / 3])
def test_a_threshold_in_32_bits(threshold: float) -> None:
    """What was written as 0.7 reaches 0.7, in whichever precision; the next smaller number does not."""
    policy = {"pass_threshold": threshold}
    single = np.float32(threshold)
    below = float(np.nextafter(single, np.float32(0)))
    assert kinds([float(single), below], pl.Float32, "score", policy=policy) == [PASSED, FAILED]
    below = float(np.nextafter(threshold, 0))
    assert kinds([threshold, below], pl.Float64, "score", policy=policy) == [PASSED, FAILED]


def test_thresholds() -> None:
    policy = {"pass_threshold": 0.5}
    for kind in (pl.Float32, pl.Float64):
        got = kinds([nan, inf, -inf, None, 0.5, -0.0], kind, "score", policy=policy)
        assert got == [REJECTED, REJECTED, REJECTED, UNGRADED, PASSED, FAILED], (
            "NaN is larger than any number to Polars"
        )
    assert kinds([0, 1, 2], pl.Int64, "score", policy=policy) == [FAILED, PASSED, PASSED]
    assert kinds([None], pl.Null, "score", policy=policy) == [UNGRADED]
    assert kinds([None], pl.Float64, "score", policy=policy | {"ungraded": "fail"}) == [FAILED]


def test_a_rubric_in_32_bits() -> None:
    """A level as the config spells it, whichever precision the column has."""
    rubric = {"levels": [0, 0.1, 0.7]}
    assert scores([0.1, 0.7, 0.0, 0.2, None], pl.Float32, rubric=rubric) == [0.1, 0.7, 0.0, None, None]
    assert kinds([0.1, 0.7, 0.2, nan, None], pl.Float32, "score", rubric=rubric)[2:] == [REJECTED, REJECTED, UNGRADED]
    assert scores([None], pl.Float64, rubric=rubric, policy={"ungraded": "fail"}) == [0.0]


def text(value: Any, kind: Any = None) -> str | None:
    out: str | None
    (out,) = protocol_text(pl.Series([value], dtype=kind, strict=False)).to_list()
    return out


@pytest.mark.parametrize(
    "equals",
    [
        [(0, pl.Int64), (0, pl.UInt8), (0.0, pl.Float64), (-0.0, pl.Float64), (0.0, pl.Float32), ("0", pl.String)],
        [(0.1, pl.Float64), (0.1, pl.Float32), ("0.1", pl.String), (Decimal("0.10"), pl.Decimal(5, 2))],
        [(1.5, pl.Float64), (1.5, pl.Float32), ("1.5", pl.Categorical)],
        [(True, pl.Boolean), ("true", pl.String)],
        [(False, pl.Boolean), ("false", pl.String)],
        [(-7, pl.Int64), (-7.0, pl.Float64), ("-7", pl.String), (b"-7", pl.Binary)],
        [(1_000_000, pl.Int64), (1e6, pl.Float64), (1e6, pl.Float32), (Decimal(10) ** 6, pl.Decimal(9, 0))],
        [(date(2026, 1, 2), pl.Date), ("2026-01-02", pl.String)],
    ],
)
def test_equal_values_are_one_protocol(equals: list[tuple[Any, Any]]) -> None:
    assert len({text(*each) for each in equals}) == 1
    assert len({protocol_label({"t": text(*each)}) for each in equals}) == 1


def test_different_values_are_different_protocols() -> None:
    values = [nan, inf, -inf, None, 0.0, 1.0, 0.1, np.nextafter(0.1, 1), 1e300, 1e-300]
    texts: list[str | None] = [text(value, pl.Float64) for value in values]
    texts += ["null", "None", "", "true", "True", " 0", "00", "0.0", "1e300 "]
    assert len(set(texts)) == len(texts)
    labels = [protocol_label({"t": each}) for each in texts]
    assert len(set(labels)) == len(labels)
    assert text(nan, pl.Float32) == text(nan, pl.Float64) == "NaN"
    assert text([1, 2], pl.List(pl.Int64)) != text([2, 1], pl.List(pl.Int64))


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ({}, ""),
        ({"temperature": "0", "grader": "v1"}, '{"temperature":0,"grader":"v1"}'),
        ({"t": "0.7", "greedy": "true", "seed": "-1"}, '{"t":0.7,"greedy":true,"seed":-1}'),
        ({"t": None, "u": "null"}, '{"t":null,"u":"null"}'),
        ({"t": "NaN", "u": "Infinity", "v": "-Infinity"}, '{"t":"NaN","u":"Infinity","v":"-Infinity"}'),
        ({"t": "007", "u": "1.0", "v": "1e3", "w": " 1"}, '{"t":"007","u":1.0,"v":"1e3","w":" 1"}'),
        ({"t": "[1]", "u": '{"a":1}', "v": '"x"'}, '{"t":"[1]","u":"{\\"a\\":1}","v":"\\"x\\""}'),
        ({"é": 'a"b\n'}, '{"é":"a\\"b\\n"}'),
        ({"t": "9" * 5000}, f'{{"t":"{"9" * 5000}"}}'),
    ],
)
def test_labels_are_json(values: dict[str, str | None], label: str) -> None:
    assert protocol_label(values) == label
    if label:
        assert list(json.loads(label)) == list(values)
