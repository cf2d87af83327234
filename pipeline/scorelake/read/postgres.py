"""Copy the published tables to PostgreSQL in one transaction.

Rows are deleted and copied, tables are not swapped: readers are never blocked, see one complete run or the other, and
keep their grants and the views that they built on our tables.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import csv

from scorelake.errors import DataError, StorageError, UsageError
from scorelake.read.session import session

if TYPE_CHECKING:
    import duckdb
    import psycopg

LARGE = ("problem_scores",)  # views with a row per problem and metric, which are copied only on request
TYPES = {
    **{name: name.lower() for name in ("BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "DATE")},
    **{"DOUBLE": "double precision", "TIMESTAMP": "timestamp without time zone"},
    **{"TIMESTAMP WITH TIME ZONE": "timestamp with time zone"},
    **dict.fromkeys(("HUGEINT", "UBIGINT", "UHUGEINT"), "numeric"),
}
"""PostgreSQL's types of DuckDB's. Lists become jsonb, anything else text."""
ROWS_PER_BATCH = 1 << 16
_COLUMNS = """
    SELECT table_name, column_name, data_type, comment FROM duckdb_columns()
    WHERE schema_name = 'main' AND NOT internal ORDER BY table_name, column_index
"""
_COMMENTS = """
    SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'main'
    UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal
"""
_EXISTING = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))
    AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def publish(folder: Path, url: str, schema: str = "scorelake", extra: Sequence[str] = ()) -> str | None:
    """Copy all tables and views; return where to, or None if the database has this run already.

    Views become tables: their SQL is DuckDB's. `extra` names views of LARGE to copy too.
    """
    try:
        import psycopg  # noqa: PLC0415  (an optional dependency)
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
    except ImportError:
        raise UsageError("PostgreSQL needs a driver", hint="pip install 'scorelake[postgres]'") from None
    try:
        if conninfo_to_dict(url).get("password"):
            hint = "set PGPASSWORD, or use ~/.pgpass or a service file"
            raise UsageError(
                "a password on the command line can be read by other users", where="--postgres", hint=hint
            )
    except psycopg.ProgrammingError:
        hint = "such as postgresql://user@host/database, or service=name"
        raise UsageError("is not an address of a PostgreSQL database", where="--postgres", hint=hint) from None
    try:
        with psycopg.connect(url, connect_timeout=30, application_name="scorelake") as connection:
            place = f"{connection.info.dbname} on {connection.info.host or 'the local socket'}, schema {schema}"
            return place if _publish(folder, connection, schema, extra) else None
    except psycopg.errors.DependentObjectsStillExist as error:
        what = f"a table has other columns now, and something depends on it: {error.diag.message_detail}"
        raise UsageError(what, hint="drop the dependent objects, or use another --schema") from None
    except psycopg.errors.CharacterNotInRepertoire as error:
        what = f"PostgreSQL cannot store the character NUL of a text: {error.diag.context}"
        raise DataError(what, hint="rename it in the lake; nothing was changed in the database") from None
    except psycopg.Error as error:
        message = (error.diag.message_primary or str(error)).strip().splitlines()[0]
        raise StorageError(f"PostgreSQL: {message}; nothing was changed there") from None


def _publish(folder: Path, connection: psycopg.Connection[Any], schema: str, extra: Sequence[str]) -> bool:
    from psycopg import sql  # noqa: PLC0415

    with session(folder, problems=True) as db, connection.cursor() as cursor:
        tables: dict[str, list[tuple[str, str, str]]] = {}
        for table, column, kind, comment in db.execute(_COLUMNS).fetchall():
            if table not in LARGE or table in extra:
                tables.setdefault(table, []).append((column, kind, comment))
        if unknown := sorted(set(extra) - set(tables)):
            raise UsageError(f"no table {', '.join(unknown)}", hint=f"tables: {', '.join(sorted(tables))}")
        run = db.execute("SELECT run_id FROM run WHERE shown").fetchall()[0][0]
        mark = f"scorelake run {run}: {', '.join(tables)}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"scorelake {schema}",))  # one at a time
        cursor.execute(
            "SELECT oid, obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (schema,)
        )
        existing: Any = cursor.fetchone()
        if existing and existing[1] == mark:
            return False
        if existing and not (existing[1] or "").startswith("scorelake run "):
            cursor.execute("SELECT count(*) FROM pg_class WHERE relnamespace = %s", (existing[0],))
            if cursor.fetchall()[0][0]:
                raise UsageError(f"schema {schema} has tables that are not scorelake's", hint="use another --schema")
        cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        comments = dict(db.execute(_COMMENTS).fetchall())
        for table, columns in tables.items():
            name = sql.Identifier(schema, table)
            _prepare(cursor, schema, table, columns)
            _comment(cursor, sql.SQL("TABLE {}").format(name), comments[table])
            for column, _, comment in columns:
                _comment(cursor, sql.SQL("COLUMN {}").format(sql.Identifier(schema, table, column)), comment)
            with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(name)) as copy:
                for batch in _batches(db, table, columns):
                    copy.write(batch)
        _comment(cursor, sql.SQL("SCHEMA {}").format(sql.Identifier(schema)), mark)
    return True


def _prepare(cursor: psycopg.Cursor[Any], schema: str, table: str, columns: list[tuple[str, str, str]]) -> None:
    """Empty a table; make it, again if its columns differ."""
    from psycopg import sql  # noqa: PLC0415

    name = sql.Identifier(schema, table)
    wanted = [(column, _type(kind)) for column, kind, _ in columns]
    if cursor.execute(_EXISTING, (schema, table)).fetchall() == wanted:
        cursor.execute(sql.SQL("DELETE FROM {}").format(name))
        return
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
    fields = [sql.SQL("{} " + kind).format(sql.Identifier(column)) for column, kind in wanted]
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(fields)))


def _type(kind: str) -> str:
    return "jsonb" if kind.endswith("[]") else "numeric" if kind.startswith("DECIMAL") else TYPES.get(kind, "text")


def _comment(cursor: psycopg.Cursor[Any], target: Any, text: str) -> None:
    from psycopg import sql  # noqa: PLC0415

    cursor.execute(sql.SQL("COMMENT ON {} IS {}").format(target, sql.Literal(text)))


def _batches(db: duckdb.DuckDBPyConnection, table: str, columns: list[tuple[str, str, str]]) -> Any:
    """Yield the rows of a table as CSV, in which null is an empty field without quotes."""
    fields = []
    for column, kind, _ in columns:
        name = '"' + column.replace('"', '""') + '"'
        as_text = f"to_json({name})::VARCHAR" if kind.endswith("[]") else f"{name}::VARCHAR"
        known = re.fullmatch("VARCHAR|BOOLEAN|DOUBLE|(SMALL|BIG)?INT(EGER)?", kind)
        fields.append(name if known else f"{as_text} AS {name}")
    reader = db.sql(f'SELECT {", ".join(fields)} FROM "{table}"').to_arrow_reader(ROWS_PER_BATCH)
    for batch in reader:
        text = io.BytesIO()
        csv.write_csv(batch, text, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        yield text.getvalue()
