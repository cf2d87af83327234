"""The records of a listing: a file of a lake, and a shard of files that are counted together."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class BadNameError(UnicodeError):
    """The names of a file or its folders cannot be read."""


@dataclass(frozen=True, order=True)
class File:
    """One Parquet file as it was listed."""

    path: str
    """Relative to the lake, with forward slashes."""
    size: int
    mtime_ns: int
    ctime_ns: int = 0
    inode: int = 0
    """Differs for a replaced file even if size and times are the same."""
    etag: str = ""
    """Version of the object in object storage; the times are 0 then."""
    table: str = ""
    """For a file of a Delta, Iceberg or DuckLake table: what `table_columns` returns. Its folders mean nothing."""

    @property
    def name(self) -> str:
        """The path for messages and tables."""
        return printable(self.path)

    def stored_names(self, schema: pa.Schema) -> dict[str, str]:
        """Return the columns of the lake that this file has, with their names in the file.

        A table finds its columns by field id, as far as the file has ids: they may have been renamed since.
        """
        if not self.table:
            return {name: name for name in schema.names}
        marks = {field.name: (field.metadata or {}).get(b"PARQUET:field_id", b"") for field in schema}
        by_id = {int(mark): name for name, mark in marks.items() if mark.isdigit()}
        by_name = {name: name for name in schema.names}
        columns = json.loads(self.table)["columns"].items()
        stored = {
            name: by_name.get(physical) if number is None or not by_id else by_id.get(number)
            for name, (physical, number) in columns
        }
        return {name: found for name, found in stored.items() if found is not None}

    def constant_columns(self, stored: Container[str]) -> dict[str, str | None]:
        """Return columns with one value for all rows, which are not `stored`: by Hive folders, or by the table."""
        if self.name != self.path:
            raise BadNameError("the file name is not UTF-8; rename it")
        if not self.table:
            return self.hive
        return {name: value for name, value in json.loads(self.table)["values"].items() if name not in stored}

    @property
    def deleted(self) -> NDArray[np.int64]:
        """Rising positions of the rows that the table has deleted, but that are still in the file."""
        packed = json.loads(self.table).get("deleted") if self.table else None
        gaps = zlib.decompress(base64.b85decode(packed)) if packed else b""
        return np.cumsum(np.frombuffer(gaps, np.uint32), dtype=np.int64)

    @property
    def hive(self) -> dict[str, str | None]:
        """Partition values from the folder names, as strings; None for the Hive default partition."""
        folders = [part.split("=", 1) for part in self.path.split("/")[:-1] if part.find("=") > 0]
        pairs = [(_unquote(key), None if value == HIVE_NULL else _unquote(value)) for key, value in folders]
        values = dict(pairs)
        for key, value in pairs:
            if values[key] != value:
                raise BadNameError(f"two of its folders give {key}; rename one")
        return values


def table_columns(
    values: Mapping[str, Any], columns: Mapping[str, tuple[str, int | None]], deleted: Sequence[NDArray[Any]] = ()
) -> str:
    """Serialize what a table knows of a file.

    `values` are those of columns that the file does not have, as texts: True -> "true", 3.0 -> "3"; `columns` maps
    the columns of the table to their names in the file and their field ids; `deleted` has positions of rows.
    """
    table: dict[str, Any] = {"values": {name: _text(value) for name, value in values.items()}, "columns": columns}
    if deleted:
        gaps = np.diff(np.unique(np.concatenate(deleted)), prepend=0).astype(np.uint32)
        table["deleted"] = base64.b85encode(zlib.compress(gaps.tobytes())).decode()
    return json.dumps(table, sort_keys=True)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode() if isinstance(value, bytes) else str(value)


def printable(path: str) -> str:
    """Escape bytes of a path that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def stat(path: str | Path, name: str, table: str = "") -> File:
    """Return the current state of a file on a disk, under its name in the lake."""
    status = os.stat(path)
    return File(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, table=table)


def _unquote(text: str) -> str:
    """Decode a folder name. Bytes that are not UTF-8 raise, since two such names could become one."""
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeError:
        raise BadNameError(f"the folder name {printable(text)} is not UTF-8; rename it") from None


@dataclass(frozen=True)
class Shard:
    """Files counted together: the unit of work, of retry and of caching."""

    root: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def fingerprint(self, **settings: Any) -> str:
        """Return a name that depends on the files and settings only."""
        work = {"files": [asdict(file) for file in self.files], **settings}
        return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:32]
