"""Values -> dense codes, exactly: the same bytes always get the same code, other bytes another.

Several threads look values up while one adds. A reader notes how much is known before it begins and trusts only
that: it was written before the lock was released, and is never moved, since growing makes new arrays.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from scorelake.compact.shape import OtherShapeError

MISSING = np.uint32(0xFFFFFFFF)
"""Not a code: the value has none yet."""
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE, _THREE, _SEVEN, _ALL_BITS = np.uint64(1), np.uint64(3), np.uint64(7), np.uint64(63)
_ODD = np.uint64(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True)
def load(words: Any, at: Any) -> Any:
    """Eight bytes from any place of a buffer of words that has one word to spare; without a branch to guess wrong."""
    word, shift = np.uint64(at) >> _THREE, (np.uint64(at) & _SEVEN) << _THREE
    return words[word] >> shift | words[word + _ONE] << _ONE << (_ALL_BITS - shift)


@njit(cache=True, nogil=True)
def mix(value: Any) -> Any:
    """A hash of a word whose high half is worth using."""
    value = (value ^ (value >> _HALF)) * _ODD
    return (value ^ (value >> _HALF)) * _ODD


# --- values of any length -------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Open addressing into a text of records, one after another in the order of their codes.

    A record is a word with the code in its high and the number of bytes in its low half, then the bytes. A slot
    holds the record's place in its high half and a part of the hash in its low half; 0 is empty.
    """

    slots: NDArray[np.uint64]
    text: NDArray[np.uint64]
    filled: NDArray[np.int64]
    """Codes given, words of text filled. Code 0 stands for null and has no record; no record is at place 0."""


@njit(cache=True, nogil=True)
def _tail(words: Any, at: Any, size: Any) -> Any:
    """The last one to seven bytes of a value."""
    return load(words, at) & ((_ONE << (np.uint64(size) << _THREE)) - _ONE)


@njit(cache=True, nogil=True)
def digest(words: Any, at: Any, size: Any) -> Any:
    """A hash of the bytes at a place whose high half is worth using."""
    hashed = np.uint64(size)
    while size >= 8:
        hashed = (hashed ^ load(words, at)) * _ODD
        hashed ^= hashed >> _HALF
        at += 8
        size -= 8
    if size:
        hashed = (hashed ^ _tail(words, at, size)) * _ODD
        hashed ^= hashed >> _HALF
    return hashed * _ODD


@njit(cache=True, nogil=True)
def same(text: Any, place: Any, words: Any, at: Any, size: Any) -> Any:
    """Whether the record at a place of the text holds these bytes."""
    if text[place] & _LOW != np.uint64(size):
        return False
    while size >= 8:
        place += _ONE
        if text[place] != load(words, at):
            return False
        at += 8
        size -= 8
    return size == 0 or text[place + _ONE] == _tail(words, at, size)


@njit(cache=True, nogil=True)
def _settle(slots: Any, place: Any, hashed: Any) -> None:
    mask = np.uint64(slots.size - 1)
    slot = hashed >> _HALF & mask
    while slots[slot]:
        slot = (slot + _ONE) & mask
    slots[slot] = np.uint64(place) << _HALF | hashed & _LOW


@njit(cache=True, nogil=True)
def find_or_add(slots: Any, text: Any, filled: Any, words: Any, at: Any, size: Any, hashed: Any) -> Any:
    """The code of the bytes at a place, a new one if they have none; there must be room for it."""
    mask, slot = np.uint64(slots.size - 1), hashed >> _HALF
    while slots[slot & mask]:
        held = slots[slot & mask]
        if (held ^ hashed) & _LOW == 0 and same(text, held >> _HALF, words, at, size):
            return np.uint32(text[held >> _HALF] >> _HALF)
        slot += _ONE
    code, place = filled[0], filled[1]
    text[place] = np.uint64(code) << _HALF | np.uint64(size)
    filled[0], filled[1] = code + 1, place + 1 + ((size + 7) >> 3)
    _settle(slots, place, hashed)
    while size >= 8:
        place += 1
        text[place] = load(words, at)
        at += 8
        size -= 8
    if size:
        text[place + 1] = _tail(words, at, size)
    return np.uint32(code)


@njit(cache=True, nogil=True)
def _rehash(slots: Any, text: Any, filled: Any) -> None:
    """Put every record into larger slots."""
    place: Any = 1
    while place < filled:
        size = np.int64(text[place] & _LOW)
        _settle(slots, place, digest(text, 8 * (place + 1), size))
        place += 1 + ((size + 7) >> 3)


@njit(cache=True, nogil=True)
def _spell(text: Any, filled: Any, ends: Any, out: Any) -> None:
    """The bytes of every record, and where they end."""
    place: Any = 1
    at: Any = 0
    while place < filled:
        code, size = np.int64(text[place] >> _HALF), np.int64(text[place] & _LOW)
        for i in range(size):
            out[at + i] = (text[place + 1 + (i >> 3)] >> np.uint64((i & 7) * 8)) & np.uint64(255)
        at += size
        ends[code + 1] = at
        place += 1 + ((size + 7) >> 3)


class Vocabulary:
    """The values of one column and their codes, shared by threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.table = Table(
            np.zeros(1 << 10, dtype=np.uint64), np.zeros(1 << 10, dtype=np.uint64), np.array([1, 1], dtype=np.int64)
        )

    def __len__(self) -> int:
        return int(self.table.filled[0])

    def size(self) -> int:
        """Bytes it takes."""
        return self.table.slots.nbytes + self.table.text.nbytes

    def known(self) -> tuple[Table, int]:
        """The table now, and how much of its text a reader may trust."""
        with self.lock:
            return self.table, int(self.table.filled[1])

    def room(self, values: int, words: int) -> Table:
        """The table with room for so many more values and words; only with the lock held."""
        slots, text, filled = self.table
        codes, used = (int(number) for number in filled)
        if max(used + words, codes + values) >= 1 << 32:
            raise OtherShapeError("too many different texts")
        if used + words + 1 > text.size:
            text = np.concatenate([text, np.zeros(used + used // 2 + 2 * words - text.size, dtype=np.uint64)])
        if 2 * (codes + values) > slots.size:
            slots = np.zeros(1 << (2 * (codes + values)).bit_length(), dtype=np.uint64)
            _rehash(slots, text, used)
        self.table = Table(slots, text, filled)
        return self.table

    def code(self, value: bytes | None) -> int:
        """The code of one value."""
        if value is None:
            return 0
        words = np.zeros(len(value) // 8 + 2, dtype=np.uint64)
        words.view(np.uint8)[: len(value)] = np.frombuffer(value, dtype=np.uint8)
        hashed = np.uint64(digest(words, 0, len(value)))
        with self.lock:
            slots, text, filled = self.room(1, words.size)
            return int(find_or_add(slots, text, filled, words, 0, len(value), hashed))

    def words(self) -> NDArray[np.uint64]:
        """Every value after null, if they are all of four or eight bytes."""
        _, text, filled = self.table
        return text[2 : int(filled[1]) : 2].copy()

    def texts(self) -> pa.Array[Any]:
        """Every value by its code, null first; raises if one is not text."""
        _, text, filled = self.table
        many, used = (int(number) for number in filled)
        ends, out = np.zeros(many + 1, dtype=np.int64), np.empty(8 * used, dtype=np.uint8)
        _spell(text, used, ends, out)
        valid = np.full(many // 8 + 1, 255, dtype=np.uint8)
        valid[0] = 254
        buffers: list[Any] = [pa.py_buffer(array) for array in (valid, ends, out)]  # type: ignore[arg-type]
        array = pa.Array.from_buffers(pa.large_string(), many, buffers)
        array.validate(full=True)
        return array


# --- pairs of codes -------------------------------------------------------------------------------------------


class Pairs:
    """Pairs of codes -> one code, exactly, shared by threads like a vocabulary."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.slots = np.zeros(1 << 10, dtype=np.uint32)
        self.pairs = np.zeros(1 << 9, dtype=np.uint64)
        self.filled = np.array([0], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.filled[0])

    def join(self, left: NDArray[np.uint32], right: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The code of (left[i], right[i]) for every i; either may be one code for all."""
        out = np.empty(max(left.size, right.size), dtype=np.uint32)
        with self.lock:
            slots, pairs, known = self.slots, self.pairs, len(self)
        news = _join(slots, pairs, self.filled, known, False, left, right, out)
        if news:
            with self.lock:
                self._room(len(self) + news)
                _join(self.slots, self.pairs, self.filled, known, True, left, right, out)
        return out

    def _room(self, most: int) -> None:
        if most > self.pairs.size:
            self.pairs = np.concatenate([self.pairs, np.zeros(2 * most - self.pairs.size, dtype=np.uint64)])
        if 2 * most > self.slots.size:
            self.slots = np.zeros(1 << (4 * most).bit_length(), dtype=np.uint32)
            _rejoin(self.slots, self.pairs, len(self))

    def both(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The two codes of every pair."""
        pairs = self.pairs[: len(self)]
        return (pairs >> _HALF).astype(np.uint32), pairs.astype(np.uint32)


@njit(cache=True, nogil=True)
def _join(slots: Any, pairs: Any, filled: Any, known: Any, grow: Any, left: Any, right: Any, out: Any) -> Any:
    """How many rows found no code among the known; none if pairs may be added."""
    mask, news, before, last = slots.size - 1, 0, np.uint64(0), np.int64(-1)
    for i in range(out.size):
        pair = np.uint64(left[i if left.size > 1 else 0]) << _HALF | np.uint64(right[i if right.size > 1 else 0])
        if last < 0 or pair != before:
            slot, last = np.int64(mix(pair) >> _HALF) & mask, np.int64(-1)
            while slots[slot]:
                code = np.int64(slots[slot]) - 1
                if (grow or code < known) and pairs[code] == pair:
                    last = code
                    break
                slot = (slot + 1) & mask
            if last < 0:
                if not grow:
                    news += 1
                    continue
                last = filled[0]
                pairs[last] = pair
                filled[0] = last + 1
                slots[slot] = last + 1
            before = pair
        out[i] = last
    return news


@njit(cache=True, nogil=True)
def _rejoin(slots: Any, pairs: Any, many: Any) -> None:
    mask = slots.size - 1
    for code in range(many):
        slot = np.int64(mix(pairs[code]) >> _HALF) & mask
        while slots[slot]:
            slot = (slot + 1) & mask
        slots[slot] = code + 1
