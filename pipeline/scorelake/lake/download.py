"""The files of a shard as local copies: object storage read as listed, for readers that know only disks.

A copy has the size and the footer of its file, but only the columns that are read; the rest is a hole. What is
asked for is the object as it was listed, so a file that changed since is noticed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath

from scorelake.errors import DataError
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import is_remote, storage_errors
from scorelake.storage.files import Shard

_WHOLE = 1 << 20
"""Bytes up to which a file, or a gap between two columns, is not worth a request of its own."""
_TAIL = 1 << 16
"""Bytes at the end of a file in which most footers fit."""
_MARGIN = 128
"""Old writers forget the header of a dictionary in the size of a column."""


def at_hand(
    shard: Shard, folder: Path, settings: Settings, columns: Container[str] | None = None
) -> AbstractContextManager[Shard]:
    """The shard with its files on a disk: where they are, or for the time being in the folder given.

    Of copies only some columns are there: those that counts depend on, unless told. None at all leaves the footers.
    """
    if not is_remote(shard.root):
        return nullcontext(shard)
    return fetched(shard, folder, settings, settings.used if columns is None else columns)


@contextmanager
def fetched(shard: Shard, folder: Path, settings: Settings, columns: Container[str]) -> Iterator[Shard]:
    """The same shard with its files in a folder that is removed afterwards."""
    with storage_errors(folder):
        fetch(shard, folder, settings, columns)
    try:
        yield replace(shard, root=str(folder))
    finally:
        shutil.rmtree(folder)


def fetch(shard: Shard, folder: Path, settings: Settings, columns: Container[str]) -> None:
    from scorelake.storage.objects import (  # noqa: PLC0415 - the library of object storage is loaded where it is used
        ChangedError,
        Object,
        Objects,
        begin,
    )

    source = Objects(shard.root, settings.storage)
    copies = [(file, Object(file.path, file.size, file.etag), folder / file.path) for file in shard.files]
    _refuse_names([file.path for file in shard.files])
    for file, _, path in copies:
        begin(path, file.size)
    try:
        source.copy((found, path, _tail(file.size), file.size) for file, found, path in copies)
        source.copy((found, path, _footer(path, file.size), _tail(file.size)) for file, found, path in copies)
        source.copy((found, path, *span) for file, found, path in copies for span in _spans(path, file.size, columns))
    except ChangedError as error:
        name = str(error.where).removeprefix(f"{source.url}/")
        raise DataError(
            "the file changed or vanished while the lake was read", where=name, hint="run again"
        ) from None
    for file, _, path in copies:
        os.utime(path, ns=(file.mtime_ns, file.mtime_ns))  # unchanged, as far as a copy goes


def _refuse_names(keys: Sequence[str]) -> None:
    """A copy has the name of its object, as far as a disk can hold it."""
    folders = {str(above) for key in keys for above in PurePosixPath(key).parents}
    for key in keys:
        why = "a part of its key is longer than 255 bytes" if max(map(len, key.encode().split(b"/"))) > 255 else ""
        why = why or ("its key is a folder of other keys too" if key in folders else "")
        if why:
            raise DataError(
                f"cannot be copied to a disk: {why}",
                where=key,
                hint="rename the object, or leave it out with [lake] exclude",
            )


def _tail(size: int) -> int:
    """From where a file is read at first: all of it if it is small, else where most footers are."""
    return 0 if size <= _WHOLE else size - _TAIL


def _footer(path: Path, size: int) -> int:
    """Where the footer begins that is not all in the tail of a copy."""
    if size <= _WHOLE:
        return 0
    with path.open("rb") as copy:
        copy.seek(size - 8)
        start = size - 8 - int.from_bytes(copy.read(4), "little")
    return start if 0 < start < _tail(size) else _tail(size)


def _spans(path: Path, size: int, columns: Container[str]) -> Iterator[tuple[int, int]]:
    """Where the columns are, in pieces; all of a file whose footer cannot be read, for the reader to judge."""
    if size <= _WHOLE:
        return  # it is here already
    from scorelake.storage.objects import pieces  # noqa: PLC0415

    try:
        found = list(parquet.spans(parquet.footer(str(path)), columns))
    except Exception:
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
