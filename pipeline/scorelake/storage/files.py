"""The records of a listing: a file of a lake, and a shard of files that are counted together."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class RenamedError(Exception):
    """A column of a table has another name, or another meaning, in one of its files."""


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
    """For a file of a Delta or Iceberg table: what `table_columns` returns. Its folder names have no meaning then."""

    @property
    def name(self) -> str:
        """The path for messages and tables: bytes that are not UTF-8 are escaped."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    def constant_columns(self, columns: Mapping[str, int | None], used: Container[str] = ()) -> dict[str, str | None]:
        """Return columns with one value for all rows: from Hive folders, or from the log of the table.

        `columns` maps the columns inside the file to their field ids. Raises RenamedError if the table calls one of
        the `used` columns differently.
        """
        if self.name != self.path:
            raise UnicodeError("the file name is not UTF-8; rename it")
        if not self.table:
            return self.hive
        table = json.loads(self.table)
        names = {number: name for name, number in columns.items() if number is not None}
        for name, number in table["ids"].items():
            if name not in used:
                continue
            if names.get(number, name) != name:
                raise RenamedError(
                    f"column {name} is called {names[number]} in this file: it was renamed since; compact the table"
                )
            if names and number not in names and name in columns:
                raise RenamedError(
                    f"column {name} of this file is another column, which was dropped since; compact the table"
                )
        return {name: value for name, value in table["values"].items() if name not in columns}

    @property
    def deleted(self) -> NDArray[np.int64]:
        """Rising positions of the rows that the table has deleted, but that are still in the file."""
        packed = json.loads(self.table).get("deleted") if self.table else None
        gaps = zlib.decompress(base64.b85decode(packed)) if packed else b""
        return np.cumsum(np.frombuffer(gaps, np.uint32), dtype=np.int64)

    @property
    def hive(self) -> dict[str, str | None]:
        """Partition values from the folder names, as strings; None for the Hive default partition."""
        folders = [part.split("=", 1) for part in self.path.split("/")[:-1] if "=" in part]
        return {_unquote(key): None if value == HIVE_NULL else _unquote(value) for key, value in folders}


def table_columns(values: Mapping[str, Any], ids: Mapping[str, int], deleted: NDArray[Any] | None = None) -> str:
    """Serialize what a table knows of a file; values become the texts of a column: True -> "true", 3.0 -> "3"."""
    table: dict[str, Any] = {"values": {name: _text(value) for name, value in values.items()}, "ids": dict(ids)}
    if deleted is not None and len(deleted):
        gaps = np.diff(np.unique(deleted), prepend=0).astype(np.uint32)
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


def stat(path: str | Path, name: str, table: str = "") -> File:
    """Return the current state of a file on a disk, under its name in the lake."""
    status = os.stat(path)
    return File(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, table=table)


def _unquote(text: str) -> str:
    """Decode a folder name. Bytes that are not UTF-8 raise, since two such names could become one."""
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeError:
        escaped = text.encode("utf-8", "backslashreplace").decode()
        raise UnicodeError(f"the folder name {escaped} is not UTF-8; rename it") from None


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
