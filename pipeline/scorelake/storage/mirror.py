"""An output in object storage, and this machine's folder that mirrors it.

The job works in the folder as it does on any disk. It is brought up to date first; partial counts are sent as soon as
they are there, so that a run that is killed loses none; and a run is published by one conditional put of
leaderboard.duckdb: of two writers that saw the same leaderboard one wins, and the other is told.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scorelake.errors import LakeError, LockedError
from scorelake.settings import PATIENCE, Storage
from scorelake.storage.disk import BOARD, FOREIGN, MARK, PARTIAL, RUN_ID, replace_folder, replace_text, temp_path
from scorelake.storage.objects import ChangedError, Object, Objects

_TOPS = (BOARD, MARK, "runs.parquet", "history.parquet")
"""Objects beside the folders. Which version each is a copy of is written beside it."""
_WHOLE = {"partials": "shard.json", "snapshots": "manifest.json"}
"""The file that makes a folder whole: sent last, removed first."""
_NAMES = {"partials": PARTIAL, "snapshots": RUN_ID}
"""What else is there is not ours."""
_NEEDED = ("manifest.json", "model_summary.parquet", "problem_histogram.parquet")
"""What a run needs of earlier snapshots."""


@dataclass(frozen=True)
class Mirror:
    """The address of an output, and the folder that mirrors it."""

    url: str
    folder: str
    storage: Storage = PATIENCE
    sender: str | None = None
    """The folder on the machine that sent this one here."""

    def __reduce__(self) -> tuple[Any, ...]:
        """On another machine it is that machine's own folder, wherever its SCORELAKE_CACHE is."""
        return _arrived, (self.url, self.folder, self.storage)

    def here(self, path: str | Path) -> str:
        """Where a path in the sender's folder is in this one."""
        return str(Path(self.folder) / Path(path).relative_to(self.sender or self.folder))

    @classmethod
    def of(cls, url: str, storage: Storage = PATIENCE) -> Mirror:
        """Below SCORELAKE_CACHE, or in the user's cache."""
        cache = Path(os.environ.get("SCORELAKE_CACHE") or "~/.cache/scorelake").expanduser().absolute()
        return cls(url.rstrip("/"), str(cache / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]), storage)

    @property
    def _there(self) -> Objects:
        return Objects(self.url, self.storage)

    def pull(self, partials: bool = True) -> Object | None:
        """Make the folder hold what the output holds, or all but partials; returns its leaderboard as it is now.

        Folders never change once they are whole, so those that are here already are not fetched again.
        """
        there, home = self._there, Path(self.folder)
        tops: dict[str, Object | None] = dict.fromkeys(_TOPS)
        folders = defaultdict[str, list[Object]](list)
        for found in there.list():
            kind, *inside = found.key.split("/")
            if found.key in tops:
                tops[found.key] = found
            elif kind in _WHOLE and len(inside) > 1 and _NAMES[kind].fullmatch(inside[0]):
                folders[f"{kind}/{inside[0]}"].append(found)
        whole = {name for name, inside in folders.items() if any(found.key == _last(name) for found in inside)}
        for kind in _WHOLE:
            for path in home.glob(f"{kind}/[!.]*"):
                if f"{kind}/{path.name}" not in whole:
                    shutil.rmtree(path)
        lacking = sorted(name for name in whole if not (home / name).exists())
        wanted = [name for name in lacking if partials or not name.startswith("partials/")]
        self._bring(there, {name: [found for found in folders[name] if _needed(found)] for name in wanted})
        for key, top in tops.items():
            self._bring_top(there, key, top)
        return tops[BOARD]

    def bring(self, *names: str) -> bool:
        """Folders such as partials/... that other machines have sent and this one lacks; whether all are here now."""
        there, home = self._there, Path(self.folder)
        lacking = {name: there.list(name) for name in names if not (home / name).exists()}
        whole = {name: found for name, found in lacking.items() if _last(name) in [one.key for one in found]}
        self._bring(there, whole)
        return len(whole) == len(lacking)

    def describe(self, names: Iterable[str]) -> None:
        """Of partials only what they say of themselves."""
        there = self._there
        keys = {_last(f"partials/{name}") for name in names}
        with self._noticing():
            there.fetch([(one, Path(self.folder) / one.key) for one in there.list("partials") if one.key in keys])

    def complete(self, run_id: str) -> None:
        """All files of a snapshot, of which a pull brings only what a run needs."""
        there, name = self._there, f"snapshots/{run_id}"
        self._bring(there, {name: there.list(name)})

    def send_file(self, path: Path) -> None:
        """A file of a snapshot that is being made."""
        self._there.send({self._key(path): path})

    def bring_files(self, paths: Sequence[Path]) -> None:
        """Such files, as far as other machines made them."""
        there = self._there
        for path in [path for path in paths if not path.exists()]:
            found, aside = there.find(self._key(path)), temp_path(path.parent.parent / path.name)
            if found is not None:
                there.fetch([(found, aside)])
                os.replace(aside, path)

    def _key(self, path: Path) -> str:
        """Where a file is in the output: a snapshot is aside only on a disk."""
        return path.relative_to(self.folder).as_posix().replace("snapshots/.", "snapshots/", 1)

    def send(self, path: Path) -> None:
        """A finished folder, the file that makes it whole last."""
        there, home = self._there, Path(self.folder)
        files: dict[str, Path | bytes] = {
            file.relative_to(home).as_posix(): file for file in path.rglob("*") if file.is_file()
        }
        last = _last(path.relative_to(home).as_posix())
        there.send({key: file for key, file in files.items() if key != last})
        there.send({last: files[last]})

    def publish(self, board: Path, seen: Object | None) -> str:
        """Make a leaderboard the published one if that is still the one seen; its etag."""
        try:
            return self._there.replace(board, BOARD, seen)
        except ChangedError:
            raise LockedError(
                "another run has published here meanwhile",
                where=self.url,
                hint="run again: what was counted is kept",
            ) from None

    def remember(self, key: str, etag: str) -> None:
        """The mirror's copy is of that version."""
        replace_text(Path(self.folder) / f".{key}.etag", etag)

    def send_mark(self) -> None:
        """Say that the output is ours."""
        self.send_tops([MARK])

    def send_tops(self, names: Sequence[str]) -> None:
        """Objects beside the folders, as they are here."""
        self._there.send({name: Path(self.folder) / name for name in names})

    def sweep(self, published: Container[str]) -> None:
        """Remove snapshots that came to nothing, if they are a day old by the clock of the store itself."""
        there = self._there
        self.send_mark()
        mark = there.find(MARK)
        left = defaultdict[str, list[Object]](list)
        for found in there.list("snapshots"):
            left["/".join(found.key.split("/")[:2])].append(found)
        for name, inside in left.items():
            run_id = name.rpartition("/")[2]
            young = mark is None or max(found.modified for found in inside) >= mark.modified - FOREIGN
            if RUN_ID.fullmatch(run_id) and run_id not in published and not young:
                there.delete([found.key for found in inside])

    def remove(self, names: Sequence[str]) -> None:
        """Folders such as snapshots/... from the output."""
        there = self._there
        for name in names:
            keys = [found.key for found in there.list(name)]
            there.delete([key for key in keys if key == _last(name)])
            there.delete([key for key in keys if key != _last(name)])

    def _bring(self, there: Objects, folders: Mapping[str, Sequence[Object]]) -> None:
        """Folders, each whole or not at all, as old as its objects."""
        asides = {name: temp_path(Path(self.folder) / name) for name in folders}
        with self._noticing():
            there.fetch(
                [
                    (found, asides[name] / found.key.removeprefix(f"{name}/"))
                    for name, wanted in folders.items()
                    for found in wanted
                ]
            )
        for name, wanted in folders.items():
            modified = max(found.modified for found in wanted)
            os.utime(asides[name], (modified, modified))
            replace_folder(asides[name], Path(self.folder) / name)

    def _bring_top(self, there: Objects, key: str, found: Object | None) -> None:
        here, seen = Path(self.folder) / key, Path(self.folder) / f".{key}.etag"
        if found is None:
            here.unlink(missing_ok=True)
        elif not (here.exists() and seen.exists() and seen.read_text() == found.etag):
            aside = temp_path(here)
            with self._noticing():
                there.fetch([(found, aside)])
            os.replace(aside, here)
            self.remember(key, found.etag)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except ChangedError as error:
            raise LockedError("the output changed while it was read", where=error.where, hint="run again") from None


def _arrived(url: str, folder: str, storage: Storage) -> Mirror:
    return replace(Mirror.of(url, storage), sender=folder)


def _needed(found: Object) -> bool:
    return not found.key.startswith("snapshots/") or found.key.endswith(_NEEDED)


def _last(name: str) -> str:
    return f"{name}/{_WHOLE[name.split('/', maxsplit=1)[0]]}"


def fetch_board(url: str, folder: Path) -> None:
    """The published leaderboard into a folder, for a reader."""
    there = Objects(url, PATIENCE)
    for _ in range(10):  # it may be replaced while it is read
        board = there.find(BOARD)
        if board is None:
            break
        with suppress(ChangedError):
            there.fetch([(board, folder / BOARD)])
            return
    raise LakeError("no leaderboard here", where=url, hint="run `scorelake score LAKE --out OUT` first")
