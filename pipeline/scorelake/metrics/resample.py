"""Paired bootstrap over whole problems: scores of many models on the same problems in, lifts and ranks out.

Every resample is one row of counts (how often each problem was drawn), and that row is shared by all models,
pairs and metrics. So all lifts of all pairs come from one product of two matrices, weights x scores.

Scores are whole multiples of a power of two, chosen so small that no sum can pass 2^53: every sum is exact,
in whatever order and on however many threads it is made. Equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.draws import BLOCK, Floats, Ints, blocks, ratio

MOST_UNITS = 1 << 11
"""Above this many problems they are dealt at random into so many hands, and whole hands are drawn: the same
spread to within two percent, and a cost that no longer grows with the benchmark."""
_PAIRS = 4096
"""Pairs whose lifts are kept at once, each over all resamples."""


@dataclass(frozen=True)
class Plan:
    """How to resample; the same plan gives the same weights."""

    resamples: int = 10_000
    seed: int = 0
    confidence: float = 0.95

    @property
    def tails(self) -> tuple[float, float]:
        return (1 - self.confidence) / 2, (1 + self.confidence) / 2


@dataclass(frozen=True)
class Lifts:
    """One entry per pair of rows (a, b), over the problems scored in both; NaN where there are none."""

    problems: Ints
    lift: Floats
    lo: Floats
    hi: Floats
    wins_a: Ints
    wins_b: Ints


@dataclass(frozen=True)
class Ranks:
    """One entry per row: the range of its rank on its board, and the share of resamples in which it leads."""

    lo: Ints
    hi: Ints
    best: Floats


def bootstrap(
    scores: Floats, a: Ints, b: Ints, boards: list[Ints], cluster: Ints | None, plan: Plan
) -> tuple[Lifts, Ranks]:
    """Compare the rows b with the rows a of scores (rows x problems, NaN where not scored), and rank the boards.

    A board is a set of rows ranked against each other by the mean of each one's own problems. `cluster`
    numbers the problems that belong together (from 0); such problems are drawn together.
    """
    table = _Table(scores, _units(scores.shape[1], cluster, plan.seed))
    lifts = _point(table, a, b)
    means = np.empty((scores.shape[0], plan.resamples))
    for start in range(0, max(1, a.size), _PAIRS):
        some = slice(start, start + _PAIRS)
        drawn = np.empty((a[some].size, plan.resamples))
        for columns, weight in weights(table.units, plan, table.size):
            sums = table.sums(weight)
            means[:, columns] = sums.means()
            drawn[:, columns] = sums.lifts(a[some], b[some])
        lifts.lo[some], lifts.hi[some] = _ends(drawn, plan)
    for column in (lifts.lift, lifts.lo, lifts.hi):
        column[np.abs(column) <= table.step] = 0  # below the grid: zero, not a winner
    return lifts, _ranks(means, boards, table.step, plan)


def weights(units: int, plan: Plan, size: int = 0) -> Iterator[tuple[slice, Floats]]:
    """How often each unit was drawn, resamples x units, in blocks; the same numbers whatever the blocks.

    `size` is how many numbers the caller keeps for each resample of a block.
    """
    times = _times(units, plan.resamples, plan.seed)
    step = max(1, 4 * BLOCK // max(1, units, size))
    for start in range(0, plan.resamples, step):
        rows = slice(start, min(start + step, plan.resamples))
        yield rows, times[rows].astype(np.float64)


@lru_cache(maxsize=1)
def _times(units: int, resamples: int, seed: int) -> NDArray[np.uint16]:
    """The draws themselves; large boards all have the same number of units, and so share them."""
    rng = np.random.default_rng(seed)
    times = np.empty((resamples, units), dtype=np.uint16)
    for rows in blocks(resamples, units):
        many = rows.stop - rows.start
        drawn = rng.integers(0, units, size=(many, units)) + units * np.arange(many)[:, None]
        times[rows] = np.bincount(drawn.ravel(), minlength=many * units).reshape(many, units)
    return times


def _units(problems: int, cluster: Ints | None, seed: int) -> Ints:
    """The unit of each problem, which is drawn as a whole: itself, its cluster, or a hand of either."""
    unit = np.arange(problems) if cluster is None else cluster
    many = int(unit.max(initial=-1)) + 1
    if many <= MOST_UNITS:
        return unit
    return (np.random.default_rng([seed, 1]).permutation(many) % MOST_UNITS)[unit]


class _Table:
    """Scores as whole numbers of steps, 0 where there is none; below them, one row of 0 and 1 for each kind.

    Rows of one kind are scored on the same problems. Mostly there is one kind; what rows of different kinds
    have in common is the problems of one without those that the other is lacking.
    """

    def __init__(self, scores: Floats, unit: Ints) -> None:
        self.scores, self.unit = scores, unit
        self.units = int(unit.max(initial=-1)) + 1
        largest = np.nanmax(np.abs(scores), initial=1.0)
        together = int(np.bincount(unit).max(initial=1))
        self.step = 2.0 ** (int(np.ceil(np.log2(largest * together * max(1, self.units)))) - 52)
        scored = ~np.isnan(scores)
        _, first, kind = np.unique(np.packbits(scored, axis=1), axis=0, return_index=True, return_inverse=True)
        self.kinds, self.kind = scored[first], kind.ravel()
        self.lacking = [np.flatnonzero(~kind) for kind in self.kinds]
        self.size = len(self.kinds) * (len(scores) + len(self.kinds))
        self.by_unit = np.stack([np.bincount(unit, row, self.units) for row in self._columns(slice(None))])

    def row(self, i: int) -> Floats:
        """One row in steps, NaN where it has none."""
        steps: Floats = np.rint(self.scores[i] / self.step)
        return steps

    def _columns(self, problems: slice | Ints) -> Floats:
        steps = np.nan_to_num(np.rint(self.scores[:, problems] / self.step), nan=0.0)
        return np.concatenate([steps, self.kinds[:, problems]])

    def sums(self, weight: Floats) -> _Sums:
        """Everything added up as the resamples of a block weigh it."""
        lost = np.zeros((len(self.kinds), len(self.by_unit), len(weight)))
        if len(self.kinds) > 1:
            for out, problems in zip(lost, self.lacking, strict=True):
                out[:] = self._columns(problems) @ weight[:, self.unit[problems]].T
        return _Sums(self.by_unit @ weight.T, lost, self.kind, self.step)


@dataclass(frozen=True)
class _Sums:
    """Sums of a block of resamples, all exact: of every row and kind, and of what each kind lacks of them."""

    whole: Floats
    """rows and kinds x resamples"""
    lost: Floats
    """kinds x rows and kinds x resamples"""
    kind: Ints
    step: float

    def means(self) -> Floats:
        """Mean of each row over its own problems, NaN where none was drawn."""
        rows = self.kind.size
        return ratio(self.whole[:rows], self.whole[rows + self.kind]) * self.step

    def lifts(self, a: Ints, b: Ints) -> Floats:
        """Mean of row b minus mean of row a over their common problems, NaN where none was drawn."""
        kind_a, kind_b, rows = self.kind[a], self.kind[b], self.kind.size
        of_b = self.whole[b] - self.lost[kind_a, b]
        of_a = self.whole[a] - self.lost[kind_b, a]
        count = self.whole[rows + kind_b] - self.lost[kind_a, rows + kind_b]
        return ratio(of_b - of_a, count) * self.step


def _point(table: _Table, a: Ints, b: Ints) -> Lifts:
    """The lifts themselves, and who won where; intervals are still to come."""
    problems, wins_a, wins_b = (np.zeros(a.size, dtype=np.int64) for _ in range(3))
    lift, lo, hi = (np.full(a.size, np.nan) for _ in range(3))
    for i in np.unique(a):
        mine = table.row(i)
        for pair in np.flatnonzero(a == i):
            gap = table.row(b[pair]) - mine
            both = ~np.isnan(gap)
            problems[pair] = np.count_nonzero(both)
            wins_a[pair], wins_b[pair] = np.count_nonzero(gap < 0), np.count_nonzero(gap > 0)
            if problems[pair]:
                lift[pair] = (table.scores[b[pair]] - table.scores[i])[both].mean()
    return Lifts(problems, lift, lo, hi, wins_a, wins_b)


def _ends(drawn: Floats, plan: Plan) -> tuple[Floats, Floats]:
    """Percentiles of each row; resamples that drew none of the common problems say nothing and are left out."""
    lo, hi = np.full(len(drawn), np.nan), np.full(len(drawn), np.nan)
    broken = np.isnan(drawn).any(axis=1)
    whole = np.flatnonzero(~broken)
    for rows in blocks(whole.size, plan.resamples):
        lo[whole[rows]], hi[whole[rows]] = np.quantile(drawn[whole[rows]], plan.tails, axis=1)
    for at in np.flatnonzero(broken):
        known = drawn[at][~np.isnan(drawn[at])]
        if known.size:
            lo[at], hi[at] = np.quantile(known, plan.tails)
    return lo, hi


def _ranks(means: Floats, boards: list[Ints], step: float, plan: Plan) -> Ranks:
    """Ranks in every resample; means within a step of each other are tied and share the better and worse rank."""
    low, high = np.zeros(means.shape[0], dtype=np.int64), np.zeros(means.shape[0], dtype=np.int64)
    best = np.full(means.shape[0], np.nan)
    for board in boards:
        ranked = board[~np.isnan(means[board]).all(axis=1)]
        if not ranked.size:
            continue
        first, last = _tied_ranks(np.nan_to_num(means[ranked], nan=-np.inf), step)
        low[ranked] = np.quantile(first, plan.tails[0], axis=1, method="inverted_cdf")
        high[ranked] = np.quantile(last, plan.tails[1], axis=1, method="inverted_cdf")
        leading = first == 1
        best[ranked] = (leading / leading.sum(axis=0)).mean(axis=1)
    return Ranks(low, high, best)


def _tied_ranks(means: Floats, step: float) -> tuple[Ints, Ints]:
    """The best and the worst rank of every row in every column, equal rows sharing both."""
    order = np.argsort(-means, axis=0, kind="stable")
    falling = np.take_along_axis(means, order, axis=0)
    with np.errstate(invalid="ignore"):  # -inf minus -inf: a tie of those without any problem
        begins = np.concatenate([np.ones((1, means.shape[1]), dtype=bool), falling[:-1] - falling[1:] > step])
    place = np.arange(means.shape[0])[:, None]
    first = np.maximum.accumulate(np.where(begins, place, 0), axis=0) + 1
    ends = np.concatenate([begins[1:], np.ones((1, means.shape[1]), dtype=bool)])
    last = np.minimum.accumulate(np.where(ends, place, means.shape[0])[::-1], axis=0)[::-1] + 1
    out = np.empty((2, *means.shape), dtype=np.int64)
    np.put_along_axis(out[0], order, first, axis=0)
    np.put_along_axis(out[1], order, last, axis=0)
    return out[0], out[1]
