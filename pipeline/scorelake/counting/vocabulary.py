"""Texts -> dense codes, exactly: a code is given only after the bytes of the texts were compared.

Hashes only say where to look. Their seed is drawn anew in every run, so that no choice of names makes looking slow.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counting.compiled import U, compiled, load
from scorelake.counts import ODD, SEED_HIGH, SEED_LOW, Words
from scorelake.storage.arrays import buffer, numbers

Codes: TypeAlias = NDArray[np.uint32]
Bytes: TypeAlias = NDArray[np.uint8]
Offsets: TypeAlias = NDArray[np.int64]

_LOW, _HALF, _EIGHT, _ONE = U(0xFFFFFFFF), U(32), U(8), U(1)
_ODD, _LOW_SEED, _HIGH_SEED = U(ODD), U(SEED_LOW), U(SEED_HIGH)
_INTEGER, _LONG = U(1) << U(56), U(255) << U(56)
_BLOCK = 64
_ZERO, _NINE, _MINUS, _TEN = U(48), U(57), U(45), U(10)


@compiled
def mix(v: Any) -> Any:
    v = (v ^ (v >> _HALF)) * _ODD
    return v ^ (v >> _HALF)


@compiled
def _word(data: Any, at: Any, size: Any) -> Any:
    """Eight bytes from any place, or as many as there are."""
    if size >= _EIGHT:
        return load(data, at)
    if at + _EIGHT <= U(data.size):
        return load(data, at) & ((_ONE << (size << U(3))) - _ONE)
    word = U(0)
    for i in range(size):
        word |= U(data[at + U(i)]) << (U(i) << U(3))
    return word


@compiled
def _hashed(data: Any, at: Any, end: Any, seed: Any) -> Any:
    """One hash of a text; the same as counts.hashed() makes with numpy."""
    h = seed ^ (end - at)
    while at < end:
        h = mix(h ^ _word(data, at, end - at))
        at += _EIGHT
    return mix(h)


@compiled
def _equal(data: Any, at: Any, arena: Any, there: Any, size: Any) -> Any:
    while size >= _EIGHT:
        if _word(data, at, _EIGHT) != _word(arena, there, _EIGHT):
            return False
        at, there, size = at + _EIGHT, there + _EIGHT, size - _EIGHT
    return _word(data, at, size) == _word(arena, there, size)


@compiled
def _look(data: Any, at: Any, end: Any, h: Any, table: Any, starts: Any, arena: Any) -> Any:
    """The slot of a text and its code; code 0 if it is not there, and the slot is where it belongs.

    What another thread has half written looks missing, or like another text: never like this one.
    """
    mask, size = U(table.size - 1), end - at
    s = h & mask
    while True:
        entry = table[s]
        code = entry & _LOW
        if entry == U(0):
            return s, code
        if entry >> _HALF == h >> _HALF:
            there = U(starts[code])
            if U(starts[code + _ONE]) - there == size and _equal(data, at, arena, there, size):
                return s, code
        s = (s + _ONE) & mask


@compiled
def _find(
    data: Any, offsets: Any, seed: Any, table: Any, starts: Any, arena: Any, spare: Any, out: Any, news: Any
) -> Any:
    """Codes of texts; the places of those that have none yet, and how many these are.

    A few texts at a time, step by step, so that the memory is asked for all of them before the first is needed: for a
    million problem ids 140 -> 35 ns each.
    """
    many, mask = 0, U(table.size - 1)
    h, entry, there, size = spare[0], spare[1], spare[2], spare[3]
    for base in range(0, out.size, _BLOCK):
        block = min(_BLOCK, out.size - base)
        for i in range(block):
            h[i] = _hashed(data, U(offsets[base + i]), U(offsets[base + i + 1]), seed)
        for i in range(block):
            entry[i] = table[h[i] & mask]
        for i in range(block):
            code = entry[i] & _LOW
            there[i] = U(starts[code])
            size[i] = U(starts[code + _ONE]) - there[i]
        for i in range(block):
            at, end = U(offsets[base + i]), U(offsets[base + i + 1])
            code = entry[i] & _LOW
            hit = code and entry[i] >> _HALF == h[i] >> _HALF and size[i] == end - at
            if not (hit and _equal(data, at, arena, there[i], size[i])):
                _, code = _look(data, at, end, h[i], table, starts, arena)
            out[base + i] = code
            if code == U(0):
                news[many] = base + i
                many += 1
    return many


@compiled
def _learn(
    data: Any,
    offsets: Any,
    seed: Any,
    table: Any,
    starts: Any,
    arena: Any,
    hashes: Any,
    count: Any,
    news: Any,
    out: Any,
) -> Any:
    """Give codes to new texts: how many were done before there was no more room, and how many codes there are now."""
    for j in range(news.size):
        i = news[j]
        at, end = U(offsets[i]), U(offsets[i + 1])
        h = _hashed(data, at, end, seed)
        s, code = _look(data, at, end, h, table, starts, arena)
        if code == U(0):
            there = starts[count + 1]
            if 2 * (count + 1) >= table.size or count + 3 >= starts.size or there + (end - at) > arena.size:
                return j, count
            for b in range(end - at):
                arena[there + b] = data[at + U(b)]
            count += 1
            starts[count + 1] = there + np.int64(end - at)
            hashes[count] = _hashed(data, at, end, _LOW_SEED)
            code = U(count)
            table[s] = (h >> _HALF) << _HALF | code
        out[i] = code
    return news.size, count


@compiled
def _refill(table: Any, starts: Any, arena: Any, count: Any, seed: Any) -> None:
    mask = U(table.size - 1)
    for code in range(1, count + 1):
        h = _hashed(arena, U(starts[code]), U(starts[code + 1]), seed)
        s = h & mask
        while table[s]:
            s = (s + _ONE) & mask
        table[s] = (h >> _HALF) << _HALF | U(code)


@compiled
def _identify(data: Any, offsets: Any, high: Any, low: Any) -> None:
    """What tells texts apart in 128 bits; the same as counts.identities() makes with numpy."""
    for i in range(high.size):
        at, end = U(offsets[i]), U(offsets[i + 1])
        size = end - at
        first = U(data[at]) if size else U(0)
        minus = first == _MINUS
        digits = size - U(minus)
        number: Any = U(0)
        whole: Any = digits > U(0) and digits <= U(18) and size > U(0)
        if whole:
            begin = at + U(minus)
            lead = U(data[begin])
            whole = lead != _ZERO or (digits == _ONE and not minus)
            for b in range(digits):
                digit = U(data[begin + U(b)])
                whole = whole and digit >= _ZERO and digit <= _NINE
                number = number * _TEN + (digit - _ZERO)
        if whole:
            high[i], low[i] = _INTEGER, U(0) - number if minus else number
        elif size < U(16):
            low[i] = _word(data, at, size if size < _EIGHT else _EIGHT)
            rest = _word(data, at + _EIGHT, size - _EIGHT) if size > _EIGHT else U(0)
            high[i] = (size + U(2)) << U(56) | rest
        else:
            low[i] = _hashed(data, at, end, _LOW_SEED)
            high[i] = _LONG | _hashed(data, at, end, _HIGH_SEED) >> _EIGHT


class Vocabulary:
    """Codes from 1 on in the order of arrival; 0 is null. Many threads may ask at once."""

    def __init__(self) -> None:
        self.lock, self.count = Lock(), 0
        self.seed = U(int.from_bytes(os.urandom(8), "little"))
        self.table = np.zeros(1 << 10, np.uint64)
        self.starts: Offsets = np.zeros(1 << 9, np.int64)
        self.arena: Bytes = np.zeros(1 << 13, np.uint8)
        self.hashes: Words = np.zeros(1 << 9, np.uint64)

    @property
    def bytes(self) -> int:
        return self.table.nbytes + self.starts.nbytes + self.arena.nbytes + self.hashes.nbytes

    def codes(self, texts: pa.Array[Any]) -> Codes:
        """The code of every text of a string array."""
        data, offsets = buffers(texts)
        out, news = np.empty(len(texts), np.uint32), np.empty(len(texts), np.int64)
        spare = np.empty((4, _BLOCK), np.uint64)
        many = _find(data, offsets, self.seed, self.table, self.starts, self.arena, spare, out, news)
        if many:
            self._learn(data, offsets, news[:many], out)
        if int(out.max(initial=0)) > self.count:  # somebody else is learning these very texts
            with self.lock:
                pass
        if texts.null_count:
            out[numbers(texts.is_null())] = 0
        return out

    def _learn(self, data: Bytes, offsets: Offsets, news: NDArray[np.int64], out: Codes) -> None:
        with self.lock:
            while True:
                done, self.count = _learn(
                    data,
                    offsets,
                    self.seed,
                    self.table,
                    self.starts,
                    self.arena,
                    self.hashes,
                    self.count,
                    news,
                    out,
                )
                news = news[done:]
                if not news.size:
                    return
                self._grow(int(offsets[news[0] + 1] - offsets[news[0]]))

    def _grow(self, text: int) -> None:
        """Room for more. The table is always replaced, and last: who looks into an old one finds only old codes."""
        if self.count + 3 >= self.starts.size:
            self.starts = np.concatenate([self.starts, np.zeros(self.starts.size, np.int64)])
            self.hashes = np.concatenate([self.hashes, np.zeros(self.hashes.size, np.uint64)])
        used = int(self.starts[self.count + 1])
        if used + text > self.arena.size:
            self.arena = np.concatenate([self.arena[:used], np.zeros(max(used, text) + 64, np.uint8)])
        if 2 * (self.count + 1) >= self.table.size:
            table = np.zeros(4 * self.table.size, np.uint64)
            _refill(table, self.starts, self.arena, self.count, self.seed)
        else:
            table = self.table.copy()
        self.table = table

    def texts(self, null: bool = False) -> pa.Array[Any]:
        """Every text at the place of its code; the first is empty, or null. Raises if one is not UTF-8."""
        offsets = buffer(self.starts[: self.count + 2])
        valid = np.full((self.count + 8) // 8, 255, np.uint8)
        valid[0] = 254
        some = buffer(valid) if null else None
        whole = pa.LargeStringArray.from_buffers(self.count + 1, offsets, buffer(self.arena), some, int(null))
        whole.validate(full=True)
        return whole


def buffers(texts: pa.Array[Any]) -> tuple[Bytes, Offsets]:
    """The bytes of a string or binary array, and where each value begins."""
    raw: Any = texts.buffers()
    _, offsets, data = raw
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    where = np.frombuffer(offsets, np.int64 if wide else np.int32)[texts.offset :][: len(texts) + 1]
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return whole, where.astype(np.int64)


def identify(texts: pa.Array[Any]) -> tuple[Words, Words]:
    """128 bits that tell texts apart, (0, 0) for null."""
    high, low = np.empty(len(texts), np.uint64), np.empty(len(texts), np.uint64)
    _identify(*buffers(texts), high, low)
    if texts.null_count:
        missing = numbers(texts.is_null())
        high[missing] = low[missing] = 0
    return high, low
