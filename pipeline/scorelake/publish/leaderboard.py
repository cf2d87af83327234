"""Build leaderboard.duckdb: native tables, views, macros and comments in one file that names its run.

The only module of the job that uses DuckDB; it is imported when there is a file to build or to read. It never opens
the published file: a session left open by a user holds DuckDB's lock on that file, and ours would block others.
Readers open a private copy (`storage.disk.private_copy`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from scorelake import schemas
from scorelake.publish import views
from scorelake.publish.runs import RunHistory
from scorelake.publish.snapshot import problem_files
from scorelake.publish.views import BOARD, PAIR_MEASURE, PROBLEM_COUNT, PROBLEM_GROUP, PROBLEM_NAME, PROTOCOL_KEY
from scorelake.schemas import GROUP, PROBLEM_COUNTS, PROBLEM_HISTOGRAM, PROBLEM_SCORE, Table
from scorelake.settings import MEASURE_COLUMNS
from scorelake.storage.disk import literal
from scorelake.text import protocol_label
from scorelake.version import __version__

STORAGE_VERSION = "v1.0.0"  # storage format that every DuckDB 1.x and 2.x can read
_INTERRUPTED = ("Query interrupted", "KeyboardInterrupt:")
"""Last words of DuckDB's errors when Ctrl-C arrives during a statement, or while it reads a frame."""
_GRADERS = ("grader", "judge")  # A protocol key whose name contains one of these words names the grader


def run_in_board(copy: Path) -> tuple[str, bool] | None:
    """Return the run id and the rollback flag in a copy of a leaderboard; None if it is not one of ours."""
    try:
        with duckdb.connect(str(copy), read_only=True) as db:
            rows = db.execute(f"SELECT run_id, rolled_back FROM {qualified(BOARD)}").fetchall()
    except duckdb.Error:
        return None
    return (str(rows[0][0]), bool(rows[0][1])) if len(rows) == 1 else None


def history_in_board(copy: Path) -> RunHistory:
    """Return the runs and scores stored in a copy of a leaderboard."""
    tables = (schemas.RECORD, schemas.HISTORY)
    with duckdb.connect(str(copy), read_only=True) as db:
        return RunHistory(*(table.conform(db.table(qualified(table)).pl()) for table in tables))


def build(
    path: Path, run_id: str, history: RunHistory, snapshot: Path, rolled_back: bool = False, external: bool = False
) -> None:
    """Build a new database from a snapshot; on failure no file is left.

    With `external`, tables per problem become views over the snapshot's files, by their absolute paths.
    """
    try:
        with duckdb.connect() as db:
            db.execute(f"ATTACH {text_literal(str(path))} AS board (STORAGE_VERSION '{STORAGE_VERSION}')")
            db.execute("USE board")
            db.begin()  # hundreds of small statements, one write to the disk
            db.execute("CREATE SCHEMA source")
            _load_tables(db, run_id, history, snapshot.resolve(), rolled_back, external)
            for _, sql in view_files():
                db.execute(sql)
            _add_comments(db)
            db.commit()
            db.execute("USE memory")
            db.execute("DETACH board")
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, RuntimeError | duckdb.Error) and str(error).rstrip().endswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        raise


def _load_tables(
    db: duckdb.DuckDBPyConnection, run_id: str, history: RunHistory, snapshot: Path, rolled_back: bool, external: bool
) -> None:
    measures = [table for table in schemas.MEASURE_TABLES if (snapshot / f"{table.name}.parquet").exists()]
    for table in (*schemas.SNAPSHOT, schemas.COUNT_SCORE, *schemas.EVIDENCE, *measures):
        _load(db, table, table.read(snapshot))
    _load(db, PAIR_MEASURE, pair_measures(schemas.MEASURE_PAIR.read(snapshot)))
    groups = PROBLEM_HISTOGRAM.read(snapshot).select(GROUP).unique().sort(GROUP)
    _load(db, PROBLEM_GROUP, groups.with_row_index("_group"))
    _load_problems(db, snapshot, external)
    _load(db, PROTOCOL_KEY, protocol_table(groups["protocol"].unique().sort().to_list()))
    for table, frame in history.tables(run_id).items():
        _load(db, table, frame)
    row = (run_id, rolled_back, schemas.SCHEMA_VERSION, __version__, duckdb.__version__)
    _load(db, BOARD, pl.DataFrame([row], schema=BOARD.schema, orient="row"))


def _load_problems(db: duckdb.DuckDBPyConnection, snapshot: Path, external: bool) -> None:
    """Load the problems with integers for their texts, or define views over the files.

    A million problems repeat a few texts: stored as integers they load and open several times faster.
    """
    kind = "VIEW" if external else "TABLE"
    files = _parquet(problem_files(snapshot))
    number = "problem_id" if external else "(row_number() OVER (ORDER BY problem_id) - 1)::UINTEGER"
    db.execute(
        f"CREATE {kind} {qualified(PROBLEM_NAME)} AS "
        f"SELECT {number} AS _name, problem_id FROM (SELECT DISTINCT problem_id FROM {files})"
    )
    schema = pq.read_schema(next(snapshot.glob(f"{PROBLEM_COUNTS.name}/*.parquet")))
    available = [field.name for field in schema if not pa.types.is_nested(field.type)]
    own = list(PROBLEM_COUNT.columns)[2:]
    columns = [f"files.{name}" if name in available else f"NULL::DOUBLE AS {name}" for name in own]
    columns += [f"files.{identifier(name)}" for name in available if name not in PROBLEM_COUNTS.columns]
    db.execute(f"CREATE {kind} {qualified(PROBLEM_COUNT)} AS {_keyed(columns, files, external)}")
    if any(snapshot.glob(f"{PROBLEM_SCORE.name}/*.parquet")):
        scores = _parquet(f"{literal(str(snapshot / PROBLEM_SCORE.name))}/*.parquet")
        names = [f"files.{name}" for name in list(PROBLEM_SCORE.columns)[2:]]
        db.execute(f"CREATE {kind} {qualified(PROBLEM_SCORE)} AS {_keyed(names, scores, external)}")
    else:
        _load(db, PROBLEM_SCORE, pl.DataFrame(schema=PROBLEM_SCORE.schema))


def _keyed(columns: Sequence[str], files: str, external: bool) -> str:
    """Return a query for columns of files per problem, with the keys of their group and problem id."""
    same_group = " AND ".join(f"groups.{key} IS NOT DISTINCT FROM files.{key}" for key in GROUP)
    name = "files.problem_id" if external else "names._name"
    names = "" if external else f"JOIN {qualified(PROBLEM_NAME)} AS names ON names.problem_id = files.problem_id"
    return f"""
        SELECT groups._group, {name} AS _name, {", ".join(columns)}
        FROM {files} AS files JOIN {qualified(PROBLEM_GROUP)} AS groups ON {same_group} {names}
        {"" if external else "ORDER BY 1, 2, 3"}
    """


def _load(db: duckdb.DuckDBPyConnection, table: Table, frame: pl.DataFrame) -> None:
    table.check(frame.select(*table.columns))  # there may be more, named by users
    db.register("frame", frame)
    db.execute(f"CREATE TABLE {qualified(table)} AS FROM frame")
    db.unregister("frame")


def _add_comments(db: duckdb.DuckDBPyConnection) -> None:
    """Comment every table, view, macro and column; columns without a description are named by users."""
    view_names = {name for (name,) in db.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    present = {name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    measures = [table for table in schemas.MEASURE_TABLES if table.name in present]
    described = {qualified(table): table for table in (*views.PUBLIC, *views.SOURCES, *measures)}
    statements = [
        f"COMMENT ON {'VIEW' if table.name in view_names else 'TABLE'} {name} IS {text_literal(table.about)};"
        for name, table in described.items()
    ]
    statements += [f"COMMENT ON {macro} IS {text_literal(about)};" for macro, about in views.MACROS.items()]
    columns = "SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE NOT internal"
    for schema, table_name, column in db.execute(columns).fetchall():
        name = f"{schema}.{table_name}"
        own = described[name].columns | schemas.EARLIER_COUNTS
        by_user = "Protocol column" if table_name.startswith("protocol") else "Carried column of the lake"
        if table_name in ("comparison", "pair", "pair_measure"):
            by_user = "Lift of a measure, or of pass@1 per unit of it (see measure_pair); null for other metrics"
        elif measures and column.endswith(MEASURE_COLUMNS):
            by_user = "Sums of a measure over graded, passed_ and ungraded_ attempts"
        about = own[column][1] if column in own else by_user
        statements.append(f"COMMENT ON COLUMN {name}.{identifier(column)} IS {text_literal(about)};")
    db.execute("".join(statements))


def pair_measures(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return columns such as lift_cost_usd for every measure, in both orders of two models; of pass@1 alone."""
    swapped = {"model_a": "model_b", "model_b": "model_a", "lift_lo": "lift_hi", "lift_hi": "lift_lo"}
    other = pairs.rename(swapped).with_columns(-pl.col("lift", "lift_lo", "lift_hi") + 0.0).select(pairs.columns)
    both = pl.concat([pairs, other]).with_columns(metric=pl.lit("pass@1"))
    return both.pivot("measure", index=list(PAIR_MEASURE.columns), values=pairs.columns[-6:])


def protocol_table(protocols: Sequence[str]) -> pl.DataFrame:
    """Return one row per protocol (as JSON): a readable label, and one column per key."""
    values = [json.loads(protocol) if protocol else {} for protocol in protocols]
    keys = list(dict.fromkeys(key for row in values for key in row))
    graders = [key for key in keys if any(word in key.lower() for word in _GRADERS)]
    others = [key for key in keys if key not in graders]
    columns = [
        pl.Series("protocol", protocols, pl.String),
        pl.Series("label", [protocol_label(protocol) for protocol in protocols], pl.String),
        pl.Series("_grader", [_joined(row, graders) for row in values], pl.String),
        pl.Series("_other", [_joined(row, others) for row in values], pl.String),
    ]
    for key in keys:  # column names are case-insensitive in DuckDB, and some are taken
        name = key or "_"
        while name.lower() in {column.name.lower() for column in columns}:
            name += "_"
        columns.append(_protocol_column(name, [row.get(key) for row in values]))
    return pl.DataFrame(columns)


def _joined(row: dict[str, Any], keys: Sequence[str]) -> str | None:
    """Return the label of some keys of a protocol; of a single key only the value."""
    values = {key: row[key] for key in keys if key in row}
    if len(values) == 1:
        (value,) = values.values()
        return value if isinstance(value, str) else json.dumps(value)
    return protocol_label(json.dumps(values)) if values else None


def _protocol_column(name: str, values: list[Any]) -> pl.Series:
    """Return booleans, or numbers that a float holds exactly, as such if all values are; else texts."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return pl.Series(name, values, pl.Boolean)
    if present and kinds <= {int, float} and all(isinstance(v, float) or abs(v) <= 2**53 for v in present):
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, pl.String)


def qualified(table: Table) -> str:
    """Return the name of a table with its schema."""
    return f"{'source' if table in views.SOURCES else 'main'}.{table.name}"


def view_files() -> list[tuple[str, str]]:
    """Return names and texts of the views and macros, from the wheel or from the top of a checkout."""
    packaged = resources.files("scorelake") / "sql"
    home = packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"
    files = [file for file in home.iterdir() if file.name.endswith(".sql")]
    return sorted((file.name, file.read_text(encoding="utf-8")) for file in files)


def _parquet(files: str) -> str:
    """Return a table function for a glob; keys in the path of the output are not columns."""
    return f"read_parquet({text_literal(files)}, hive_partitioning = false)"


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
