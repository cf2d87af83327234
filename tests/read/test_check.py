"""`check` must fail when something is wrong, one thing at a time."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

from conftest import ask, attempts, expand, failed_checks, put, run, snapshot
from scorelake import reporting
from scorelake.errors import DataError, LakeError
from scorelake.publish.publication import rollback
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.storage.disk import mark


@pytest.fixture
def out(tmp_path: Path) -> Path:
    put(tmp_path / "lake", expand([("a", 4, 2), ("b", 4, 4)], model="m"))
    run(tmp_path / "lake", tmp_path / "out")
    return tmp_path / "out"


def flip_a_byte(out: Path) -> None:
    path = snapshot(out) / "model_summary.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def change_the_balance(out: Path) -> None:
    path = snapshot(out) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["run"]["rows_read"] += 1
    path.write_text(json.dumps(manifest))


def change_a_table(out: Path) -> None:
    with duckdb.connect(str(out / "leaderboard.duckdb")) as db:
        db.execute("UPDATE source.problem_count SET n = n + 1 WHERE _name = 0")


def change_the_lake(out: Path) -> None:
    put(out.parent / "lake", attempts(model="m", problem_id=["a"], passed=[True]), "late.parquet")


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (flip_a_byte, "snapshot checksums"),
        (change_the_balance, "row accounting"),
        (change_a_table, "leaderboard.duckdb"),
        (change_the_lake, "recount in SQL"),
    ],
)
def test_each_kind_of_damage_is_found(out: Path, damage: Callable[[Path], None], finding: str) -> None:
    assert failed_checks(out) == []
    damage(out)
    assert failed_checks(out) == [finding]


def test_nothing_published(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="not an output of scorelake"):
        check.check(Output(tmp_path))
    mark(tmp_path)
    with pytest.raises(DataError, match="no published run"):
        check.check(Output(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        '[policy]\nungraded = "fail"\nmax_rejected = 9\n',
        "[policy]\npass_threshold = 0.5\nmax_rejected = 9\n",
        "[rubric]\nlevels = [0.0, 0.5, 1.0]\n[policy]\nmax_rejected = 9\n",
        '[protocol]\ncolumns = ["subject"]\n[policy]\nmax_rejected = 9\n',
    ],
)
def test_the_recount_follows_the_settings(lake: Path, tmp_path: Path, config: str) -> None:
    nan = float("nan")
    scores = [0.0, 0.5, 1.0, None, nan, 0.5]
    frame = attempts(model=["m", "m", "n", "n", "m", None], problem_id="p", subject="s", score=scores)
    put(lake, frame)
    run(lake, tmp_path / "out", config)
    assert failed_checks(tmp_path / "out") == []


def test_a_column_that_only_some_files_have(lake: Path, tmp_path: Path) -> None:
    """A file without it has the default, or what its folder says; no file is taken for another."""
    frame = attempts(model="m", problem_id=["a", "b"], passed=[True, False])
    put(lake, frame, "0.parquet")
    put(lake, frame.with_columns(benchmark=pl.lit("x"), subject=pl.lit("s")), "1.parquet")
    put(lake, frame.drop("model"), "model=n/subject=t/2.parquet")
    put(lake, frame, "model=m/3.parquet")
    run(lake, tmp_path / "out")
    assert ask(tmp_path / "out", "SELECT DISTINCT benchmark, subject, model FROM problem_counts ORDER BY ALL") == [
        ("default", "all", "m"),
        ("default", "t", "n"),
        ("x", "s", "m"),
    ]
    assert [f.detail for f in check.check(Output(tmp_path / "out")) if not f.ok] == []


@pytest.mark.slow
def test_a_lake_that_changed_before_a_rollback(out: Path, lake: Path) -> None:
    first = snapshot(out).name
    put(lake, expand([("c", 4, 1)], model="m"), "more.parquet")
    run(lake, out)
    with Output(out).held() as held:
        rollback(held, first)
    found = check.check(Output(out))
    (recount,) = [finding for finding in found if not finding.ok]
    assert f"the output was rolled back to {first}" in recount.detail
    with pytest.raises(DataError, match="ends the rollback") as told:
        reporting.findings(found, str(out))
    assert "--full" not in str(told.value)


def test_a_lake_that_duckdb_cannot_read_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(attempts(model="m", problem_id=["p", "q"], passed=True, file_row_number=1), tmp_path / "out")
    found = check.check(Output(tmp_path / "out"))
    assert [finding.ok for finding in found] == [True, True, True, None]
    reporting.findings(found, "out")  # raises nothing
    assert "not checked  recount in SQL: DuckDB cannot read the lake (Binder Error: " in capsys.readouterr().out
    run(attempts(model="m", problem_id=["p", "q"], passed=True, _path="x"), tmp_path / "other")
    assert failed_checks(tmp_path / "other") == []


def test_levels_are_compared_in_the_precision_of_a_half_float(tmp_path: Path) -> None:
    rows = attempts(model="m", problem_id=["p", "q"], score=pl.Series([0.7, 1.0], dtype=pl.Float16))
    run(rows, tmp_path / "half", "[rubric]\nlevels = [0, 0.7, 1]\n")
    assert failed_checks(tmp_path / "half") == []
