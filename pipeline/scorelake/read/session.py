"""An output as a read-only DuckDB session that can touch nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.storage.disk import BOARD, SNAPSHOTS, is_remote, literal, private_copy

if TYPE_CHECKING:
    import polars as pl


@contextmanager
def reading(out: str) -> Iterator[Path]:
    """An output for readers: a copy of its leaderboard for the time being, whoever has that open or locked."""
    if not is_remote(out):
        path = Path(out) / BOARD if Path(out).is_dir() else Path(out)
        try:
            with private_copy(path) as copy:
                with suppress(OSError):  # where there are none, none can be read
                    (copy.parent / SNAPSHOTS).symlink_to((path.parent / SNAPSHOTS).resolve(strict=True))
                yield copy
        except (FileNotFoundError, NotADirectoryError):
            raise _nothing(path) from None
        return
    from scorelake.storage.mirror import fetch_board  # noqa: PLC0415 - obstore is loaded where it is used

    with TemporaryDirectory() as folder:
        fetch_board(out, Path(folder))
        yield Path(folder)


@contextmanager
def session(out: Path, problems: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The leaderboard, read-only, with files, the network, extensions and settings out of reach.

    Where the problems of a large output stayed in the files of its snapshots, `problems` opens that folder. DuckDB
    opens it for writing too, so this is for queries of ours alone: SQL that somebody gives never has it.
    """
    path = out / BOARD if out.is_dir() else out
    if not path.exists():
        raise _nothing(path)
    try:
        db = duckdb.connect(
            str(path),
            read_only=True,
            config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"},
        )
        files = _files(db)
        _close(db, path.parent / SNAPSHOTS if problems and files else None)
    except duckdb.Error as error:
        raise UsageError(f"cannot be opened: {str(error).splitlines()[0]}", where=str(path)) from None
    with db:
        try:
            yield db
        except (duckdb.PermissionException, duckdb.IOException) as error:
            if not _about(error, files):
                raise
            raise (_elsewhere if problems else _shut)(files[0]) from None


def _files(db: duckdb.DuckDBPyConnection) -> list[str]:
    """The files that have the problems, as the views over them name them; none where the tables are inside."""
    views = "SELECT sql FROM duckdb_views() WHERE schema_name = 'internal'"
    named = [found for (sql,) in db.execute(views).fetchall() for found in _READ.findall(sql)]
    return sorted(name.replace("''", "'") for name in named)


_READ = re.compile(r"read_parquet\('((?:[^']|'')*)'")


def _about(error: duckdb.Error, files: list[str]) -> bool:
    return any(f'"{file}"' in str(error) for file in files)


def _shut(file: str) -> UsageError:
    """Somebody's query asks for problems that are not inside."""
    return UsageError(
        f"the problems of this output stay in files ({file}), which a query given here cannot reach",
        hint="board.table(...), `scorelake page` and `scorelake export` read them; so does DuckDB itself, "
        "with leaderboard.duckdb opened there",
    )


def _elsewhere(file: str) -> DataError:
    """The files are not where the views say: the output was moved, or its leaderboard copied alone."""
    return DataError(
        f"the problems of this leaderboard are in files that are not with it: {file}",
        hint="was it moved or copied? Move OUT as a whole, and run `scorelake score` again",
    )


def _close(db: duckdb.DuckDBPyConnection, opened: Path | None) -> None:
    """Nothing else can be reached from here on, and no setting be changed."""
    if opened is not None and opened.is_dir():
        home = str(opened.resolve())
        allowed = ", ".join(f"'{each.replace(chr(39), 2 * chr(39))}/'" for each in (home, literal(home)))
        db.execute(f"SET allowed_directories = [{allowed}]")
    db.execute("SET enable_external_access = false")
    db.execute("SET lock_configuration = true")


MOST = 1_000
"""Rows of a table for people."""


def query(
    out: Path, sql: str, parameters: tuple[Any, ...] = (), limit: int | None = None, *, problems: bool = False
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one query, or the first of them; `problems` as for `session`."""
    with session(out, problems) as db, _told(db, sql) as statement:
        result = db.execute(statement, parameters)
        rows = result.fetchall() if limit is None else result.fetchmany(limit)
        return [column[0] for column in result.description or ()], rows


def frame(
    out: Path, sql: str, parameters: tuple[Any, ...] | dict[str, Any] = (), *, problems: bool = False
) -> pl.DataFrame:
    """The rows of one query as a data frame; `problems` as for `session`.

    Sums of whole numbers are whole numbers there, if they fit 64 bits.
    """
    import polars as pl  # noqa: PLC0415  (loads slowly; rows do without)

    with session(out, problems) as db, _told(db, sql) as statement:
        found = db.sql(statement, params=parameters)
        if found is None:  # a statement without rows
            return pl.DataFrame()
        _refuse_twice(found.columns)
        table = pl.DataFrame(found.to_arrow_table())
        sums = [name for name, kind in zip(found.columns, found.types, strict=True) if str(kind) == "HUGEINT"]
    fits = [name for name in sums if table[name].is_between(-(2**63), 2**63 - 1).all()]
    return table.with_columns(pl.col(fits).cast(pl.Int64))


@contextmanager
def _told(db: duckdb.DuckDBPyConnection, sql: str) -> Iterator[duckdb.Statement]:
    """The one statement of a query; what DuckDB says of it is the query's fault."""
    try:
        statements = db.extract_statements(sql)
        if len(statements) != 1:
            raise UsageError(
                f"{len(statements) or 'no'} statement{'s' * (len(statements) > 1)} where one is expected",
                hint='such as "SELECT * FROM leaderboard"',
            )
        yield statements[0]
    except duckdb.Error as error:
        if _about(error, _files(db)):
            raise  # the session knows what that means
        raise UsageError(f"the query failed: {error}") from None


def settings_shown(out: Path) -> dict[str, Any]:
    """The settings of the run that is shown, as nested as in the config file."""
    tree: dict[str, Any] = {}
    for key, value in query(out, "SELECT key, value FROM setting JOIN run USING (settings) WHERE shown")[1]:
        *path, last = key.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = json.loads(value)
    return tree


def _nothing(path: Path) -> LakeError:
    return LakeError("no leaderboard here", where=str(path), hint="run `scorelake score LAKE --out OUT` first")


def to_csv(columns: list[str], rows: list[tuple[Any, ...]], spreadsheet: bool = False) -> str:
    """CSV; for a spreadsheet, text that would start a formula is preceded by an apostrophe."""
    if spreadsheet:
        columns = [str(_inert(column)) for column in columns]
        rows = [tuple(_inert(cell) for cell in row) for row in rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _inert(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def to_json(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """A list of objects. JSON knows no NaN and no infinity: they are null."""
    _refuse_twice(columns)
    return json.dumps([dict(zip(columns, map(_plain, row), strict=True)) for row in rows], allow_nan=False)


def _refuse_twice(columns: list[str]) -> None:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise UsageError(f"two columns are called {', '.join(twice)}", hint="tell them apart with AS")


def _plain(cell: Any) -> Any:
    """A cell as JSON can say it."""
    if isinstance(cell, dict):
        return {str(key): _plain(each) for key, each in cell.items()}
    if isinstance(cell, list | tuple):
        return [_plain(each) for each in cell]
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    if isinstance(cell, float):
        return cell if isfinite(cell) else None
    return cell if isinstance(cell, str | int | None) else str(cell)
