"""leaderboard.duckdb: native tables, views, macros and comments in one file that says itself what it shows.

The only module of the job that knows DuckDB; it is imported when there is a file to read or to write. Nothing here
opens the published file: a session that somebody left open holds DuckDB's lock on it, and ours would hold it against
others. Who reads it opens a copy of their own (`store.disk.private_copy`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq

from scorelake.problems import Part, name_texts, paths
from scorelake.publish.history import Past
from scorelake.publish.protocols import protocols
from scorelake.publish.snapshot import problem_files
from scorelake.store.disk import literal
from scorelake.tables import (
    ABOUT_EARLIER,
    BOARD,
    CHANGE,
    COUNT_SCORE,
    COUNTS,
    DIGEST,
    EVIDENCE,
    GROUP,
    HISTORY,
    KEYS,
    LISTS,
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
from scorelake.version import __version__

STORAGE = "v1.0.0"
"""The storage version every DuckDB 1.x and 2.x opens."""
INTERNAL = "internal"
"""The schema of tables that nobody needs to look at."""
NATIVE = (*(table for table in SCORES if table is not PROBLEM_SCORE), *EVIDENCE, PROBLEM_HISTOGRAM, CHANGE)
"""Tables as they are in the snapshot's files."""
_HIDDEN = (*PROBLEM, *EVIDENCE, COUNT_SCORE, PROBLEM_SCORE, PROTOCOL_KEY, RECORD, BOARD, DIGEST)
_TABLES = (*dict.fromkeys((*NATIVE, *_HIDDEN)), RUN, SETTING, QUARANTINE, HISTORY)
_CATALOG = "views and macros"
_VIEWS = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
_NAME = KEYS[-1]
APART = (PROBLEM_COUNT, PROBLEM_NAME, PROBLEM_SCORE)
"""Tables per problem, which may be views of the snapshot's files."""


@dataclass(frozen=True)
class Identity:
    """What a leaderboard says of itself, and whether its tables still are what they were."""

    run_id: str
    rolled_back: bool
    edited: tuple[str, ...]
    """Tables that hold something else than what was published; empty where all is well."""
    comparable: bool
    """False where another version of DuckDB made the digests, so that they cannot be compared."""
    problems: str = ""
    """The files that its problems are read from, as DuckDB is told; empty where they are inside."""


def identity(copy: Path) -> Identity | None:
    """What a copy of a leaderboard says of itself; None if it is none of ours, or cannot be read."""
    try:
        with duckdb.connect(str(copy), read_only=True) as db:
            told = db.execute(f"SELECT run_id, rolled_back, duckdb FROM {INTERNAL}.{BOARD.name}").fetchall()
            if len(told) != 1:
                return None
            ((run_id, rolled_back, made_by),) = told
            then = dict(db.execute(f"SELECT what, (rows, digest) FROM {INTERNAL}.{DIGEST.name}").fetchall())
            same = made_by == duckdb.__version__
            now = _digests(db) if same else then
            point = f"SELECT sql FROM duckdb_views() WHERE schema_name = '{INTERNAL}' AND view_name = ?"
            views = db.execute(point, [PROBLEM_COUNT.name]).fetchall()
    except duckdb.Error:
        return None
    edited = sorted({*then, *now} - {name for name in now if now[name] == then.get(name)})
    files = next(iter(_READ.findall(views[0][0])), "") if views else ""
    return Identity(str(run_id), bool(rolled_back), tuple(edited), same, files.replace("''", "'"))


_READ = re.compile(r"read_parquet\('((?:[^']|'')*)'")


def past(copy: Path) -> Past:
    """The runs and scores that a copy of a leaderboard knows of."""
    with duckdb.connect(str(copy), read_only=True) as db:
        runs, scores = (db.table(name).pl() for name in (f"{INTERNAL}.{RECORD.name}", HISTORY.name))
        return Past(runs, scores)


def view_files() -> list[tuple[str, str]]:
    """The views and macros in the order of their names: inside the wheel, or at the top of a checkout."""
    packaged = resources.files("scorelake") / "sql"
    home = packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"
    return sorted(
        (file.name, file.read_text(encoding="utf-8")) for file in home.iterdir() if file.name.endswith(".sql")
    )


def build(
    path: Path,
    run_id: str,
    known: Past,
    snapshot: Path,
    rolled_back: bool = False,
    apart: bool = False,
) -> None:
    """A new database with native tables, views, macros, comments and digests; complete or not there.

    Tables per problem may stay apart, in the files of the snapshot: views then say where they are.
    """
    path.unlink(missing_ok=True)
    snapshot = snapshot.resolve()  # views hold its place, from wherever they are asked
    with duckdb.connect() as db:
        db.execute("SET preserve_insertion_order = true")
        _attach(db, path)
        db.execute(f"CREATE SCHEMA {INTERNAL}")
        for table in NATIVE:
            db.read_parquet(literal(str(snapshot / f"{table.name}.parquet"))).create(home_of(table))
        groups = _groups(snapshot)
        _load(db, PROBLEM_GROUP, groups.with_row_index("_group"))
        _point(db, snapshot) if apart else _problems(db, snapshot, groups)
        keys = _protocols(db, groups)
        for table, frame in known.tables(run_id).items():
            _load(db, table, frame)
        who = {"run_id": run_id, "rolled_back": rolled_back, "scorelake": __version__, "duckdb": duckdb.__version__}
        _load(db, BOARD, pl.DataFrame([who], schema=BOARD.schema))
        for _, sql in view_files():
            db.execute(sql)
        views = {f"{schema}.{name}" for schema, name in db.execute(_VIEWS).fetchall()}
        for table in _TABLES:
            if table is not DIGEST:
                _comment(db, table, "VIEW" if home_of(table) in views else "TABLE")
        _comment_views(db)
        _comment_keys(db, keys)
        _detach(db)
        _attach(db, path)  # digests are of what is in the file, read back: a macro is not written down to the letter
        rows = [(what, many, digest) for what, (many, digest) in _digests(db).items()]
        _load(db, DIGEST, pl.DataFrame(rows, schema=DIGEST.schema, orient="row"))
        _comment(db, DIGEST)
        _detach(db)


def _attach(db: duckdb.DuckDBPyConnection, path: Path) -> None:
    db.execute(f"ATTACH '{_quoted(str(path))}' AS fresh (STORAGE_VERSION '{STORAGE}')")
    db.execute("USE fresh")
    db.begin()  # hundreds of small statements, one write to the disk


def _detach(db: duckdb.DuckDBPyConnection) -> None:
    db.commit()
    db.execute("USE memory")
    db.execute("DETACH fresh")


def _groups(snapshot: Path) -> pl.DataFrame:
    """The groups that have a problem, in their order."""
    return (
        pl.read_parquet(snapshot / f"{PROBLEM_HISTOGRAM.name}.parquet", columns=list(GROUP), glob=False)
        .unique()
        .sort(GROUP)
    )


def _problems(db: duckdb.DuckDBPyConnection, snapshot: Path, groups: pl.DataFrame) -> None:
    """A million problems are a few texts repeated: stored as numbers, they load and open several times faster."""
    counts, scores = (paths(snapshot / table.name) for table in (PROBLEM_COUNTS, PROBLEM_SCORE))
    texts = [name_texts(path) for path in counts]
    every = pl.concat(texts)
    code = every.rank("dense").cast(pl.UInt32) - 1  # once for all parts, not looked up by each
    ends = np.cumsum([0, *(some.len() for some in texts)])
    names = pl.DataFrame({"_name": code, _NAME: every}).unique("_name").sort("_name")
    _load(db, PROBLEM_NAME, names)
    numbers = groups.with_row_index("_group")
    for i, path in enumerate(counts):
        part = Part.read(path)
        kept = _kept(part.columns)
        group = part.groups.join(numbers, on=GROUP, how="left", nulls_equal=True, maintain_order="left")["_group"]
        name = code[int(ends[i]) : int(ends[i + 1])]
        known = {"_group": group.gather(part.group), "_name": name.gather(part.name)}
        frame = pl.concat([pl.DataFrame(known), part.counts, part.others(kept)], how="horizontal")
        absent = [name for name in PROBLEM_COUNT.columns if name not in frame.columns]
        frame = frame.with_columns(pl.lit(None, PROBLEM_COUNT.schema[name]).alias(name) for name in absent)
        _load(db, PROBLEM_COUNT, frame.select(*PROBLEM_COUNT.columns, pl.exclude(*PROBLEM_COUNT.columns)), more=i > 0)
    _load(db, PROBLEM_SCORE, pl.DataFrame(schema=PROBLEM_SCORE.schema))
    for path in scores:
        told = pl.read_parquet(path, glob=False).join(numbers, on=GROUP, how="left", nulls_equal=True)
        _load(db, PROBLEM_SCORE, told.join(names, on=_NAME, how="left").select(*PROBLEM_SCORE.columns), more=True)


def _kept(columns: Sequence[str]) -> list[str]:
    """Columns of problem_counts beside keys and counts that are one value each."""
    return [name for name in columns if name not in (*KEYS, *COUNTS, *LISTS)]


def _point(db: duckdb.DuckDBPyConnection, snapshot: Path) -> None:
    """The same tables as views of the snapshot's files; a problem id is its own number."""
    files = problem_files(snapshot)
    columns = pq.read_schema(paths(snapshot / PROBLEM_COUNTS.name)[0]).names
    told = [f"files.{name}" if name in columns else f"NULL::DOUBLE AS {name}" for name in PROBLEM_COUNT.columns]
    also = [f'files."{_doubled(name)}"' for name in _kept(columns) if name not in PROBLEM_COUNT.columns]
    _view(db, PROBLEM_COUNT, [*told[2:], *also], files)
    db.execute(
        f"CREATE VIEW {home_of(PROBLEM_NAME)} AS "
        f"SELECT DISTINCT problem_id AS _name, problem_id FROM read_parquet('{_quoted(files)}')"
    )
    values = snapshot / PROBLEM_SCORE.name
    if paths(values):
        _view(db, PROBLEM_SCORE, ["metric", "k", "value"], f"{literal(str(values))}/*.parquet")
    else:
        _load(db, PROBLEM_SCORE, pl.DataFrame(schema=PROBLEM_SCORE.schema))


def _view(db: duckdb.DuckDBPyConnection, table: Table, columns: Sequence[str], files: str) -> None:
    same = " AND ".join(f"groups.{key} IS NOT DISTINCT FROM files.{key}" for key in GROUP)
    db.execute(
        f"""CREATE VIEW {home_of(table)} AS
        SELECT groups._group, files.problem_id AS _name, {", ".join(columns)}
        FROM read_parquet('{_quoted(files)}') AS files
        JOIN {home_of(PROBLEM_GROUP)} AS groups ON {same}"""
    )


def _protocols(db: duckdb.DuckDBPyConnection, groups: pl.DataFrame) -> dict[str, str]:
    """The protocols with a column per key; the names of these columns."""
    frame, names = protocols(groups["protocol"].unique().sort().to_list())
    _load(db, PROTOCOL_KEY, frame)
    return names


def _comment_keys(db: duckdb.DuckDBPyConnection, names: dict[str, str]) -> None:
    """The columns of protocols, which are named by users."""
    for key, name in names.items():
        column = '"' + name.replace('"', '""') + '"'
        for table in (home_of(PROTOCOL_KEY), "protocol"):
            db.execute(f"COMMENT ON COLUMN {table}.{column} IS 'the protocol column {_quoted(key)}'")


def _load(db: duckdb.DuckDBPyConnection, table: Table, frame: pl.DataFrame, *, more: bool = False) -> None:
    """A table of a frame; or more rows of one that is there."""
    table.check(frame.select(*table.columns))
    db.register("frame", frame)
    home = home_of(table)
    db.execute(f"INSERT INTO {home} FROM frame" if more else f"CREATE TABLE {home} AS FROM frame")
    db.unregister("frame")


def _digests(db: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, str]]:
    """Rows and the sum of their hashes of every table but the digests, and of what views and macros say."""
    here = "database_name = current_database() AND NOT internal"
    names = db.execute(f"SELECT schema_name, table_name FROM duckdb_tables() WHERE {here}").fetchall()
    out = {}
    for schema, name in sorted(names):
        if (schema, name) != (INTERNAL, DIGEST.name):
            place = f'"{_doubled(schema)}"."{_doubled(name)}"'
            rows, total = db.execute(f"SELECT count(*), sum(hash(it)::HUGEINT) FROM {place} AS it").fetchall()[0]
            out[f"{schema}.{name}"] = (rows, str(total or 0))
    told = db.execute(
        f"SELECT view_name || ' ' || sql FROM duckdb_views() WHERE {here} "
        f"UNION ALL SELECT function_name || ' ' || macro_definition FROM duckdb_functions() WHERE {here}"
    ).fetchall()
    words = sorted(str(sorted(re.findall(r"\w+|\S", text))) for (text,) in told)  # DuckDB lists EXCLUDE in any order
    out[_CATALOG] = (len(told), hashlib.sha256("\n".join(words).encode()).hexdigest())
    return out


def _comment(db: duckdb.DuckDBPyConnection, table: Table, kind: str = "TABLE") -> None:
    """Descriptions from tables.py; DDL takes no parameters, and none of these words comes from a user."""
    home = home_of(table)
    told = [f"COMMENT ON {kind} {home} IS '{_quoted(table.about)}';"]
    for column, (_, about) in table.columns.items():
        told.append(f"COMMENT ON COLUMN {home}.{column} IS '{_quoted(about)}';")
    db.execute("".join(told))


def home_of(table: Table) -> str:
    return f"{INTERNAL}.{table.name}" if table in _HIDDEN else table.name


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
    told = [(view, column.replace('"', '""'), known.get(column, "carried from the lake")) for view, column in bare]
    db.execute("".join(f"COMMENT ON COLUMN {view}.\"{name}\" IS '{_quoted(about)}';" for view, name, about in told))


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _doubled(text: str) -> str:
    return text.replace('"', '""')
