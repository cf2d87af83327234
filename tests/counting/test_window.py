"""Windows: an output of the newest rows only, by a date, a time or a number, in a column or in folder names."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ask, put, run
from scorelake.errors import DataError, UsageError
from scorelake.publish.snapshot import Output
from scorelake.read.check import check

DAYS = [date(2026, 10, 25) + timedelta(days=i) for i in range(20)]


def nights(kind: str) -> pl.DataFrame:
    """An attempt per problem and night; only those of the last week pass."""
    values: list[Any] = {
        "date": DAYS,
        "time": [datetime(day.year, day.month, day.day, 23) for day in DAYS],
        "number": list(range(20)),
        "text": [str(day) for day in DAYS],
    }[kind]
    rows = [("m", f"p{p}", i, value, i >= 13) for p in range(3) for i, value in enumerate(values)]
    return pl.DataFrame(rows, schema=["model", "problem_id", "attempt", "night", "passed"], orient="row")


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        *[("date", "night=7d"), ("date", "night=1w"), ("date", "night=2026-11-07"), ("text", "night=2026-11-07")],
        *[("time", "night=6d"), ("time", "night=144h"), ("number", "night=7"), ("text", "night=7d")],
    ],
)
def test_only_the_newest_rows_count(kind: str, window: str, tmp_path: Path, cli: Any) -> None:
    frame = nights(kind)
    put(tmp_path / "lake", frame[:31], "a.parquet", row_group_size=7)
    put(tmp_path / "lake", frame[31:], "b.parquet", statistics=kind != "number")
    done = cli("score", tmp_path / "lake", "--out", tmp_path / "out", "--window", window)
    assert done.returncode == 0, done.stderr
    assert "only rows with night >= " in done.stderr
    assert ask(tmp_path / "out", "SELECT sum(n), sum(c) FROM problem_counts") == [(21, 21)]
    assert ask(tmp_path / "out", "SELECT rows_read, rejected FROM run") == [(21, 0)]
    assert [finding.detail for finding in check(Output(tmp_path / "out")) if not finding.ok] == []
    again = cli("score", tmp_path / "lake", "--out", tmp_path / "out")
    assert "No changes in 2 files" in again.stderr, "the output remembers its window"


def test_folder_keys_and_a_night_that_moves_the_window(tmp_path: Path) -> None:
    config = '[window]\ncolumn = "night"\nlast = "2d"\n'
    for (night,), mine in nights("date")[-60:].partition_by("night", as_dict=True).items():
        put(
            tmp_path / "lake",
            mine.drop("night").with_columns(score=pl.lit(1.0)).drop("score"),
            f"night={night}/a.parquet",
        )
    run(tmp_path / "lake", tmp_path / "out", config)
    assert ask(tmp_path / "out", "SELECT sum(n), sum(c) FROM problem_counts") == [(6, 6)]
    failed = nights("date").unique("problem_id").with_columns(attempt=pl.lit(99), passed=False)
    put(tmp_path / "lake", failed.drop("night"), "night=2026-11-14/a.parquet")
    run(tmp_path / "lake", tmp_path / "out", config)
    assert ask(tmp_path / "out", "SELECT sum(n), sum(c) FROM problem_counts") == [(6, 3)]
    changed = ask(tmp_path / "out", "SELECT change, settings_changed FROM change WHERE metric = 'pass@1'")
    assert changed == [(-0.5, False)], "windows are compared with each other, problem by problem"


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("number", 'column = "night"\nlast = "7d"', "does not fit the column, whose newest value is 19"),
        ("date", 'column = "night"\nlast = "7"', "does not fit the column"),
        ("date", 'column = "night"\nsince = "soon"', "cannot be held against the window since soon"),
        ("date", 'column = "day"\nlast = "7d"', "no file has a value"),
        ("date", 'column = "day"\nsince = "2026-11-01"', "no column day"),
        ("date", 'last = "7d"', "needs a column"),
        ("date", 'column = "night"\nlast = "a week"', "window.last"),
    ],
)
def test_windows_that_do_not_fit_are_refused(kind: str, settings: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        run(nights(kind), tmp_path / "out", f"[window]\n{settings}\n")
