"""Many values -> their codes, when the vocabulary is larger than the processor's cache.

Looking values up one after another would wait for main memory each time. Instead, what a slot says of each value is
noted, the notes are dealt by the part of the slots that they are in, and part after part is looked up in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorelake.compact.compiler import compiled
from scorelake.compact.vocabulary import MISSING, SHORT, find_or_add, look, look_short, same

WORTH = 1 << 17
"""Slots from which on a vocabulary does not fit into the cache."""
PARTS = 8
"""Bits of a slot's number that name its part."""
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class Notes(NamedTuple):
    """A note is four words: the two that a slot has for the value (the second is its place where it is long), its
    hash, and its row above its size.
    """

    notes: NDArray[np.uint64]
    many: NDArray[np.int64]
    """How many there are, in an array of one."""


@compiled
def note(notes: Any, i: Any, row: Any, words: Any, at: Any, size: Any) -> Any:
    """Note the value of a row; whether it is a long one, which lacks its hash."""
    short = size <= SHORT
    first, second, hashed = look_short(words, at, size)
    notes[i, 0] = first
    notes[i, 1] = second if short else np.uint64(at)
    notes[i, 2] = hashed
    notes[i, 3] = np.uint64(row) << _HALF | np.uint64(size)
    return not short


@compiled
def hash_long(notes: Any, low: Any, high: Any, words: Any) -> None:
    """Hash the long values among some notes."""
    for i in range(low, high):
        size = np.int64(notes[i, 3] & _LOW)
        if size > SHORT:
            notes[i, 0], _, notes[i, 2] = look(words, np.int64(notes[i, 1]), size)


@compiled
def deal(notes: Any, slots: Any, out: Any) -> None:
    """Notes in the order of their parts."""
    mask = np.uint64(slots.shape[0] - 1)
    shift: Any = np.uint64(0)
    while mask >> shift >= np.uint64(1 << PARTS):
        shift += np.uint64(1)
    ends: Any = np.zeros((1 << PARTS) + 1, dtype=np.int64)
    for i in range(notes.shape[0]):
        ends[np.int64((notes[i, 2] >> _HALF & mask) >> shift) + 1] += 1
    for part in range(1, ends.size):
        ends[part] += ends[part - 1]
    for i in range(notes.shape[0]):
        mine = np.int64((notes[i, 2] >> _HALF & mask) >> shift)
        for word in range(4):
            out[ends[mine], word] = notes[i, word]
        ends[mine] += 1


@compiled
def find(notes: Any, words: Any, table: Any, known: Any, out: Any) -> Any:
    """The code of every noted value into its row; how many have none yet, and how many words of text those are."""
    slots, text, _ = table
    mask, trusted, long = np.uint64(slots.shape[0] - 1), np.uint64(known), False
    missing, room = 0, np.uint64(0)
    for i in range(notes.shape[0]):
        first, second, size = notes[i, 0], notes[i, 1], notes[i, 3] & _LOW
        if size > np.uint64(SHORT):
            long = True
            continue
        code, slot = MISSING, notes[i, 2] >> _HALF & mask
        while slots[slot, 2]:
            held = slots[slot, 2]
            if slots[slot, 0] == first and slots[slot, 1] == second and held & _LOW == size:
                if held >> _HALF < trusted:
                    code = np.uint32(held >> _HALF)
                break
            slot = (slot + np.uint64(1)) & mask
        out[notes[i, 3] >> _HALF] = code
        if code == MISSING:
            missing += 1
            room += np.uint64(3)
    if long:
        more, length = _find_long(notes, words, slots, text, trusted, out)
        missing += more
        room += length
    return missing, room


@compiled
def _find_long(notes: Any, words: Any, slots: Any, text: Any, trusted: Any, out: Any) -> Any:
    """The same for the long ones among the values."""
    mask, missing, room = np.uint64(slots.shape[0] - 1), 0, np.uint64(0)
    for i in range(notes.shape[0]):
        place, size = np.int64(notes[i, 1]), np.int64(notes[i, 3] & _LOW)
        if size <= SHORT:
            continue
        code, slot = MISSING, notes[i, 2] >> _HALF & mask
        while slots[slot, 2]:
            held = slots[slot, 2]
            if held >> _HALF < trusted and same(slots, slot, text, words, place, size, notes[i, 0], notes[i, 1]):
                code = np.uint32(held >> _HALF)
                break
            slot = (slot + np.uint64(1)) & mask
        out[notes[i, 3] >> _HALF] = code
        if code == MISSING:
            missing += 1
            room += np.uint64(1) + (np.uint64(size + 7) >> np.uint64(3))
    return missing, room


@compiled
def add(notes: Any, words: Any, table: Any, out: Any) -> None:
    """Codes for the values that had none; there must be room for them."""
    slots, text, filled = table
    for i in range(notes.shape[0]):
        row, size = np.int64(notes[i, 3] >> _HALF), np.int64(notes[i, 3] & _LOW)
        if out[row] == MISSING:
            first, second, hashed = notes[i, 0], notes[i, 1], notes[i, 2]
            out[row] = find_or_add(slots, text, filled, words, np.int64(second), size, first, second, hashed)
