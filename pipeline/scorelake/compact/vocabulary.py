"""Values -> dense codes, exactly: the same bytes always get the same code, other bytes another.

Several threads look values up while one adds. A reader notes how much is known before it begins and trusts only
that: it was written before the lock was released, and is never moved, since growing makes new arrays.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorelake.compact.compiler import compiled, load
from scorelake.compact.shape import OtherShapeError

MISSING = np.uint32(0xFFFFFFFF)
"""Not a code: the value has none yet."""
_SMALL = 1 << 16
"""Pairs that are worth a table."""
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE, _THREE = np.uint64(1), np.uint64(3)
_ODD = np.uint64(0xD6E8FEB86659FD93)


@compiled
def home(hashed: Any, slots: Any) -> Any:
    """The slot from which on a value is looked for: an even one, so that the next is on the same cache line."""
    return hashed >> _HALF & np.uint64(slots.shape[0] - 2)


@compiled
def mix(value: Any) -> Any:
    """A hash of a word whose high half is worth using."""
    value = (value ^ (value >> _HALF)) * _ODD
    return (value ^ (value >> _HALF)) * _ODD


# --- values of any length -------------------------------------------------------------------------------------

SHORT = 16
"""Bytes that a slot holds itself, so that a known value costs one look at one place in memory."""


class Table(NamedTuple):
    """Open addressing, and a text of records, one after another in the order of their codes.

    A record is a word with the code in its high and the number of bytes in its low half, then the bytes. A slot is
    four words: two of bytes, or the hash and the record's place where the bytes are more; the first word of the
    record, which is 0 in an empty slot; and one that is not used, so that slots do not straddle lines of the cache.
    """

    slots: NDArray[np.uint64]
    text: NDArray[np.uint64]
    filled: NDArray[np.int64]
    """Codes given, words of text filled. Code 0 stands for null and has no record; no record is at place 0."""


@compiled
def _word(words: Any, at: Any, size: Any) -> Any:
    """The first eight bytes of a value, or all it has."""
    word = load(words, at)
    return word if size >= 8 else word & ((_ONE << (np.uint64(size) << _THREE)) - _ONE)


@compiled
def look_short(words: Any, at: Any, size: Any) -> Any:
    """What a slot says of a short value, and its hash, whose high half is worth using."""
    first, second = load(words, at), np.uint64(0)
    if size > 8:
        second = load(words, at + 8)
        if size < SHORT:
            second &= (_ONE << (np.uint64(size - 8) << _THREE)) - _ONE
    elif size < 8:
        first &= (_ONE << (np.uint64(size) << _THREE)) - _ONE
    hashed = (first ^ np.uint64(size)) * _ODD
    hashed = (hashed ^ (hashed >> _HALF) ^ second) * _ODD
    return first, second, (hashed ^ (hashed >> _HALF)) * _ODD


@compiled
def look(words: Any, at: Any, size: Any) -> Any:
    """The same for any value; of a long one, the hash twice."""
    if size <= SHORT:
        return look_short(words, at, size)
    hashed = np.uint64(size)
    while size > 0:
        hashed = (hashed ^ _word(words, at, size)) * _ODD
        hashed ^= hashed >> _HALF
        at += 8
        size -= 8
    hashed *= _ODD
    return hashed, np.uint64(0), hashed


@compiled
def look_long(words: Any, places: Any, sizes: Any, firsts: Any, seconds: Any, hashes: Any) -> None:
    """Look at the long ones among some values."""
    for i in range(places.size):
        if sizes[i] > SHORT:
            hashed, at, end = np.uint64(sizes[i]), places[i], places[i] + sizes[i]
            while at + 8 <= end:
                hashed = (hashed ^ load(words, at)) * _ODD
                hashed ^= hashed >> _HALF
                at += 8
            if at < end:
                hashed = (hashed ^ _word(words, at, end - at)) * _ODD
                hashed ^= hashed >> _HALF
            firsts[i] = hashes[i] = hashed * _ODD


@compiled
def find_long(
    slots: Any, text: Any, words: Any, places: Any, sizes: Any, firsts: Any, hashes: Any, trusted: Any, out: Any
) -> None:
    """The codes of the long ones among some values, if they have one below `trusted`."""
    mask = np.uint64(slots.shape[0] - 1)
    for i in range(places.size):
        size = sizes[i]
        if size <= SHORT:
            continue
        out[i] = MISSING
        slot = home(hashes[i], slots)
        while slots[slot, 2]:
            held = slots[slot, 2]
            if slots[slot, 0] == firsts[i] and held & _LOW == np.uint64(size) and held >> _HALF < trusted:
                at, end, place = places[i], places[i] + size, slots[slot, 1] + _ONE
                while at + 8 <= end and text[place] == load(words, at):
                    at += 8
                    place += _ONE
                if at == end or (at + 8 > end and text[place] == _word(words, at, end - at)):
                    out[i] = np.uint32(held >> _HALF)
                    break
            slot = (slot + _ONE) & mask


@compiled
def find(
    slots: Any, text: Any, words: Any, at: Any, size: Any, first: Any, second: Any, hashed: Any, trusted: Any
) -> Any:
    """The code of the bytes at a place, if they have one below `trusted`."""
    mask = np.uint64(slots.shape[0] - 1)
    slot = home(hashed, slots)
    while slots[slot, 2]:
        if slots[slot, 2] >> _HALF < trusted and _same(slots, slot, text, words, at, size, first, second):
            return np.uint32(slots[slot, 2] >> _HALF)
        slot = (slot + _ONE) & mask
    return MISSING


@compiled
def _same(slots: Any, slot: Any, text: Any, words: Any, at: Any, size: Any, first: Any, second: Any) -> Any:
    """Whether a slot stands for these bytes."""
    if slots[slot, 0] != first or slots[slot, 2] & _LOW != np.uint64(size):
        return False
    if size <= SHORT:
        return slots[slot, 1] == second
    place = slots[slot, 1]
    while size > 0:
        place += _ONE
        if text[place] != _word(words, at, size):
            return False
        at += 8
        size -= 8
    return True


@compiled
def _free(slots: Any, hashed: Any) -> Any:
    """The slot that a new value takes."""
    slot = home(hashed, slots)
    while slots[slot, 2]:
        slot = (slot + _ONE) & np.uint64(slots.shape[0] - 1)
    return slot


@compiled
def add(
    slots: Any, text: Any, filled: Any, words: Any, at: Any, size: Any, first: Any, second: Any, hashed: Any
) -> Any:
    """A new code for the bytes at a place; there must be room for it."""
    slot, code, place = _free(slots, hashed), filled[0], filled[1]
    text[place] = np.uint64(code) << _HALF | np.uint64(size)
    slots[slot, 0] = first
    slots[slot, 1] = second if size <= SHORT else np.uint64(place)
    slots[slot, 2] = text[place]
    filled[0], filled[1] = code + 1, place + 1 + ((size + 7) >> 3)
    if size <= SHORT:
        text[place + 1] = first
        if size > 8:
            text[place + 2] = second
        return np.uint32(code)
    while size > 0:
        place += 1
        text[place] = _word(words, at, size)
        at += 8
        size -= 8
    return np.uint32(code)


@compiled
def _rehash(slots: Any, text: Any, filled: Any) -> None:
    """Put every record into larger slots."""
    place: Any = 1
    while place < filled:
        size = np.int64(text[place] & _LOW)
        first, second, hashed = look(text, 8 * (place + 1), size)
        slot = _free(slots, hashed)
        slots[slot, 0] = first
        slots[slot, 1] = second if size <= SHORT else np.uint64(place)
        slots[slot, 2] = text[place]
        place += 1 + ((size + 7) >> 3)


def _empty_slots(many: int) -> NDArray[np.uint64]:
    """None of them across two lines of the cache."""
    room = np.zeros(4 * many + 8, dtype=np.uint64)
    spare = -room.ctypes.data % 64 // 8
    return room[spare : spare + 4 * many].reshape(many, 4)


class Vocabulary:
    """The values of one column and their codes, shared by threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.table = Table(
            _empty_slots(1 << 10),
            np.zeros(1 << 10, dtype=np.uint64),
            np.array([1, 1], dtype=np.int64),
        )

    def __len__(self) -> int:
        return int(self.table.filled[0])

    def size(self) -> int:
        """Bytes it takes."""
        return self.table.slots.nbytes + self.table.text.nbytes

    def known(self) -> tuple[Table, int]:
        """The table now, and the first code that a reader must not trust yet."""
        with self.lock:
            return self.table, int(self.table.filled[0])

    def room(self, values: int, words: int) -> Table:
        """The table with room for so many more values and words; only with the lock held."""
        slots, text, filled = self.table
        codes, used = (int(number) for number in filled)
        if max(used + words, codes + values) >= 1 << 32:
            raise OtherShapeError("too many different texts")
        if used + words + 1 > text.size:
            text = np.concatenate([text, np.zeros(used + used // 2 + 2 * words - text.size, dtype=np.uint64)])
        if 3 * (codes + values) > 2 * len(slots):
            slots = _empty_slots(1 << (3 * (codes + values) // 2).bit_length())
            _rehash(slots, text, used)
        self.table = Table(slots, text, filled)
        return self.table

    def code(self, value: bytes | None) -> int:
        """The code of one value."""
        if value is None:
            return 0
        words = np.zeros(len(value) // 8 + 3, dtype=np.uint64)
        words.view(np.uint8)[: len(value)] = np.frombuffer(value, dtype=np.uint8)
        first, second, hashed = (np.uint64(number) for number in look(words, 0, len(value)))
        with self.lock:
            slots, text, filled = self.room(1, words.size)
            code = find(slots, text, words, 0, len(value), first, second, hashed, np.uint64(filled[0]))
            if code == MISSING:
                code = add(slots, text, filled, words, 0, len(value), first, second, hashed)
            return int(code)


# --- pairs of codes -------------------------------------------------------------------------------------------


class Pairs:
    """Pairs of codes -> one code, exactly, shared by threads like a vocabulary.

    While both codes are small, as those of models and subjects are, a table of all their pairs is looked up instead;
    it is never changed, only replaced.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.slots = np.zeros(1 << 10, dtype=np.uint32)
        self.pairs = np.zeros(1 << 9, dtype=np.uint64)
        self.filled = np.array([0], dtype=np.int64)
        self.small = np.zeros((1, 1), dtype=np.uint32)

    def __len__(self) -> int:
        return int(self.filled[0])

    def join(self, left: NDArray[np.uint32], right: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The code of (left[i], right[i]) for every i; either may be one code for all."""
        out = np.empty(max(left.size, right.size), dtype=np.uint32)
        with self.lock:
            small, slots, pairs, known = self.small, self.slots, self.pairs, len(self)
        if _join_small(small, left, right, out):
            return out
        news = _join(slots, pairs, self.filled, known, False, left, right, out)
        if news:
            with self.lock:
                self._room(len(self) + news)
                _join(self.slots, self.pairs, self.filled, known, True, left, right, out)
                self._tabulate()
        return out

    def _tabulate(self) -> None:
        left, right = self._both()
        shape = int(left.max(initial=0)) + 1, int(right.max(initial=0)) + 1
        if shape[0] * shape[1] <= _SMALL:
            self.small = np.zeros(shape, dtype=np.uint32)
            self.small[left, right] = np.arange(1, len(self) + 1)

    def _room(self, most: int) -> None:
        if most > self.pairs.size:
            self.pairs = np.concatenate([self.pairs, np.zeros(2 * most - self.pairs.size, dtype=np.uint64)])
        if 2 * most > self.slots.size:
            self.slots = np.zeros(1 << (4 * most).bit_length(), dtype=np.uint32)
            _rejoin(self.slots, self.pairs, len(self))

    def both(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The two codes of every pair."""
        with self.lock:
            return self._both()

    def _both(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        pairs = self.pairs[: len(self)]
        return (pairs >> _HALF).astype(np.uint32), pairs.astype(np.uint32)


@compiled
def _join_small(small: Any, left: Any, right: Any, out: Any) -> Any:
    """Whether all pairs are in the table of small codes, which holds codes plus one."""
    rows, columns = small.shape
    one_left, one_right = left.size == 1, right.size == 1
    for i in range(out.size):
        a, b = left[0 if one_left else i], right[0 if one_right else i]
        if a >= rows or b >= columns or small[a, b] == 0:
            return False
        out[i] = small[a, b] - np.uint32(1)
    return True


@compiled
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


@compiled
def _rejoin(slots: Any, pairs: Any, many: Any) -> None:
    mask = slots.size - 1
    for code in range(many):
        slot = np.int64(mix(pairs[code]) >> _HALF) & mask
        while slots[slot]:
            slot = (slot + 1) & mask
        slots[slot] = code + 1
