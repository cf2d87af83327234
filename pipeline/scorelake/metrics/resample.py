"""Paired bootstrap over whole problems: scores of many models on the same problems in, lifts and ranks out.

Every resample is one row of counts (how often each problem was drawn), and that row is shared by all models,
pairs and metrics. So all lifts of all pairs come from one product of two matrices, weights x scores.

Scores are whole multiples of a power of two, chosen so small that no sum can pass 2^53: every sum is exact,
in whatever order and on however many threads it is made. Equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scorelake.metrics.draws import BLOCK, Floats, Ints

MOST_UNITS = 1 << 15
"""Above this many problems they are dealt at random into so many hands, and whole hands are drawn: the same
spread to within half a percent, and a cost that no longer grows with the benchmark."""
_COLUMNS = 1024
"""Sums kept at once, each over all resamples."""


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
    grid = _Grid(scores, _units(scores.shape[1], cluster, plan.seed))
    sets = _common_sets(~np.isnan(scores), a, b)
    lifts = _point(scores, grid, a, b)
    means = np.full((scores.shape[0], plan.resamples), np.nan)
    for some in _batches(sets):
        sums, counts = _resampled(grid, some, plan)
        for own, total, count in zip(some, sums, counts, strict=True):
            drawn = np.where(count > 0, count, np.nan)
            if own.owners.size:
                means[own.owners] = total[np.searchsorted(own.rows, own.owners)] / drawn * grid.step
            _intervals(lifts, own, a, b, total, drawn * (1 / grid.step), plan)
    for column in (lifts.lift, lifts.lo, lifts.hi):
        column[np.abs(column) <= grid.step] = 0  # below the grid: zero, not a winner
    return lifts, _ranks(means, boards, grid.step, plan)


def weights(units: int, plan: Plan) -> Iterator[tuple[slice, Floats]]:
    """How often each unit was drawn, resamples x units, in blocks; the same numbers whatever the blocks."""
    rng = np.random.default_rng(plan.seed)
    step = max(1, 4 * BLOCK // max(1, units))
    for start in range(0, plan.resamples, step):
        rows = slice(start, min(start + step, plan.resamples))
        block = np.empty((rows.stop - rows.start, units))
        for row in block:
            row[:] = np.bincount(rng.integers(0, units, size=units), minlength=units)
        yield rows, block


class _Grid:
    """Scores as whole numbers of steps, added up by unit."""

    def __init__(self, scores: Floats, unit: Ints | None) -> None:
        self.scores, self.unit = scores, unit
        self.units = scores.shape[1] if unit is None else int(unit.max(initial=-1)) + 1
        largest = np.nanmax(np.abs(scores), initial=1.0)
        together = 1 if unit is None else int(np.bincount(unit).max(initial=1))
        self.step = 2.0 ** (int(np.ceil(np.log2(largest * together * max(1, self.units)))) - 52)

    def row(self, i: int) -> Floats:
        """One row in steps, NaN where it has none."""
        steps: Floats = np.rint(self.scores[i] / self.step)
        return steps

    def by_unit(self, values: Floats) -> Floats:
        return values if self.unit is None else np.bincount(self.unit, values, self.units).astype(np.float64)


@dataclass(frozen=True)
class _Common:
    """Problems that a set of rows share: the rows to add up on them, the pairs to compare, the rows whose own
    problems these are."""

    problems: np.ndarray
    rows: Ints
    pairs: Ints
    owners: Ints


def _units(problems: int, cluster: Ints | None, seed: int) -> Ints | None:
    """What is drawn as a whole: problems, clusters, or hands of either; None when it is single problems."""
    many = problems if cluster is None else int(cluster.max(initial=-1)) + 1
    if many <= MOST_UNITS:
        return cluster
    hand = np.random.default_rng([seed, 1]).permutation(many) % MOST_UNITS
    return hand if cluster is None else hand[cluster]


def _common_sets(mask: np.ndarray, a: Ints, b: Ints) -> list[_Common]:
    """The distinct sets of common problems: one when every row has every problem, as it mostly is."""
    packed = np.packbits(mask, axis=1)
    _, first, kind = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    kind = kind.ravel()
    low, high = np.minimum(kind[a], kind[b]), np.maximum(kind[a], kind[b])
    key = low * first.size + high
    own = kind * (first.size + 1)
    out = []
    for each in np.unique(np.concatenate([key, own])):
        i, j = divmod(int(each), first.size)
        pairs = np.flatnonzero(key == each)
        owners = np.flatnonzero(own == each)
        rows = np.unique(np.concatenate([a[pairs], b[pairs], owners]))
        out.append(_Common(mask[first[i]] & mask[first[j]], rows, pairs, owners))
    return out


def _batches(sets: list[_Common]) -> Iterator[list[_Common]]:
    """Sets whose columns together stay near the limit."""
    some: list[_Common] = []
    for each in sets:
        if some and sum(s.rows.size + 1 for s in some) + each.rows.size > _COLUMNS:
            yield some
            some = []
        some.append(each)
    if some:
        yield some


def _resampled(grid: _Grid, sets: list[_Common], plan: Plan) -> tuple[list[Floats], list[Floats]]:
    """For each set the sums of its rows (rows x resamples, in steps) and the number of problems drawn."""
    columns = [
        grid.by_unit(values)
        for each in sets
        for values in (
            *(np.where(each.problems, grid.row(i), 0) for i in each.rows),
            each.problems.astype(np.float64),
        )
    ]
    table = np.stack(columns)
    drawn = np.empty((table.shape[0], plan.resamples))
    for rows, weight in weights(grid.units, plan):
        drawn[:, rows] = table @ weight.T
    ends = np.cumsum([each.rows.size + 1 for each in sets])
    parts = np.split(drawn, ends[:-1])
    return [part[:-1] for part in parts], [part[-1] for part in parts]


def _point(scores: Floats, grid: _Grid, a: Ints, b: Ints) -> Lifts:
    """The lifts themselves, and who won where; intervals are still to come."""
    problems, wins_a, wins_b = (np.zeros(a.size, dtype=np.int64) for _ in range(3))
    lift, lo, hi = (np.full(a.size, np.nan) for _ in range(3))
    for i in np.unique(a):
        mine, exact = grid.row(i), scores[i]
        for pair in np.flatnonzero(a == i):
            gap = grid.row(b[pair]) - mine
            both = ~np.isnan(gap)
            problems[pair] = np.count_nonzero(both)
            wins_a[pair], wins_b[pair] = np.count_nonzero(gap < 0), np.count_nonzero(gap > 0)
            if problems[pair]:
                lift[pair] = (scores[b[pair]] - exact)[both].mean()
    return Lifts(problems, lift, lo, hi, wins_a, wins_b)


def _intervals(lifts: Lifts, own: _Common, a: Ints, b: Ints, total: Floats, scale: Floats, plan: Plan) -> None:
    """Fill in the percentile intervals of the pairs of one set, a few pairs at a time."""
    place_a, place_b = (np.searchsorted(own.rows, rows[own.pairs]) for rows in (a, b))
    whole = not np.isnan(scale).any()
    step = max(1, BLOCK // plan.resamples)
    for start in range(0, own.pairs.size, step):
        some = slice(start, start + step)
        drawn = (total[place_b[some]] - total[place_a[some]]) / scale
        ends = (np.quantile if whole else _known_quantile)(drawn, plan.tails, axis=1)
        lifts.lo[own.pairs[some]], lifts.hi[own.pairs[some]] = ends


def _known_quantile(drawn: Floats, tails: tuple[float, float], axis: int) -> Floats:
    """Leaves out resamples that drew none of the common problems, which say nothing."""
    known = ~np.isnan(drawn[0])
    if not known.any():
        return np.full((2, drawn.shape[0]), np.nan)
    out: Floats = np.quantile(drawn[:, known], tails, axis=axis)
    return out


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
