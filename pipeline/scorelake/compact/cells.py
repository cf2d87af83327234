"""Rows as packed integers -> what is known of every key, compiled.

Rows are first dealt to partitions by their key, so that the cells of one partition stay in the processor's cache
while its rows are counted. A row is what its partition does not tell of its key, the number of its attempt in eight
bits, and the kind of its outcome in two. Mostly that fits into 32 bits, and the more rows are held before they are
counted, the more often a cell is in the cache when it is needed; where it does not fit, a row has 64.

With attempt numbers a cell holds two bits per attempt, from which every count follows; a row whose attempt has been
seen already, or that is bad, is set aside as it is. Without numbers a cell holds counts.

Where equal keys follow each other, as in a lake that was written problem by problem, each run of them becomes a cell
of its own, which is kept as it is if the key has none yet; else its partition takes it in.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scorelake.compact.compiler import compiled
from scorelake.compact.vocabulary import mix

FAILED, PASSED, UNGRADED, BAD = range(4)
_BATCH = 256
_AGAIN, _LENIENT = 8, 1 << 12
"""Keys met again, as a part of those with a kept cell and beyond some, from which on cells are not kept."""
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
Packed: TypeAlias = NDArray[np.uint64]
Hand: TypeAlias = NDArray[np.uint32] | Packed


class Split(NamedTuple):
    """How a key, which is the code of a problem and that of the rest, is split into its partition and what remains.

    The partition is problem + rest * spin, of which only so many bits are kept; spin is 0 where problems alone are
    enough to fill all partitions. The partition, the rest and the other bits of the problem tell the key.
    """

    bits: np.uint64
    spin: np.uint64


@compiled
def deal(
    rest: Any, problem: Any, number: Any, kind: Any, at: Any, hands: Any, held: Any, split: Any, low: Any
) -> Any:
    """Pack rows from `at` on, each into the hand of its partition; where it stopped, and the hand that is full.

    Arrays of one element hold for all rows. The problem has `low` bits of a row. No hand (-1) is full at the end.
    """
    one_rest, one_problem, one_number = rest.size == 1, problem.size == 1, number.size == 1
    most, mask = hands.shape[1], (np.uint64(1) << split.bits) - np.uint64(1)
    for i in range(at, kind.size):
        others, which = np.uint64(rest[0 if one_rest else i]), np.uint64(problem[0 if one_problem else i])
        p = (which + others * split.spin) & mask
        place = held[p]
        hands[p, place] = (
            (others << low | which >> split.bits) << np.uint64(10)
            | np.uint64(number[0 if one_number else i]) << np.uint64(2)
            | np.uint64(kind[i])
        )
        held[p] = place + 1
        if place + 1 == most:
            return i + 1, np.int64(p)
    return kind.size, np.int64(-1)


@compiled
def deal_packed(rows: Any, at: Any, hands: Any, held: Any, split: Any, low: Any) -> Any:
    """The same for rows that are packed with their whole key, as those that runs sets aside."""
    for i in range(at, rows.size):
        p, key = _apart(rows[i] >> np.uint64(10), split)
        key = key >> _HALF << low | key & _LOW
        hands[p, held[p]] = key << np.uint64(10) | rows[i] & np.uint64(1023)
        held[p] += 1
        if held[p] == hands.shape[1]:
            return i + 1, np.int64(p)
    return rows.size, np.int64(-1)


@compiled
def _apart(key: Any, split: Any) -> Any:
    """The partition of a key (rest << 32 | problem), and what remains of it."""
    others, which = key >> _HALF, key & _LOW
    p = (which + others * split.spin) & ((np.uint64(1) << split.bits) - np.uint64(1))
    return p, others << _HALF | which >> split.bits


@compiled
def apart(keys: Any, split: Any) -> Any:
    """The partition of every key, which loses it."""
    out = np.empty(keys.size, dtype=np.uint16)
    for i in range(keys.size):
        out[i], keys[i] = _apart(keys[i], split)
    return out


def whole(keys: Packed, p: int, split: Split) -> Packed:
    """Keys of one partition as they were."""
    others, which = keys >> _HALF, keys & _LOW
    lost: Packed = (np.uint64(p) - others * split.spin) & ((np.uint64(1) << split.bits) - np.uint64(1))
    joined: Packed = others << _HALF | which << split.bits | lost
    return joined


@compiled
def _seek(slots: Any, cells: Any, key: Any) -> Any:
    """The slot of a key and its cell; where it has none, the slot that it would take, and -1."""
    mask = np.uint64(slots.size - 1)
    slot = mix(key) >> np.uint64(32) & mask
    while slots[slot]:
        if cells[slots[slot] - 1, 0] == key:
            return slot, np.int64(slots[slot] - 1)
        slot = (slot + np.uint64(1)) & mask
    return slot, np.int64(-1)


@compiled
def tally(rows: Any, at: Any, slots: Any, cells: Any, used: Any, words: Any, aside: Any, low: Any) -> Any:
    """Count rows, whose problem has `low` bits, from `at` on.

    Out: where it stopped for want of room, the cells used, and how many rows went aside.
    Slots are looked up for a batch of rows at once, which lets the processor wait for many of them together.
    """
    mask, most, odd = np.uint64(slots.size - 1), min(cells.shape[0], slots.size // 2), 0
    held, ahead = np.empty(_BATCH, dtype=np.int32), np.empty(_BATCH, dtype=np.uint64)
    keys = np.empty(_BATCH, dtype=np.uint64)
    bits = (np.uint64(1) << low) - np.uint64(1)
    for start in range(at, rows.size, _BATCH):
        batch = min(_BATCH, rows.size - start)
        for i in range(batch):
            key = np.uint64(rows[start + i]) >> np.uint64(10)
            keys[i] = key >> low << _HALF | key & bits
            held[i] = slots[mix(keys[i]) >> _HALF & mask]
        for i in range(batch):
            ahead[i] = cells[max(held[i] - 1, 0), 0]
        for i in range(batch):
            row = keys[i] << np.uint64(10) | np.uint64(rows[start + i]) & np.uint64(1023)
            key, cell = keys[i], held[i] - 1
            if cell < 0 or ahead[i] != key:
                slot, cell = _seek(slots, cells, key)
                if cell < 0:
                    if used == most:
                        return start + i, used, odd
                    cell = used
                    cells[cell, 0] = key
                    used += 1
                    slots[slot] = used
            if not _put(cells, cell, words, row):
                if odd == aside.size:
                    return start + i, used, odd
                aside[odd] = row
                odd += 1
    return rows.size, used, odd


@compiled
def _put(cells: Any, cell: Any, words: Any, row: Any) -> Any:
    """Note a row in its cell; False if it has to go aside."""
    one, three = np.uint64(1), np.uint64(3)
    kind = row & three
    if words == 0:
        cells[cell, 1 + np.int64(kind >> one)] += one << ((kind & one) << np.uint64(5))
        return True
    number = row >> np.uint64(2) & np.uint64(255)
    word = 1 + 2 * np.int64(number >> np.uint64(6))
    bit = one << (number & np.uint64(63))
    if kind == three or (cells[cell, word] | cells[cell, word + 1]) & bit:
        return False
    state = kind + one  # failed 01, passed 10, ungraded 11
    cells[cell, word] |= bit * (state & one)
    cells[cell, word + 1] |= bit * (state >> one)
    return True


@compiled
def _ones(bits: Any) -> Any:
    """How many bits are set: counted in pairs, then fours, then bytes, which a product adds up."""
    bits -= bits >> np.uint64(1) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + (bits >> np.uint64(2) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def runs(rest: Any, problem: Any, number: Any, kind: Any, words: Any, out: Any, aside: Any) -> Any:
    """One cell per run of equal keys: how many, and how many packed rows went aside; -1 where there is no room.

    If a run has fewer bits than rows, an attempt is there twice or a row is bad, and it is done again row by row.
    """
    made, odd, start, size = 0, 0, np.uint64(0), np.uint64(kind.size)
    each_rest, each_problem = np.uint64(rest.size > 1), np.uint64(problem.size > 1)
    while start < size:
        if made == out.shape[0]:
            return -1, 0
        others, which, end = rest[start * each_rest], problem[start * each_problem], start + np.uint64(1)
        while end < size and problem[end * each_problem] == which and rest[end * each_rest] == others:
            end += np.uint64(1)
        out[made, 0] = np.uint64(others) << _HALF | np.uint64(which)
        if words == 0:
            out[made, 1], out[made, 2] = _counts(kind, start, end)
        elif _all_bits(number, kind, start, end, words, out, made) != np.int64(end - start):
            out[made, 1:] = 0
            for i in range(start, end):
                row = out[made, 0] << np.uint64(10) | np.uint64(number[i]) << np.uint64(2) | np.uint64(kind[i])
                if not _put(out, made, words, row):
                    if odd == aside.size:
                        return -1, 0
                    aside[odd] = row
                    odd += 1
        made += 1
        start = end
    return made, odd


@compiled
def _counts(kind: Any, start: Any, end: Any) -> Any:
    """The two words of a cell without numbers, as in _put."""
    first, second, one = np.uint64(0), np.uint64(0), np.uint64(1)
    for i in range(start, end):
        outcome = np.uint64(kind[i])
        first += (outcome >> one ^ one) << ((outcome & one) << np.uint64(5))
        second += (outcome >> one) << ((outcome & one) << np.uint64(5))
    return first, second


@compiled
def _all_bits(number: Any, kind: Any, start: Any, end: Any, words: Any, out: Any, cell: Any) -> Any:
    """The words of a cell with numbers, as in _put, and how many attempts they hold; a bad row has no bits.

    Two words of 64 attempts at a time and without a branch, which the processor does for several rows at once.
    """
    none, one, low, seen = np.uint64(0), np.uint64(1), np.uint64(63), 0
    for word in range(0, words, 2):
        near, far = np.uint64(word), np.uint64(word + 1)
        first, second, third, fourth = none, none, none, none
        for i in range(start, end):
            numbered, state = np.uint64(number[i]), np.uint64(kind[i]) + one
            failed, passed = (state & one) << (numbered & low), (state >> one & one) << (numbered & low)
            here = none - np.uint64(numbered >> np.uint64(6) == near)  # all bits or none
            there = none - np.uint64(numbered >> np.uint64(6) == far)
            first |= failed & here
            second |= passed & here
            third |= failed & there
            fourth |= passed & there
        out[cell, 1 + 2 * word], out[cell, 2 + 2 * word] = first, second
        seen += _ones(first | second)
        if word + 1 < words:
            out[cell, 3 + 2 * word], out[cell, 4 + 2 * word] = third, fourth
            seen += _ones(third | fourth)
    return seen


@compiled
def absorb(found: Any, at: Any, slots: Any, cells: Any, used: Any, words: Any, aside: Any, low: Any) -> Any:
    """Take in cells from `at` on, called like tally. Attempts that are known already go aside, row by row."""
    most, odd = min(cells.shape[0], slots.size // 2), 0
    one = np.uint64(1)
    for i in range(at, found.shape[0]):
        key = found[i, 0]
        slot, cell = _seek(slots, cells, key)
        if cell < 0:
            if used == most:
                return i, used, odd
            cells[used, :] = found[i, :]
            used += 1
            slots[slot] = used
            continue
        if words == 0:
            cells[cell, 1] += found[i, 1]
            cells[cell, 2] += found[i, 2]
            continue
        if aside.size - odd < 64 * words:
            return i, used, odd
        for word in range(1, 1 + 2 * words, 2):
            first, second = found[i, word], found[i, word + 1]
            twice = (first | second) & (cells[cell, word] | cells[cell, word + 1])
            cells[cell, word] |= first & ~twice
            cells[cell, word + 1] |= second & ~twice
            bit = np.uint64(0)
            while twice >> bit:
                if twice >> bit & one:
                    kind = (first >> bit & one) + (second >> bit & one) * np.uint64(2) - one
                    aside[odd] = (
                        key << np.uint64(10) | (np.uint64(word >> 1) << np.uint64(6) | bit) << np.uint64(2) | kind
                    )
                    odd += 1
                bit += one
                if bit == np.uint64(64):
                    break
    return found.shape[0], used, odd


@compiled
def read_bits(cells: Any, words: Any, seen: Any, n: Any, c: Any, sums: Any) -> None:
    """What two bits per attempt come to: attempts seen, graded and passed, and their sums of powers, word by word."""
    for i in range(cells.shape[0]):
        for word in range(words):
            first, second = cells[i, 1 + 2 * word], cells[i, 2 + 2 * word]
            sums[word, i], sums[words + word, i], sums[2 * words + word, i] = (
                first | second,
                first ^ second,
                second & ~first,
            )
            seen[i] += _ones(first | second)
            n[i] += _ones(first ^ second)
            c[i] += _ones(second & ~first)


@compiled
def _refill(slots: Any, cells: Any, used: Any) -> None:
    mask, one = np.uint64(slots.size - 1), np.uint64(1)
    for cell in range(used):
        slot = mix(cells[cell, 0]) >> np.uint64(32) & mask
        while slots[slot]:
            slot = (slot + one) & mask
        slots[slot] = cell + 1


@compiled
def _widest(found: Any) -> Any:
    """The largest codes of others and of problems among cells."""
    others, which = np.uint64(0), np.uint64(0)
    for i in range(found.shape[0]):
        others, which = max(others, found[i, 0] >> _HALF), max(which, found[i, 0] & _LOW)
    return others, which


@compiled
def _keep(bits: Any, found: Any, aside: Any, kept: Any, rest: Any) -> Any:
    """Cells into those that are kept and the rest: how many of each, and how many keys had one already."""
    many, more, again, odd = 0, 0, 0, 0
    for i in range(found.shape[0]):
        key = found[i, 0]
        others, which, goes_on = key >> _HALF, key & _LOW, i == 0 or i == found.shape[0] - 1
        while odd < aside.size and aside[odd] >> np.uint64(10) == key:
            goes_on = True
            odd += 1
        bit = np.uint64(1) << (which & np.uint64(63))
        known = bits[others, which >> np.uint64(6)] & bit != 0
        again += known
        if known or goes_on:
            rest[more] = found[i]
            more += 1
        else:
            bits[others, which >> np.uint64(6)] |= bit
            for word in range(found.shape[1]):
                kept[many, word] = found[i, word]
            many += 1
    return many, more, again


@compiled
def _kept(bits: Any, keys: Any) -> Any:
    for i in range(keys.size):
        others, word = np.int64(keys[i] >> _HALF), np.int64((keys[i] & _LOW) >> np.uint64(6))
        known = others < bits.shape[0] and word < bits.shape[1]
        if known and bits[others, word] >> (keys[i] & np.uint64(63)) & np.uint64(1):
            return True
    return False


class Kept:
    """Which keys have a cell that was kept as it was found, outside of the slots: one bit each.

    Where a lake was written problem by problem, a run of equal keys is mostly all there is of a key, and nothing
    needs to be looked up to count it.
    """

    def __init__(self, most: int) -> None:
        self.lock = Lock()
        self.most = most
        self.bits = np.zeros((0, 0), dtype=np.uint64)
        self.many = self.again = 0

    def sift(self, found: Packed, aside: Packed) -> tuple[Packed, Packed]:
        """A row group's cells: those that are kept from now on, and the rest.

        Not kept are those of keys that have one already, that have rows aside, or that may go on in the next row
        group; and none if that turns out to be common.
        """
        others, which = _widest(found)
        kept, rest = np.empty_like(found), np.empty_like(found)
        with self.lock:
            if self.again > self.many // _AGAIN + _LENIENT or not self._room(int(others) + 1, int(which) // 64 + 1):
                return found[:0], found.copy()
            many, more, again = _keep(self.bits, found, aside, kept, rest)
            self.many += many
            self.again += again
        return kept[:many], rest[:more].copy()

    def _room(self, others: int, words: int) -> bool:
        """Whether there are bits for such codes, made if they are not too many."""
        have = self.bits.shape
        if others > have[0] or words > have[1]:
            shape = max(have[0], others + others // 2), max(have[1], words + words // 2)
            if 8 * shape[0] * shape[1] > self.most:
                return False
            bits = np.zeros(shape, dtype=np.uint64)
            bits[: have[0], : have[1]] = self.bits
            self.bits = bits
        return True

    def any(self, keys: Packed) -> bool:
        """Whether one of them has such a cell."""
        return bool(self.many) and bool(_kept(self.bits, keys))


@compiled
def by_partition(found: Any, split: Any) -> Any:
    """Cells in the order of their partitions, and where each of these ends."""
    ends = np.zeros(np.int64(1) << np.int64(split.bits), dtype=np.int64)
    for i in range(found.shape[0]):
        ends[_apart(found[i, 0], split)[0]] += 1
    begin = 0
    for p in range(ends.size):
        ends[p], begin = begin, begin + ends[p]
    out = np.empty_like(found)
    for i in range(found.shape[0]):
        p = _apart(found[i, 0], split)[0]
        for word in range(found.shape[1]):
            out[ends[p], word] = found[i, word]
        ends[p] += 1
    return out, ends


class Partition:
    """The cells of one part of the keys, growing as keys are found."""

    def __init__(self, words: int) -> None:
        self.lock = Lock()
        self.words = words
        self.used = 0
        self.slots = np.zeros(256, dtype=np.int32)
        self.cells = np.zeros((128, 1 + (2 * words or 2)), dtype=np.uint64)
        self.aside: list[Packed] = []
        self.kept: list[Packed] = []
        """Cells outside of the slots, with their whole keys."""

    def many(self) -> int:
        """How many cells there are, some keys perhaps twice among them."""
        return self.used + sum(map(len, self.kept))

    def whole(self, p: int, split: Split, kept: Kept) -> tuple[Packed, Packed]:
        """Cells and rows set aside, with their whole keys, of what is partition number p; it does not keep them."""
        if kept.any(whole(self.cells[: self.used, 0], p, split)):
            for found in self.kept:
                apart(found[:, 0], split)
                self.absorb(found)
            self.kept.clear()
        cells = np.concatenate([self.cells[: self.used], *self.kept])
        cells[: self.used, 0] = whole(cells[: self.used, 0], p, split)
        self.cells, self.slots, self.used, self.kept = self.cells[:0].copy(), self.slots[:0].copy(), 0, []
        aside = np.concatenate([np.empty(0, dtype=np.uint64), *self.aside])
        return cells, whole(aside >> np.uint64(10), p, split) << np.uint64(10) | aside & np.uint64(1023)

    def add(self, rows: Hand, low: np.uint64) -> None:
        """Count packed rows, whose problem has so many bits."""
        self._take(tally, rows, low)

    def absorb(self, cells: Packed) -> None:
        """Take in cells made elsewhere."""
        self._take(absorb, cells, _HALF)

    def _take(self, how: Any, items: Hand, low: np.uint64) -> None:
        at = 0
        with self.lock:
            while at < len(items):
                aside = np.empty(max(256, min(len(items) - at, 1 << 16)), dtype=np.uint64)
                at, self.used, odd = how(items, at, self.slots, self.cells, self.used, self.words, aside, low)
                if odd:
                    self.aside.append(aside[:odd].copy())
                if at < len(items) and self.used == min(len(self.cells), self.slots.size // 2):
                    self._grow()

    def _grow(self) -> None:
        most = self.used + self.used // 2 + 64
        cells = np.zeros((most, self.cells.shape[1]), dtype=np.uint64)
        cells[: self.used] = self.cells[: self.used]
        self.cells = cells
        if 2 * most > self.slots.size:
            self.slots = np.zeros(1 << (2 * most - 1).bit_length(), dtype=np.int32)
            _refill(self.slots, self.cells, self.used)
