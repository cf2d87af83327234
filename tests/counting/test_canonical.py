"""The canonical attempts: what fits and what does not, and what values are to us."""

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
    SCORED,
    UNGRADED,
    UNSCORED,
    Canonical,
    attempt_columns,
    canonical,
    read_types,
)
from scorelake.counting.protocols import answer_text, protocol_label, protocol_text
from scorelake.counting.schema_check import UnreadableError
from scorelake.settings import Settings

TEXT, INT, BOOL = pl.String(), pl.Int64(), pl.Boolean()
KEYS = {"model": TEXT, "problem_id": TEXT}
LAKE = {**KEYS, "passed": BOOL}


def made(schema: dict[str, Any], hive: dict[str, str | None] | None = None, **settings: Any) -> Canonical:
    return canonical(Settings.model_validate(settings), schema, hive or {})


def misfit(schema: dict[str, Any], hive: dict[str, str | None] | None = None, **settings: Any) -> str:
    with pytest.raises(UnreadableError) as caught:
        canonical(Settings.model_validate(settings), schema, hive or {}, strict=True)
    return str(caught.value)


def kinds(values: list[Any], kind: Any, column: str = "passed", **settings: Any) -> list[int]:
    """The kind of every row of a column of outcomes."""
    columns = made({**KEYS, column: kind}, **settings)
    return (
        pl.DataFrame({column: pl.Series(values, dtype=kind, strict=False)}).select(columns.kind).to_series().to_list()
    )


def scores(values: list[Any], kind: Any, **settings: Any) -> list[float | None]:
    columns = made({**KEYS, "score": kind}, **settings)
    assert columns.score is not None
    frame = pl.DataFrame({"score": pl.Series(values, dtype=kind)})
    return frame.select(columns.score.alias("score")).to_series().to_list()


# --- where things are -----------------------------------------------------------------------------------------


def test_every_misfit_is_told_at_once() -> None:
    told = misfit(
        {"modell": TEXT, "problem_id": pl.Float64(), "passed": TEXT, "score": TEXT, "attempt": pl.Float32()},
        protocol={"columns": ["temperature"]},
        columns={"carry": ["tier"], "benchmark": "bench"},
    )
    for words in (
        "no column bench; ",
        "no column model (closest: modell); ",
        "column problem_id is Float64; it must be a string or integer; if its numbers are whole, write them as int",
        "no column temperature; ",
        "no column tier; ",
        "column passed is String; it must be boolean, 0/1, 0.0/1.0, or a text with [columns] pass_values",
        "column score is String; it must be a number",
        "column attempt is Float32; it must be a string or integer",
    ):
        assert words in told
    assert told.endswith("; the file has: modell, problem_id, passed, score, attempt")


def test_closest_names() -> None:
    assert "no column problem_id (closest: problem_ids)" in misfit(
        {"model": TEXT, "problem_ids": TEXT, "passed": BOOL}
    )
    assert "(closest: moddel)" in misfit({"problem_id": TEXT, "passed": BOOL}, {"moddel": "m"})
    assert misfit({"x": BOOL}).count("closest") == 0
    other = {"MODEL": TEXT, "Task-ID": TEXT, "correct": BOOL, "subject": TEXT}
    assert misfit(other).startswith(
        "no column model (closest: MODEL); no column problem_id (closest: Task-ID); "
        "no column passed and no score (closest: correct); "
    ), "another spelling, or what other tools call it"
    assert misfit({}, {"y": "1"}).endswith("the file has: y (folder)")
    assert misfit({}).endswith("the file has: none")


def test_attempts() -> None:
    """Told apart where there is a column for it, unless that is off."""
    assert made(LAKE).attempt is None
    assert made({**LAKE, "attempt": pl.UInt64()}, duplicates={"policy": "off"}).attempt is None
    assert made({**LAKE, "attempt": pl.Float64()}, duplicates={"policy": "off"}).attempt is None
    assert "column attempt is Boolean" in misfit({**LAKE, "attempt": BOOL})


def test_answers() -> None:
    assert made({**LAKE, "answer": TEXT}, metrics={"names": ["pass@1"]}).answers == "ignored"
    assert made({**KEYS, "score": pl.Float64(), "answer": TEXT}).answers == "none", "none can be right"
    threshold: dict[str, Any] = {"policy": {"pass_threshold": 0.5}}
    assert made({**KEYS, "score": pl.Float64(), "answer": TEXT}, **threshold).answers == "counted"
    assert "column answer is List(String); to vote with" in misfit({**LAKE, "answer": pl.List(TEXT)})
    ignored = made({**LAKE, "answer": pl.List(TEXT)}, metrics={"names": ["pass@1"]})
    assert (ignored.answer, "answer" in ignored.columns) == (None, False)


# --- outcomes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pl.Boolean, pl.Int8, pl.UInt64, pl.Float32, pl.Float64, pl.Decimal(5, 2)])
def test_verdicts(kind: Any) -> None:
    assert kinds([1, 0, None], kind) == [PASSED, FAILED, UNGRADED]
    assert kinds([1, 0, None], kind, policy={"ungraded": "fail"}) == [PASSED, FAILED, FAILED]


def test_verdicts_that_are_none() -> None:
    assert kinds([2, -1, 1, None], pl.Int64) == [REJECTED, REJECTED, PASSED, UNGRADED]
    assert kinds([0.5, nan, inf, -inf, -0.0], pl.Float64) == [REJECTED, REJECTED, REJECTED, REJECTED, FAILED]
    assert kinds([None, None], pl.Null) == [UNGRADED, UNGRADED]


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


def test_scores() -> None:
    assert scores([1, 2, None], pl.Int64) == [1.0, 2.0, None]
    for many in (1, 2, 3, 100):
        assert {str(zero) for zero in scores([-0.0, 0.0] * many, pl.Float64)} == {"0.0"}, "one zero, not two"
    assert kinds([1.5, nan, inf, None], pl.Float64, "score") == [FAILED, REJECTED, REJECTED, UNGRADED]
    found = made({**KEYS, "score": pl.Float64()})
    assert found.binary is False


def test_a_rubric_in_32_bits() -> None:
    """A level as the config spells it, whichever precision the column has."""
    rubric = {"levels": [0, 0.1, 0.7]}
    assert scores([0.1, 0.7, 0.0, 0.2, None], pl.Float32, rubric=rubric) == [0.1, 0.7, 0.0, None, None]
    assert kinds([0.1, 0.7, 0.2, nan, None], pl.Float32, "score", rubric=rubric)[2:] == [REJECTED, REJECTED, UNGRADED]
    assert scores([None], pl.Float64, rubric=rubric, policy={"ungraded": "fail"}) == [0.0]


def test_a_verdict_and_a_score() -> None:
    """Either can be bad; whether an attempt that has one of them is graded, depends on its benchmark."""
    found = made({**KEYS, "passed": BOOL, "score": pl.Float64()})
    frame = pl.DataFrame({"passed": [True, None, True, None], "score": [1.0, 1.0, None, nan]})
    assert frame.select(found.kind).to_series().to_list() == [PASSED, SCORED, UNSCORED + PASSED, REJECTED]


# --- texts ----------------------------------------------------------------------------------------------------


def keys(values: pl.Series) -> list[str | None]:
    columns = made({**LAKE, "problem_id": values.dtype})
    schema = read_types(columns, {**LAKE, "problem_id": values.dtype})
    frame = pl.DataFrame({"problem_id": values.cast(schema["problem_id"])})
    return frame.select(attempt_columns(columns, schema)["problem_id"].cast(pl.String)).to_series().to_list()


def test_keys_are_as_they_are_written() -> None:
    assert keys(pl.Series([7, -1, None])) == ["7", "-1", None]
    assert keys(pl.Series(["007", "7", "", None])) == ["007", "7", "", None]
    assert keys(pl.Series([b"a\xc3\xa9"])) == ["aé"]
    with pytest.raises(pl.exceptions.PolarsError):
        keys(pl.Series([b"\xff"]))


def test_answers_as_texts() -> None:
    assert answer_text(pl.Series([0.0, -0.0, 0.5, nan, None])).to_list()[2:] == ["0.5", None, None]
    zeros = answer_text(pl.Series([0.0, -0.0]))
    assert zeros[0] == zeros[1]
    assert answer_text(pl.Series([True, None])).to_list() == ["true", None]


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


# --- verdicts in words ----------------------------------------------------------------------------------------

WORDS = {"columns": {"pass_values": ["C", "pass"]}}
BOTH = {"columns": {"pass_values": ["C", "pass"], "fail_values": ["I"]}}


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["C", "pass", "I", "c", ""]), pl.Binary])
def test_verdicts_in_words(kind: Any) -> None:
    """Without fail_values what is no pass is a fail; with them, what is neither is rejected. To the letter."""
    told = ["C", "pass", "I", "c", "", None]
    values = [None if text is None else text.encode() for text in told] if kind == pl.Binary else told
    assert kinds(values, kind, **WORDS) == [PASSED, PASSED, FAILED, FAILED, FAILED, UNGRADED]
    assert kinds(values, kind, **BOTH) == [PASSED, PASSED, FAILED, REJECTED, REJECTED, UNGRADED]
    assert kinds(values, kind, **WORDS, policy={"ungraded": "fail"})[-1] == FAILED


def test_words_say_nothing_of_numbers() -> None:
    assert kinds([1, 0, 2], pl.Int64, **BOTH) == [PASSED, FAILED, REJECTED]
    assert kinds([True, False], pl.Boolean, **BOTH) == [PASSED, FAILED]
    assert kinds([None], pl.Null, **BOTH) == [UNGRADED]
