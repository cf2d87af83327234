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

from scorelake.errors import DataError
from scorelake.lake.tables import refuse_outside, table_errors
from scorelake.settings import Storage
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
    with table_errors(where, "Delta", "delta"):
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        table = DeltaTable(folder)
        return _files(table, where, _deleted_rows(table))


def _deleted_rows(table: Any) -> dict[str, NDArray[Any]]:
    """Return the positions that deletion vectors delete, by the path of the file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    root = unquote(table.table_uri)
    return {
        unquote(vector["filepath"]).removeprefix(root): np.flatnonzero(~np.array(vector["selection_vector"], bool))
        for vector in pa.table(table.deletion_vectors()).to_pylist()
    }


def _columns(table: Any) -> dict[str, tuple[str, int | None]]:
    """Return the columns with their names in the files, and the field ids by which files are to be read.

    With column mapping, files have names of their own: `name` finds columns by these, `id` by field ids.
    """
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    fields = {field.name: field.metadata if mode != "none" else {} for field in table.schema().fields}
    prefix = "delta.columnMapping."
    return {
        name: (metadata.get(f"{prefix}physicalName", name), metadata[f"{prefix}id"] if mode == "id" else None)
        for name, metadata in fields.items()
    }


def _files(table: Any, where: str, deleted: dict[str, NDArray[Any]]) -> list[File]:
    columns = _columns(table)
    nulls = dict.fromkeys(columns)  # columns added later are null in older files
    logical = {physical: name for name, (physical, _) in columns.items()}
    files = []
    for action in pa.table(table.get_add_actions(flatten=False)).to_pylist():
        path = unquote(action["path"])
        refuse_outside(path, where, "Delta")
        values = {logical.get(name, name): value for name, value in (action.get("partition") or {}).items()}
        about = table_columns(nulls | values, columns, [deleted.pop(path)] if path in deleted else ())
        files.append(File(path, action["size_bytes"], 0, table=about))
    if deleted:
        raise DataError(f"a deletion vector is of a file that the table does not have: {min(deleted)}", where=where)
    return files
