"""Duplicates: one verdict per attempt, across rows, files and shards, by the rule."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import ask, attempts, put, run
from scorelake.errors import DataError
from scorelake.publish.snapshot import Output
from scorelake.read import check

SQL = "SELECT model, problem_id, n, c, ungraded FROM problem_counts ORDER BY ALL"
Row = tuple[str, object, bool | None]


def lake(home: Path, files: list[list[Row]], kind: pl.DataType | None = None) -> Path:
    for i, rows in enumerate(files):
        frame = attempts(
            model="m", problem_id=[r[0] for r in rows], attempt=[r[1] for r in rows], passed=[r[2] for r in rows]
        ).with_columns(pl.col("passed").cast(pl.Boolean))
        put(home / "lake", frame.with_columns(pl.col("attempt").cast(kind or pl.Int32)), f"{i}.parquet")
    return home / "lake"


def test_agreeing_duplicates_are_counted_and_dropped(tmp_path: Path) -> None:
    files: list[list[Row]] = [[("a", 0, True), ("a", 1, False), ("a", 0, True)], [("a", 1, False), ("b", 0, None)]]
    report = run(lake(tmp_path, files), tmp_path / "out")
    assert ask(tmp_path / "out", SQL) == [("m", "a", 2, 1, 0), ("m", "b", 0, 0, 1)]
    balance = [report.run[key] for key in ("rows_read", "graded", "ungraded", "duplicates", "rejected")]
    assert balance == [5, 2, 1, 2, 0]
    assert all(finding.ok for finding in check.check(Output(tmp_path / "out")))


@pytest.mark.slow
def test_off_counts_every_row(tmp_path: Path) -> None:
    files: list[list[Row]] = [[("a", 0, True), ("a", 0, False)]]
    run(lake(tmp_path, files), tmp_path / "out", '[duplicates]\npolicy = "off"\n')
    assert ask(tmp_path / "out", SQL) == [("m", "a", 2, 1, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("apart", [True, False], ids=["two files", "one file"])
@pytest.mark.parametrize(("rule", "c"), [("first", 1), ("last", 0), ("any-pass", 1), ("all-pass", 0)])
def test_conflicts_need_a_rule(tmp_path: Path, rule: str, c: int, apart: bool) -> None:
    rows: list[Row] = [("a", 7, True), ("a", 7, False), ("a", 7, None)]
    home = lake(tmp_path, [[row] for row in rows] if apart else [rows])
    with pytest.raises(DataError, match=r"1 attempts have conflicting verdicts:\n  m, problem a: attempt 7"):
        run(home, tmp_path / "out")
    assert not (tmp_path / "out" / "leaderboard.duckdb").exists()
    report = run(home, tmp_path / "out", f'[duplicates]\nrule = "{rule}"\n')
    assert ask(tmp_path / "out", SQL) == [("m", "a", 1, c, 0)]
    assert report.run["duplicates"] == 2
    assert report.warnings == (f"1 attempts had conflicting verdicts; rule {rule} decided",)
    assert all(finding.ok for finding in check.check(Output(tmp_path / "out")))


@pytest.mark.slow
def test_duplicates_that_arrive_later(tmp_path: Path) -> None:
    run(lake(tmp_path, [[("a", 0, True), ("a", 1, False)]]), tmp_path / "out")
    report = run(
        lake(tmp_path, [[("a", 0, True), ("a", 1, False)], [("a", 1, False), ("a", 2, True)]]), tmp_path / "out"
    )
    assert ask(tmp_path / "out", SQL) == [("m", "a", 3, 2, 0)]
    assert report.run["duplicates"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pl.String(), pl.Int64()])
def test_attempts_of_any_name(tmp_path: Path, kind: pl.DataType) -> None:
    names = ["1", "-5", "99999999999"] if kind == pl.String() else [1, -5, 99999999999]
    files: list[list[Row]] = [
        [("a", name, True) for name in names] * 2,
        [("a", names[0], True), ("a", None, True)] * 2,
    ]
    report = run(lake(tmp_path, files, kind), tmp_path / "out")
    assert ask(tmp_path / "out", SQL) == [("m", "a", 5, 5, 0)], "three names, and two attempts without any"
    assert report.run["duplicates"] == 5


@pytest.mark.slow
def test_rewards(tmp_path: Path) -> None:
    same = attempts(model="m", problem_id="a", attempt=[0, 1, 0], score=[0.5, 1.0, 0.5])
    put(tmp_path / "lake", same, "0.parquet")
    run(tmp_path / "lake", tmp_path / "out")
    assert ask(tmp_path / "out", "SELECT value, attempts FROM model_summary WHERE metric = 'avg@N'") == [(0.75, 2)]
    put(tmp_path / "lake", attempts(model="m", problem_id="a", attempt=[1], score=[0.0]), "1.parquet")
    with pytest.raises(DataError, match="1 attempts have conflicting verdicts"):
        run(tmp_path / "lake", tmp_path / "out")
    for rule, value in (("first", 0.75), ("last", 0.25), ("any-pass", 0.75), ("all-pass", 0.25)):
        run(tmp_path / "lake", tmp_path / rule, f'[duplicates]\nrule = "{rule}"\n')
        assert ask(tmp_path / rule, "SELECT value FROM model_summary WHERE metric = 'avg@N'") == [(value,)]


rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3) | st.sampled_from([63, 64, 200, 255, 256, -1, None]),
              st.sampled_from([True, False, None])),
    min_size=1, max_size=8,
)  # fmt: skip


@given(
    st.lists(rows, min_size=1, max_size=3), st.sampled_from(["first", "last", "any-pass", "all-pass"]), st.booleans()
)
@example([[("a", 0, None)]], "first", False)
@example([[("a", 0, None), ("a", 0, True)], [("a", 0, False)]], "last", False)
@settings(max_examples=9, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_against_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Row]], rule: str, small: bool
) -> None:
    home = tmp_path_factory.mktemp("dup")
    config = f'[duplicates]\nrule = "{rule}"\n' + ("[run]\nbucket_rows = 1\n" if small else "")
    report = run(lake(home, files), home / "out", config)
    seen: dict[object, list[bool | None]] = {}
    for i, row in enumerate(row for file in files for row in file):
        problem, attempt, passed = row
        seen.setdefault((problem, attempt if attempt is not None else f"alone {i}"), []).append(passed)
    want: dict[str, list[int]] = {}
    decide = {"first": lambda v: v[0], "last": lambda v: v[-1], "any-pass": any, "all-pass": all}[rule]
    for (problem, _), verdicts in seen.items():  # type: ignore[misc]
        tally = want.setdefault(problem, [0, 0, 0])
        graded = [v for v in verdicts if v is not None]
        tally[0] += bool(graded)
        tally[1] += bool(graded and decide(graded))
        tally[2] += not graded
    assert ask(home / "out", SQL) == [("m", problem, *tally) for problem, tally in sorted(want.items())]
    assert report.run["duplicates"] == sum(len(v) - 1 for v in seen.values())
    assert [f.detail for f in check.check(Output(home / "out")) if not f.ok] == []


# --- one verdict per attempt ----------------------------------------------------------------------------------
