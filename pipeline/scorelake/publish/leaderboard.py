"""leaderboard.duckdb: native tables, views, macros and comments in one file that says itself what it shows.

With `catalog`, the only modules of the job that know DuckDB; they are imported when there is a file to read or to
write. Nothing here opens the published file: a session that somebody left open holds DuckDB's lock on it, and ours
would hold it against others. Who reads it opens a copy of their own (`store.disk.private_copy`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from scorelake.publish.catalog import (
    INTERNAL,
    NATIVE,
    Apart,
    Shape,
    attach,
    detach,
    doubled,
    empty,
    home_of,
    quoted,
)
from scorelake.publish.history import Past
from scorelake.publish.protocols import protocols
from scorelake.publish.snapshot import problem_files
from scorelake.schemas import (
    BOARD,
    COUNTS,
    DIGEST,
    GROUP,
    HISTORY,
    KEYS,
    LISTS,
    PROBLEM_COUNT,
    PROBLEM_COUNTS,
    PROBLEM_GROUP,
    PROBLEM_HISTOGRAM,
    PROBLEM_NAME,
    PROBLEM_SCORE,
    PROTOCOL_KEY,
    RECORD,
    Table,
)
from scorelake.scoring.buckets import bucket_paths as paths
from scorelake.storage.disk import literal
from scorelake.version import __version__

_CATALOG = "views and macros"
_INTERRUPTED = ("Query interrupted", "KeyboardInterrupt:")
"""How the errors of DuckDB end where Ctrl-C comes in the middle of a statement, or while it reads a frame of ours."""
_NAME = KEYS[-1]


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


def get_ready(staged: Path, known: Sequence[str]) -> None:
    """Make what a leaderboard with these protocols and the counts of a staged snapshot is before there is a row."""
    empty(_shape(staged, *protocols(known), apart=False), staged / "empty.duckdb")


def build(
    path: Path,
    run_id: str,
    known: Past,
    snapshot: Path,
    rolled_back: bool = False,
    apart: bool = False,
) -> None:
    """A new database with native tables, views, macros, comments and digests; complete or not there.

    Tables per problem may stay apart, in the files of the snapshot: views then say where they really are, from
    wherever they are asked.
    """
    try:
        _build(path, run_id, known, snapshot.resolve(), rolled_back, apart)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, RuntimeError | duckdb.Error) and str(error).rstrip().endswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        raise


def _build(path: Path, run_id: str, known: Past, snapshot: Path, rolled_back: bool, apart: bool) -> None:
    groups = _groups(snapshot)
    told, keys = protocols(groups["protocol"].unique().sort().to_list())
    path.write_bytes(empty(_shape(snapshot, told, keys, apart), path))
    with duckdb.connect() as db:
        db.execute("SET preserve_insertion_order = true")
        attach(db, path)
        for table in NATIVE:
            file = quoted(literal(str(snapshot / f"{table.name}.parquet")))
            db.execute(f"INSERT INTO {home_of(table)} FROM read_parquet('{file}')")
        _load(db, PROBLEM_GROUP, groups.with_row_index("_group"))
        if not apart:
            _problems(db, snapshot, groups)
        _load(db, PROTOCOL_KEY, told)
        for table, frame in known.tables(run_id).items():
            _load(db, table, frame)
        who = {"run_id": run_id, "rolled_back": rolled_back, "scorelake": __version__, "duckdb": duckdb.__version__}
        _load(db, BOARD, pl.DataFrame([who], schema=BOARD.schema))
        rows = [(what, many, digest) for what, (many, digest) in _digests(db).items()]
        _load(db, DIGEST, pl.DataFrame(rows, schema=DIGEST.schema, orient="row"))
        detach(db)


def _shape(snapshot: Path, told: pl.DataFrame, keys: dict[str, str], apart: bool) -> Shape:
    """What the leaderboard of a snapshot looks like before there is a row in it."""
    columns = pl.read_parquet(paths(snapshot / PROBLEM_COUNTS.name)[0], n_rows=0, glob=False).schema
    kept = {name: columns[name] for name in _kept(columns)}
    protocol, named = tuple(told.schema.items()), tuple(keys.items())
    if not apart:
        return Shape(tuple((PROBLEM_COUNT.schema | kept).items()), protocol, named)
    values = snapshot / PROBLEM_SCORE.name
    scores = f"{literal(str(values))}/*.parquet" if paths(values) else None
    return Shape((), protocol, named, Apart(problem_files(snapshot), (*COUNTS, *kept), scores))


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
    names = pl.scan_parquet(counts, glob=False).select(_NAME).unique().sort(_NAME).collect().with_row_index("_name")
    _load(db, PROBLEM_NAME, names)
    numbers = groups.with_row_index("_group")
    for path in counts:
        rows = pl.read_parquet(path, glob=False)
        rows = rows.join(numbers, on=GROUP, how="left", nulls_equal=True, maintain_order="left")
        rows = rows.join(names, on=_NAME, how="left", maintain_order="left")
        frame = rows.select("_group", "_name", *COUNTS, *_kept(rows.columns[:-2]))
        absent = [name for name in PROBLEM_COUNT.columns if name not in frame.columns]
        frame = frame.with_columns(pl.lit(None, PROBLEM_COUNT.schema[name]).alias(name) for name in absent)
        _load(db, PROBLEM_COUNT, frame.select(*PROBLEM_COUNT.columns, pl.exclude(*PROBLEM_COUNT.columns)))
    for path in scores:
        told = pl.read_parquet(path, glob=False).join(numbers, on=GROUP, how="left", nulls_equal=True)
        _load(db, PROBLEM_SCORE, told.join(names, on=_NAME, how="left").select(*PROBLEM_SCORE.columns))


def _kept(columns: Iterable[str]) -> list[str]:
    """Columns of problem_counts beside keys and counts that are one value each."""
    return [name for name in columns if name not in (*KEYS, *COUNTS, *LISTS)]


def _load(db: duckdb.DuckDBPyConnection, table: Table, frame: pl.DataFrame) -> None:
    """Rows of a frame into a table."""
    table.check(frame.select(*table.columns))
    db.register("frame", frame)
    db.execute(f"INSERT INTO {home_of(table)} FROM frame")
    db.unregister("frame")


def _digests(db: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, str]]:
    """Rows and the sum of their hashes of every table but the digests, and of what views and macros say."""
    here = "database_name = current_database() AND NOT internal"
    names = db.execute(f"SELECT schema_name, table_name FROM duckdb_tables() WHERE {here}").fetchall()
    each = [
        f"SELECT '{quoted(schema)}.{quoted(name)}', count(*), sum(hash(it)::HUGEINT) "
        f'FROM "{doubled(schema)}"."{doubled(name)}" AS it'
        for schema, name in sorted(names)
        if (schema, name) != (INTERNAL, DIGEST.name)
    ]
    sums = db.execute(" UNION ALL ".join(each)).fetchall()
    out = {name: (rows, str(total or 0)) for name, rows, total in sums}
    told = db.execute(
        f"SELECT view_name || ' ' || sql FROM duckdb_views() WHERE {here} "
        f"UNION ALL SELECT function_name || ' ' || macro_definition FROM duckdb_functions() WHERE {here}"
    ).fetchall()
    words = sorted(str(sorted(re.findall(r"\w+|\S", text))) for (text,) in told)  # DuckDB lists EXCLUDE in any order
    out[_CATALOG] = (len(told), hashlib.sha256("\n".join(words).encode()).hexdigest())
    return out
