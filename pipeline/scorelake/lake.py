"""Stage 1. List the lake once, freeze what was listed, and plan shards.

The listing is ours, not a glob's: hidden and temporary files are not part of the lake, links that leave it
are not followed, and partition values stay the strings they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from scorelake.errors import LakeError
from scorelake.settings import PATIENCE, Settings, Storage
from scorelake.storage import is_remote

SUFFIXES = (".parquet", ".pq", ".parq")
SMALL = 4 << 20
"""Bytes below which a file is small."""
FEW = 256
HIDDEN = ("_", ".")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, order=True)
class File:
    """One Parquet file as it was listed: where, how large, when last changed, and its partition values."""

    path: str
    """Relative to the lake, with forward slashes."""
    size: int
    mtime_ns: int
    etag: str = ""
    """What object storage calls this version of the object; it has no use for the time then."""

    def identity(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "etag" or value}

    @property
    def hive(self) -> dict[str, str | None]:
        """Partition values from the folders, as plain strings; null for the Hive default partition."""
        folders = [part.split("=", 1) for part in self.path.split("/")[:-1] if "=" in part]
        return {unquote(key): None if value == HIVE_NULL else unquote(value) for key, value in folders}


@dataclass(frozen=True)
class Lake:
    """A frozen listing: nothing outside it is read, and a file that changed since is noticed."""

    root: str
    files: tuple[File, ...]
    ignored: int
    """Files and links that are not part of the lake (hidden, temporary, other types, leading outside)."""


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
        work = {"files": [file.identity() for file in self.files], **settings}
        return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:32]


def listing(location: str | Path, storage: Storage = PATIENCE) -> Lake:
    """Every Parquet file under a folder, or the one file given, in the order of their paths."""
    if is_remote(location):
        return _listed_objects(str(location), storage)
    root = Path(location)
    if not root.exists():
        raise LakeError("no such file or folder", where=str(location), hint="give the folder of the Parquet files")
    if root.is_file():
        return Lake(str(root.parent), (_stat(root, root.name),), 0)
    files, ignored = [], 0
    for path, wanted in _walk(root):
        if wanted:
            files.append(_stat(path, path.relative_to(root).as_posix()))
        else:
            ignored += 1
    return _filled(Lake(str(root), tuple(sorted(files)), ignored))


def shards(root: str, files: tuple[File, ...], megabytes: float) -> list[Shard]:
    """Cut files, in order, into shards: the unit that is read again when one of its files changes.

    Small files stand alone while they are few, so that a change costs only the changed file; many are batched.
    Larger files are counted together up to the given size, since files of a shuffled lake share their problems.
    """
    few = sum(file.size < SMALL for file in files) <= FEW
    out: list[Shard] = []
    batch: list[File] = []
    size = 0
    for file in files:
        alone = few and file.size < SMALL
        if batch and (alone or size + file.size > megabytes * 2**20):
            out.append(Shard(root, tuple(batch)))
            batch, size = [], 0
        if alone:
            out.append(Shard(root, (file,)))
            continue
        batch.append(file)
        size += file.size
    return [*out, Shard(root, tuple(batch))] if batch else out


def at_hand(shard: Shard, folder: Path, settings: Settings) -> AbstractContextManager[Shard]:
    """The shard with its files on a disk: where they are, or for the time being in the folder given."""
    if not is_remote(shard.root):
        return nullcontext(shard)
    from scorelake.fetch import fetched  # noqa: PLC0415 - the library of object storage is loaded where it is used

    return fetched(shard, folder, settings)


def _listed_objects(url: str, storage: Storage) -> Lake:
    """The same of object storage; the names in a key are what folders are on a disk."""
    from scorelake.objects import Objects  # noqa: PLC0415

    if url.lower().endswith(SUFFIXES):
        above, _, name = url.rpartition("/")
        alone = Objects(above, storage).find(name)
        if alone is not None:
            return Lake(above, (File(name, alone.size, 0, alone.etag),), 0)
    files, ignored = [], 0
    for found in Objects(url, storage).list():
        *folders, name = found.key.split("/")
        if any(folder.startswith(HIDDEN) for folder in folders) or not name:
            continue
        if name.startswith(HIDDEN) or not name.lower().endswith(SUFFIXES):
            ignored += 1
        else:
            files.append(File(found.key, found.size, 0, found.etag))
    return _filled(Lake(url.rstrip("/"), tuple(sorted(files)), ignored))


def _filled(lake: Lake) -> Lake:
    if not lake.files:
        raise LakeError(
            f"no Parquet file inside ({lake.ignored} other files)",
            where=lake.root,
            hint=f"files must end in {', '.join(SUFFIXES)}; names starting with _ or . are not part of a lake",
        )
    return lake


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """Each file once with whether it belongs; folders reached through links only inside, and only once."""
    home = root.resolve()
    seen: set[Path] = set()
    folders = [root]
    while folders:
        folder = folders.pop()
        real = folder.resolve()
        if real in seen:
            continue
        seen.add(real)
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = Path(entry.path)
            hidden = entry.name.startswith(HIDDEN)
            outside = entry.is_symlink() and not path.resolve().is_relative_to(home)
            if entry.is_dir() and not hidden and not outside:
                folders.append(path)
            elif not entry.is_dir():
                yield path, not hidden and not outside and entry.name.lower().endswith(SUFFIXES)


def _stat(path: Path, name: str) -> File:
    stat = path.stat()
    return File(name, stat.st_size, stat.st_mtime_ns)
