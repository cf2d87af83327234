"""List the files of a DuckLake table: its catalog is a database (SQLite, DuckDB or PostgreSQL) with plain tables.

Written by the published specification, version 1.0 (https://ducklake.select/docs).
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.lake.tables import EXPORT, deleted_rows, refuse_outside, table_errors
from scorelake.settings import Storage
from scorelake.storage.disk import cache_folder, is_remote, read_bytes, replace_bytes
from scorelake.storage.files import File, table_columns

CATALOG = "ducklake:"
USAGE = "ducklake:FILE/SCHEMA.TABLE, ducklake:sqlite:FILE/SCHEMA.TABLE or ducklake:postgres:service=NAME/SCHEMA.TABLE"


def table_files(location: str, storage: Storage) -> tuple[str, list[File]]:
    """Return the folder of a table, and the files of its current snapshot."""
    catalog, _, name = location.removeprefix(CATALOG).rpartition("/")
    kind, _, path = catalog.partition(":") if catalog.startswith(("sqlite:", "postgres:")) else ("", "", catalog)
    if not path or name.count(".") != 1:
        raise UsageError("not a table of a DuckLake catalog", where=location, hint=USAGE)
    if kind == "postgres" and re.search(r"password|//[^/]*:[^/]*@", path):
        raise UsageError("a location cannot contain a password", hint="put it into a service file or PGPASSWORD")
    if kind != "postgres" and not Path(path).is_file():
        raise LakeError("no such catalog", where=location, hint=USAGE)
    with table_errors(location, "DuckLake", "postgres"), closing(_connect(kind, path)) as database:

        def query(sql: str) -> list[dict[str, Any]]:
            cursor = database.execute(sql)
            names = [column for column, *_ in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        table = _Table(query, os.path.dirname(path), name, location)
        return table.root.rstrip("/"), [*table.files(storage), *table.inlined_files()]


def _connect(kind: str, path: str) -> Any:
    if kind == "sqlite":
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    if kind == "postgres":
        import psycopg  # noqa: PLC0415 - an extra

        return psycopg.connect(path, autocommit=True)
    import duckdb  # noqa: PLC0415 - loaded where it is used

    return duckdb.connect(path, read_only=True)


class _Table:
    """The current snapshot of a table in a catalog."""

    def __init__(self, query: Callable[[str], list[dict[str, Any]]], home: str, name: str, where: str) -> None:
        self._query, self._where = query, where
        self._now = _valid_at(query("SELECT max(snapshot_id) AS id FROM ducklake_snapshot")[0]["id"])
        schemas = {each["schema_id"]: each for each in query(f"SELECT * FROM ducklake_schema WHERE {self._now}")}
        tables = query(f"SELECT * FROM ducklake_table WHERE {self._now}")
        names = {f"{schemas[each['schema_id']]['schema_name']}.{each['table_name']}": each for each in tables}
        if name not in names:
            what = f"the catalog has no such table; it has {', '.join(sorted(names)) or 'none'}"
            raise LakeError(what, where=where, hint=USAGE)
        self._id = names[name]["table_id"]
        root = query("SELECT value FROM ducklake_metadata WHERE key = 'data_path'")[0]["value"]
        root = root if is_remote(root) else os.path.abspath(os.path.join(home, root)) + "/"
        self.root = _join(_join(root, schemas[names[name]["schema_id"]]), names[name])
        self._columns = self._columns_at(self._now)
        self._defaults = {each["column_name"]: each["initial_default"] for each in self._columns.values()}

    def files(self, storage: Storage) -> Iterator[File]:
        """Yield the data files, with the rows that are deleted by delete files or in the catalog."""
        deleted: dict[int, list[Any]] = {}
        for file in self._select("ducklake_delete_file"):
            rows = deleted_rows(read_bytes(_join(self.root, file), storage), file["format"] == "puffin")
            deleted.setdefault(file["data_file_id"], []).extend(rows.values())
        for row in self._inlined_deletions():
            deleted.setdefault(row["file_id"], []).append(np.array([row["row_id"]]))
        for file in self._select("ducklake_data_file"):
            if file["encryption_key"]:
                raise DataError("this DuckLake table is encrypted", where=self._where, hint=EXPORT)
            path, values = self._relative(_join(self.root, file)), self._defaults.copy()
            names: dict[str, tuple[str, int | None]]
            names = {each["column_name"]: (each["column_name"], number) for number, each in self._columns.items()}
            # files of other writers have no field ids: None maps nothing
            sql = f"SELECT * FROM ducklake_name_mapping WHERE mapping_id = {file['mapping_id'] or 'NULL'}"
            for entry in self._query(f"{sql} AND parent_column IS NULL"):
                if column := self._columns.get(entry["target_field_id"]):
                    name, stored = column["column_name"], entry["source_name"]
                    names[name], values[name] = (stored, None), File(path, 0, 0).hive.get(stored, values[name])
            about = table_columns(values, names, deleted.get(file["data_file_id"], ()))
            yield File(path, file["file_size_bytes"], 0, table=about)

    def inlined_files(self) -> Iterator[File]:
        """Write rows that only the catalog has to files in the cache; their columns have the names of their time."""
        for table in self._select("ducklake_inlined_data_tables", "true"):
            rows = self._query(f'SELECT * FROM "{table["table_name"]}" WHERE {self._now}')
            if not rows:
                continue
            if is_remote(self.root):
                what = f"the catalog of this DuckLake table has {len(rows):,} inlined rows, and its files are remote"
                hint = "CALL ducklake_flush_inlined_data('NAME') in DuckDB writes them to files"
                raise DataError(what, where=self._where, hint=hint)
            version = f"schema_version = {table['schema_version']}"
            then = self._query(f"SELECT max(snapshot_id) AS id FROM ducklake_snapshot WHERE {version}")[0]["id"]
            columns = self._columns if then is None else self._columns_at(_valid_at(then))
            pairs = [(column, columns[number]) for number, column in self._columns.items() if number in columns]
            buffer = io.BytesIO()
            pl.DataFrame([_series(rows, column) for column in columns.values()]).write_parquet(buffer)
            path = cache_folder() / f"ducklake-{hashlib.sha256(buffer.getvalue()).hexdigest()[:32]}.parquet"
            if not path.exists():
                replace_bytes(path, buffer.getvalue())
            about = table_columns(self._defaults, {a["column_name"]: (b["column_name"], None) for a, b in pairs})
            yield File(self._relative(str(path)), buffer.tell(), 0, table=about)

    def _select(self, name: str, valid: str | None = None) -> list[dict[str, Any]]:
        return self._query(f"SELECT * FROM {name} WHERE table_id = {self._id} AND {valid or self._now}")

    def _columns_at(self, valid: str) -> dict[int, dict[str, Any]]:
        columns = self._select("ducklake_column", f"parent_column IS NULL AND {valid}")
        return {column["column_id"]: column for column in columns}

    def _inlined_deletions(self) -> list[dict[str, Any]]:
        name = f"ducklake_inlined_delete_{self._id}"
        try:
            return self._query(f"SELECT file_id, row_id FROM {name}")
        except Exception as error:  # the table is made by the first such deletion
            if name not in str(error):
                raise
            return []

    def _relative(self, path: str) -> str:
        if is_remote(self.root):
            refuse_outside(inside := path.removeprefix(self.root), self._where, "DuckLake")
            return inside
        return os.path.relpath(path, self.root)


def _valid_at(snapshot: int) -> str:
    return f"begin_snapshot <= {snapshot} AND (end_snapshot IS NULL OR end_snapshot > {snapshot})"


def _join(root: str, part: Mapping[str, Any]) -> str:
    return os.path.join(root, part["path"]) if part["path_is_relative"] else str(part["path"])


def _series(rows: list[dict[str, Any]], column: Mapping[str, Any]) -> pl.Series:
    """Convert inlined values, of which PostgreSQL keeps texts as bytes, and SQLite booleans as numbers."""
    values = [row[column["column_name"]] for row in rows]
    plain = [bytes(value).decode() if isinstance(value, bytes | memoryview) else value for value in values]
    series = pl.Series(column["column_name"], plain, strict=False)
    return series.cast(pl.Boolean) if column["column_type"].lower() == "boolean" else series
