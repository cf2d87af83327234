"""leaderboard.duckdb: native tables, views, macros and comments in one file.

The only module of the job that knows DuckDB; it is imported when there is a file to read or to write.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from scorelake.errors import DataError
from scorelake.problems import Problems
from scorelake.tables import (
    EVIDENCE,
    HISTORY,
    LISTS,
    MODEL_SUMMARY,
    PROBLEM,
    PROBLEM_COUNT,
    PROBLEM_COUNTS,
    PROBLEM_GROUP,
    PROBLEM_HISTOGRAM,
    PROBLEM_NAME,
    QUARANTINE,
    RUN,
    SCORES,
    Table,
)

STORAGE = "v1.0.0"
"""The storage version every DuckDB 1.x and 2.x opens."""
_TABLES = (*EVIDENCE, *SCORES, *PROBLEM, PROBLEM_HISTOGRAM, RUN, QUARANTINE, HISTORY)


def shown(path: Path) -> str | None:
    """The run whose numbers a leaderboard shows."""
    try:
        with duckdb.connect(str(path), read_only=True) as db:
            newest = db.execute("SELECT run_id FROM run ORDER BY started DESC, run_id DESC LIMIT 1").fetchone()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise DataError(
            f"not a leaderboard of ours: {first}", where=str(path), hint="move it away and run again"
        ) from None
    return str(newest[0]) if newest else None


def view_files() -> list[tuple[str, str]]:
    """The views and macros in the order of their names: inside the wheel, or at the top of a checkout."""
    packaged = resources.files("scorelake") / "sql"
    home = packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"
    return sorted(
        (file.name, file.read_text(encoding="utf-8")) for file in home.iterdir() if file.name.endswith(".sql")
    )


def build(path: Path, manifests: list[dict[str, Any]], snapshot: Path, problems: Problems) -> None:
    """A new database with native tables, views, macros and comments; complete or not there."""
    path.unlink(missing_ok=True)
    with duckdb.connect() as db:
        db.execute("SET preserve_insertion_order = true")
        db.execute(f"ATTACH '{_quoted(str(path))}' AS fresh (STORAGE_VERSION '{STORAGE}')")
        db.execute("USE fresh")
        db.begin()  # hundreds of small statements, one write to the disk
        _problems(db, problems)
        _native(db, snapshot)
        runs = [m["run"] for m in manifests]
        quarantine = [(m["run"]["run_id"], *entry) for m in manifests for entry in m["quarantine"]]
        _insert(db, RUN, [tuple(run[column] for column in RUN.columns) for run in runs])
        _insert(db, QUARANTINE, quarantine)
        _insert(db, HISTORY, [])
        for run in runs:
            summary = snapshot.parent / run["run_id"] / f"{MODEL_SUMMARY.name}.parquet"
            scores = db.read_parquet(literal(str(summary))).project(", ".join(list(HISTORY.columns)[2:]))
            scores.create_view("scores")
            db.execute("INSERT INTO history SELECT ?, ?, * FROM scores", (run["run_id"], run["started"]))
            db.execute("DROP VIEW scores")
        for table in _TABLES:
            _comment(db, table)
        for _, sql in view_files():
            db.execute(sql)
        _comment_views(db)
        db.commit()
        db.execute("USE memory")
        db.execute("DETACH fresh")


def _problems(db: duckdb.DuckDBPyConnection, problems: Problems) -> None:
    """A million problems are a few texts repeated: stored as numbers, they load and open several times faster."""
    carried = problems.others([name for name in problems.more if name not in LISTS])
    numbers = pl.DataFrame({"_group": problems.group, "_name": problems.name})
    _load(db, PROBLEM_GROUP, problems.groups.with_row_index("_group"))
    _load(db, PROBLEM_NAME, pl.DataFrame({"problem_id": problems.names}).with_row_index("_name"))
    _load(db, PROBLEM_COUNT, pl.concat([numbers, problems.counts, problems.reward_ends(), carried], how="horizontal"))


def _load(db: duckdb.DuckDBPyConnection, table: Table, frame: pl.DataFrame) -> None:
    table.check(frame.select(*table.columns))
    db.register("frame", frame)
    db.execute(f"CREATE TABLE {table.name} AS SELECT * FROM frame")
    db.unregister("frame")


def _native(db: duckdb.DuckDBPyConnection, snapshot: Path) -> None:
    for table in (*SCORES, *EVIDENCE, PROBLEM_HISTOGRAM):
        db.read_parquet(literal(str(snapshot / f"{table.name}.parquet"))).create(table.name)


def _insert(db: duckdb.DuckDBPyConnection, table: Table, rows: list[tuple[Any, ...]]) -> None:
    kinds = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.Float64: "DOUBLE", pl.Datetime: "TIMESTAMP"}
    columns = ", ".join(f"{name} {kinds[type(kind)]}" for name, kind in table.schema.items())
    db.execute(f"CREATE TABLE {table.name} ({columns})")
    if rows:
        db.executemany(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})", rows)


def _comment(db: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Descriptions from tables.py; DDL takes no parameters, and none of these words comes from a user."""
    told = [f"COMMENT ON TABLE {table.name} IS '{_quoted(table.about)}';"]
    for column, (_, about) in table.columns.items():
        told.append(f"COMMENT ON COLUMN {table.name}.{column} IS '{_quoted(about)}';")
    db.execute("".join(told))


def _comment_views(db: duckdb.DuckDBPyConnection) -> None:
    """A column of a view that its own file says nothing of means what it means in the tables, or is a carried one."""
    known = {
        name: about for table in (*_TABLES, PROBLEM_COUNTS) for name, (_, about) in reversed(table.columns.items())
    }
    bare = db.execute(
        """
        SELECT table_name, column_name FROM duckdb_columns()
        WHERE comment IS NULL AND table_name IN (SELECT view_name FROM duckdb_views() WHERE NOT internal)
        """
    ).fetchall()
    told = [(view, column.replace('"', '""'), known.get(column, "carried from the lake")) for view, column in bare]
    db.execute("".join(f"COMMENT ON COLUMN {view}.\"{name}\" IS '{_quoted(about)}';" for view, name, about in told))


def literal(path: str) -> str:
    """A path that DuckDB takes as it is, not as a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
