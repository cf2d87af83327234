"""A Delta table as a listing: the files of its current version, with the partition values that its log tells.

The only module that knows deltalake, which reads the log and nothing else: files are listed, fetched and counted as
those of any lake. A table in object storage is read from a copy of its log, so that credentials, patience and errors
are those of all our requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from scorelake.errors import DataError, UsageError
from scorelake.lake.entries import Entry, spelled
from scorelake.settings import Storage

if TYPE_CHECKING:
    from scorelake.storage.objects import Object

LOG = "_delta_log"


def entries(root: str) -> list[Entry]:
    """What the log of a table on a disk names."""
    return _entries(root, root)


def remote_entries(url: str, objects: Mapping[str, Object], storage: Storage) -> list[Entry]:
    """The same of a table in object storage, of which everything was listed."""
    from scorelake.storage.objects import Objects  # noqa: PLC0415 - the library of object storage is loaded where it is used

    with TemporaryDirectory() as copy:
        wanted = [(found, Path(copy) / key) for key, found in objects.items() if key.startswith(f"{LOG}/")]
        Objects(url, storage).fetch(wanted)
        return _entries(copy, url)


def _entries(folder: str, where: str) -> list[Entry]:
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "this folder is a Delta table, and the package that reads its log is not installed",
            where=where,
            hint="pip install 'scorelake[delta]'",
        ) from None
    try:
        table = DeltaTable(folder)
        _refuse(table, where)
        return _named(table, where)
    except (DeltaError, OSError, ValueError, TypeError, KeyError) as error:
        told = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"the log of this Delta table cannot be read: {told}",
            where=where,
            hint="mend the table, or export its current rows to Parquet files and score those",
        ) from None


def _refuse(table: Any, where: str) -> None:
    """What files alone do not tell: columns by other names, rows that are deleted but still there."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise DataError(
            f"this Delta table maps its columns to other names in its files (delta.columnMapping.mode = {mode})",
            where=where,
            hint="write its rows into a table without column mapping, or export them to Parquet files",
        )
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return
    try:
        vectors = sum(batch.num_rows for batch in table.deletion_vectors())
    except Exception:  # there are some, and they cannot even be read
        vectors = 1
    if vectors:
        raise DataError(
            "this Delta table has deletion vectors: rows that are deleted are still in its files",
            where=where,
            hint="rewrite them (REORG TABLE ... APPLY (PURGE) in Spark), or export its rows to Parquet files",
        )


def _named(table: Any, where: str) -> list[Entry]:
    fields = table.schema().fields
    absent = {field.name: None for field in fields}
    actions = table.get_add_actions(flatten=False)
    names = actions.schema.names
    paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    partitions = actions.column("partition").to_pylist() if "partition" in names else [{}] * len(paths)
    out = []
    for quoted, size, values in zip(paths, sizes, partitions, strict=True):
        path = unquote(quoted)
        if "://" in quoted or path.startswith("/") or ".." in path.split("/"):
            raise DataError(
                f"the log of this Delta table names a file that lies elsewhere: {path}",
                where=where,
                hint="score the table that the file belongs to, or a deep clone of this one",
            )
        out.append(Entry(path, size, absent | {name: spelled(value) for name, value in values.items()}))
    return out
