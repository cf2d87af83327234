"""Codes -> the texts that they stand for, spelled as far as they are asked for and only once."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.compact.compiler import compiled
from scorelake.compact.vocabulary import Vocabulary
from scorelake.footer import BYTE_ARRAY, INT32

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_NULL = pl.Series([None], dtype=pl.String)


class Spelling:
    """The texts of one vocabulary, which may grow meanwhile."""

    def __init__(self, vocabulary: Vocabulary, kind: int) -> None:
        self.lock = Lock()
        self.vocabulary, self.kind = vocabulary, kind
        self.texts = _NULL.clone()
        self.place = 1

    def only(self, codes: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], pl.Series]:
        """The texts that these codes use, after null, and the codes' places among them; raises if one is not text."""
        low, high = max(1, int(codes.min(initial=len(self.vocabulary)))), int(codes.max(initial=0))
        place = codes - np.uint32(low - 1)
        seen = np.zeros(high - low + 2 if high else 1, dtype=bool)
        seen[0] = seen[place] = True
        with self.lock:
            if high >= self.texts.len():
                self.texts.append(self._more())
            texts = self.texts.slice(low, seen.size - 1)
        return (np.cumsum(seen, dtype=np.uint32) - np.uint32(1))[place], _NULL.clone().append(
            texts.filter(pl.Series(seen[1:]))
        )

    def _more(self) -> pl.Series:
        """The texts that were added since the last time."""
        with self.vocabulary.lock:
            _, text, filled = self.vocabulary.table
            known, used = (int(number) for number in filled)
        records, many = text[self.place : used], known - self.texts.len()
        self.place = used
        if self.kind == BYTE_ARRAY:
            return pl.Series(_texts(records, many))
        numbers = records[1::2].copy()
        return pl.Series(
            numbers.astype(np.uint32).view(np.int32) if self.kind == INT32 else numbers.view(np.int64)
        ).cast(pl.String)


def _texts(records: NDArray[np.uint64], many: int) -> pa.Array[Any]:
    ends, out = np.zeros(many + 1, dtype=np.int64), np.empty(8 * records.size, dtype=np.uint8)
    _spell(records, ends, out)
    buffers: list[Any] = [None, *(pa.py_buffer(array) for array in (ends, out))]  # type: ignore[arg-type]
    array = pa.Array.from_buffers(pa.large_string(), many, buffers)
    array.validate(full=True)
    return array


@compiled
def _spell(records: Any, ends: Any, out: Any) -> None:
    """The bytes of every record, and where they end."""
    place: Any = 0
    at: Any = 0
    which: Any = 0
    while place < records.size:
        size = np.int64(records[place] & _LOW)
        for i in range(size):
            out[at + i] = (records[place + 1 + (i >> 3)] >> np.uint64((i & 7) * 8)) & np.uint64(255)
        at += size
        which += 1
        ends[which] = at
        place += 1 + ((size + 7) >> 3)
