"""List the files of a Delta table. deltalake reads only the log; files are fetched with our own code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.errors import DataError, UsageError
from scorelake.settings import Storage
from scorelake.storage.disk import first_line
from scorelake.storage.files import File, table_columns

if TYPE_CHECKING:
    from scorelake.storage.objects import Object

LOG = "_delta_log"


def remote_table_files(url: str, objects: Mapping[str, Object], storage: Storage) -> list[File]:
    """Return the files of a table in object storage."""
    from scorelake.storage.objects import Objects  # noqa: PLC0415 - obstore is loaded where it is used

    with TemporaryDirectory() as copy:
        wanted = re.compile(rf"{LOG}/|(.*/)?deletion_vector_[^/]*\.bin$")
        log = [(each, Path(copy) / key) for key, each in objects.items() if wanted.match(key)]
        Objects(url, storage).fetch(log)
        return table_files(copy, url)


def table_files(folder: str, where: str) -> list[File]:
    """Return the files that the log in a folder names; `where` is the table in error messages."""
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError:
        what = "this folder is a Delta table, but the package that reads its log is not installed"
        raise UsageError(what, where=where, hint="pip install 'scorelake[delta]'") from None
    try:
        table = DeltaTable(folder)
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode != "none":
            what = (
                f"this Delta table maps its columns to other names in its files (delta.columnMapping.mode = {mode})"
            )
            hint = "copy its rows into a table without column mapping, or export them to Parquet files"
            raise DataError(what, where=where, hint=hint)
        return _files(table, where, _deleted_rows(table))
    except (DeltaError, OSError, ValueError, TypeError, KeyError) as error:
        hint = "repair the table, or export its current rows to Parquet files and score those"
        what = f"the log of this Delta table cannot be read: {first_line(error)}"
        raise DataError(what, where=where, hint=hint) from None


def _deleted_rows(table: Any) -> dict[str, NDArray[Any]]:
    """Return the positions that deletion vectors delete, by the path of the file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    root = unquote(table.table_uri)
    return {
        unquote(vector["filepath"]).removeprefix(root): np.flatnonzero(~np.array(vector["selection_vector"], bool))
        for vector in pa.table(table.deletion_vectors()).to_pylist()
    }


def _files(table: Any, where: str, deleted: dict[str, NDArray[Any]]) -> list[File]:
    nulls = {field.name: None for field in table.schema().fields}  # columns added later are null in older files
    actions = table.get_add_actions(flatten=False)
    paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    is_partitioned = "partition" in actions.schema.names
    partitions = actions.column("partition").to_pylist() if is_partitioned else [{}] * len(paths)
    files = []
    for quoted, size, values in zip(paths, sizes, partitions, strict=True):
        path = unquote(quoted)
        if "://" in quoted or path.startswith("/") or ".." in path.split("/"):
            what = f"the log of this Delta table names a file outside of its folder: {path}"
            raise DataError(what, where=where, hint="score the table that owns the file, or a deep clone of this one")
        files.append(File(path, size, 0, table=table_columns(nulls | values, {}, deleted.pop(path, None))))
    if deleted:
        raise DataError(f"a deletion vector is of a file that the table does not have: {min(deleted)}", where=where)
    return files
