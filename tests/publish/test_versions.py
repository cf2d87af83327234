"""Outputs that another version wrote: their runs can still be compared and published again."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

import scorelake
from conftest import REPO, ask, nights
from scorelake.errors import DataError, UsageError
from scorelake.publish.leaderboard import qualified
from scorelake.publish.publication import rollback
from scorelake.publish.snapshot import Output
from scorelake.publish.views import BOARD, PUBLIC, SOURCES
from scorelake.read.session import reading
from scorelake.read.show import show_leaderboard
from scorelake.schemas import MEASURE_TABLES, SCHEMA_VERSION
from scorelake.storage.disk import checksum


def change_settings(out: Path, run_id: str, **sections: dict[str, object]) -> None:
    """Store other settings in the manifest of a run."""
    path = out / "snapshots" / run_id / "manifest.json"
    manifest = json.loads(path.read_text())
    settings = json.loads(manifest["run"]["settings"])
    for section, keys in sections.items():
        settings[section] = settings.get(section, {}) | keys
    manifest["run"]["settings"] = json.dumps(settings)
    path.write_text(json.dumps(manifest))


def test_settings_that_were_removed_are_ignored(tmp_path: Path) -> None:
    nights(tmp_path / "lake", out := tmp_path / "out", 2)
    first = Output(out).manifests()[0]["run"]["run_id"]
    change_settings(out, first, run={"silent_s": 3}, compare={"allow_different_n": True}, gone={"x": 1})
    with scorelake.open(out) as board:
        assert "run " + first in str(board.compare("m", "m", run=first))
    change_settings(out, first, uncertainty={"confidence": 7})
    with scorelake.open(out) as board, pytest.raises(UsageError, match="does not accept"):
        board.compare("m", "m", run=first)


def rewrite(out: Path, run_id: str, change: Callable[[pl.DataFrame], pl.DataFrame] | None, table: str) -> None:
    """Change a table of a snapshot, or remove it, as if another version had written it."""
    home = out / "snapshots" / run_id
    path = home / f"{table}.parquet"
    manifest = json.loads((home / "manifest.json").read_text())
    manifest.pop("schema_version", None)
    if change is None:
        path.unlink()
        del manifest["files"][path.name]
    else:
        change(pl.read_parquet(path)).write_parquet(path)
        manifest["files"][path.name] = checksum(path)
    (home / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("table", "change", "sql", "rows"),
    [
        ("curve", lambda frame: frame.drop("scored"), "SELECT DISTINCT scored FROM curve", [(None,)]),
        ("model_summary", lambda frame: frame.drop("mu_lo"), "SELECT DISTINCT mu_lo, problems FROM leaderboard JOIN "
         "model_summary USING (model, metric, problems)", [(None, 1)]),
        ("overall", lambda frame: frame.with_columns(more=1), "SELECT count(DISTINCT model) FROM overall", [(1,)]),
        ("overall", None, "SELECT count(*) FROM overall", [(0,)]),
    ],
)  # fmt: skip
def test_a_snapshot_of_an_earlier_schema_is_published_again(
    tmp_path: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame], sql: str, rows: list[tuple[object]]
) -> None:
    nights(tmp_path / "lake", out := tmp_path / "out", 2)
    first = Output(out).manifests()[0]["run"]["run_id"]
    rewrite(out, first, change, table)
    with Output(out).held() as output:
        rollback(output, "1")
    assert ask(out, sql) == rows
    assert ask(out, f"SELECT run_id, schema_version FROM {qualified(BOARD)}") == [(first, SCHEMA_VERSION)]


def test_a_snapshot_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    nights(tmp_path / "lake", out := tmp_path / "out", 2)
    path = out / "snapshots" / Output(out).manifests()[0]["run"]["run_id"] / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["schema_version"] == SCHEMA_VERSION
    path.write_text(json.dumps(manifest | {"schema_version": SCHEMA_VERSION + 1}))
    with Output(out).held() as output, pytest.raises(DataError, match=r"by a later scorelake"):
        rollback(output, "1")


def test_a_board_of_another_schema_says_how_to_build_it_again(tmp_path: Path) -> None:
    nights(tmp_path / "lake", out := tmp_path / "out", 1)
    with duckdb.connect(str(out / "leaderboard.duckdb")) as db:
        db.execute("DROP VIEW leaderboard")
    with reading(str(out)) as folder, pytest.raises(UsageError, match="another version") as raised:
        show_leaderboard(folder)
    assert "scorelake score" in str(raised.value)


def test_the_schema_version_is_raised_when_a_column_is_renamed_removed_or_retyped() -> None:
    """columns.txt lists the columns of SCHEMA_VERSION. New ones are appended, without a new version."""
    first, *lines = (REPO / "tests" / "publish" / "columns.txt").read_text().splitlines()
    known = {
        f"{name}.{column}" for name, columns in (line.split(": ") for line in lines) for column in columns.split(", ")
    }
    tables = {table.name: table.schema for table in (*PUBLIC, *SOURCES, *MEASURE_TABLES)}
    now = {
        f"{name}.{column} {str(kind).replace(', ', ',')}"
        for name, schema in tables.items()
        for column, kind in schema.items()
    }
    assert first == f"schema version {SCHEMA_VERSION}", "write columns.txt anew"
    assert sorted(known - now) == [], "raise SCHEMA_VERSION"
    assert sorted(now - known) == [], "append these to columns.txt"
