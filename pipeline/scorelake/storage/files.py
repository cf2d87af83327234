"""A file of a lake as it was listed, and a shard: the files that are counted together."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class RenamedError(Exception):
    """A table's column that has another name, or another meaning, in one of its files."""


@dataclass(frozen=True, order=True)
class File:
    """One Parquet file as it was listed: where, how large, when last changed, and its partition values."""

    path: str
    """Relative to the lake, with forward slashes."""
    size: int
    mtime_ns: int
    ctime_ns: int = 0
    inode: int = 0
    """A file that was replaced has another, even if its size and times are the same."""
    etag: str = ""
    """What object storage calls this version of the object; it has no use for the times then."""
    table: str = ""
    """What the log of the table that it belongs to says of its columns (see `columns_of_table`); empty for a file of
    no table, whose folders speak."""

    def beside(self, columns: Mapping[str, int | None], used: Container[str] = ()) -> dict[str, str | None]:
        """One value for all rows, by name: what the folders say, or what the table says of columns that the file does
        not hold. `columns` are the file's, with field ids. RenamedError if a used one has another name there."""
        if not self.table:
            return self.hive
        told = json.loads(self.table)
        for name, number in told["ids"].items():
            if name in used:
                _same(name, number, columns)
        return {name: value for name, value in told["values"].items() if name not in columns}

    @property
    def hive(self) -> dict[str, str | None]:
        """Partition values from the folders, as plain strings; null for the Hive default partition."""
        folders = [part.split("=", 1) for part in self.path.split("/")[:-1] if "=" in part]
        return {_text(key): None if value == HIVE_NULL else _text(value) for key, value in folders}


def columns_of_table(values: Mapping[str, str | None], ids: Mapping[str, int]) -> str:
    """What a table says of one of its files: values of columns that the file may not hold, and numbers of columns."""
    return json.dumps({"values": dict(values), "ids": dict(ids)}, sort_keys=True)


def _same(name: str, number: int, columns: Mapping[str, int | None]) -> None:
    """A column is told by its number, where the file has numbers; by its name where not."""
    here = {told: other for other, told in columns.items() if told is not None}
    if here.get(number, name) != name:
        raise RenamedError(f"column {name} is called {here[number]} here: it was renamed since; compact the table")
    if here and number not in here and name in columns:
        raise RenamedError(f"column {name} is another one here, which was dropped since; compact the table")


def stat(path: str | Path, name: str, table: str = "") -> File:
    """A file on a disk as it is now, under its name in the lake."""
    told = os.stat(path)
    return File(name, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino, table=table)


def _text(quoted: str) -> str:
    """What a folder's name says. Bytes that are no UTF-8 raise: two such names must not become one."""
    try:
        return unquote_to_bytes(quoted.encode("utf-8", "surrogateescape")).decode()
    except UnicodeError:
        shown = quoted.encode("utf-8", "backslashreplace").decode()
        raise UnicodeError(f"the folder's name {shown} is not UTF-8; rename it") from None


@dataclass(frozen=True)
class Shard:
    """Files counted together; the unit of work, of retry and of caching."""

    root: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def fingerprint(self, **settings: Any) -> str:
        """Names this work: the same files under the same settings always have the same name."""
        work = {"files": [asdict(file) for file in self.files], **settings}
        return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:32]
