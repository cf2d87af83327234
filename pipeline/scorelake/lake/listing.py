"""List the lake once, and freeze what was listed.

The listing is ours, not a glob's: hidden and temporary files are not part of the lake, links that leave it
are not followed, and partition values stay the strings they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scorelake.errors import DataError, LakeError
from scorelake.settings import PATIENCE, Storage
from scorelake.store.disk import is_remote
from scorelake.store.files import File, stat

SUFFIXES = (".parquet", ".pq", ".parq")
HIDDEN = ("_", ".")


@dataclass(frozen=True)
class Lake:
    """A frozen listing: nothing outside it is read, and a file that changed since is noticed."""

    root: str
    files: tuple[File, ...]
    ignored: int
    """Files and links that are not part of the lake (hidden, temporary, other types, leading outside)."""


def listing(location: str | Path, storage: Storage = PATIENCE) -> Lake:
    """Every Parquet file under a folder, or the one file given, in the order of their paths."""
    if is_remote(location):
        return _listed_objects(str(location), storage)
    root = Path(location)
    if not root.exists():
        raise LakeError("no such file or folder", where=str(location), hint="give the folder of the Parquet files")
    if root.is_file():
        return Lake(str(root.parent), (stat(root, root.name),), 0)
    files, ignored = [], 0
    for path, wanted in _walk(root):
        refuse_table(path.relative_to(root).as_posix(), str(root))
        if wanted:
            files.append(stat(path, path.relative_to(root).as_posix()))
        else:
            ignored += 1
    return _filled(Lake(str(root), tuple(sorted(files)), ignored))


def _listed_objects(url: str, storage: Storage) -> Lake:
    """The same of object storage; the names in a key are what folders are on a disk."""
    from scorelake.store.objects import Objects  # noqa: PLC0415 - the library of object storage is loaded where it is used

    if url.lower().endswith(SUFFIXES):
        above, _, name = url.rpartition("/")
        alone = Objects(above, storage).find(name)
        if alone is not None:
            return Lake(above, (File(name, alone.size, 0, etag=alone.etag),), 0)
    files, ignored = [], 0
    for found in Objects(url, storage).list():
        refuse_table(found.key, url)
        *folders, name = found.key.split("/")
        if any(folder.startswith(HIDDEN) for folder in folders) or not name:
            continue
        if name.startswith(HIDDEN) or not name.lower().endswith(SUFFIXES):
            ignored += 1
        else:
            files.append(File(found.key, found.size, 0, etag=found.etag))
    return _filled(Lake(url.rstrip("/"), tuple(sorted(files)), ignored))


def refuse_table(path: str, root: str) -> None:
    """A folder that is a table of some format is not loose files: files that the table has removed lie there too."""
    *folders, name = path.split("/")
    kind = None
    if "_delta_log" in folders:
        kind, home = "Delta", folders[: folders.index("_delta_log")]
    elif ".hoodie" in folders:
        kind, home = "Hudi", folders[: folders.index(".hoodie")]
    elif folders[-1:] == ["metadata"] and name.endswith(".metadata.json"):
        kind, home = "Iceberg", folders[:-1]
    if kind:
        raise DataError(
            f"this folder is a {kind} table, not loose Parquet files",
            where="/".join([root, *home]),
            hint="export the table's current rows to Parquet files (COPY ... TO in DuckDB reads it), and score those",
        )


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
            elif entry.is_dir():
                refuse_table(f"{path.relative_to(root).as_posix()}/", str(root))
            else:
                yield path, not hidden and not outside and entry.name.lower().endswith(SUFFIXES)
