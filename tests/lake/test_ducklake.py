"""DuckLake tables: catalogs written by the published specification, since the extension cannot be loaded offline."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloud import QUICK, upload
from conftest import ask, failed_checks, run
from scorelake.errors import DataError, LakeError, UsageError
from scorelake.lake.listing import listing

SCHEMA = """
CREATE TABLE ducklake_metadata (key VARCHAR, value VARCHAR);
CREATE TABLE ducklake_snapshot (snapshot_id BIGINT, schema_version BIGINT);
CREATE TABLE ducklake_schema (schema_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, schema_name VARCHAR,
    path VARCHAR, path_is_relative BOOLEAN);
CREATE TABLE ducklake_table (table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT,
    table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN);
CREATE TABLE ducklake_column (column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT,
    column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, parent_column BIGINT);
CREATE TABLE ducklake_data_file (data_file_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT,
    path VARCHAR, path_is_relative BOOLEAN, file_size_bytes BIGINT, encryption_key VARCHAR, mapping_id BIGINT);
CREATE TABLE ducklake_delete_file (table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, data_file_id BIGINT,
    path VARCHAR, path_is_relative BOOLEAN, format VARCHAR);
CREATE TABLE ducklake_name_mapping (mapping_id BIGINT, source_name VARCHAR, target_field_id BIGINT,
    parent_column BIGINT);
CREATE TABLE ducklake_inlined_data_tables (table_id BIGINT, table_name VARCHAR, schema_version BIGINT);
INSERT INTO ducklake_metadata VALUES ('version', '1.0'), ('data_path', 'data/');
INSERT INTO ducklake_schema VALUES (0, 0, NULL, 'main', 'main/', true);
INSERT INTO ducklake_table VALUES (3, 1, NULL, 0, 'attempts', 'attempts/', true);
"""
"""The tables and columns of the specification that a reader needs."""
NAMES = ("model", "problem_id", "passed", "topic")


class Lake:
    """A table with the columns of NAMES, ids 1 to 4; `topic` is renamed to `area` by snapshot 5."""

    def __init__(self, home: Path, kind: str) -> None:
        self.data = home / "data" / "main" / "attempts"
        self.data.mkdir(parents=True)
        catalog = home / "catalog"
        self.location = f"ducklake:{'sqlite:' if kind == 'sqlite' else ''}{catalog}/main.attempts"
        self.connect: Callable[[], Any] = lambda: (sqlite3 if kind == "sqlite" else duckdb).connect(catalog)
        self.sql(*filter(str.strip, SCHEMA.split(";")))
        self.sql(*(f"INSERT INTO ducklake_snapshot VALUES ({i}, {1 if i < 5 else 2})" for i in range(1, 10)))
        for number, name in enumerate(NAMES, 1):
            type_, end = "boolean" if name == "passed" else "varchar", 5 if name == "topic" else "NULL"
            self.sql(f"INSERT INTO ducklake_column VALUES ({number}, 1, {end}, 3, '{name}', '{type_}', NULL, NULL)")
        self.sql("INSERT INTO ducklake_column VALUES (4, 5, NULL, 3, 'area', 'varchar', NULL, NULL)")
        self.sql("INSERT INTO ducklake_column VALUES (5, 6, NULL, 3, 'grader', 'varchar', 'v1', NULL)")

    def sql(self, *statements: str) -> None:
        with self.connect() as db:
            for statement in statements:
                db.execute(statement)

    def add(self, number: int, model: str, *passed: Any, path: str = "", names: Any = NAMES, **more: Any) -> Path:
        """Write a data file, with field ids unless it has a mapping of names."""
        file = self.data / (path or f"ducklake-{number}.parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        values = [[model] * len(passed), [f"p{i}" for i in range(len(passed))], list(passed), ["x"] * len(passed)]
        fields = [
            pa.field(name, pa.bool_() if i == 2 else pa.string(), metadata={"PARQUET:field_id": str(i + 1)})
            if names == NAMES
            else pa.field(name, pa.bool_() if i == 2 else pa.string())
            for i, name in enumerate(names)
        ]
        pq.write_table(pa.Table.from_arrays([pa.array(each) for each in values], schema=pa.schema(fields)), file)
        row = {"end": "NULL", "key": "NULL", "mapping": "NULL"} | more
        where = f"'{file}', false" if path.startswith("/") else f"'{file.relative_to(self.data)}', true"
        self.sql(
            f"INSERT INTO ducklake_data_file VALUES ({number}, 3, 2, {row['end']}, {where},"
            f" {file.stat().st_size}, {row['key']}, {row['mapping']})"
        )
        return file


@pytest.fixture(params=["sqlite", "duckdb"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("SCORELAKE_CACHE", str(tmp_path / "cache"))
    return Lake(tmp_path / "lake", request.param)


def counted(table: Lake, out: Path) -> list[tuple[Any, ...]]:
    run(table.location, out, '[columns]\nsubject = "area"\n[protocol]\ncolumns = ["grader"]\n')
    assert failed_checks(out) == []
    return ask(out, "SELECT subject, model, problem_id, n, c FROM problem_counts ORDER BY ALL")


def test_data_files_delete_files_and_inlined_rows(table: Lake, tmp_path: Path) -> None:
    first = table.add(10, "a", True, False, True)
    table.add(11, "gone", True, end=4)
    table.add(12, "b", True, True)
    elsewhere = str(tmp_path / "other" / "topic=y" / "c.parquet")
    table.add(13, "c", False, path=elsewhere, names=("who", "task", "ok", "ignored"), mapping=7)
    table.sql(
        "INSERT INTO ducklake_name_mapping VALUES"
        " (7, 'who', 1, NULL), (7, 'task', 2, NULL), (7, 'ok', 3, NULL), (7, 'topic', 4, NULL)"
    )
    pq.write_table(pa.table({"file_path": [str(first)], "pos": [1]}), table.data / "d.parquet")
    table.sql("INSERT INTO ducklake_delete_file VALUES (3, 4, NULL, 10, 'd.parquet', true, 'parquet')")
    assert counted(table, tmp_path / "out") == [
        *[("x", "a", "p0", 1, 1), ("x", "a", "p2", 1, 1), ("x", "b", "p0", 1, 1), ("x", "b", "p1", 1, 1)],
        ("y", "c", "p0", 1, 0),
    ]
    assert ask(tmp_path / "out", "SELECT DISTINCT protocol FROM problem_counts") == [('{"grader":"v1"}',)]
    table.sql(
        "CREATE TABLE ducklake_inlined_delete_3 (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)",
        "INSERT INTO ducklake_inlined_delete_3 VALUES (12, 0, 8)",
        "INSERT INTO ducklake_inlined_data_tables VALUES (3, 'ducklake_inlined_data_3_1', 1)",
        "CREATE TABLE ducklake_inlined_data_3_1 (row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT,"
        " model VARCHAR, problem_id VARCHAR, passed BOOLEAN, topic VARCHAR)",
        "INSERT INTO ducklake_inlined_data_3_1 VALUES (5, 3, NULL, 'd', 'p0', true, 'z'),"
        " (6, 3, NULL, 'd', 'p1', false, 'z'), (7, 3, 4, 'deleted', 'p0', true, 'z')",
    )
    assert counted(table, tmp_path / "out") == [
        *[("x", "a", "p0", 1, 1), ("x", "a", "p2", 1, 1), ("x", "b", "p1", 1, 1), ("y", "c", "p0", 1, 0)],
        *[("z", "d", "p0", 1, 1), ("z", "d", "p1", 1, 0)],
    ]
    assert run(table.location, tmp_path / "plain", metrics=["pass@1"]).files_read == 4


def test_what_is_refused(table: Lake, tmp_path: Path) -> None:
    table.add(10, "a", True, key="'secret'")
    with pytest.raises(DataError, match="this DuckLake table is encrypted"):
        listing(table.location)
    for location, error, message in (
        (table.location.replace("main.attempts", "main.other"), LakeError, "no such table; it has main.attempts"),
        ("ducklake:/nowhere/main.t", LakeError, "no such catalog"),
        (f"ducklake:{tmp_path}", UsageError, "not a table of a DuckLake catalog"),
        ("ducklake:postgres:host=h password=x/main.t", UsageError, "cannot contain a password"),
    ):
        with pytest.raises(error, match=message):
            listing(location)
    (tmp_path / "text").write_text("no database")
    with pytest.raises(DataError, match="the metadata of this DuckLake table cannot be read"):
        listing(f"ducklake:sqlite:{tmp_path}/text/main.t")


def test_files_in_object_storage(bucket: str, table: Lake, tmp_path: Path) -> None:
    table.add(10, "a", True, False)
    table.sql(f"UPDATE ducklake_metadata SET value = '{bucket}/data/' WHERE key = 'data_path'")
    upload(table.data.parent.parent, f"{bucket}/data")
    assert [file.path for file in listing(table.location, QUICK).files] == ["ducklake-10.parquet"]
    assert pl.read_parquet(table.data / "ducklake-10.parquet").height == 2
