"""The pages of a column in some row groups: read, checked against their checksums, and unpacked into one buffer."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.compact import decode
from scorelake.compact.shape import CODECS, OtherShapeError
from scorelake.footer import Chunk, DamagedError

Number = TypeVar("Number", bound=np.generic)
_LARGEST = 1 << 31
_STREAMED: Final = "zstd"
"""How pages are packed that can be unpacked as one stream."""


@dataclass(frozen=True)
class Pages:
    words: NDArray[np.uint64]
    """The unpacked bytes of every page, one after another, and two words to spare."""
    table: NDArray[np.int64]
    """A row per page (decode.py); START is the place in `words`, in bytes."""

    present: NDArray[np.uint8]
    """Room to mark which rows of a page have a value."""

    @property
    def entries(self) -> int:
        """How many values the largest dictionary has; none without one."""
        return int(self.table[self.table[:, decode.TYPE] == decode.DICTIONARY, decode.VALUES].max(initial=0))


class Scratch:
    """Arrays for one thread to use again and again: fresh ones cost more than what is done with them."""

    def __init__(self) -> None:
        self.buffers: dict[str, NDArray[np.uint8]] = {}

    def array(self, name: str, size: int, kind: type[Number]) -> NDArray[Number]:
        """Room for so many numbers, of any value, until the name is asked for again."""
        many = size * np.dtype(kind).itemsize
        if name not in self.buffers or self.buffers[name].size < many:
            self.buffers[name] = np.empty(many, dtype=np.uint8)
        return self.buffers[name][:many].view(kind)


def read(handles: Sequence[int], chunks: Sequence[Chunk], scratch: Scratch) -> Pages:
    """Read and unpack chunks of one column, all packed the same way, each from an open file."""
    where, ends = told(chunks), np.cumsum([chunk.size for chunk in chunks])
    if any(
        chunk.start + chunk.size > os.fstat(handle).st_size for handle, chunk in zip(handles, chunks, strict=True)
    ):
        raise DamagedError(f"{where}: the file ends before it")
    raw = scratch.array("raw", int(ends[-1]), np.uint8)
    for handle, chunk, end in zip(handles, chunks, ends.tolist(), strict=True):
        if os.preadv(handle, [memoryview(raw[end - chunk.size : end])], chunk.start) != chunk.size:  # type: ignore[arg-type]
            raise DamagedError(f"{where}: the file ends before it")
    table = np.empty((8 * len(chunks) + sum(chunk.rows for chunk in chunks) // 4096, 11), dtype=np.int64)
    many = decode.headers(raw, table)
    while many == -2:
        table = np.empty((4 * table.shape[0], 11), dtype=np.int64)
        many = decode.headers(raw, table)
    if many < 0:
        raise DamagedError(f"{where}: a page header cannot be read")
    table = table[:many]
    _make_sense(table, chunks, ends, where)
    words = _unpack(memoryview(raw), table, chunks[0], where, scratch)  # type: ignore[arg-type]
    return Pages(words, table, scratch.array("present", int(table[:, decode.VALUES].max(initial=0)), np.uint8))


def told(chunks: Sequence[Chunk]) -> str:
    """Which chunks these are, for a message."""
    first, last = chunks[0].group, chunks[-1].group
    groups = f"row group {first}" if first == last else f"row groups {first} to {last}"
    return f"column {chunks[0].name}, {groups}"


def _make_sense(table: NDArray[np.int64], chunks: Sequence[Chunk], ends: NDArray[np.int64], where: str) -> None:
    """Raise unless the page headers are those of the chunks: none reaches into the next, and all rows are there."""
    summed = table[:, decode.SUMMED]
    if summed.size and summed.min() != summed.max():
        raise DamagedError(f"{where}: pages with and without checksums")
    kind, values, sizes = table[:, decode.TYPE], table[:, decode.VALUES], table[:, decode.SIZE]
    lookup = kind == decode.DICTIONARY
    if not (lookup | (kind == decode.DATA) | (kind == decode.DATA_V2)).all():
        raise OtherShapeError(f"{where}: pages of another kind")
    until = table[:, decode.START] + table[:, decode.STORED]
    owner = np.searchsorted(ends, until)
    first = np.diff(owner, prepend=-1) != 0
    if not set(ends.tolist()) <= set(until.tolist()):
        raise DamagedError(f"{where}: a page goes on after the end of its row group")
    if (lookup & ~first).any():
        raise DamagedError(f"{where}: a dictionary after its first page")
    rows = np.bincount(owner, np.where(lookup, 0, values), len(chunks)).tolist()
    if (values < 0).any() or rows != [chunk.rows for chunk in chunks] or (4 * values[lookup] > sizes[lookup]).any():
        raise DamagedError(f"{where}: its pages do not hold {sum(chunk.rows for chunk in chunks):,} rows")
    if (sizes > _LARGEST).any() or (table[:, decode.LEVELS] < 0).any() or (table[:, decode.LEVELS] > sizes).any():
        raise DamagedError(f"{where}: a page header makes no sense")
    encoding = table[:, decode.ENCODING]
    coded = ~lookup & ((encoding == decode.PLAIN_DICTIONARY) | (encoding == decode.RLE_DICTIONARY))
    if not lookup[first][owner[coded]].all():
        raise DamagedError(f"{where}: a page that needs a dictionary, and none before it")


def _unpack(
    view: memoryview, table: NDArray[np.int64], chunk: Chunk, where: str, scratch: Scratch
) -> NDArray[np.uint64]:
    sizes = table[:, decode.SIZE]
    total = int(sizes.sum())
    words = scratch.array("words", total // 8 + 3, np.uint64)
    words[-3:] = 0
    out = memoryview(words.view(np.uint8))[:total]  # type: ignore[arg-type]
    pages = table.tolist()
    stored = [view[page[decode.START] : page[decode.START] + page[decode.STORED]] for page in pages]
    for page, data in zip(pages, stored, strict=True):
        if page[decode.SUMMED] and zlib.crc32(data) != page[decode.CHECKSUM]:
            raise DamagedError(f"{where}: a page does not match its checksum")
    table[:, decode.START] = np.cumsum(sizes) - sizes
    codec = CODECS[chunk.codec]
    try:
        if codec == _STREAMED and not table[:, (decode.LEVELS, decode.RAW)].any():
            _unpack_together(stored, out)
        else:
            _unpack_each(table.tolist(), stored, codec, out)
    except (OSError, ValueError) as error:
        raise DamagedError(f"{where}: a page cannot be unpacked ({error})") from None
    return words


def _unpack_together(stored: list[memoryview], out: memoryview) -> None:
    """Pages that are nothing but packed bytes: for short ones, to begin anew takes longer than to unpack."""
    stream = pa.CompressedInputStream(pa.BufferReader(b"".join(stored)), _STREAMED)
    if stream.readinto(out) != len(out) or stream.read(1):
        raise ValueError("it is not as long as it says")


def _unpack_each(pages: list[list[int]], stored: list[memoryview], codec: str | None, out: memoryview) -> None:
    unpack = None if codec is None else pa.Codec(codec).decompress  # type: ignore[arg-type]
    for page, data in zip(pages, stored, strict=True):
        here = out[page[decode.START] : page[decode.START] + page[decode.SIZE]]
        raw = unpack is None or page[decode.RAW]
        levels = len(here) if raw else page[decode.LEVELS]
        if levels > min(len(here), len(data)) or (raw and len(data) != len(here)):
            raise ValueError("it is not as long as it says")
        here[:levels] = data[:levels]
        if unpack is not None and levels < len(here):
            here[levels:] = memoryview(unpack(data[levels:], len(here) - levels)).cast("B")
