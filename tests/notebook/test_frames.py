"""Frames and matrices give the tables that the same rows give as a lake, and leave no file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import scorelake as sl
from conftest import FIXTURES, attempts
from scorelake.errors import DataError, ScorelakeError, UsageError

TABLES = ("model_summary", "subject_summary", "problem_counts", "leaderboard", "pair", "curve")
COLUMNS: dict[str, Any] = {"model": "model_name", "problem_id": "task_id", "attempt": "sample_id"}
COLUMNS |= {"subject": "category", "passed": "correct", "pass_values": ["C"]}
RESULTS = FIXTURES / "results.parquet"
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
QUICK: dict[str, Any] = {"metrics": ["pass@1", "pass@2"], "config": {"compare": {"resamples": 100}}}


class Stream:
    """A table that has nothing but Arrow's stream interface."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def expected() -> dict[str, pl.DataFrame]:
    with sl.score(RESULTS, columns=COLUMNS, by=["difficulty"], **QUICK) as board:
        return {name: board.table(name) for name in TABLES}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files in this test."""
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    return home


@pytest.mark.slow
@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        lambda frame: frame.lazy(),
        lambda frame: frame.to_arrow(),
        lambda frame: frame.to_arrow().to_reader(),
        Stream,
        lambda frame: pytest.importorskip("pandas").DataFrame(frame.to_dict(as_series=False)),
        lambda frame: frame.with_columns(pl.col("model_name", "category").cast(pl.Categorical)),
        lambda frame: frame.with_columns(junk=pl.Series([object()] * frame.height, dtype=pl.Object), more=[[1]]),
        lambda frame: frame.sample(fraction=1, shuffle=True, seed=1),
    ],
    ids=["polars", "lazy", "arrow", "reader", "stream", "pandas", "categories", "more columns", "shuffled"],
)
def test_a_frame_is_scored_as_a_lake_of_its_rows(
    convert: Callable[[pl.DataFrame], Any], expected: dict[str, pl.DataFrame], temporary: Path
) -> None:
    with sl.score(convert(pl.read_parquet(RESULTS)), columns=COLUMNS, by="difficulty", **QUICK) as board:
        assert [name for name in TABLES if not board.table(name).equals(expected[name])] == []
        assert board.report is not None
        assert board.report.run["lake"] == "frame"
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("frame", "config"),
    [
        (attempts(model="m", problem_id=["a", "b"], passed=[1.0, float("nan")]), {}),
        (attempts(model="m", problem_id=["a", "b"], passed=[True, None]), {"policy": {"ungraded": "error"}}),
        (attempts(model="m", problem_id=["a", "a"], attempt=[1, 1], passed=[True, False]), {}),
        (attempts(model="m", colour=["a"], passed=[True]), {}),
        (attempts(model="m", problem_id=["a"], passed=[True]), {"columns": {"passed": "psased"}}),
        (attempts(model="m", problem_id=["a"], passed=[True]), {"policy": {"ungarded": "fail"}}),
        (attempts(model="m", problem_id=pl.Series([], dtype=pl.String), passed=pl.Series([], dtype=pl.Boolean)), {}),
    ],
    ids=["nan", "ungraded", "conflict", "no column", "typo", "setting", "empty"],
)
def test_errors_are_those_of_a_lake(
    frame: pl.DataFrame, config: dict[str, Any], tmp_path: Path, temporary: Path
) -> None:
    """The same class and text, except for the name of the file and for commands that need one."""
    path = tmp_path / "lake" / "frame.parquet"
    path.parent.mkdir()
    frame.write_parquet(path)
    errors = []
    for given in (path, frame):
        with pytest.raises(ScorelakeError) as error:
            sl.score(given, config=config)
        errors.append(error.value)
    lake, mine = errors
    assert type(mine) is type(lake)
    text = str(lake).replace(str(path), "frame").replace("frame.parquet", "frame")
    text = text.replace(", or in conflict with the folder's name", "")
    if "scorelake init" in text:
        assert str(mine).partition("\n  hint: ")[0] == text.partition("\n  hint: ")[0]
        assert [word for word in ("scorelake init", "--column") if word in str(mine)] == []
    else:
        assert str(mine) == text
    assert "scorelake-" not in str(mine)
    assert not list(temporary.iterdir())


def test_columns_are_inferred_as_by_init(tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture) -> None:
    """The tables are those of the config that init writes, and one line has what to pass to score()."""
    cli("init", RESULTS, "--config", tmp_path / "init.toml")
    frame = pl.read_parquet(RESULTS)
    with sl.score(RESULTS, config=tmp_path / "init.toml", metrics=QUICK["metrics"]) as board:
        expected = {name: board.table(name) for name in TABLES}
    given = COLUMNS | {"fail_values": ["I"], "carry": ["difficulty"]}
    for columns in ({}, {"model": "model_name", "passed": "correct"}):
        messages: list[str] = []
        with sl.score(frame.lazy(), columns=columns, metrics=QUICK["metrics"], warn=messages.append) as board:
            assert [name for name in TABLES if not board.table(name).equals(expected[name])] == []
        (message,) = messages
        inferred = {key: name for key, name in given.items() if key not in columns}
        assert json.loads(message.removeprefix("inferred columns=")) == inferred
    sl.score(frame, **QUICK).close()
    (record,) = caplog.records
    assert record.message.startswith('inferred columns={"model": "model_name", ')


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ({"model": "m", "problem_id": ["a"], "passed": [True], "category": "x"}, {}, None),
        ({"model": "m", "problem_id": ["a"], "passed": ["C"]}, {}, 'columns={"pass_values": ["C"]}'),
        (
            {"llm": "m", "id": ["a", "b"], "passed": ["C", "I"]},
            {"pass_values": ["I"]},
            'columns={"model": "llm", "problem_id": "id"}',
        ),
        (
            {"llm": "m", "id": ["a"], "passed": [True], "temperature": 0.5},
            {},
            'columns={"model": "llm", "problem_id": "id"}, config={"protocol": {"columns": ["temperature"]}}',
        ),
    ],
    ids=["canonical", "verdicts", "verdicts kept", "protocol"],
)
def test_only_what_is_missing_is_inferred(columns: dict[str, Any], given: Any, message: str | None) -> None:
    messages: list[str] = []
    sl.score(attempts(**columns), columns=given, metrics="pass@1", warn=messages.append).close()
    assert messages == ([f"inferred {message}"] if message else [])


def test_a_hint_names_arguments_instead_of_flags() -> None:
    frame = attempts(llm="m", **{"the task": ["a", "a"]}, passed=[True, False], colour="red")
    with pytest.raises(UsageError) as error:
        sl.score(frame, columns={"model": "lm", "problem_id": "task"}, by="color")
    assert error.value.hint is not None
    last = error.value.hint.splitlines()[-1]
    assert last == '  or to score(): columns={"model": "llm", "problem_id": "the task"}, by="colour"'


def test_a_row_without_attempts_is_refused_unless_another_model_attempted_it() -> None:
    with pytest.raises(UsageError, match="row 0 has no attempts\n"):
        sl.score([[], [1, 0]])
    with pytest.raises(UsageError, match="row 1 has no attempts, and 1 more rows"):
        sl.score({"a": [[1], [], []], "b": [[0], []]})
    with pytest.raises(UsageError, match="row 0 has no attempts, and 2 more rows"):
        sl.score(np.zeros((3, 0)))
    with sl.score({"a": [[], [1, 0]], "b": [[0], [1]]}, **QUICK) as board:
        frame = board.leaderboard("pass@1").select("model", "problems", "problems_of_benchmark").sort("model")
    assert frame.rows() == [("a", 1, 2), ("b", 2, 2)]


@pytest.mark.slow
def test_a_matrix_has_a_row_per_problem_and_an_entry_per_attempt() -> None:
    matrices: dict[str, Any] = {
        "a": [[1, 0, None], [1, 1], [0]],
        "b": np.array([[1, 1, 1], [0, 0, 0], [1, 0, 1]]),
        "c": np.ma.masked_equal([[1, 0, 7], [0, 0, 0], [1, 0, 7]], 7),
    }
    with sl.score(matrices, **QUICK) as board:
        counts = board.table("problem_counts").sort("model", "problem_id")
        expected = {"a": ["211", "220", "100"], "b": ["330", "300", "320"], "c": ["211", "300", "211"]}
        assert {
            m: [f"{n}{c}{u}" for *_, n, c, u in rows]
            for m, rows in groupby(counts.select("model", "problem_id", "n", "c", "ungraded").rows(), itemgetter(0))
        } == expected  # n, c and ungraded of each problem
        assert board.report is not None
        assert (board.report.run["lake"], board.report.run["rows_read"]) == ("matrix", 24)
    with sl.score(np.eye(3, dtype=bool), metrics=["pass@1"]) as board:
        assert board.table("model_summary").select("model", "value").rows() == [("model", pytest.approx(1 / 3))]


def test_nan_is_an_attempt_that_was_not_made() -> None:
    """Not a failure and not ungraded: the rows are just shorter. Models of unequal width are ranked."""
    nan = float("nan")
    ragged: dict[str, Any] = {
        "wide": [[1, 0, 1, 1], [0, 1]] * 15,
        "one": [[1], [0]] * 15,
        "none": [[0, None], [0]] * 15,
    }
    padded = {
        "wide": np.array([[1, 0, 1, 1], [0, 1, nan, nan]] * 15),
        "one": [[1, nan], [0, nan]] * 15,
        "none": np.array([[0, None, nan], [0, nan, nan]] * 15, dtype=object),
    }
    with sl.score(ragged, **QUICK) as lists, sl.score(padded, **QUICK) as arrays:
        assert [name for name in TABLES if not lists.table(name).equals(arrays.table(name))] == []
        assert arrays.leaderboard().select("model", "rank", "attempts").rows() == [
            ("wide", 1, 90),
            ("one", 2, 30),
            ("none", 3, 30),
        ]
        assert arrays.table("problem_counts").filter(model="none")["ungraded"].sum() == 15
    with sl.score(np.array([[0.5, nan], [nan, 2.0]]), metrics="avg@N", entries="score") as board:
        assert board.leaderboard("avg@N")["value"].to_list() == [1.25]


def test_a_matrix_of_rewards() -> None:
    with sl.score([[0.5, 2.0], [1.0, None]], metrics="avg@N, max@1", entries="score") as board:
        values = dict(board.table("model_summary").select("metric", "value").iter_rows())
    assert values == {"avg@N": pytest.approx((1.25 + 1.0) / 2), "max@1": pytest.approx((1.25 + 1.0) / 2)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[0, 1], [0.5, 1]], "matrix: 1 rows: not a valid outcome"),
        ([[1.0, float("inf")]], "not a valid outcome(?!.*folder)"),
        ([[1.0, float("nan")], [float("nan")] * 2], "row 1 has no attempts"),
        ({"a": [["x"]]}, "the matrix of a: an entry must be"),
        ({}, "no matrix"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (17, "cannot score a int"),
        ([{"model": "a"}], "R: an entry must be"),
    ],
)
def test_other_values_are_refused(given: Any, message: str, temporary: Path) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        sl.score(given)
    assert not list(temporary.iterdir())


def test_an_unused_column_of_mixed_types_is_no_obstacle() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"llm": "m", "problem_id": ["a", "b", "b"], "passed": [True, False, None]})
    frame["notes"] = [1, "a", {"x": 2}]
    with sl.score(frame, metrics="pass@1") as board:
        assert board.table("problem_counts")["n"].sum() == 2
    frame["passed"] = frame["notes"]
    with pytest.raises(UsageError, match="passed: a column of Python objects cannot be counted"):
        sl.score(frame.rename(columns={"llm": "model"}))


def test_a_fork_after_polars_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    code = (
        "import os, polars as pl, scorelake as sl\n"
        "from scorelake.notebook import scoring\n"
        "rows = pl.DataFrame({'model': 'm', 'problem_id': ['a', 'b'], 'passed': True})\n"
        "sl.score(rows, metrics='pass@1')\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        sl.score(rows, metrics='pass@1')\n"
        "    except Exception as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert "cannot run in a fork of a process that has used Polars" in done.stdout
