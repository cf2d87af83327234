"""List the files of a lake: without hidden and temporary ones, and each once however it is reached."""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.lake import delta, ducklake, iceberg
from scorelake.lake.description import load_description
from scorelake.lake.tables import current_files
from scorelake.settings import PATIENCE, Storage
from scorelake.storage.disk import MARK, is_marked, is_remote, read_bytes
from scorelake.storage.files import File, printable, stat

if TYPE_CHECKING:
    from scorelake.storage.objects import Object

CATALOGS = (iceberg.CATALOG, ducklake.CATALOG)
"""Lakes that are named by a catalog, not by a path."""
SUFFIXES = (".parquet", ".pq", ".parq")
HIDDEN = ("_", ".")


@dataclass(frozen=True)
class LakeListing:
    """A frozen listing: a file that changes later is noticed."""

    root: str
    files: tuple[File, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Files and folders that are not part of the lake, each with the reason."""
    excluded: tuple[str, ...] = ()
    """Files that match a pattern of `exclude`."""
    idle: tuple[str, ...] = ()
    """Patterns of `exclude` that match no file."""

    def describe_left_out(self) -> list[str]:
        """Return a line for each reason, with the number of files and the first of them."""
        names = dict[str, list[str]]()
        for path, reason in (*self.left_out, *((path, "matches [lake] exclude") for path in self.excluded)):
            names.setdefault(reason, []).append(printable(path))
        return [
            f"left out {len(each):,} ({reason}): {', '.join(each[:3])}{', ...' * (len(each) > 3)}"
            for reason, each in names.items()
        ]


def listing(
    location: str | Path, storage: Storage = PATIENCE, exclude: Sequence[str] = (), out: str | Path | None = None
) -> LakeListing:
    """List the Parquet files of a folder or table, sorted by path, without those of outputs and `exclude`."""
    if out is not None:
        refuse_inside(location, out)
    lake = _list(str(location), storage, None if out is None else _absolute(out))
    lake = _in_force(lake, load_description(str(location), storage).get("files"))
    if not lake.files:
        hint = f"files must end in {', '.join(SUFFIXES)}; names that start with _ or . are ignored"
        if lake.left_out and not is_remote(str(location)):
            command = f"scorelake ingest auto {shlex.quote(str(location))} --lake LAKE"
            hint += f"; are these logs of an evaluation tool? {command}, then score LAKE"
        raise LakeError(f"no Parquet file inside ({len(lake.left_out)} other files)", where=lake.root, hint=hint)
    paths = [file.path for file in lake.files]
    # [ is literal: file names contain it more often than patterns do, and run[1]/* is not run1/*
    matches = {pattern: fnmatch.filter(paths, pattern.replace("[", "[[]")) for pattern in exclude}
    excluded = set[str]().union(*matches.values())
    kept = [file for file in lake.files if file.path not in excluded]
    idle = [pattern for pattern, paths in matches.items() if not paths]
    if not kept:
        what = f"[lake] exclude leaves none of {len(excluded):,} Parquet files"
        raise LakeError(what, where=lake.root, hint="check its patterns")
    return replace(lake, files=tuple(sorted(kept)), excluded=tuple(sorted(excluded)), idle=tuple(idle))


def _in_force(lake: LakeListing, named: list[str] | None) -> LakeListing:
    """Leave out files that the description does not name: `ingest` replaced them, or was killed."""
    if named is None:
        return lake
    in_force, listed = {*named}, {file.path for file in lake.files}
    if missing := sorted(in_force - listed):
        what = f"{len(missing):,} files that ingest wrote are missing, such as {missing[0]}"
        raise DataError(what, where=lake.root, hint="run the same ingest again, or copy the lake again")
    reason = "not named in _scorelake.json: ingest did not write it, or replaced it"
    left_out = [each for each in lake.left_out if each[0] not in ("_scorelake.json", "_ingest/")]
    left_out += [(path, reason) for path in sorted(listed - in_force)]
    files = tuple(file for file in lake.files if file.path in in_force)
    return replace(lake, files=files, left_out=tuple(left_out))


def refuse_inside(location: str | Path, out: str | Path) -> None:
    """Refuse a lake inside its own output: it would include what is written, and be cleaned with it."""
    lake, output = _absolute(location), _absolute(out)
    if lake == output or lake.startswith(f"{output.rstrip('/')}/"):
        raise UsageError("the lake lies in the output", where=str(location), hint=f"choose another --out than {out}")


def _absolute(location: str | Path) -> str:
    return str(location).rstrip("/") if is_remote(location) else os.path.realpath(location)


def _list(location: str, storage: Storage, out: str | None) -> LakeListing:
    if location.endswith(iceberg.METADATA) or location.startswith(CATALOGS):
        read = ducklake.table_files if location.startswith(ducklake.CATALOG) else iceberg.table_files
        return _table(*read(location, storage), storage)
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
        return LakeListing(str(root.parent), (stat(root, root.name),))
    if is_marked(root):
        raise LakeError("is an output of scorelake, not a lake", where=location, hint="name the lake that was scored")
    left_out: list[tuple[str, str]] = []
    listed = [stat(path, path.relative_to(root).as_posix()) for path in _walk(root, out, left_out)]
    return LakeListing(str(root), tuple(_without_repeats(listed, left_out)), tuple(left_out))


def _table(
    root: str, named: Sequence[File], storage: Storage, objects: Mapping[str, Object] | None = None
) -> LakeListing:
    return LakeListing(root, current_files(root, named, storage, objects))


def _walk(root: Path, out: str | None, left_out: list[tuple[str, str]]) -> Iterator[Path]:
    """Yield the Parquet files below a folder; links are followed unless they lead to another place of the lake."""
    inside = os.path.realpath(root)
    seen, folders = {inside}, [root]
    while folders:
        for entry in sorted(os.scandir(folders.pop()), key=lambda entry: entry.name):
            path, is_link = Path(entry.path), entry.is_symlink()
            # the methods of an entry need no call per file, but raise on links that lead to each other
            is_folder = os.path.isdir(path) if is_link else entry.is_dir()
            is_file = os.path.isfile(path) if is_link else entry.is_file()
            name = path.relative_to(root).as_posix() + "/" * is_folder
            refuse_table(name, str(root))
            real = os.path.realpath(path) if is_link or is_folder else ""
            if (reason := _why_no_file(name)) is not None:
                left_out.append((name, reason))
            elif is_link and not os.path.exists(path):
                left_out.append((name, "a link to a missing file"))
            elif is_link and _is_listed(real, inside, is_folder):
                left_out.append((name, "a link to another place of this lake"))
            elif is_file:
                yield path
            elif not is_folder:  # opening a pipe would wait for a writer
                left_out.append((name, "no regular file"))
            elif real == out or is_marked(path):
                left_out.append((name, "an output of scorelake"))
            elif real in seen or f"{inside}/".startswith(f"{real}/"):
                left_out.append((name, "a link to a folder that is read already"))
            else:
                seen.add(real)
                folders.append(path)


def _why_no_file(path: str) -> str | None:
    """Return why a path is not part of a lake by its name, or None; folders end in a slash."""
    if any(part.startswith(HIDDEN) for part in path.split("/")):
        return "its name starts with _ or ."
    return None if path.lower().endswith((*SUFFIXES, "/")) else "no Parquet file by its name"


def _is_listed(target: str, root: str, is_folder: bool) -> bool:
    """Return whether the target of a link is part of the lake by itself; caches keep files in hidden folders."""
    inside = target.startswith(f"{root}/") and _why_no_file(target.removeprefix(f"{root}/") + "/" * is_folder) is None
    return target == root or inside


def _without_repeats(files: list[File], left_out: list[tuple[str, str]]) -> Iterator[File]:
    """Yield each file once, by its inode and times.

    Not by its device, whose number differs between machines. A cache that stores equal files once may link one of
    them into several partitions: these are different attempts.
    """
    seen = dict[object, str]()
    for file in sorted(files):
        folders = tuple(part for part in file.path.split("/")[:-1] if "=" in part)
        identity = (file.inode, file.size, file.mtime_ns, file.ctime_ns, folders)
        first = seen.setdefault(identity, file.path)
        if first == file.path or not file.inode:
            yield file
        else:
            left_out.append((file.path, f"the same file as {first}"))


def _list_objects(url: str, storage: Storage, out: str | None) -> LakeListing:
    """List a lake in object storage, where the parts of a key are what folders are on a disk."""
    from scorelake.storage.objects import Objects  # noqa: PLC0415 - obstore is loaded where it is used

    if url.lower().endswith(SUFFIXES):
        folder, _, name = url.rpartition("/")
        single = Objects(folder, storage).find(name)
        if single is not None:
            return LakeListing(folder, (single.as_file(),))
    store = Objects(url, storage)
    objects = {each.key: each for each in store.list()}
    if any(key.startswith(f"{delta.LOG}/") for key in objects):
        return _table(url, delta.remote_table_files(url, objects, storage), storage, objects)
    if iceberg.HINT in objects:
        metadata = iceberg.hinted_path(read_bytes(f"{url}/{iceberg.HINT}", storage))
        return _table(*iceberg.table_files(f"{url}/{metadata}", storage), storage)
    outputs = [key.removesuffix(MARK) for key in objects if key.endswith(f"/{MARK}")]
    outputs += [f"{out.removeprefix(f'{url}/')}/"] if out is not None and out.startswith(f"{url}/") else []
    files, left_out = [], list[tuple[str, str]]()
    for key, each in objects.items():
        if key.startswith(tuple(outputs)):
            continue
        refuse_table(key, url)
        if key.endswith("/"):
            continue
        if (reason := _why_no_file(key)) is not None:
            left_out.append((key, reason))
        # Consoles create an empty object with a trailing slash for a folder, and the slash is not listed.
        elif each.size or store.find(key) is not None:
            files.append(each.as_file())
    return LakeListing(url, tuple(files), tuple(left_out))


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
