"""Copy footers and needed columns of a shard from object storage to sparse files, as they were listed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from scorelake.errors import DataError
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import is_remote, storage_errors
from scorelake.storage.files import File, Shard

_SMALL_BYTES = 1 << 20
"""A file, or a gap between two columns, up to this size is not worth a request of its own."""
_TAIL_BYTES = 1 << 16
"""Most footers fit into this many bytes at the end of a file."""
_MARGIN_BYTES = 128
"""Old writers do not include the header of the dictionary page in the size of a column."""


@contextmanager
def local_copy(
    shard: Shard, folder: Path, settings: Settings, is_wanted: Callable[[str], bool] | None = None
) -> Iterator[Shard]:
    """Yield the shard with its files on a disk; copies have the wanted columns, by default those that are counted."""
    if not is_remote(shard.root):
        yield shard
        return
    with storage_errors(folder):
        _fetch(shard, folder, settings, is_wanted or settings.used.__contains__)
    try:
        yield replace(shard, root=str(folder))
    finally:
        shutil.rmtree(folder)


def _fetch(shard: Shard, folder: Path, settings: Settings, is_wanted: Callable[[str], bool]) -> None:
    from scorelake.storage.objects import ChangedError, Object, Objects, allocate  # noqa: PLC0415

    store = Objects(shard.root, settings.storage)
    _check_names([file.path for file in shard.files])
    copies = [(Object(file.path, file.size, file.etag), folder / file.path) for file in shard.files]
    for each, path in copies:
        allocate(path, each.size)
    try:
        large = [(each, path) for each, path in copies if each.size > _SMALL_BYTES]
        start = {each: each.size - _TAIL_BYTES for each, _ in large}
        store.copy((each, path, start.get(each, 0), each.size) for each, path in copies)
        store.copy((each, path, _footer_start(path, each.size), start[each]) for each, path in large)
        files = {file.path: file for file in shard.files}
        store.copy((each, path, *span) for each, path in large for span in _spans(path, files[each.key], is_wanted))
    except ChangedError as error:
        what, name = "the file changed or vanished while the lake was read", str(error.where)
        hint = "run again; if the error remains, the key of the object may end in a slash: rename it"
        raise DataError(what, where=name.removeprefix(f"{store.url}/"), hint=hint) from None
    for file in shard.files:
        os.utime(folder / file.path, ns=(file.mtime_ns, file.mtime_ns))  # readers check that it is unchanged


def _check_names(keys: Sequence[str]) -> None:
    """Refuse keys that are no file names on a disk."""
    folders = {str(above) for key in keys for above in PurePosixPath(key).parents}
    for key in keys:
        reason = "its key is also a folder of other keys" if key in folders else ""
        if max(map(len, key.encode().split(b"/"))) > 255:
            reason = "a part of its key is longer than 255 bytes"
        if reason:
            hint = "rename the object, or leave it out with [lake] exclude"
            raise DataError(f"cannot be copied to a disk: {reason}", where=key, hint=hint)


def _footer_start(path: Path, size: int) -> int:
    """Return where a footer begins that is longer than the tail, else the start of the tail."""
    with path.open("rb") as copy:
        copy.seek(size - 8)
        start = size - 8 - int.from_bytes(copy.read(4), "little")
    tail = size - _TAIL_BYTES
    return start if 0 < start < tail else tail


def _spans(path: Path, file: File, is_wanted: Callable[[str], bool]) -> list[tuple[int, int]]:
    """Return the byte ranges of columns; all of a file whose footer is damaged, so that the reader reports it."""
    try:
        metadata = parquet.footer(str(path))
        stored = file.stored_names(metadata.schema.to_arrow_schema()).items()
        spans = sorted(parquet.spans(metadata, {there for name, there in stored if is_wanted(name)}))
    except Exception:
        spans = [(0, file.size)]
    joined: list[tuple[int, int]] = []
    for low, high in spans:
        start, end = max(0, low), min(file.size, high + _MARGIN_BYTES)
        if joined and start <= joined[-1][1] + _SMALL_BYTES:
            start, previous = joined.pop()
            end = max(end, previous)
        joined.append((start, end))
    return joined
