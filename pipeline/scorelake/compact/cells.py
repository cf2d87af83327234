"""Rows as packed integers -> what is known of every key, compiled.

A row is its key in 54 bits, the number of its attempt in eight, and the kind of its outcome in two. Rows are first
spread over partitions by a mix of their key, so that the cells of one partition stay in the processor's cache while
its rows are counted. With attempt numbers a cell holds two bits per attempt, from which every count follows; a row
whose attempt has been seen already, or that is bad, is set aside as it is. Without numbers a cell holds counts.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scorelake.compact.vocabulary import mix

FAILED, PASSED, UNGRADED, BAD = range(4)
PARTITIONS = 512
_SHIFT = np.uint64(64 - 9)
_BATCH = 256
Packed = NDArray[np.uint64]


@njit(cache=True, nogil=True)
def pack(rest: Any, problem: Any, number: Any, kind: Any, out: Any) -> None:
    """rest << 32 | problem is the key; arrays of one element hold for all rows."""
    for i in range(out.size):
        key = np.uint64(rest[i if rest.size > 1 else 0]) << np.uint64(32)
        key |= np.uint64(problem[i if problem.size > 1 else 0])
        out[i] = (
            key << np.uint64(10)
            | np.uint64(number[i if number.size > 1 else 0]) << np.uint64(2)
            | np.uint64(kind[i if kind.size > 1 else 0])
        )


@njit(cache=True, nogil=True)
def spread(rows: Any, out: Any, edges: Any) -> None:
    """Rows in the order of their partitions; partition p is out[edges[p]:edges[p + 1]]."""
    edges[:] = 0
    for i in range(rows.size):
        edges[np.int64(mix(rows[i] >> np.uint64(10)) >> _SHIFT) + 1] += 1
    for p in range(1, edges.size):
        edges[p] += edges[p - 1]
    place = edges[:-1].copy()
    for i in range(rows.size):
        here = np.int64(mix(rows[i] >> np.uint64(10)) >> _SHIFT)
        out[place[here]] = rows[i]
        place[here] += 1


@njit(cache=True, nogil=True)
def tally(rows: Any, at: Any, slots: Any, cells: Any, used: Any, words: Any, aside: Any) -> Any:
    """Count rows from `at` on; where it stopped for want of room, the cells used, and how many rows went aside.

    Slots are looked up for a batch of rows at once, which lets the processor wait for many of them together.
    """
    mask, most, odd = np.uint64(slots.size - 1), min(cells.shape[0], slots.size // 2), 0
    held, ahead = np.empty(_BATCH, dtype=np.int32), np.empty(_BATCH, dtype=np.uint64)
    one, three, half = np.uint64(1), np.uint64(3), np.uint64(32)
    for start in range(at, rows.size, _BATCH):
        batch = min(_BATCH, rows.size - start)
        for i in range(batch):
            held[i] = slots[mix(rows[start + i] >> np.uint64(10)) >> half & mask]
        for i in range(batch):
            ahead[i] = cells[max(held[i] - 1, 0), 0]
        for i in range(batch):
            row = rows[start + i]
            key, kind, cell = row >> np.uint64(10), row & three, held[i] - 1
            if cell < 0 or ahead[i] != key:
                slot, cell = mix(key) >> half & mask, -1
                while slots[slot]:
                    if cells[slots[slot] - 1, 0] == key:
                        cell = slots[slot] - 1
                        break
                    slot = (slot + one) & mask
                if cell < 0:
                    if used == most:
                        return start + i, used, odd
                    cell = used
                    cells[cell, 0] = key
                    used += 1
                    slots[slot] = used
            if words == 0:
                cells[cell, 1 + np.int64(kind >> one)] += one << ((kind & one) << np.uint64(5))
                continue
            number = row >> np.uint64(2) & np.uint64(255)
            word = 1 + 2 * np.int64(number >> np.uint64(6))
            bit = one << (number & np.uint64(63))
            if kind == three or (cells[cell, word] | cells[cell, word + 1]) & bit:
                if odd == aside.size:
                    return start + i, used, odd
                aside[odd] = row
                odd += 1
                continue
            state = kind + one  # failed 01, passed 10, ungraded 11
            cells[cell, word] |= bit * (state & one)
            cells[cell, word + 1] |= bit * (state >> one)
    return rows.size, used, odd


@njit(cache=True, nogil=True)
def _ones(bits: Any) -> Any:
    """How many bits are set: counted in pairs, then fours, then bytes, which a product adds up."""
    bits -= bits >> np.uint64(1) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + (bits >> np.uint64(2) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _refill(slots: Any, cells: Any, used: Any) -> None:
    mask, one = np.uint64(slots.size - 1), np.uint64(1)
    for cell in range(used):
        slot = mix(cells[cell, 0]) >> np.uint64(32) & mask
        while slots[slot]:
            slot = (slot + one) & mask
        slots[slot] = cell + 1


class Partition:
    """The cells of one part of the keys, growing as keys are found."""

    def __init__(self, words: int) -> None:
        self.lock = Lock()
        self.words = words
        self.used = 0
        self.slots = np.zeros(256, dtype=np.int32)
        self.cells = np.zeros((128, 1 + (2 * words or 2)), dtype=np.uint64)
        self.aside: list[Packed] = []

    def add(self, rows: Packed) -> None:
        at = 0
        with self.lock:
            while at < rows.size:
                aside = np.empty(min(rows.size - at, 1 << 16), dtype=np.uint64)
                at, self.used, odd = tally(rows, at, self.slots, self.cells, self.used, self.words, aside)
                if odd:
                    self.aside.append(aside[:odd].copy())
                if at < rows.size and odd < aside.size:
                    self._grow()

    def _grow(self) -> None:
        most = self.used + self.used // 2 + 64
        cells = np.zeros((most, self.cells.shape[1]), dtype=np.uint64)
        cells[: self.used] = self.cells[: self.used]
        self.cells = cells
        if 2 * most > self.slots.size:
            self.slots = np.zeros(1 << (2 * most - 1).bit_length(), dtype=np.int32)
            _refill(self.slots, self.cells, self.used)
