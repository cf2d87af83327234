"""Scores of models on the same problems, and where two of them differ: the sums that every comparison is made of.

Scores are whole multiples of a power of two, chosen so small that no sum can pass 2^53: every sum is exact, in
whatever order, in however many parts and on however many threads it is made. Equal inputs give equal bits. So the
problems may lie in parts anywhere: what is told of a part adds up to what is told of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.chance import MOST_TIMES
from scorelake.metrics.distributions import BLOCK, Floats, Ints, blocks
from scorelake.metrics.matrix import Matrix, Places, places
from scorelake.threads import parallel_map

_LONG, _AT_ONCE = 1 << 12, 64
"""Flags of a long row; and pairs looked at together, so that a few columns show whether their gaps are uneven."""
_LEAST = 2.0**-900
"""Scores that are all smaller (10^-271) are compared as if one were so large: a step must not vanish."""
_ALIKE = 1e-9
"""Relative spread below which all gaps of a pair count as equally large."""


def grid(largest: float, problems: int) -> float:
    """The step of scores that are no larger than this, on so many problems."""
    reach = max(largest or 1.0, _LEAST) * MOST_TIMES * max(1, problems)
    return 2.0 ** (int(np.ceil(np.log2(reach))) - 52)


@dataclass(frozen=True)
class Sums:
    """What rows of scores come to, unit by unit. Rows of one kind are scored on the same problems: mostly all are."""

    unit: Ints
    """The units that there are sums of, in their order."""
    steps: Floats
    """Scores added up, in steps; rows x units."""
    kind: Ints
    counts: Floats
    """Problems scored, kinds x units."""
    problems: int

    def __add__(self, other: Sums) -> Sums:
        unit = _union(self.unit, other.unit)
        both, kind = np.unique(np.stack([self.kind, other.kind]), axis=1, return_inverse=True)
        counts = _spread(self.counts[both[0]], self.unit, unit) + _spread(other.counts[both[1]], other.unit, unit)
        steps = _spread(self.steps, self.unit, unit) + _spread(other.steps, other.unit, unit)
        return Sums(unit, steps, kind.ravel(), counts, self.problems + other.problems)

    def among(self, units: int) -> Sums:
        """The same with zeros for all other units, where most have a problem: quicker than to pick their chances."""
        if 2 * self.unit.size < units:
            return self
        every = np.arange(units)
        steps, counts = (_spread(each, self.unit, every) for each in (self.steps, self.counts))
        return Sums(every, steps, self.kind, counts, self.problems)

    @property
    def averages(self) -> Floats:
        """The mean of every row over its own problems, in steps."""
        mean: Floats = self.steps.sum(axis=1) / np.maximum(1, self.counts.sum(axis=1))[self.kind]
        return mean


@dataclass(frozen=True)
class Wins:
    """Who scores higher than whom on how many problems; one entry per pair (a, b)."""

    a: Ints
    b: Ints
    size: Floats
    """Absolute gaps, added up; and squared. Of some problems only, if these are uneven already."""
    square: Floats

    def __add__(self, other: Wins) -> Wins:
        return Wins(self.a + other.a, self.b + other.b, self.size + other.size, self.square + other.square)

    def of(self, some: slice | Ints) -> Wins:
        return Wins(self.a[some], self.b[some], self.size[some], self.square[some])


@dataclass(frozen=True)
class Apart:
    """Row b minus row a over the problems that both are scored on, in steps: pairs x units."""

    unit: Ints
    by_unit: Floats
    counts: Floats
    """On how many problems."""

    def __add__(self, other: Apart) -> Apart:
        unit = _union(self.unit, other.unit)
        mine, theirs = (
            [_spread(each, some.unit, unit) for each in (some.by_unit, some.counts)] for some in (self, other)
        )
        return Apart(unit, mine[0] + theirs[0], mine[1] + theirs[1])

    def among(self, unit: Ints) -> Apart:
        """The same with zeros for units of which there is nothing."""
        return Apart(unit, _spread(self.by_unit, self.unit, unit), _spread(self.counts, self.unit, unit))


class Table:
    """Scores as whole numbers of steps, NaN where there is none, problems of one unit side by side.

    `listed` says that the numbers are one list for all parts of the problems; otherwise each problem has its own.
    """

    def __init__(self, scores: Matrix, unit: Ints, step: float, listed: bool = False) -> None:
        order = np.argsort(unit, kind="stable")
        self.begins = np.flatnonzero(np.diff(unit[order], prepend=-1))
        self.unit = unit[order][self.begins]
        """The units that have a problem here, in their order."""
        place = scores.place if (order[1:] > order[:-1]).all() else np.take(scores.place, order, axis=1)
        self.steps = Matrix(place, np.rint(scores.numbers / step))
        self.levels = np.take(_levels(self.steps.numbers), place) if listed else None
        """Which of two scores is higher, without what they are; 0 where there is none."""
        self.rows, self.problems = place.shape
        self.scored = ~np.isnan(scores.numbers)
        self.complete = bool(self.scored[place].all())
        self.threads = None if place.size > BLOCK else 1

    def sums(self) -> Sums:
        """What every row comes to."""
        place, numbers = self.steps.place, self.steps.numbers
        keys = [b""] * self.rows if self.complete else parallel_map(self._scored, range(self.rows), self.threads)
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        kind = np.array([number[key] for key in keys], dtype=np.int64)
        firsts = np.unique(kind, return_index=True)[1]
        counts = self._by_unit(Matrix(place, self.scored.astype(np.float64)), firsts.tolist())
        steps = self._by_unit(Matrix(place, np.nan_to_num(numbers, nan=0.0)), range(self.rows))
        return Sums(self.unit, steps, kind, counts, self.problems)

    def wins(self, a: Ints, b: Ints) -> Wins:
        """Who wins how often. Scores within a step of each other are equal."""
        some = [slice(first, first + _AT_ONCE) for first in range(0, a.size, _AT_ONCE)]
        return _joined(parallel_map(lambda at: self._wins(a[at], b[at]), some, self.threads))

    def apart(self, a: Ints, b: Ints) -> Apart:
        """The sums of pairs that share only some of their problems."""
        by_unit, counts = (np.empty((a.size, self.begins.size)) for _ in range(2))

        def fill(part: tuple[slice, slice]) -> None:
            units, columns = part
            gap = self.steps.rows(b, columns) - self.steps.rows(a, columns)
            begins = self.begins[units] - columns.start
            lost = np.isnan(gap)
            gap[lost] = 0
            counts[:, units] = _added(1.0 - lost, begins)
            by_unit[:, units] = _added(gap, begins)

        parallel_map(fill, self._parts(a.size), self.threads)
        return Apart(self.unit, by_unit, counts)

    def _scored(self, row: int) -> bytes:
        """Which problems of a row are scored."""
        return hashlib.sha256(np.packbits(self.scored[self.steps.place[row]]).tobytes()).digest()

    def _by_unit(self, numbers: Matrix, rows: Sequence[int]) -> Floats:
        out = np.zeros((len(rows), self.begins.size))

        def add(i: int) -> None:
            out[i] = _added(numbers.rows(rows[i]), self.begins)

        parallel_map(add, range(len(rows)) if self.begins.size else [], self.threads)
        return out

    def _parts(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """Units, and the columns of their problems, a block of so many rows at a time."""
        problems, units = self.problems, self.begins.size
        each = max(1, BLOCK // 8 * units // max(1, rows * problems))
        for first in range(0, units, each):
            end = min(first + each, units)
            last = int(self.begins[end]) if end < units else problems
            yield slice(first, end), slice(int(self.begins[first]), last)

    def _wins(self, a: Ints, b: Ints) -> Wins:
        wins_a, wins_b = np.zeros((2, a.size), dtype=np.int64)
        size, square = np.zeros(a.size), np.zeros(a.size)
        for columns in blocks(self.problems, a.size):
            told = uneven(wins_a + wins_b, size, square).all()  # of the columns before; once they are, they stay so
            gap = None if told and self.levels is not None else self._gap(a, b, columns)
            more, less = self._higher(a, b, columns, gap)
            wins_a += true_in_rows(more)
            wins_b += true_in_rows(less)
            if gap is not None and not told:
                np.abs(gap, out=gap)
                size += gap.sum(axis=1)
                square += np.einsum("ij,ij->i", gap, gap)
        return Wins(wins_a, wins_b, size, square)

    def _gap(self, a: Ints, b: Ints, columns: slice) -> Floats:
        """Row b minus row a; 0 where one of them has no score."""
        gap = self.steps.rows(b, columns) - self.steps.rows(a, columns)
        if not self.complete:
            gap[np.isnan(gap)] = 0
        return gap

    def _higher(
        self, a: Ints, b: Ints, columns: slice, gap: Floats | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where row a scores higher, and where row b does."""
        if self.levels is None:
            assert gap is not None
            return gap < -1, gap > 1
        ours, theirs = self.levels[a, columns], self.levels[b, columns]
        more, less = ours > theirs, ours < theirs
        if not self.complete:
            both = (ours > 0) & (theirs > 0)
            more &= both
            less &= both
        return more, less


def uneven(wins: Ints, size: Floats, square: Floats) -> NDArray[np.bool_]:
    """Gaps are not all equally large: so many of them, their absolute sum, and the sum of their squares."""
    return wins * square > (1 + _ALIKE) * size**2


def true_in_rows(flags: NDArray[np.bool_]) -> Ints:
    """How many are true in each row; of long rows one by one, which is several times faster."""
    if flags.shape[1] < _LONG:
        few: Ints = flags.sum(axis=1)
        return few
    return np.array([np.count_nonzero(row) for row in flags], dtype=np.int64)


def _added(columns: Floats, begins: Ints) -> Floats:
    """Columns added up from each beginning to the next."""
    whole = begins.size == columns.shape[-1]
    return columns if whole else np.add.reduceat(columns, begins, axis=-1)


def _union(one: Ints, other: Ints) -> Ints:
    return one if np.array_equal(one, other) else np.union1d(one, other)


def _spread(sums: Floats, unit: Ints, units: Ints) -> Floats:
    """Sums of some units among zeros of more."""
    if unit.size == units.size:
        return sums
    out = np.zeros((len(sums), units.size))
    out[:, np.searchsorted(units, unit)] = sums
    return out


def _joined(parts: Sequence[Wins]) -> Wins:
    """Some pairs after the other."""
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Wins(none, none, np.zeros(0), np.zeros(0))
    columns = ([getattr(part, name) for part in parts] for name in ("a", "b", "size", "square"))
    return Wins(*(np.concatenate(column) for column in columns))


def _levels(steps: Floats) -> Places:
    """Numbers that rise with the scores, equal where these are within a step of each other; 0 where there is none."""
    order = np.argsort(steps)[: np.count_nonzero(~np.isnan(steps))]  # NaN come last
    level = np.cumsum(np.diff(steps[order], prepend=-np.inf) > 1)
    out = np.zeros(steps.size, dtype=places(int(level[-1]) if level.size else 0))
    out[order] = level
    return out
