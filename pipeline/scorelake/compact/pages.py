"""The pages of one column chunk: read, checked against their checksums, unpacked into one buffer of words."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.compact import decode
from scorelake.compact.shape import CODECS, OtherShapeError
from scorelake.footer import Chunk, DamagedError

Number = TypeVar("Number", bound=np.generic)
_LARGEST = 1 << 31


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
        """How many values the dictionary has; none without one."""
        return int(self.table[0, decode.VALUES]) if self.table[:1, decode.TYPE] == decode.DICTIONARY else 0


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


def read(data: bytes, chunk: Chunk, scratch: Scratch) -> Pages:
    """Unpack a chunk."""
    rows = chunk.rows
    where = f"column {chunk.name}, row group {chunk.group}"
    raw = np.frombuffer(data, dtype=np.uint8)
    table = np.empty((8 + rows // 4096, 11), dtype=np.int64)
    many = decode.headers(raw, table)
    while many == -2:
        table = np.empty((4 * table.shape[0], 11), dtype=np.int64)
        many = decode.headers(raw, table)
    if many < 0 or not chunk.size == len(data):
        raise DamagedError(f"{where}: a page header cannot be read")
    table = table[:many]
    summed = table[:, decode.SUMMED]
    if many and summed.min() != summed.max():
        raise DamagedError(f"{where}: pages with and without checksums")
    kind, values, sizes = table[:, decode.TYPE], table[:, decode.VALUES], table[:, decode.SIZE]
    lookup = kind == decode.DICTIONARY
    if not np.isin(kind, (decode.DATA, decode.DICTIONARY, decode.DATA_V2)).all():
        raise OtherShapeError(f"{where}: pages of another kind")
    if lookup[1:].any():
        raise DamagedError(f"{where}: a dictionary after its first page")
    if (values < 0).any() or values[~lookup].sum() != rows or (4 * values[lookup] > sizes[lookup]).any():
        raise DamagedError(f"{where}: its pages do not hold {rows:,} rows")
    if (sizes > _LARGEST).any() or (table[:, decode.LEVELS] < 0).any() or (table[:, decode.LEVELS] > sizes).any():
        raise DamagedError(f"{where}: a page header makes no sense")
    words = _unpack(data, table, chunk, where, scratch)
    return Pages(words, table, scratch.array("present", int(values.max(initial=0)), np.uint8))


def _unpack(data: bytes, table: NDArray[np.int64], chunk: Chunk, where: str, scratch: Scratch) -> NDArray[np.uint64]:
    sizes = (table[:, decode.SIZE] + 7) // 8
    words = scratch.array("words", int(sizes.sum()) + 2, np.uint64)
    words[-2:] = 0
    out = memoryview(words.view(np.uint8))  # type: ignore[arg-type]
    view = memoryview(data)
    codec = CODECS[chunk.codec]
    unpack = None if codec is None else pa.Codec(codec).decompress  # type: ignore[arg-type]
    at = 0
    for page, size in zip(table.tolist(), (sizes * 8).tolist(), strict=True):
        start, end, length = page[decode.START], page[decode.START] + page[decode.STORED], page[decode.SIZE]
        if page[decode.SUMMED] and zlib.crc32(view[start:end]) != page[decode.CHECKSUM]:
            raise DamagedError(f"{where}: a page does not match its checksum")
        levels = page[decode.LEVELS]
        if unpack is None or page[decode.RAW]:
            if end - start != length:
                raise DamagedError(f"{where}: a page is not as long as it says")
            out[at : at + length] = view[start:end]
        else:
            if levels > end - start:
                raise DamagedError(f"{where}: a page header makes no sense")
            out[at : at + levels] = view[start : start + levels]
            if length > levels:
                try:
                    out[at + levels : at + length] = memoryview(
                        unpack(view[start + levels : end], length - levels)
                    ).cast("B")
                except (OSError, ValueError) as error:
                    raise DamagedError(f"{where}: a page cannot be unpacked ({error})") from None
        at += size
    table[:, decode.START] = np.cumsum(sizes * 8) - sizes * 8
    return words
