"""Scores of models on the same problems, and where two of them differ: the sums that every comparison is made of.

Scores are whole multiples of a power of two, chosen so small that no sum can pass 2^53: every sum is exact, in
whatever order, in however many parts and on however many threads it is made. Equal inputs give equal bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.chance import MOST_TIMES
from scorelake.metrics.draws import BLOCK, Floats, Ints, blocks
from scorelake.metrics.matrix import Matrix, Places, places
from scorelake.threads import side_by_side

_LONG = 1 << 12
_ALIKE = 1e-9
"""Relative spread below which all gaps of a pair count as equally large."""


class Table:
    """Scores as whole numbers of steps, NaN where there is none, problems of one unit side by side.

    Rows of one kind are scored on the same problems. Mostly there is one kind.
    """

    def __init__(self, scores: Matrix, unit: Ints, units: int) -> None:
        order = np.argsort(unit, kind="stable")
        self.begins = np.flatnonzero(np.diff(unit[order], prepend=-1))
        self.there = unit[order][self.begins]
        """The units that have a problem here, in their order."""
        self.unit = self.there if 2 * self.there.size < units else np.arange(units)
        """The units that there are sums of: those, or nearly all, which is quicker than to pick them."""
        numbers, problems = scores.numbers, scores.place.shape[1]
        largest = np.nanmax(np.abs(numbers), initial=0.0) or 1.0
        self.step = 2.0 ** (int(np.ceil(np.log2(largest * MOST_TIMES * max(1, problems)))) - 52)
        place = scores.place if (order[1:] > order[:-1]).all() else np.take(scores.place, order, axis=1)
        self.steps = Matrix(place, np.rint(numbers / self.step))
        level = _levels(self.steps.numbers)
        self.levels = np.take(level, place)
        """Which of two scores is higher, without what they are; 0 where there is none."""
        self.rows, self.problems = place.shape
        first: dict[bytes, int] = {}
        self.threads = None if place.size > BLOCK else 1
        keys = side_by_side(self._scored, range(self.rows), self.threads)
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        number = {key: i for i, key in enumerate(first)}
        self.kind = np.array([number[key] for key in keys], dtype=np.int64)
        there = Matrix(place, (~np.isnan(numbers)).astype(np.float64))
        self.counts = self._by_unit(there, list(first.values()))
        """Problems scored, kinds x units."""
        self.complete = bool((self.counts.sum(axis=1) == self.problems).all())
        filled = Matrix(place, np.nan_to_num(self.steps.numbers, nan=0.0))
        self.sums = self._by_unit(filled, range(self.rows))
        """Steps added up, rows x units."""

    def _scored(self, row: int) -> bytes:
        """Which problems of a row are scored."""
        return hashlib.sha256(np.packbits(~np.isnan(self.steps.numbers)[self.steps.place[row]]).tobytes()).digest()

    def _by_unit(self, numbers: Matrix, rows: Sequence[int]) -> Floats:
        out = np.zeros((len(rows), self.begins.size))

        def add(i: int) -> None:
            out[i] = self.added(numbers.rows(rows[i]), self.begins)

        side_by_side(add, range(len(rows)) if self.begins.size else [], self.threads)
        return self.spread(out)

    def spread(self, sums: Floats) -> Floats:
        """Sums of units that have a problem here, among zeros where there are sums of more."""
        if self.unit.size == self.there.size:
            return sums
        out = np.zeros((len(sums), self.unit.size))
        out[:, self.there] = sums
        return out

    @staticmethod
    def added(columns: Floats, begins: Ints) -> Floats:
        """Columns added up from each beginning to the next."""
        whole = begins.size == columns.shape[-1]
        return columns if whole else np.add.reduceat(columns, begins, axis=-1)

    def parts(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """Units, and the columns of their problems, a block of so many rows at a time."""
        problems, units = self.problems, self.begins.size
        each = max(1, BLOCK // 8 * units // max(1, rows * problems))
        for first in range(0, units, each):
            end = min(first + each, units)
            last = int(self.begins[end]) if end < units else problems
            yield slice(first, end), slice(int(self.begins[first]), last)


@dataclass(frozen=True)
class Gaps:
    """Row b minus row a over the problems scored in both, in steps; one entry per pair."""

    problems: Ints
    wins_a: Ints
    wins_b: Ints
    size: Floats
    """Absolute gaps, added up; and squared. Of some problems only, if these are uneven already."""
    square: Floats
    by_unit: Floats
    """pairs x units, as is the number of problems."""
    counts: Floats

    @property
    def total(self) -> Floats:
        total: Floats = self.by_unit.sum(axis=1)  # exact: whole numbers
        return total


def uneven(wins: Ints, size: Floats, square: Floats) -> NDArray[np.bool_]:
    """Gaps are not all equally large: so many of them, their absolute sum, and the sum of their squares."""
    return wins * square > (1 + _ALIKE) * size**2


def gaps(table: Table, a: Ints, b: Ints) -> Gaps:
    """All sums of some pairs. Scores within a step of each other are equal."""
    by_unit, counts = _by_unit(table, a, b)
    many = a.size
    wins_a, wins_b = np.zeros((2, many), dtype=np.int64)
    size, square = np.zeros(many), np.zeros(many)
    for columns in blocks(table.problems, many):
        ours, theirs = table.levels[a, columns], table.levels[b, columns]
        more, less = ours > theirs, ours < theirs
        if not table.complete:
            both = (ours > 0) & (theirs > 0)
            more &= both
            less &= both
        told = uneven(wins_a + wins_b, size, square).all()  # of the columns before; once they are, they stay so
        wins_a += true_in_rows(more)
        wins_b += true_in_rows(less)
        if not told:
            gap = np.abs(table.steps.rows(b, columns) - table.steps.rows(a, columns))
            if not table.complete:
                gap[np.isnan(gap)] = 0
            size += gap.sum(axis=1)
            square += np.einsum("ij,ij->i", gap, gap)
    return Gaps(counts.sum(axis=1).astype(np.int64), wins_a, wins_b, size, square, by_unit, counts)


def _by_unit(table: Table, a: Ints, b: Ints) -> tuple[Floats, Floats]:
    """Gaps and problems of each unit: of rows scored on the same problems, differences of sums that are there."""
    kind = table.kind[a]
    if (kind == table.kind[b]).all():
        return table.sums[b] - table.sums[a], table.counts[kind]
    by_unit, counts = (np.empty((a.size, table.begins.size)) for _ in range(2))
    for units, columns in table.parts(a.size):
        gap = table.steps.rows(b, columns) - table.steps.rows(a, columns)
        begins = table.begins[units] - columns.start
        lost = np.isnan(gap)
        gap[lost] = 0
        counts[:, units] = table.added(1.0 - lost, begins)
        by_unit[:, units] = table.added(gap, begins)
    return table.spread(by_unit), table.spread(counts)


def _levels(steps: Floats) -> Places:
    """Numbers that rise with the scores, equal where these are within a step of each other; 0 where there is none."""
    order = np.argsort(steps)[: np.count_nonzero(~np.isnan(steps))]  # NaN come last
    level = np.cumsum(np.diff(steps[order], prepend=-np.inf) > 1)
    out = np.zeros(steps.size, dtype=places(int(level[-1]) if level.size else 0))
    out[order] = level
    return out


def true_in_rows(flags: NDArray[np.bool_]) -> Ints:
    """How many are true in each row; of long rows one by one, which is several times faster."""
    if flags.shape[1] < _LONG:
        few: Ints = flags.sum(axis=1)
        return few
    return np.array([np.count_nonzero(row) for row in flags], dtype=np.int64)
