"""An output in object storage, and the local folder that mirrors it.

Partial counts are uploaded at once, so that a killed run loses none. A conditional put of leaderboard.duckdb
publishes a run: of two concurrent runs one gets an error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scorelake.errors import LakeError, LockedError
from scorelake.settings import PATIENCE, Storage
from scorelake.storage import disk
from scorelake.storage.disk import BOARD, MARK, temp_path
from scorelake.storage.objects import ChangedError, Object, Objects

_TOP_LEVEL = (BOARD, MARK, "runs.parquet", "history.parquet")
"""Objects outside of folders. The etag of each local copy is in a hidden file next to it."""
_KINDS = {"partials": (disk.PARTIAL, "shard.json"), "snapshots": (disk.RUN_ID, "manifest.json")}
"""The names of our folders, and the file that makes one complete: uploaded last, deleted first."""
_NEEDED = ("manifest.json", "model_summary.parquet", "problem_histogram.parquet")
"""Files that a run needs of earlier snapshots."""


@dataclass(frozen=True)
class Mirror:
    """The address of an output, and the folder that mirrors it."""

    url: str
    folder: str
    storage: Storage = PATIENCE
    sender: str | None = None
    """The folder on the machine that sent this object here."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle on another machine with the folder of that machine."""
        return Mirror.of, (self.url, self.storage, self.folder)

    def here(self, path: str | Path) -> str:
        """Translate a path in the sender's folder to this machine's."""
        return str(Path(self.folder) / Path(path).relative_to(self.sender or self.folder))

    @classmethod
    def of(cls, url: str, storage: Storage = PATIENCE, sender: str | None = None) -> Mirror:
        """Return the mirror of an address, in the cache folder."""
        url = url.rstrip("/")
        return cls(url, str(disk.cache_folder() / hashlib.sha256(url.encode()).hexdigest()[:16]), storage, sender)

    @cached_property
    def _store(self) -> Objects:
        return Objects(self.url, self.storage)

    def pull(self, partials: bool = True) -> Object | None:
        """Update the folder (complete subfolders never change); return the leaderboard as it is listed now."""
        store, home = self._store, Path(self.folder)
        top_level: dict[str, Object | None] = dict.fromkeys(_TOP_LEVEL)
        folders = defaultdict[str, list[Object]](list)
        for each in store.list():
            kind, *inside = each.key.split("/")
            if each.key in top_level:
                top_level[each.key] = each
            elif kind in _KINDS and len(inside) > 1 and _KINDS[kind][0].fullmatch(inside[0]):
                folders[f"{kind}/{inside[0]}"].append(each)
        complete = {name: files for name, files in sorted(folders.items()) if _is_complete(name, files)}
        for path in [path for kind in _KINDS for path in home.glob(f"{kind}/[!.]*")]:
            if path.relative_to(home).as_posix() not in complete:
                shutil.rmtree(path)
        missing = {}
        for name, files in complete.items():
            is_partial = name.startswith("partials/")
            if not (home / name).exists() and (partials or not is_partial):
                missing[name] = [each for each in files if is_partial or each.key.endswith(_NEEDED)]
        self._fetch_folders(missing)
        for key, source in top_level.items():
            path, etag = home / key, home / f".{key}.etag"
            if source is None:
                path.unlink(missing_ok=True)
            elif not (path.exists() and etag.exists() and etag.read_text() == source.etag):
                temporary = temp_path(path)
                self._fetch([(source, temporary)])
                os.replace(temporary, path)
                self.remember(key, source.etag)
        return top_level[BOARD]

    def bring(self, *names: str) -> bool:
        """Fetch folders such as partials/... that are missing here; return whether all are here now."""
        missing = {name: self._store.list(name) for name in names if not (Path(self.folder) / name).exists()}
        complete = {name: files for name, files in missing.items() if _is_complete(name, files)}
        self._fetch_folders(complete)
        return len(complete) == len(missing)

    def describe(self, names: Iterable[str]) -> None:
        """Fetch only the descriptions of partials."""
        store, keys = self._store, {_last_file(f"partials/{name}") for name in names}
        self._fetch([(each, Path(self.folder) / each.key) for each in store.list("partials") if each.key in keys])

    def complete(self, run_id: str) -> None:
        """Fetch all files of a snapshot, of which `pull` fetches only those that a run needs."""
        name = f"snapshots/{run_id}"
        self._fetch_folders({name: self._store.list(name)})

    def send_file(self, path: Path) -> None:
        """Upload a file of an unfinished snapshot."""
        self._store.send({self._key(path): path})

    def bring_files(self, paths: Sequence[Path]) -> None:
        """Fetch files of an unfinished snapshot that other machines have made."""
        for path in [path for path in paths if not path.exists()]:
            source, temporary = self._store.find(self._key(path)), temp_path(path.parent.parent / path.name)
            if source is not None:
                self._store.fetch([(source, temporary)])
                os.replace(temporary, path)

    def _key(self, path: Path) -> str:
        """Return the key of a file: only on a disk does an unfinished snapshot have a hidden name."""
        return path.relative_to(self.folder).as_posix().replace("snapshots/.", "snapshots/", 1)

    def send(self, path: Path) -> None:
        """Upload a finished folder, with the file that makes it complete last."""
        files = {file.relative_to(self.folder).as_posix(): file for file in path.rglob("*") if file.is_file()}
        last = _last_file(path.relative_to(self.folder).as_posix())
        self._store.send({key: file for key, file in files.items() if key != last})
        self._store.send({last: files[last]})

    def publish(self, board: Path, seen: Object | None) -> str:
        """Replace the published leaderboard if it is still the one that was seen, and return the new etag."""
        try:
            return self._store.replace(board, BOARD, seen)
        except ChangedError:
            hint = "run again: finished counts are kept"
            raise LockedError("another run has published here meanwhile", where=self.url, hint=hint) from None

    def remember(self, key: str, etag: str) -> None:
        """Record of which version the local copy is."""
        disk.replace_text(Path(self.folder) / f".{key}.etag", etag)

    def send_tops(self, names: Sequence[str]) -> None:
        """Upload objects outside of folders."""
        self._store.send({name: Path(self.folder) / name for name in names})

    def sweep(self, published: Container[str], after_s: float = disk.ABANDONED_AFTER_S) -> None:
        """Delete unpublished snapshots that are a day old by the clock of the store."""
        self.send_tops([MARK])
        mark = self._store.find(MARK)
        snapshots = defaultdict[str, list[Object]](list)
        for each in self._store.list("snapshots"):
            snapshots[each.key.split("/")[1]].append(each)
        for run_id, files in snapshots.items():
            is_old = mark is not None and max(each.modified for each in files) < mark.modified - after_s
            if disk.RUN_ID.fullmatch(run_id) and run_id not in published and is_old:
                self._store.delete([each.key for each in files])

    def remove(self, names: Sequence[str]) -> None:
        """Delete folders such as snapshots/... from the output."""
        for name in names:
            keys = [each.key for each in self._store.list(name)]
            self._store.delete([key for key in keys if key == _last_file(name)])
            self._store.delete([key for key in keys if key != _last_file(name)])

    def _fetch(self, wanted: Sequence[tuple[Object, Path]]) -> None:
        try:
            self._store.fetch(wanted)
        except ChangedError as error:
            raise LockedError("the output changed while it was read", where=error.where, hint="run again") from None

    def _fetch_folders(self, folders: Mapping[str, Sequence[Object]]) -> None:
        """Fetch folders, each completely or not at all, with the time of their newest object."""
        targets = {name: temp_path(Path(self.folder) / name) for name in folders}
        files = [(name, each) for name, objects in folders.items() for each in objects]
        self._fetch([(each, targets[name] / each.key.removeprefix(f"{name}/")) for name, each in files])
        for name, objects in folders.items():
            modified = max(each.modified for each in objects)
            os.utime(targets[name], (modified, modified))
            disk.replace_folder(targets[name], Path(self.folder) / name)


def _last_file(name: str) -> str:
    return f"{name}/{_KINDS[name.split('/', maxsplit=1)[0]][1]}"


def _is_complete(name: str, files: Sequence[Object]) -> bool:
    return any(each.key == _last_file(name) for each in files)


def fetch_board(url: str, folder: Path) -> None:
    """Download the published leaderboard for a reader."""
    store = Objects(url, PATIENCE)
    for _ in range(10):  # it may be replaced while it is read
        board = store.find(BOARD)
        if board is None:
            break
        with suppress(ChangedError):
            store.fetch([(board, folder / BOARD)])
            return
    raise LakeError("no leaderboard here", where=url, hint="run `scorelake score LAKE --out OUT` first")
