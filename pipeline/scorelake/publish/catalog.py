"""A leaderboard without a row: tables, views, macros and comments, which all follow from the names of columns.

Hundreds of small statements take DuckDB a quarter of a second, however small the lake. So a run makes it beside the
scoring, and what came of it is kept, as the bytes of a file, for as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import duckdb
import polars as pl

from scorelake.schemas import (
    ABOUT_EARLIER,
    BOARD,
    CHANGE,
    COUNT_SCORE,
    DIGEST,
    EVIDENCE,
    GROUP,
    HISTORY,
    PROBLEM,
    PROBLEM_COUNT,
    PROBLEM_COUNTS,
    PROBLEM_GROUP,
    PROBLEM_HISTOGRAM,
    PROBLEM_NAME,
    PROBLEM_SCORE,
    PROTOCOL_KEY,
    QUARANTINE,
    RECORD,
    RUN,
    SCORES,
    SETTING,
    Table,
)

STORAGE = "v1.0.0"
"""The storage version every DuckDB 1.x and 2.x opens."""
INTERNAL = "internal"
"""The schema of tables that nobody needs to look at."""
NATIVE = (*(table for table in SCORES if table is not PROBLEM_SCORE), *EVIDENCE, PROBLEM_HISTOGRAM, CHANGE)
"""Tables as they are in the snapshot's files."""
_HIDDEN = (*PROBLEM, *EVIDENCE, COUNT_SCORE, PROBLEM_SCORE, PROTOCOL_KEY, RECORD, BOARD, DIGEST)
_TABLES = (*dict.fromkeys((*NATIVE, *_HIDDEN)), RUN, SETTING, QUARANTINE, HISTORY)
_VIEWS = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
_MOST = 8
"""Different empty leaderboards that are kept, of about a megabyte each."""
Columns: TypeAlias = tuple[tuple[str, pl.DataType], ...]


@dataclass(frozen=True)
class Apart:
    """Tables per problem that stay in the files of a snapshot."""

    counts: str
    """The files, as DuckDB is told."""
    columns: tuple[str, ...]
    """What they have."""
    scores: str | None
    """The files of values of problems, if there are any."""


@dataclass(frozen=True)
class Shape:
    """All that the tables, views and comments of a leaderboard depend on."""

    problem: Columns
    """Of the counts per problem, in their order, carried ones at the end; none where they stay apart."""
    protocol: Columns
    keys: tuple[tuple[str, str], ...]
    """The keys of protocols, and their names as columns."""
    apart: Apart | None = None


_made: dict[Shape, bytes] = {}
_making = Lock()


def empty(shape: Shape, aside: Path) -> bytes:
    """The file of a leaderboard without a row; made aside, where nothing is left."""
    with _making:
        if shape not in _made:
            try:
                _make(aside, shape)
                while len(_made) >= _MOST:
                    _made.pop(next(iter(_made)))
                _made[shape] = aside.read_bytes()
            finally:
                aside.unlink(missing_ok=True)
        return _made[shape]


def _make(path: Path, shape: Shape) -> None:
    path.unlink(missing_ok=True)
    with duckdb.connect() as db:
        attach(db, path)
        db.execute(f"CREATE SCHEMA {INTERNAL}")
        columns = dict.fromkeys(_TABLES, Columns()) | {PROBLEM_COUNT: shape.problem, PROTOCOL_KEY: shape.protocol}
        for table in _TABLES:
            if shape.apart is None or table not in (PROBLEM_COUNT, PROBLEM_NAME, PROBLEM_SCORE):
                _create(db, table, dict(columns[table]) or table.schema)
        if shape.apart is not None:
            _point(db, shape.apart)
        for _, sql in view_files():
            db.execute(sql)
        views = {f"{schema}.{name}" for schema, name in db.execute(_VIEWS).fetchall()}
        for table in _TABLES:
            _comment(db, table, "VIEW" if home_of(table) in views else "TABLE")
        _comment_views(db)
        _comment_keys(db, dict(shape.keys))
        detach(db)


def attach(db: duckdb.DuckDBPyConnection, path: Path) -> None:
    db.execute(f"ATTACH '{quoted(str(path))}' AS fresh (STORAGE_VERSION '{STORAGE}')")
    db.execute("USE fresh")
    db.begin()  # many small statements, one write to the disk


def detach(db: duckdb.DuckDBPyConnection) -> None:
    db.commit()
    db.execute("USE memory")
    db.execute("DETACH fresh")


def home_of(table: Table) -> str:
    return f"{INTERNAL}.{table.name}" if table in _HIDDEN else table.name


def view_files() -> list[tuple[str, str]]:
    """The views and macros in the order of their names: inside the wheel, or at the top of a checkout."""
    packaged = resources.files("scorelake") / "sql"
    home = packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"
    return sorted(
        (file.name, file.read_text(encoding="utf-8")) for file in home.iterdir() if file.name.endswith(".sql")
    )


def quoted(text: str) -> str:
    return text.replace("'", "''")


def doubled(text: str) -> str:
    return text.replace('"', '""')


def _create(db: duckdb.DuckDBPyConnection, table: Table, columns: dict[str, pl.DataType]) -> None:
    db.register("frame", pl.DataFrame(schema=columns))
    db.execute(f"CREATE TABLE {home_of(table)} AS FROM frame")
    db.unregister("frame")


def _point(db: duckdb.DuckDBPyConnection, apart: Apart) -> None:
    """Tables per problem as views of the snapshot's files; a problem id is its own number."""
    told = [f"files.{name}" if name in apart.columns else f"NULL::DOUBLE AS {name}" for name in PROBLEM_COUNT.columns]
    also = [f'files."{doubled(name)}"' for name in apart.columns if name not in PROBLEM_COUNT.columns]
    _view(db, PROBLEM_COUNT, [*told[2:], *also], apart.counts)
    db.execute(
        f"CREATE VIEW {home_of(PROBLEM_NAME)} AS "
        f"SELECT DISTINCT problem_id AS _name, problem_id FROM read_parquet('{quoted(apart.counts)}')"
    )
    if apart.scores is not None:
        _view(db, PROBLEM_SCORE, ["metric", "k", "value"], apart.scores)
    else:
        _create(db, PROBLEM_SCORE, PROBLEM_SCORE.schema)


def _view(db: duckdb.DuckDBPyConnection, table: Table, columns: Sequence[str], files: str) -> None:
    same = " AND ".join(f"groups.{key} IS NOT DISTINCT FROM files.{key}" for key in GROUP)
    db.execute(
        f"""CREATE VIEW {home_of(table)} AS
        SELECT groups._group, files.problem_id AS _name, {", ".join(columns)}
        FROM read_parquet('{quoted(files)}') AS files
        JOIN {home_of(PROBLEM_GROUP)} AS groups ON {same}"""
    )


def _comment(db: duckdb.DuckDBPyConnection, table: Table, kind: str = "TABLE") -> None:
    """Descriptions from schemas.py; DDL takes no parameters, and none of these words comes from a user."""
    home = home_of(table)
    told = [f"COMMENT ON {kind} {home} IS '{quoted(table.about)}';"]
    for column, (_, about) in table.columns.items():
        told.append(f"COMMENT ON COLUMN {home}.{column} IS '{quoted(about)}';")
    db.execute("".join(told))


def _comment_views(db: duckdb.DuckDBPyConnection) -> None:
    """A column of a view that its own file says nothing of means what it means in the tables, or is a carried one."""
    known = {
        name: about for table in (*_TABLES, PROBLEM_COUNTS) for name, (_, about) in reversed(table.columns.items())
    }
    known |= ABOUT_EARLIER
    bare = db.execute(
        """
        SELECT table_name, column_name FROM duckdb_columns()
        WHERE comment IS NULL AND schema_name = 'main'
            AND table_name IN (SELECT view_name FROM duckdb_views() WHERE NOT internal)
        """
    ).fetchall()
    told = [(view, doubled(column), known.get(column, "carried from the lake")) for view, column in bare]
    db.execute("".join(f"COMMENT ON COLUMN {view}.\"{name}\" IS '{quoted(about)}';" for view, name, about in told))


def _comment_keys(db: duckdb.DuckDBPyConnection, names: dict[str, str]) -> None:
    """The columns of protocols, which are named by users."""
    for key, name in names.items():
        for table in (home_of(PROTOCOL_KEY), "protocol"):
            db.execute(f"COMMENT ON COLUMN {table}.\"{doubled(name)}\" IS 'the protocol column {quoted(key)}'")
