"""The files of a shard as local copies: object storage read as listed, for readers that know only disks.

A copy has the size and the footer of its file, but only the columns that are read; the rest is a hole. What is
asked for is the object as it was listed, so a file that changed since is noticed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scorelake import footer
from scorelake.errors import DataError
from scorelake.lake import File, Shard
from scorelake.objects import THREADS, ChangedError, Object, Objects, begin, pieces
from scorelake.settings import Settings
from scorelake.storage import writing

_WHOLE = 1 << 20
"""Bytes up to which a file, or a gap between two columns, is not worth a request of its own."""
_TAIL = 1 << 16
"""Bytes at the end of a file in which most footers fit."""
_MARGIN = 128
"""Old writers forget the header of a dictionary in the size of a column."""


@contextmanager
def fetched(shard: Shard, folder: Path, settings: Settings) -> Iterator[Shard]:
    """The same shard with its files in a folder that is removed afterwards."""
    with writing(folder):
        fetch(shard, folder, settings)
    try:
        yield replace(shard, root=str(folder))
    finally:
        shutil.rmtree(folder)


def fetch(shard: Shard, folder: Path, settings: Settings) -> None:
    source = Objects(shard.root, settings.storage)

    def load(work: tuple[File, int, int]) -> None:
        file, start, end = work
        try:
            source.copy(Object(file.path, file.size, file.etag), folder / file.path, start, end)
        except ChangedError:
            raise DataError(
                "the file changed or vanished while the lake was read", where=file.path, hint="run again"
            ) from None

    def start(file: File) -> list[tuple[File, int, int]]:
        """Make the copy with its footer; what is left to be read."""
        path = folder / file.path
        begin(path, file.size)
        if file.size <= _WHOLE:
            return [(file, 0, file.size)]
        load((file, file.size - _TAIL, file.size))
        with path.open("rb") as copy:
            copy.seek(file.size - 8)
            length = 8 + int.from_bytes(copy.read(4), "little")
        if _TAIL < length < file.size:
            load((file, file.size - length, file.size - _TAIL))
        return [(file, *span) for span in _spans(path, file.size, settings.used)]

    with ThreadPoolExecutor(THREADS) as pool:
        todo = [work for works in pool.map(start, shard.files) for work in works]
        for _ in pool.map(load, todo):
            pass
    for file in shard.files:
        os.utime(folder / file.path, ns=(file.mtime_ns, file.mtime_ns))  # unchanged, as far as a copy goes


def _spans(path: Path, size: int, columns: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where the columns are, in pieces; all of a file whose footer cannot be read, for the reader to judge."""
    try:
        told = footer.read(str(path))
        found = [(chunk.start, chunk.start + chunk.size) for chunk in told.chunks if chunk.name in columns]
    except (footer.FooterError, footer.DamagedError):
        found = [(0, size)]
    joined: list[tuple[int, int]] = []
    for low, high in sorted(found):
        start, end = max(0, low), min(size, high + _MARGIN)
        if joined and start <= joined[-1][1] + _WHOLE:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    for start, end in joined:
        yield from pieces(start, end)
