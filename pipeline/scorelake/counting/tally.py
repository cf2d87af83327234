"""The counting of coded rows: rows of a few words each -> cells, one per problem, and what else a row tells.

A row is its problem (two codes in 54 bits), in its lowest bits an attempt's number and the kind of its outcome; then
the code of its carried values, if there are any; and in further words whatever else is told apart: a reward, an
answer, an attempt that is no small number. Rows are dealt to partitions by the hash of their problem: all rows of a
problem meet in one, whose table fits into the cache.

There are two sorts of cells. One counts the rows of each kind. The other holds two bits for each of the attempts 0 to
255: failed 01, passed 10, ungraded 11. A row whose attempt has its bits already goes aside, to be counted with its
attempt spelled out. Further words are not looked up: the row is kept beside its cell's number, and brought into order
when all rows of its partition are there (see ordered).
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from scorelake.counting.compiled import U, compiled
from scorelake.counting.vocabulary import mix
from scorelake.counts import SEED_LOW, Ints, Words
from scorelake.threads import parallel_map

KIND_BITS, NUMBER_BITS, NAME_BITS, GROUP_BITS = 2, 8, 30, 24
LOW_BITS = KIND_BITS + NUMBER_BITS

_KIND, _NUMBER, _LOWEST = U(3), U(255), U((1 << LOW_BITS) - 1)
_ONE, _TWO, _SIX, _LOW = U(1), U(2), U(6), U(LOW_BITS)
_NAME, _NAMES = U(NAME_BITS), U((1 << NAME_BITS) - 1)
_ODD = U(SEED_LOW)


@compiled
def pack(group: Any, name: Any, place: Any, kind: Any, out: Any) -> None:
    """The first words of rows: their group (one for all, if there is one), their name (by its place, if there are
    places) and their kind; the bits of an attempt's number are still free."""
    for j in range(out.size):
        which = group[j] if group.size > 1 else group[0]
        code = name[place[j]] if place.size else name[j if name.size > 1 else 0]
        out[j] = (U(which) << _NAME | U(code)) << _LOW | U(kind[j])


@compiled
def hash_of(key: Any, place_hashes: Any, name_hashes: Any) -> Any:
    """The hash of a problem, of its texts alone; the same as counts.problem_hashes() makes with numpy."""
    return mix(place_hashes[key >> _NAME] + name_hashes[key & _NAMES] * _ODD)


@compiled
def _deal(
    first: Any, more: Any, at: Any, place_hashes: Any, name_hashes: Any, hands: Any, held: Any, bits: Any
) -> Any:
    """Rows into the hands of their partitions; where it stopped, and which hand is full."""
    most, shift, wide = hands.shape[1], U(64) - bits, more.shape[1]
    for j in range(at, first.size):
        row = first[j]
        p = hash_of(row >> _LOW, place_hashes, name_hashes) >> shift
        place = held[p]
        hands[p, place, 0] = row
        for w in range(wide):
            hands[p, place, w + 1] = more[j, w]
        held[p] = place + 1
        if place + 1 == most:
            return j + 1, np.int64(p)
    return first.size, np.int64(-1)


@compiled
def _same(cells: Any, cell: Any, key: Any, rows: Any, j: Any, width: Any) -> Any:
    same = cells[cell, 0] == key
    for w in range(1, width):
        same = same and cells[cell, w] == rows[j, w]
    return same


@compiled
def _hash(key: Any, rows: Any, j: Any, width: Any) -> Any:
    h = mix(key)
    for w in range(1, width):
        h = mix(h ^ rows[j, w])
    return h


@compiled
def _put(cells: Any, cell: Any, width: Any, row: Any) -> Any:
    """Note an attempt in its cell; False if it is there already."""
    number, state = row >> _TWO & _NUMBER, (row & _KIND) + _ONE
    word, bit = width + np.int64(number >> _SIX) * 2, _ONE << (number & U(63))
    if (cells[cell, word] | cells[cell, word + 1]) & bit:
        return False
    cells[cell, word] |= bit * (state & _ONE)
    cells[cell, word + 1] |= bit * (state >> _ONE)
    return True


@compiled
def _tally(
    rows: Any, at: Any, slots: Any, cells: Any, used: Any, width: Any, numbered: Any, aside: Any, out: Any, kept: Any
) -> Any:
    """Count rows from `at` on: where it stopped for want of room, the cells used, the rows gone aside, those kept."""
    last, most, extra, odd = U(slots.size - 1), min(cells.shape[0], slots.size // 2), rows.shape[1] - width, 0
    for j in range(at, rows.shape[0]):
        if used == most or odd == aside.size:
            return j, used, odd, kept
        low = rows[j, 0] & _LOWEST
        key = rows[j, 0] ^ low
        s = _hash(key, rows, j, width) & last
        while slots[s] and not _same(cells, slots[s] - 1, key, rows, j, width):
            s = (s + _ONE) & last
        if not slots[s]:
            cells[used, 0] = key
            for w in range(1, width):
                cells[used, w] = rows[j, w]
            used += 1
            slots[s] = used
        cell = slots[s] - 1
        if not numbered:
            cells[cell, width + np.int64(low & _KIND)] += _ONE
        elif not _put(cells, cell, width, low):
            aside[odd] = j
            odd += 1
            continue
        if extra:
            out[kept, 0] = U(cell) << _LOW | low
            for w in range(extra):
                out[kept, w + 1] = rows[j, width + w]
            kept += 1
    return rows.shape[0], used, odd, kept


@compiled
def _refill(slots: Any, cells: Any, used: Any, width: Any) -> None:
    last = U(slots.size - 1)
    for cell in range(used):
        s = _hash(cells[cell, 0], cells, cell, width) & last
        while slots[s]:
            s = (s + _ONE) & last
        slots[s] = cell + 1


class Cells:
    """The cells of one partition: `width` words tell them apart; with `words`, attempts are bits; and the rows that
    have `extra` words, each with the number of its cell."""

    def __init__(self, width: int, words: int, extra: int) -> None:
        self.lock, self.width, self.words, self.extra, self.used = Lock(), width, words, extra, 0
        self.cells = np.zeros((0, width + (2 * words or 3)), np.uint64)
        self.slots = np.zeros(2, np.int32)
        self.kept: list[Words] = []

    @property
    def bytes(self) -> int:
        return self.cells.nbytes + self.slots.nbytes + sum(rows.nbytes for rows in self.kept)

    def add(self, rows: Words) -> Words:
        """Count these rows; returns those whose attempt was there already."""
        at, aside, kept = 0, [], 0
        out = np.empty((len(rows) if self.extra else 0, 1 + self.extra), np.uint64)
        with self.lock:
            while at < len(rows):
                odd = np.empty(min(len(rows), 1 << 12), np.int64)
                at, self.used, many, kept = _tally(
                    rows, at, self.slots, self.cells, self.used, self.width, bool(self.words), odd, out, kept
                )
                aside += [rows[odd[:many]]] if many else []
                if at < len(rows) and self.used == min(len(self.cells), self.slots.size // 2):
                    self._grow()
            if kept:
                self.kept.append(out[:kept])
        return np.concatenate(aside) if aside else rows[:0]

    def rows(self) -> Words:
        """The rows that were kept, one after the other, and held no longer."""
        kept, self.kept = self.kept, []
        return np.concatenate(kept) if kept else np.empty((0, 1 + self.extra), np.uint64)

    def clear(self) -> None:
        self.cells, self.slots, self.used, self.kept = self.cells[:0].copy(), np.zeros(2, np.int32), 0, []

    def _grow(self) -> None:
        room = max(128, self.used + self.used // 2)
        self.cells = np.concatenate(
            [self.cells[: self.used], np.zeros((room - self.used, self.cells.shape[1]), np.uint64)]
        )
        if 2 * room > self.slots.size:
            self.slots = np.zeros(1 << (2 * room - 1).bit_length(), np.int32)
            _refill(self.slots, self.cells, self.used, self.width)


class Tally:
    """All partitions of one sort of cells."""

    def __init__(self, width: int, words: int, extra: int, room: int, partitions: int) -> None:
        self.bits = U(partitions)
        self.parts = [Cells(width, words, extra) for _ in range(1 << partitions)]
        wide = width + extra
        self.shape = (1 << partitions, max(8, (room >> partitions) // (8 * wide)), wide)
        self.lock = Lock()
        self.hands: list[tuple[Words, Ints]] = []

    @property
    def bytes(self) -> int:
        held = sum(hands.nbytes for hands, _ in self.hands)
        return held + sum(part.bytes for part in self.parts)

    @property
    def used(self) -> int:
        return sum(part.used for part in self.parts)

    def take(self, first: Words, more: Words, place_hashes: Words, name_hashes: Words) -> list[Words]:
        """Count rows: their first words, and the others. Returns rows whose attempt was there already."""
        with self.lock:
            hands, held = (
                self.hands.pop()
                if self.hands
                else (np.empty(self.shape, np.uint64), np.zeros(self.shape[0], np.int64))
            )
        at, aside = 0, []
        while at < first.size:
            at, full = _deal(first, more, at, place_hashes, name_hashes, hands, held, self.bits)
            if full >= 0:
                aside.append(self.parts[full].add(hands[full]))
                held[full] = 0
        with self.lock:
            self.hands.append((hands, held))
        return [rows for rows in aside if rows.size]

    def flush(self, threads: int = 1) -> list[Words]:
        """Count what is still in hand; one thread begins with the last partition, the next with the first."""

        def one(number: int) -> list[Words]:
            hands, held = self.hands[number]
            order = np.flatnonzero(held)[:: 1 if number % 2 else -1]
            return [self.parts[p].add(hands[p, : held[p]]) for p in order.tolist()]

        aside = parallel_map(one, range(len(self.hands)), threads)
        self.hands = []
        return [rows for some in aside for rows in some if rows.size]
