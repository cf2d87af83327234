"""What Delta, Iceberg and DuckLake tables have in common: errors, deleted rows, and files that must be in place."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from numpy.typing import NDArray

from scorelake.errors import DataError, LakeError, ScorelakeError, UsageError
from scorelake.settings import Storage
from scorelake.storage.disk import first_line, is_remote
from scorelake.storage.files import File, stat

if TYPE_CHECKING:
    from scorelake.storage.objects import Object

EXPORT = "export its current rows to Parquet files, and score those"


@contextmanager
def table_errors(location: str, kind: str, extra: str, usage: str = "") -> Iterator[None]:
    """Convert exceptions of the library that reads the metadata of a table."""
    try:
        yield
    except (ScorelakeError, PermissionError):
        raise
    except ImportError as error:
        what = f"{kind} tables need a package that is not installed: {error.name or error}"
        raise UsageError(what, where=location, hint=f"pip install 'scorelake[{extra}]'") from None
    except FileNotFoundError as error:
        hint = f"name the current metadata of the table: {usage}" if usage else f"repair the table, or {EXPORT}"
        raise LakeError(f"no such file: {error.filename or error}", where=location, hint=hint) from None
    except Exception as error:
        what = f"the metadata of this {kind} table cannot be read: {first_line(error)}"
        hint = f"repair the table, or {EXPORT}"
        if "equality deletes" in str(error):
            what = "this Iceberg table has equality deletes: deleted rows are still in its files"
            hint = "rewrite the files (CALL system.rewrite_data_files in Spark), or export to Parquet files"
        raise DataError(what, where=location, hint=hint) from None


def refuse_outside(path: str, where: str, kind: str) -> None:
    """Refuse a file of a table that is not in its folder."""
    if "://" in path or path.startswith("/") or ".." in path.split("/"):
        what = f"this {kind} table has a file outside of its folder: {path}"
        raise DataError(what, where=where, hint=f"score the table that owns the file, or {EXPORT}")


def deleted_rows(data: bytes, is_puffin: bool) -> dict[str, NDArray[Any]]:
    """Return the positions that a delete file deletes, by data file: position deletes, or deletion vectors (v3)."""
    if not is_puffin:
        rows = pl.read_parquet(io.BytesIO(data), columns=["file_path", "pos"])
        return {str(path): each["pos"].to_numpy() for (path,), each in rows.group_by("file_path")}
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file  # noqa: PLC0415 - an extra
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415

    vectors = deletion_vectors_from_puffin_file(PuffinFile(data))
    return {vector.referenced_data_file: vector.to_vector().to_numpy() for vector in vectors}


def current_files(
    root: str, named: Sequence[File], storage: Storage, objects: Mapping[str, Object] | None = None
) -> tuple[File, ...]:
    """Return the files that a table names as they are now; raise if one is missing or has another size."""
    if is_remote(root) and objects is None:
        from scorelake.storage.objects import Objects  # noqa: PLC0415 - obstore is loaded where it is used

        objects = {each.key: each for each in Objects(root, storage).list()}
    files = []
    for file in named:
        where = f"{root}/{file.path}"
        try:
            listed = stat(where, file.path) if objects is None else objects[file.path].as_file()
        except (FileNotFoundError, KeyError):
            what = "the log of the table names this file, but it is missing"
            hint = "run again; if the error remains, the table is damaged"
            raise DataError(what, where=where, hint=hint) from None
        if listed.size != file.size:
            raise DataError(f"has {listed.size:,} bytes, but {file.size:,} in the log of the table", where=where)
        files.append(replace(listed, table=file.table))
    return tuple(files)
