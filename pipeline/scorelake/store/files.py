"""A file of a lake as it was listed, and a shard: the files that are counted together."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


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

    @property
    def hive(self) -> dict[str, str | None]:
        """Partition values from the folders, as plain strings; null for the Hive default partition."""
        folders = [part.split("=", 1) for part in self.path.split("/")[:-1] if "=" in part]
        return {_text(key): None if value == HIVE_NULL else _text(value) for key, value in folders}


def stat(path: str | Path, name: str) -> File:
    """A file on a disk as it is now, under its name in the lake."""
    told = os.stat(path)
    return File(name, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)


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
