"""List the lake once, and freeze what was listed.

The listing is ours, not a glob's: hidden and temporary files are not part of the lake, links that leave it
are not followed, and partition values stay the strings they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.lake import delta, iceberg
from scorelake.lake.entries import Entry
from scorelake.settings import PATIENCE, Storage
from scorelake.storage.disk import MARK, is_marked, is_remote
from scorelake.storage.files import File, stat

if TYPE_CHECKING:
    from scorelake.storage.objects import Object, Objects

SUFFIXES = (".parquet", ".pq", ".parq")
HIDDEN = ("_", ".")


@dataclass(frozen=True)
class Lake:
    """A frozen listing: nothing outside it is read, and a file that changed since is noticed."""

    root: str
    files: tuple[File, ...]
    ignored: int
    """Files and links that are not part of the lake (hidden, temporary, other types, leading outside)."""
    excluded: tuple[str, ...] = ()
    """Files left out by a pattern."""
    idle: tuple[str, ...] = ()
    """Patterns that no file matches."""


def listing(
    location: str | Path, storage: Storage = PATIENCE, exclude: Sequence[str] = (), out: str | Path | None = None
) -> Lake:
    """Every Parquet file under a folder, or the one file given, in the order of their paths.

    Left out are files that match a pattern of `exclude`, outputs of ours, and `out`, the one to be written; a lake
    that lies in it is refused.
    """
    if out is not None:
        refuse_inside(location, out)
    lake = _whole(location, storage, out)
    kept = [file for file in lake.files if not any(fnmatchcase(file.path, pattern) for pattern in exclude)]
    gone = sorted({file.path for file in lake.files} - {file.path for file in kept})
    idle = [pattern for pattern in exclude if not any(fnmatchcase(path, pattern) for path in gone)]
    if gone and not kept:
        raise LakeError(
            f"[lake] exclude leaves none of {len(gone):,} Parquet files", where=lake.root, hint="look at its patterns"
        )
    return replace(lake, files=tuple(kept), excluded=tuple(gone), idle=tuple(idle))


def refuse_inside(location: str | Path, out: str | Path) -> None:
    """A lake that lies in its own output would be read again with what we write, and cleaned with it."""
    lake, home = _place(location), _place(out)
    if lake == home or lake.startswith(f"{home.rstrip('/')}/"):
        raise UsageError("the lake lies in the output", where=str(location), hint=f"give another --out than {out}")


def _place(location: str | Path) -> str:
    return str(location).rstrip("/") if is_remote(location) else os.path.realpath(location)


def _whole(location: str | Path, storage: Storage, out: str | Path | None) -> Lake:
    """All of it, patterns aside."""
    if iceberg.is_named(str(location)):
        return _table(*iceberg.entries(str(location), storage), storage)
    if is_remote(location):
        return _listed_objects(str(location), storage, out)
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
    if is_marked(root):
        raise LakeError(
            "is an output of scorelake, not a lake", where=str(location), hint="give the lake it was made of"
        )
    files, ignored = [], 0
    for path, wanted in _walk(root, None if out is None else _place(out)):
        refuse_table(path.relative_to(root).as_posix(), str(root))
        if wanted:
            files.append(stat(path, path.relative_to(root).as_posix()))
        else:
            ignored += 1
    return _filled(Lake(str(root), tuple(sorted(files)), ignored))


def _listed_objects(url: str, storage: Storage, out: str | Path | None) -> Lake:
    """The same of object storage; the names in a key are what folders are on a disk."""
    from scorelake.storage.objects import Objects  # noqa: PLC0415 - the library of object storage is loaded where it is used

    if url.lower().endswith(SUFFIXES):
        above, _, name = url.rpartition("/")
        alone = Objects(above, storage).find(name)
        if alone is not None:
            return Lake(above, (File(name, alone.size, 0, etag=alone.etag),), 0)
    files, ignored = [], 0
    there = Objects(url, storage)
    objects = {found.key: found for found in there.list()}
    if any(key.startswith(f"{delta.LOG}/") for key in objects):
        return _of_objects(url.rstrip("/"), delta.remote_entries(url, objects, storage), objects)
    hint = objects.get(iceberg.HINT)
    if hint is not None:
        name = iceberg.hinted(Objects(url, storage).read(hint, 0, hint.size).decode("utf-8", "replace"))
        return _table(*iceberg.entries(f"{url.rstrip('/')}/metadata/{name}", storage), storage)
    outputs = _outputs(url, objects, out)
    for found in objects.values():
        if found.key.startswith(outputs):
            continue
        refuse_table(found.key, url)
        *folders, name = found.key.split("/")
        if any(folder.startswith(HIDDEN) for folder in folders) or not name:
            continue
        if name.startswith(HIDDEN) or not name.lower().endswith(SUFFIXES):
            ignored += 1
        elif not _stands_for_a_folder(found, there):
            files.append(File(found.key, found.size, 0, etag=found.etag))
    return _filled(Lake(url.rstrip("/"), tuple(sorted(files)), ignored))


def _outputs(url: str, keys: Iterable[str], out: str | Path | None) -> tuple[str, ...]:
    """Folders of a lake that are outputs of ours, and the one to be written if it is to be there."""
    found = [key.removesuffix(MARK) for key in keys if key.endswith(f"/{MARK}")]
    inside = "" if out is None else _place(out)
    return (*found, *([f"{inside.removeprefix(_place(url) + '/')}/"] if inside.startswith(f"{_place(url)}/") else []))


def _stands_for_a_folder(found: Object, there: Objects) -> bool:
    """An empty object whose key ends in a slash, as consoles make them; the slash is not listed."""
    return found.size == 0 and there.find(found.key) is None


def _table(root: str, entries: Sequence[Entry], storage: Storage) -> Lake:
    """The files that a table names, as they are now."""
    if is_remote(root):
        from scorelake.storage.objects import Objects  # noqa: PLC0415 - see above

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


def _walk(root: Path, out: str | None) -> Iterator[tuple[Path, bool]]:
    """Each file once with whether it belongs; folders reached through links only inside, and only once."""
    home = root.resolve()
    seen: set[Path] = set()
    folders = [root]
    while folders:
        folder = folders.pop()
        real = folder.resolve()
        if real in seen or str(real) == out or (folder != root and is_marked(folder)):
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
