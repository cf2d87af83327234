"""Paired bootstrap over whole problems: scores of many models on the same problems in, lifts and ranks out.

Every resample is one row of counts (how often each problem was drawn), and that row is shared by all models,
pairs and metrics. So all lifts of all pairs come from one product of two matrices, weights x scores.

Scores are whole multiples of a power of two, chosen so small that no sum can pass 2^53: every sum is exact,
in whatever order and on however many threads it is made. Equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.draws import Floats, Ints, blocks, ratio
from scorelake.threads import side_by_side

MOST_UNITS = 1 << 11
"""Above this many problems they are dealt at random into so many hands, and whole hands are drawn: the same
spread to within two percent, and a cost that no longer grows with the benchmark."""
_PAIRS = 4096
"""Pairs whose lifts are kept at once, each over all resamples."""
_CACHED = 4
"""Parts of a block of numbers: weights are used while they are in the processor's own cache."""
_ROWS = 512
"""Rows that are resampled together, unless one sample has more."""
_STREAM = 1 << 18
"""Numbers drawn from one random stream; streams are drawn side by side, and none depends on another."""


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


@dataclass(frozen=True)
class Sample:
    """Rows of scores over problems (NaN where not scored), pairs of rows to compare, and sets of rows to rank.

    A board is a set of rows ranked against each other by the mean of each one's own problems. `cluster`
    numbers the problems that belong together (from 0); such problems are drawn together.
    """

    scores: Floats
    a: Ints
    b: Ints
    boards: list[Ints]
    cluster: Ints | None = None


def bootstrap(
    scores: Floats, a: Ints, b: Ints, boards: list[Ints], cluster: Ints | None, plan: Plan
) -> tuple[Lifts, Ranks]:
    """Compare the rows b with the rows a of one sample, and rank its boards."""
    return bootstrap_all([Sample(scores, a, b, boards, cluster)], plan)[0]


def bootstrap_all(samples: Sequence[Sample], plan: Plan) -> list[tuple[Lifts, Ranks]]:
    """The same for several samples; those with equally many units share the weights and one product."""
    tables = [_Table(some.scores, _units(some.scores.shape[1], some.cluster, plan.seed)) for some in samples]
    means: dict[int, Floats] = {}
    for units in dict.fromkeys(table.units for table in tables):
        alike = [i for i, table in enumerate(tables) if table.units == units]
        for some in _batches(alike, [len(table.by_unit) for table in tables]):
            means |= dict(zip(some, _means([tables[i] for i in some], plan), strict=True))
    return [_found(each, tables[i], means[i], plan) for i, each in enumerate(samples)]


def _found(sample: Sample, table: _Table, means: Floats, plan: Plan) -> tuple[Lifts, Ranks]:
    a, b = sample.a, sample.b
    lifts = _point(table, a, b)
    same = table.kind[a] == table.kind[b]
    _same_problems(means, a, b, np.flatnonzero(same), lifts, plan)
    _other_problems(table, a, b, np.flatnonzero(~same), lifts, plan)
    for column in (lifts.lift, lifts.lo, lifts.hi):
        column[np.abs(column) <= table.step] = 0  # below the grid: zero, not a winner
    return lifts, _ranks(means, sample.boards, table.step, plan)


# --- weights --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _times(units: int, resamples: int, seed: int) -> NDArray[np.uint16]:
    """How often each unit was drawn, resamples x units; large boards have equally many units, and so share them."""
    times = np.empty((resamples, units), dtype=np.uint16)
    step = max(1, _STREAM // max(1, units))

    def draw(start: int) -> None:
        rng = np.random.default_rng([seed, 2, start])
        rows = times[start : start + step]
        drawn = rng.integers(0, units, size=rows.shape, dtype=np.uint16) + units * np.arange(len(rows))[:, None]
        rows[:] = np.bincount(drawn.ravel(), minlength=rows.size).reshape(rows.shape)

    if units:
        side_by_side(draw, range(0, resamples, step))
    return times


def _units(problems: int, cluster: Ints | None, seed: int) -> Ints:
    """The unit of each problem, which is drawn as a whole: itself, its cluster, or a hand of either."""
    unit = np.arange(problems) if cluster is None else cluster
    many = int(unit.max(initial=-1)) + 1
    if many <= MOST_UNITS:
        return unit
    return (np.random.default_rng([seed, 1]).permutation(many) % MOST_UNITS)[unit]


def _batches(items: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Items in their order, together of at most _ROWS rows."""
    some: list[int] = []
    for item in items:
        if some and sum(sizes[i] for i in some) + sizes[item] > _ROWS:
            yield some
            some = []
        some.append(item)
    yield some


# --- sums -----------------------------------------------------------------------------------------------------


class _Table:
    """Scores as whole numbers of steps, NaN where there is none; and which rows are of the same kind.

    Rows of one kind are scored on the same problems. Mostly there is one kind; what rows of different kinds
    have in common is the problems of one without those that the other is lacking.
    """

    def __init__(self, scores: Floats, unit: Ints) -> None:
        self.scores, self.unit = scores, unit
        self.units = int(unit.max(initial=-1)) + 1
        largest = max(np.nanmax(scores, initial=1.0), -np.nanmin(scores, initial=-1.0))
        together = int(np.bincount(unit).max(initial=1))
        self.step = 2.0 ** (int(np.ceil(np.log2(largest * together * max(1, self.units)))) - 52)
        self.steps = np.divide(scores, self.step)
        np.rint(self.steps, out=self.steps)
        scored = ~np.isnan(scores)
        first: dict[bytes, int] = {}
        keys = [np.packbits(row).tobytes() for row in scored]
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        number = {key: i for i, key in enumerate(first)}
        self.kinds, self.kind = scored[list(first.values())], np.array([number[key] for key in keys], dtype=np.int64)
        self.lacking = [np.flatnonzero(~kind) for kind in self.kinds]
        self.by_unit = np.empty((len(scores) + len(self.kinds), self.units))
        side_by_side(self._add_up, range(len(self.by_unit)))

    def _add_up(self, i: int) -> None:
        self.by_unit[i] = np.bincount(self.unit, self._column(i, slice(None)), self.units)

    def _column(self, i: int, problems: slice | Ints) -> Floats:
        """A row in steps, 0 where it has none; after the rows, one of 0 and 1 for each kind."""
        if i >= len(self.steps):
            return self.kinds[i - len(self.steps), problems].astype(np.float64)
        return np.nan_to_num(self.steps[i, problems], nan=0.0)

    def lost(self, times: Floats) -> Floats:
        """Rows and kinds added up over the problems that each kind lacks: kinds x rows and kinds x resamples.

        In: how often each unit was drawn, units x resamples.
        """
        out = np.empty((len(self.kinds), len(self.by_unit), times.shape[1]))
        for sums, (columns, unit) in zip(out, self._lost, strict=True):
            sums[:] = columns @ times[unit]
        return out

    @cached_property
    def _lost(self) -> list[tuple[Floats, Ints]]:
        """What is to be added up for each kind, and the units: those of the problems, or all if those are fewer."""
        return side_by_side(self._lost_to, self.lacking)

    def _lost_to(self, problems: Ints) -> tuple[Floats, Ints]:
        unit, rows = self.unit[problems], range(len(self.by_unit))
        if problems.size <= self.units:
            return np.stack([self._column(i, problems) for i in rows]), unit
        added = [np.bincount(unit, self._column(i, problems), self.units) for i in rows]
        return np.stack(added), np.arange(self.units)


def _means(tables: Sequence[_Table], plan: Plan) -> list[Floats]:
    """Mean of each row over its own problems in every resample, NaN where none was drawn; for tables alike in units.

    Every row and kind is added up as the resamples of a block weigh it, exactly.
    """
    means = [np.empty((len(table.scores), plan.resamples)) for table in tables]
    by_unit = np.concatenate([table.by_unit for table in tables])
    first = np.cumsum([0, *(len(table.by_unit) for table in tables)])
    times = _times(tables[0].units, plan.resamples, plan.seed)

    def resample(columns: slice) -> None:
        sums = by_unit @ times[columns].astype(np.float64).T
        for low, table, mean in zip(first, tables, means, strict=False):
            rows, kinds = slice(low, low + len(mean)), low + len(mean) + table.kind
            mean[:, columns] = ratio(sums[rows], sums[kinds]) * table.step

    side_by_side(resample, blocks(plan.resamples, _CACHED * max(tables[0].units, len(by_unit))))
    return means


# --- lifts ----------------------------------------------------------------------------------------------------


def _point(table: _Table, a: Ints, b: Ints) -> Lifts:
    """The lifts themselves, and who won where; intervals are still to come."""
    wins_a, wins_b = (np.zeros(a.size, dtype=np.int64) for _ in range(2))
    lift, lo, hi = (np.full(a.size, np.nan) for _ in range(3))
    many = range(len(table.kinds))
    common = np.array([[np.count_nonzero(table.kinds[i] & table.kinds[j]) for i in many] for j in many])
    problems = common[table.kind[a], table.kind[b]].astype(np.int64) if a.size else np.zeros(0, dtype=np.int64)

    def meet_others(i: int) -> None:
        for pair in np.flatnonzero(a == i):
            mine, other = table.steps[i], table.steps[b[pair]]
            wins_a[pair], wins_b[pair] = np.count_nonzero(mine > other), np.count_nonzero(other > mine)
            if problems[pair]:
                gap = table.scores[b[pair]] - table.scores[i]
                lift[pair] = (gap if problems[pair] == gap.size else gap[~np.isnan(gap)]).mean()

    side_by_side(meet_others, np.unique(a).tolist())
    return Lifts(problems, lift, lo, hi, wins_a, wins_b)


def _same_problems(means: Floats, a: Ints, b: Ints, pairs: Ints, lifts: Lifts, plan: Plan) -> None:
    """Intervals of pairs scored on the same problems: a lift is the difference of two means."""

    def compare(some: slice) -> None:
        at = pairs[some]
        lifts.lo[at], lifts.hi[at] = _ends(means[b[at]] - means[a[at]], plan)

    side_by_side(compare, list(blocks(pairs.size, 8 * plan.resamples)))


def _other_problems(table: _Table, a: Ints, b: Ints, pairs: Ints, lifts: Lifts, plan: Plan) -> None:
    """Intervals of pairs of different kinds, over the problems they have in common."""
    for start in range(0, pairs.size, _PAIRS):
        at = pairs[start : start + _PAIRS]
        lifts.lo[at], lifts.hi[at] = _ends(_lifted(table, a[at], b[at], plan), plan)


def _lifted(table: _Table, a: Ints, b: Ints, plan: Plan) -> Floats:
    """The lifts of such pairs in every resample."""
    rows, kind_a, kind_b = len(table.scores), table.kind[a], table.kind[b]
    times, drawn = _times(table.units, plan.resamples, plan.seed), np.empty((a.size, plan.resamples))

    def resample(columns: slice) -> None:
        here = times[columns].T.astype(np.float64, order="C")
        whole, lost = table.by_unit @ here, table.lost(here)
        of_b = whole[b] - lost[kind_a, b]
        of_a = whole[a] - lost[kind_b, a]
        count = whole[rows + kind_b] - lost[kind_a, rows + kind_b]
        drawn[:, columns] = ratio(of_b - of_a, count) * table.step

    size = len(table.kinds) * len(table.by_unit)
    side_by_side(resample, blocks(plan.resamples, max(table.units, size // 8)))  # few: each looks up what is lost
    return drawn


def _ends(drawn: Floats, plan: Plan) -> tuple[Floats, Floats]:
    """Percentiles of each row, rearranging it; resamples that drew none of the common problems are left out."""
    lo, hi = np.full(len(drawn), np.nan), np.full(len(drawn), np.nan)
    broken = np.isnan(drawn).any(axis=1)
    whole = drawn if not broken.any() else drawn[~broken]
    lo[~broken], hi[~broken] = (_percentile(whole, tail) for tail in plan.tails)
    for at in np.flatnonzero(broken):
        known = drawn[at][~np.isnan(drawn[at])]
        if known.size:
            lo[at], hi[at] = np.quantile(known, plan.tails)
    return lo, hi


def _percentile(rows: Floats, share: float) -> Floats:
    """np.quantile along the rows; selecting one place at a time is much faster than four at once."""
    place = share * (rows.shape[1] - 1)
    at = int(place)
    rows.partition(at, axis=1)
    low = rows[:, at].copy()
    above = rows[:, at + 1 :].min(axis=1, initial=np.inf)
    return np.where(above < np.inf, low + (above - low) * (place - at), low)


# --- ranks ----------------------------------------------------------------------------------------------------


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
