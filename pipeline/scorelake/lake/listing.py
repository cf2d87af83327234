"""List the lake once, and freeze what was listed.

The listing is ours, not a glob's: hidden and temporary files are not part of the lake, links that leave it
are not followed, and partition values stay the strings they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scorelake.errors import DataError, LakeError
from scorelake.lake import delta, iceberg
from scorelake.lake.entries import Entry
from scorelake.settings import PATIENCE, Storage
from scorelake.store.disk import is_remote
from scorelake.store.files import File, stat

if TYPE_CHECKING:
    from scorelake.store.objects import Object

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
    if iceberg.is_named(str(location)):
        return _table(*iceberg.entries(str(location), storage), storage)
    if is_remote(location):
        return _listed_objects(str(location), storage)
    root = Path(location)
    if not root.exists():
        raise LakeError("no such file or folder", where=str(location), hint="give the folder of the Parquet files")
    if (root / delta.LOG).is_dir():
        return _table(str(root), delta.entries(str(root)), storage)
    if (root / iceberg.HINT).is_file():
        name = iceberg.hinted((root / iceberg.HINT).read_text(encoding="utf-8", errors="replace"))
        return _table(*iceberg.entries(str(root / "metadata" / name), storage), storage)
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
    objects = {found.key: found for found in Objects(url, storage).list()}
    if any(key.startswith(f"{delta.LOG}/") for key in objects):
        return _of_objects(url.rstrip("/"), delta.remote_entries(url, objects, storage), objects)
    hint = objects.get(iceberg.HINT)
    if hint is not None:
        name = iceberg.hinted(Objects(url, storage).read(hint, 0, hint.size).decode("utf-8", "replace"))
        return _table(*iceberg.entries(f"{url.rstrip('/')}/metadata/{name}", storage), storage)
    for found in objects.values():
        refuse_table(found.key, url)
        *folders, name = found.key.split("/")
        if any(folder.startswith(HIDDEN) for folder in folders) or not name:
            continue
        if name.startswith(HIDDEN) or not name.lower().endswith(SUFFIXES):
            ignored += 1
        else:
            files.append(File(found.key, found.size, 0, etag=found.etag))
    return _filled(Lake(url.rstrip("/"), tuple(sorted(files)), ignored))


def _table(root: str, entries: Sequence[Entry], storage: Storage) -> Lake:
    """The files that a table names, as they are now."""
    if is_remote(root):
        from scorelake.store.objects import Objects  # noqa: PLC0415 - see above

        return _of_objects(root, entries, {found.key: found for found in Objects(root, storage).list()})
    files = []
    for entry in entries:
        try:
            files.append(_as_named(stat(Path(root) / entry.path, entry.path, entry.table), entry, root))
        except FileNotFoundError:
            raise _lost(entry, root) from None
    return _filled(Lake(root, tuple(sorted(files)), 0))


def _of_objects(root: str, entries: Sequence[Entry], objects: Mapping[str, Object]) -> Lake:
    files = []
    for entry in entries:
        found = objects.get(entry.path)
        if found is None:
            raise _lost(entry, root)
        file = File(entry.path, found.size, 0, etag=found.etag, table=entry.table)
        files.append(_as_named(file, entry, root))
    return _filled(Lake(root, tuple(sorted(files)), 0))


def _as_named(file: File, entry: Entry, root: str) -> File:
    if file.size != entry.size:
        raise DataError(
            f"has {file.size:,} bytes where the table's log says {entry.size:,}", where=f"{root}/{entry.path}"
        )
    return file


def _lost(entry: Entry, root: str) -> DataError:
    return DataError(
        "the table's log names this file, and it is not there",
        where=f"{root}/{entry.path}",
        hint="run again; if that does not help, the table is damaged",
    )


def refuse_table(path: str, root: str) -> None:
    """A folder that is a table of some format is not loose files: files that the table has removed lie there too."""
    *folders, name = path.split("/")
    kind, hint = None, "export the table's current rows to Parquet files, and score those"
    if delta.LOG in folders:
        kind, home = "Delta", folders[: folders.index(delta.LOG)]
        hint = "score the table itself: that folder"
    elif ".hoodie" in folders:
        kind, home = "Hudi", folders[: folders.index(".hoodie")]
    elif folders[-1:] == ["metadata"] and name.endswith(iceberg.METADATA):
        kind, home = "Iceberg", folders[:-1]
        hint = f"score its current version by name: {iceberg.HOW}"
    if kind:
        raise DataError(
            f"this folder is a{'n' * (kind == 'Iceberg')} {kind} table, not loose Parquet files",
            where="/".join([root, *home]),
            hint=hint,
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
