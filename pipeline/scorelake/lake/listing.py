"""List the files of a lake once; nothing outside of the listing is read.

The listing does not use glob patterns: hidden and temporary files are not part of a lake, links that leave it are not
followed, and partition values stay strings.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.lake import delta, iceberg
from scorelake.lake.description import load_description
from scorelake.settings import PATIENCE, Storage
from scorelake.storage.disk import MARK, is_marked, is_remote, read_bytes
from scorelake.storage.files import File, stat

if TYPE_CHECKING:
    from scorelake.storage.objects import Object

SUFFIXES = (".parquet", ".pq", ".parq")
HIDDEN = ("_", ".")


@dataclass(frozen=True)
class LakeListing:
    """A frozen listing: a file that changes later is noticed."""

    root: str
    files: tuple[File, ...]
    ignored: int
    """Number of files that are not part of the lake: hidden, temporary, of other types, links that lead outside."""
    excluded: tuple[str, ...] = ()
    """Files that match a pattern of `exclude`."""
    idle: tuple[str, ...] = ()
    """Patterns of `exclude` that match no file."""


def listing(
    location: str | Path, storage: Storage = PATIENCE, exclude: Sequence[str] = (), out: str | Path | None = None
) -> LakeListing:
    """List every Parquet file below a folder, the files of a table, or a single file, sorted by path.

    Files that match a pattern of `exclude`, output folders, and `out`, the output to be written, are left out.
    """
    if out is not None:
        refuse_inside(location, out)
    lake = _list(str(location), storage, None if out is None else _absolute(out))
    lake = _in_force(lake, load_description(str(location), storage).get("files"))
    if not lake.files:
        hint = f"files must end in {', '.join(SUFFIXES)}; names that start with _ or . are ignored"
        if lake.ignored and not is_remote(str(location)):
            logs = shlex.quote(str(location))
            hint += (
                f"; are these logs of an evaluation tool? scorelake ingest auto {logs} --lake LAKE, then score LAKE"
            )
        raise LakeError(f"no Parquet file inside ({lake.ignored} other files)", where=lake.root, hint=hint)
    kept = [file for file in lake.files if not any(fnmatchcase(file.path, pattern) for pattern in exclude)]
    excluded = sorted({file.path for file in lake.files} - {file.path for file in kept})
    idle = [pattern for pattern in exclude if not any(fnmatchcase(path, pattern) for path in excluded)]
    if not kept:
        what = f"[lake] exclude leaves none of {len(excluded):,} Parquet files"
        raise LakeError(what, where=lake.root, hint="check its patterns")
    return replace(lake, files=tuple(sorted(kept)), excluded=tuple(excluded), idle=tuple(idle))


def _in_force(lake: LakeListing, named: list[str] | None) -> LakeListing:
    """Leave out files that the description does not name: `ingest` replaced them, or was killed."""
    if named is None:
        return lake
    in_force = {*named}
    files = tuple(file for file in lake.files if file.path in in_force)
    missing = sorted(in_force - {file.path for file in files})
    if missing:
        what = f"{len(missing):,} files that ingest wrote are missing, such as {missing[0]}"
        raise DataError(what, where=lake.root, hint="run the same ingest again, or copy the lake again")
    return replace(lake, files=files, ignored=lake.ignored + len(lake.files) - len(files))


def refuse_inside(location: str | Path, out: str | Path) -> None:
    """Refuse a lake inside its own output: it would include what is written, and be cleaned with it."""
    lake, output = _absolute(location), _absolute(out)
    if lake == output or lake.startswith(f"{output.rstrip('/')}/"):
        raise UsageError("the lake lies in the output", where=str(location), hint=f"choose another --out than {out}")


def _absolute(location: str | Path) -> str:
    return str(location).rstrip("/") if is_remote(location) else os.path.realpath(location)


def _list(location: str, storage: Storage, out: str | None) -> LakeListing:
    if location.endswith(iceberg.METADATA) or location.startswith(iceberg.CATALOG):
        return _table(*iceberg.table_files(location, storage), storage)
    if is_remote(location):
        return _list_objects(location.rstrip("/"), storage, out)
    root = Path(location)
    if not root.exists():
        raise LakeError("no such file or folder", where=location, hint="name the folder of the Parquet files")
    if (root / delta.LOG).is_dir():
        return _table(str(root), delta.table_files(str(root), str(root)), storage)
    if (root / iceberg.HINT).is_file():
        metadata = root / iceberg.hinted_path((root / iceberg.HINT).read_bytes())
        return _table(*iceberg.table_files(str(metadata), storage), storage)
    if root.is_file():
        return LakeListing(str(root.parent), (stat(root, root.name),), 0)
    if is_marked(root):
        raise LakeError("is an output of scorelake, not a lake", where=location, hint="name the lake that was scored")
    files, ignored = [], 0
    for path, is_included in _walk(root, out):
        name = path.relative_to(root).as_posix()
        refuse_table(name, str(root))
        if is_included:
            files.append(stat(path, name))
        else:
            ignored += 1
    return LakeListing(str(root), tuple(files), ignored)


def _walk(root: Path, out: str | None) -> Iterator[tuple[Path, bool]]:
    """Yield each file once, and whether it belongs to the lake; follow links only inside of the lake."""
    inside, seen, folders = root.resolve(), set[Path](), [root]
    while folders:
        folder = folders.pop()
        real = folder.resolve()
        if real in seen or str(real) == out or (folder != root and is_marked(folder)):
            continue
        seen.add(real)
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = Path(entry.path)
            leaves = entry.is_symlink() and not path.resolve().is_relative_to(inside)
            is_included = not leaves and not entry.name.startswith(HIDDEN)
            if not entry.is_dir():
                yield path, is_included and entry.name.lower().endswith(SUFFIXES)
            elif is_included:
                folders.append(path)
            else:
                refuse_table(f"{path.relative_to(root).as_posix()}/", str(root))


def _list_objects(url: str, storage: Storage, out: str | None) -> LakeListing:
    """List a lake in object storage, where the parts of a key are what folders are on a disk."""
    from scorelake.storage.objects import Objects  # noqa: PLC0415 - obstore is loaded where it is used

    if url.lower().endswith(SUFFIXES):
        folder, _, name = url.rpartition("/")
        single = Objects(folder, storage).find(name)
        if single is not None:
            return LakeListing(folder, (_file(single),), 0)
    store = Objects(url, storage)
    objects = {each.key: each for each in store.list()}
    if any(key.startswith(f"{delta.LOG}/") for key in objects):
        return _table(url, delta.remote_table_files(url, objects, storage), storage, objects)
    if iceberg.HINT in objects:
        metadata = iceberg.hinted_path(read_bytes(f"{url}/{iceberg.HINT}", storage))
        return _table(*iceberg.table_files(f"{url}/{metadata}", storage), storage)
    outputs = [key.removesuffix(MARK) for key in objects if key.endswith(f"/{MARK}")]
    outputs += [f"{out.removeprefix(f'{url}/')}/"] if out is not None and out.startswith(f"{url}/") else []
    files, ignored = [], 0
    for key, each in objects.items():
        if key.startswith(tuple(outputs)):
            continue
        refuse_table(key, url)
        *folders, name = key.split("/")
        if any(folder.startswith(HIDDEN) for folder in folders) or not name:
            continue
        if name.startswith(HIDDEN) or not name.lower().endswith(SUFFIXES):
            ignored += 1
        # Consoles create an empty object with a trailing slash for a folder, and the slash is not listed.
        elif each.size or store.find(key) is not None:
            files.append(_file(each))
    return LakeListing(url, tuple(files), ignored)


def _file(source: Object) -> File:
    return File(source.key, source.size, 0, etag=source.etag)


def _table(
    root: str, named: Sequence[File], storage: Storage, objects: Mapping[str, Object] | None = None
) -> LakeListing:
    """Return the files that a table names as they are now; raise if one is missing or has another size."""
    if is_remote(root) and objects is None:
        from scorelake.storage.objects import Objects  # noqa: PLC0415

        objects = {each.key: each for each in Objects(root, storage).list()}
    files = []
    for file in named:
        where = f"{root}/{file.path}"
        try:
            listed = stat(where, file.path) if objects is None else _file(objects[file.path])
        except (FileNotFoundError, KeyError):
            what = "the log of the table names this file, but it is missing"
            hint = "run again; if the error remains, the table is damaged"
            raise DataError(what, where=where, hint=hint) from None
        if listed.size != file.size:
            raise DataError(f"has {listed.size:,} bytes, but {file.size:,} in the log of the table", where=where)
        files.append(replace(listed, table=file.table))
    return LakeListing(root, tuple(files), 0)


def refuse_table(path: str, root: str) -> None:
    """Refuse a folder that is a table: its files are not loose, since some of them are no longer part of it."""
    *folders, name = path.split("/")
    hint = "export the current rows of the table to Parquet files, and score those"
    if delta.LOG in folders:
        kind, home, hint = "a Delta", folders[: folders.index(delta.LOG)], "score the table itself: that folder"
    elif ".hoodie" in folders:
        kind, home = "a Hudi", folders[: folders.index(".hoodie")]
    elif folders[-1:] == ["metadata"] and name.endswith(iceberg.METADATA):
        kind, home, hint = "an Iceberg", folders[:-1], f"score its current version by name: {iceberg.USAGE}"
    else:
        return
    raise DataError(f"this folder is {kind} table, not loose Parquet files", where="/".join([root, *home]), hint=hint)
