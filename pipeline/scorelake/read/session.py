"""Read-only DuckDB sessions on a leaderboard that can reach nothing else, and their results as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.storage.disk import BOARD, SNAPSHOTS, is_remote, literal, private_copy
from scorelake.text import json_value

if TYPE_CHECKING:
    import polars as pl

Rows: TypeAlias = list[tuple[Any, ...]]
MAX_ROWS = 1_000  # rows of a query that are printed as a table
_OTHER_NAMES = {
    **dict.fromkeys(("model_name", "model_id"), "model"),
    **dict.fromkeys(("dataset", "bench", "suite"), "benchmark"),
    **dict.fromkeys(("problem", "task_id", "question_id"), "problem_id"),
    **dict.fromkeys(("ci_lo", "ci_low", "ci_lower", "lower", "low"), "lo"),
    **dict.fromkeys(("ci_hi", "ci_high", "ci_upper", "upper", "high"), "hi"),
    **dict.fromkeys(("score", "mean", "accuracy", "acc", "pass_rate"), "value"),
    **dict.fromkeys(("stderr", "std_err", "std_error", "standard_error"), "se"),
}
"""Names that queries try, and our columns."""
_PARQUET_FILES = re.compile(r"read_parquet\('((?:[^']|'')*)'")


@contextmanager
def reading(out: str) -> Iterator[Path]:
    """Copy the leaderboard of an output for as long as it is read; other sessions may hold DuckDB's lock on it."""
    if not is_remote(out):
        path = Path(out) / BOARD if Path(out).is_dir() else Path(out)
        if not path.exists():
            raise _no_leaderboard(path)
        with private_copy(path) as copy:
            with suppress(OSError):  # a leaderboard that was copied without its snapshots
                (copy.parent / SNAPSHOTS).symlink_to((path.parent / SNAPSHOTS).resolve(strict=True))
            yield copy
        return
    from scorelake.storage.mirror import fetch_board  # noqa: PLC0415  (obstore loads slowly)

    with TemporaryDirectory() as folder:
        fetch_board(out, Path(folder))
        yield Path(folder)


@contextmanager
def session(out: Path, problems: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a leaderboard read-only, without access to files, the network, extensions and settings.

    With `problems`, views over the files of a snapshot ([publish] max_problems) can read its folder. DuckDB would
    also write there, so this is for our own queries, never for SQL of a user.
    """
    path = out / BOARD if out.is_dir() else out
    if not path.exists():
        raise _no_leaderboard(path)
    try:
        options = ("autoinstall_known_extensions", "autoload_known_extensions")
        db = duckdb.connect(str(path), read_only=True, config=dict.fromkeys(options, "false"))
        files, snapshots = _external_files(db), path.parent / SNAPSHOTS
        if problems and files and snapshots.is_dir():
            home = str(snapshots.resolve())
            allowed = ", ".join("'" + name.replace("'", "''") + "/'" for name in (home, literal(home)))
            db.execute(f"SET allowed_directories = [{allowed}]")
        db.execute("SET enable_external_access = false")
        db.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        raise UsageError(f"cannot be opened: {str(error).splitlines()[0]}", where=str(path)) from None
    with db:
        try:
            yield db
        except (duckdb.BinderException, duckdb.CatalogException) as error:  # of our own queries only
            raise UsageError(
                f"this leaderboard was built by another version of scorelake ({str(error).splitlines()[0]})",
                hint="run `scorelake score` again, or publish a run again with `scorelake rollback OUT RUN`",
            ) from error
        except (duckdb.PermissionException, duckdb.IOException) as error:
            if not _concerns(error, files):
                raise
            if problems:
                raise DataError(
                    f"this leaderboard reads its problems from files that are missing: {files[0]}",
                    hint="if it was moved or copied, move the whole output, and run `scorelake score` again",
                ) from None
            raise UsageError(
                f"the problems of this output are in files ({files[0]}) that this query cannot read",
                hint="use board.table(...), `scorelake page` or `scorelake export`, or open the file in DuckDB",
            ) from None


def _external_files(db: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the files from which views read the problems; none if they are tables."""
    views = db.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
    return sorted(name.replace("''", "'") for (sql,) in views for name in _PARQUET_FILES.findall(sql))


def _concerns(error: duckdb.Error, files: list[str]) -> bool:
    return any(f'"{file}"' in str(error) for file in files)


def query(
    out: Path, sql: str, parameters: tuple[Any, ...] = (), limit: int | None = None, *, problems: bool = False
) -> tuple[list[str], Rows]:
    """Return column names and rows of one query, at most `limit`; `problems` as for `session`."""
    with session(out, problems) as db, _single_statement(db, sql) as statement:
        result = db.execute(statement, parameters)
        columns = [column[0] for column in result.description or ()]
        try:
            return columns, result.fetchall() if limit is None else result.fetchmany(limit)
        except duckdb.InvalidInputException as error:
            if "pytz" not in str(error):
                raise
        with db.cursor() as again:  # DuckDB needs pytz for timestamps with a time zone; Arrow does not
            table = again.sql(statement, params=parameters).to_arrow_table().slice(0, limit)
        return columns, list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def frame(
    out: Path, sql: str, parameters: tuple[Any, ...] | dict[str, Any] = (), *, problems: bool = False
) -> pl.DataFrame:
    """Return the rows of one query as a data frame; sums of integers become Int64 if they fit."""
    import polars as pl  # noqa: PLC0415  (loads slowly; rows do not need it)

    with session(out, problems) as db, _single_statement(db, sql) as statement:
        result = db.sql(statement, params=parameters)
        if result is None:  # a statement without rows
            return pl.DataFrame()
        _check_unique(result.columns)
        table = pl.DataFrame(result.to_arrow_table())
        sums = [name for name, kind in zip(result.columns, result.types, strict=True) if str(kind) == "HUGEINT"]
    fitting = [name for name in sums if table[name].is_between(-(2**63), 2**63 - 1).all()]
    return table.with_columns(pl.col(fitting).cast(pl.Int64))


@contextmanager
def _single_statement(db: duckdb.DuckDBPyConnection, sql: str) -> Iterator[duckdb.Statement]:
    """Parse the one statement of a query; errors of DuckDB are errors of the query."""
    try:
        if sql.lstrip().startswith("."):
            raise UsageError(f"{sql.strip()} is a command of the DuckDB shell", hint='SQL has "SHOW TABLES"')
        statements = db.extract_statements(sql)
        if len(statements) != 1:
            count = f"{len(statements)} statements" if statements else "no statement"
            raise UsageError(f"{count} where one is expected", hint='such as "SELECT * FROM leaderboard"')
        yield statements[0]
    except duckdb.Error as error:
        if _concerns(error, _external_files(db)):
            raise  # `session` explains it
        lines = indent(str(error), "  ").strip()
        raise UsageError(f"the query failed: {lines}", hint=_hint(str(error))) from None


def _hint(error: str) -> str | None:
    """Return our name of a column or table that a query called otherwise."""
    if column := re.search(r'[Cc]olumn (?:named )?"(\w+)"', error):
        ours = _OTHER_NAMES.get(column[1].lower())
        return f"{column[1]} is called {ours} here" if ours else None
    return "`SHOW TABLES` lists the tables and views" if "Table with name" in error else None


def _no_leaderboard(path: Path) -> LakeError:
    return LakeError("no leaderboard here", where=str(path), hint="run `scorelake score LAKE --out OUT` first")


def to_csv(columns: list[str], rows: Rows, spreadsheet: bool = False) -> str:
    """Return CSV; for a spreadsheet, text that would start a formula is preceded by an apostrophe."""
    table = [tuple(columns), *rows]
    if spreadsheet:
        table = [tuple(map(_without_formula, row)) for row in table]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue().rstrip("\n")


def _without_formula(cell: Any) -> Any:
    # Some spreadsheets also split at semicolons and tabs.
    return re.sub(r"(^|[;\t])(?=[=+@\t\r-])", r"\1'", cell) if isinstance(cell, str) else cell


def to_json(columns: list[str], rows: Rows) -> str:
    """Return a list of objects; NaN and infinity, which JSON does not have, become null."""
    _check_unique(columns)
    return json.dumps([dict(zip(columns, map(json_value, row), strict=True)) for row in rows], allow_nan=False)


def _check_unique(columns: list[str]) -> None:
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise UsageError(f"two columns are called {', '.join(repeated)}", hint="rename one with AS")
