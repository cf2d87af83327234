"""The rows of one partition that tell more than an outcome -> problem after problem, in order, equal ones together.

Every row begins with a cell's number, an attempt's number and a kind (see tally); its further words are what it
tells: a reward, an answer, an attempt. Within a problem rows are in the order of these words, so that equal rows, and
rows of the same attempt, are neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.counting.compiled import U, compiled
from scorelake.counting.kinds import COUNTED, PASSED, UNGRADED
from scorelake.counting.tally import KIND_BITS, LOW_BITS
from scorelake.counts import INTEGER, KINDS, PROBLEM, WORD, Ints, Words

_LOW, _LOWEST = U(LOW_BITS), U((1 << LOW_BITS) - 1)
_KIND, _KINDS, _ONE, _WORD, _INTEGER = U((1 << KIND_BITS) - 1), U(KIND_BITS), U(1), U(WORD - 1), U(INTEGER)
_PASSED, _UNGRADED = U(PASSED), U(UNGRADED)
_BLOCK = 16
"""Rows that are sorted by putting each in its place; longer runs are merged of such blocks."""


@compiled
def _deal(rows: Any, problem: Any, ends: Any, out: Any) -> None:
    """Rows behind the rows of the problems before theirs; `ends` comes as zeros, one more than there are problems."""
    for j in range(rows.shape[0]):
        ends[problem[rows[j, 0] >> _LOW] + 1] += 1
    for p in range(1, ends.size):
        ends[p] += ends[p - 1]
    for j in range(rows.shape[0]):
        p = problem[rows[j, 0] >> _LOW]
        at = ends[p]
        ends[p] = at + 1
        out[at, 0] = U(p) << _LOW | rows[j, 0] & _LOWEST
        for w in range(1, rows.shape[1]):
            out[at, w] = rows[j, w]


@compiled
def _less(a: Any, i: Any, b: Any, j: Any) -> Any:
    """By the further words, then by number and kind."""
    for w in range(1, a.shape[1]):
        if a[i, w] != b[j, w]:
            return a[i, w] < b[j, w]
    return a[i, 0] < b[j, 0]


@compiled
def _copy(a: Any, i: Any, b: Any, j: Any) -> None:
    for w in range(a.shape[1]):
        b[j, w] = a[i, w]


@compiled
def _insert(rows: Any, low: Any, high: Any, spare: Any) -> None:
    """Sort a few rows; the first place of `spare` is used."""
    for i in range(low + 1, high):
        if _less(rows, i, rows, i - 1):
            _copy(rows, i, spare, low)
            j = i
            while j > low and _less(spare, low, rows, j - 1):
                _copy(rows, j - 1, rows, j)
                j -= 1
            _copy(spare, low, rows, j)


@compiled
def _merge(a: Any, low: Any, middle: Any, high: Any, b: Any) -> None:
    i, j = low, middle
    for k in range(low, high):
        if i < middle and (j >= high or not _less(a, j, a, i)):
            _copy(a, i, b, k)
            i += 1
        else:
            _copy(a, j, b, k)
            j += 1


@compiled
def _sort(rows: Any, ends: Any, spare: Any) -> None:
    """Bring the rows of every problem into order; `ends` says where the rows of each end."""
    low = 0
    for p in range(ends.size - 1):
        high = ends[p]
        for at in range(low, high, _BLOCK):
            _insert(rows, at, min(at + _BLOCK, high), spare)
        size = _BLOCK
        while size < high - low:  # there and back again, so that the rows end up where they were
            for at in range(low, high, 2 * size):
                _merge(rows, at, min(at + size, high), min(at + 2 * size, high), spare)
            for at in range(low, high, 4 * size):
                _merge(spare, at, min(at + 2 * size, high), min(at + 4 * size, high), rows)
            size *= 4
        low = high


@compiled
def _fresh(rows: Any, numbered: Any, out: Any) -> Any:
    """Mark rows that differ from the one before in their problem or a further word; how many there are.

    With numbers, also one of the same attempt, which bits could not tell from the one before.
    """
    many = 0
    for j in range(rows.shape[0]):
        new = j == 0 or rows[j, 0] >> _LOW != rows[j - 1, 0] >> _LOW
        new = new or (numbered and rows[j, 0] >> _KINDS == rows[j - 1, 0] >> _KINDS)
        for w in range(1, rows.shape[1]):
            new = new or rows[j, w] != rows[j - 1, w]
        out[j] = new
        many += new
    return many


@compiled
def _sum(rows: Any, fresh: Any, place: Any, counts: Any, bits: Any) -> None:
    """Equal rows together: the first of them, how many have each kind, and their attempts as bits."""
    run = -1
    for j in range(rows.shape[0]):
        if fresh[j]:
            run += 1
            place[run] = j
        kind, number = rows[j, 0] & _KIND, rows[j, 0] >> _KINDS & U(255)
        counts[kind, run] += 1
        if bits.shape[0]:
            bit, word = _ONE << (number & _WORD), np.int64(number >> U(6))
            bits[word, 0, run] |= bit
            if kind < _UNGRADED:
                bits[word, 1, run] |= bit
            if kind == _PASSED:
                bits[word, 2, run] |= bit


@compiled
def _attempts(rows: Any, below: Any, told: Any, twice: Any) -> None:
    """Rows with their attempt in the first two further words: how many problems have, and whether one occurs twice.

    A number below `below` would be a bit, were it not seen before.
    """
    for j in range(rows.shape[0]):
        p, high, low = rows[j, 0] >> _LOW, rows[j, 1], rows[j, 2]
        if high:
            told[p] += 1
            again = j > 0 and rows[j - 1, 0] >> _LOW == p and rows[j - 1, 1] == high and rows[j - 1, 2] == low
            if again or (high == _INTEGER and low < below):
                twice[p] = True


class Grouped:
    """Rows in order, problem after problem."""

    def __init__(self, rows: Words, problem: Ints, problems: int, numbered: bool) -> None:
        """Rows with the number of their cell, the problem of every cell, and whether attempts have numbers."""
        self.rows = np.empty_like(rows)
        ends = np.zeros(problems + 1, np.int64)
        _deal(rows, problem, ends, self.rows)
        _sort(self.rows, ends, rows)  # which are needed no longer
        self.fresh = np.empty(len(rows), np.bool_)
        self.different = int(_fresh(self.rows, numbered, self.fresh))
        """How many rows differ from all others."""

    def attempts(self, problems: int, below: int) -> tuple[Ints, NDArray[np.bool_]]:
        """For every problem how many rows have an attempt spelled out, and whether one occurs twice."""
        told, twice = np.zeros(problems, np.int64), np.zeros(problems, bool)
        _attempts(self.rows, U(below), told, twice)
        return told, twice

    def single(self) -> dict[str, Any]:
        """Every row by itself, its attempt's number with it."""
        kind = self.rows[:, 0] & _KIND
        number = self.rows[:, 0] >> _KINDS & U(255)
        counts = {name: (kind == which).astype(np.int64) for name, which in COUNTED.items()}
        spelled = {"attempt_high": np.full(kind.size, _INTEGER), "attempt_low": number}
        return {PROBLEM: self._owner(self.rows[:, 0]), **spelled, **counts}

    def together(self, words: int) -> tuple[Words, dict[str, Any]]:
        """Equal rows as one: the row, and its counts, and attempts as bits where they have numbers."""
        place = np.empty(self.different, np.int64)
        counts = np.zeros((3, self.different), np.int64)
        bits = np.zeros((words, len(KINDS), self.different), np.uint64)
        _sum(self.rows, self.fresh, place, counts, bits)
        rows = self.rows[place] if self.different < len(self.rows) else self.rows
        out: dict[str, Any] = {PROBLEM: self._owner(rows[:, 0])}
        out |= {name: counts[which] for name, which in COUNTED.items()}
        out |= {f"{kind}{word}": bits[word, i] for i, kind in enumerate(KINDS) for word in range(words)}
        return rows, out

    def _owner(self, first: Words) -> NDArray[np.uint32]:
        return (first >> _LOW).astype(np.uint32)
