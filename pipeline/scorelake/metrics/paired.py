"""Compare models on the same problems: lifts with intervals and p-values, and ranges of ranks.

Weights and signs of the problems are shared by all models, so resampled means and flipped sums of all models are one
matrix product each. A pair of models scored on the same problems is the difference of two rows; any other pair has
sums of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.board import ModelSums, count_wins, distances, pair_batches, sum_differences, unequal
from scorelake.metrics.bootstrap import MAX_WEIGHT, Resamples, Units, percentile_ends, resample
from scorelake.metrics.distributions import Floats, Ints, blocks, ratio
from scorelake.metrics.interval import equivalence_interval, invert, mean_pair_ends
from scorelake.metrics.significance import flip_test, sign_test
from scorelake.threads import parallel_map, single_threaded_blas

_MAX_LIFTS, _MIN_RESAMPLES = 1 << 27, 2000
"""Resampled lifts of all pairs of a table: with more pairs, each has fewer resamples."""
_BLOCK, PAIRS_WITH_OWN_SUMS = 1 << 19, 128
"""Resampled lifts per block of pairs on the same problems; and pairs per block of others."""
_SMALL = 1 << 26  # multiplications below which threads cost more than they save
_MAX_RIVALS, _MIN_FLIPS = 1 << 34, 500
"""Numbers from which ranges of ranks are made, one per flip and two models. Thousands of models use fewer flips than
there are, 687 for 5,000: with 2,000 these took 228 seconds in five subjects."""
_FLOAT32_RATIO, _ROUNDING = 300, 1e-4
"""Equal differences of 32-bit numbers that are at most so many times as large differ by less than this share."""
_EXACT = 1 << 24  # whole numbers up to here are exact in 32 bits


MAX_FLIP_RATIO = 2.0 + 1e-6
"""Signs are flipped if one of two models has at most so many times as many attempts per problem: the test calls equal
models different in at most 5.1% of cases, but in 11% at 1 against 4 attempts, and in up to 47% at 1 against 16."""


@dataclass(frozen=True)
class ResamplePlan:
    """Number of resamples, seed and confidence level; equal plans give equal weights and signs."""

    resamples: int = 10_000
    seed: int = 0
    confidence: float = 0.95

    def resamples_for(self, pairs: int) -> int:
        """Return the number of resamples for each of so many pairs."""
        return min(self.resamples, max(_MIN_RESAMPLES, _MAX_LIFTS // max(1, pairs)))


@dataclass(frozen=True)
class Lifts:
    """Model b against model a over the problems scored by both; one entry per pair."""

    problems: Ints
    lift: Floats
    lo: Floats
    hi: Floats
    inner_lo: Floats  # ends of the equivalence interval, 95% on each side, which margins are tested with
    inner_hi: Floats
    wins_a: Ints
    wins_b: Ints
    p_a: Floats  # one-sided p-values that a and b are ahead; two-sided
    p_b: Floats
    p_two_sided: Floats
    t: Floats  # sum d / sqrt(sum d^2) over units
    separated: NDArray[np.bool_]
    """False if both are ranked, and the difference is one that chance makes for either of them and some rival."""
    by_means: NDArray[np.bool_]  # the interval and the p-values come from the intervals of both means

    @classmethod
    def empty(cls, pairs: int) -> Lifts:
        types: dict[str, Any] = dict.fromkeys(("problems", "wins_a", "wins_b"), np.int64)
        types |= dict.fromkeys(("separated", "by_means"), np.bool_)
        return cls(*(np.zeros(pairs, types.get(field.name, np.float64)) for field in fields(cls)))

    def take(self, at: NDArray[np.bool_]) -> Lifts:
        return Lifts(**{name: column[at] for name, column in vars(self).items()})


@dataclass(frozen=True)
class Ranks:
    """Range of the rank of each ranked model, as far as it follows from models that it is not compared with; and the
    share of resamples in which it leads. The compared pairs that are `separated` are left to the caller."""

    lo: Ints
    hi: Ints
    best: Floats


def compare_scores(
    scores: Floats,
    units: Units,
    plan: ResamplePlan,
    pairs: tuple[Ints, Ints] | None = None,
    ranked: Ints | None = None,
    n_differs: NDArray[np.bool_] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[Lifts, Ranks]:
    """Compare models by their scores, models x problems; NaN where a model has no score.

    pairs: rows to compare, the lower one first, by default all; both need scores on problems of two units in common.
    ranked: rows to rank, by default all; scored on the same problems, or every two of them must be a pair. n_differs:
    rows, two by two, whose numbers of attempts differ by more than MAX_FLIP_RATIO. bounds: of the scores.

    >>> rng = np.random.default_rng(0)
    >>> scores = np.stack([np.zeros(40), np.ones(40)])
    >>> lifts, ranks = compare_scores(scores, Units.of(np.arange(40, dtype=np.uint64)), ResamplePlan(1000))
    >>> lifts.lift.tolist(), ranks.lo.tolist()
    ([1.0], [2, 1])
    """
    a, b = pairs or np.triu_indices(len(scores), 1)
    sums = ModelSums.of(scores, units.index, units.key.size)
    drawn = resample(units.key, plan.resamples, plan.seed)
    chosen = np.arange(len(scores)) if ranked is None else ranked
    with single_threaded_blas():  # several threads would add in another order
        comparison = PairedComparison(sums, a, b, chosen, drawn, plan.confidence, units.clustered, n_differs, bounds)
        same, *batches = pair_batches(comparison.has_own_sums, PAIRS_WITH_OWN_SUMS)
        comparison.compare(same, count_wins(scores, a[same], b[same], sums.tolerance))
        for at in batches:
            wins = count_wins(scores, a[at], b[at], sums.tolerance)
            comparison.compare(at, wins, sum_differences(scores, units.index, units.key.size, a[at], b[at]))
        lifts, ranks = comparison.finish()
    decided = lifts.separated & np.isin(a, chosen) & np.isin(b, chosen)
    losers, winners = np.where(lifts.lift > 0, (a, b), (b, a))[:, decided]
    lost, won = (np.bincount(models, minlength=len(scores))[chosen] for models in (losers, winners))
    return lifts, replace(ranks, lo=ranks.lo + lost, hi=ranks.hi - won)


class PairedComparison:
    """Compare pairs (a, b) of models and rank models, batch by batch, from the sums of their scores."""

    def __init__(
        self,
        sums: ModelSums,
        a: Ints,
        b: Ints,
        ranked: Ints,
        drawn: Resamples,
        confidence: float,
        clustered: bool,
        n_differs: NDArray[np.bool_] | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.n_differs = np.zeros((len(sums.sums), len(sums.sums)), dtype=bool) if n_differs is None else n_differs
        """Models, two by two, with so different numbers of attempts that signs cannot be flipped."""
        low, high = bounds if np.isfinite(bounds[1] - bounds[0]) else sums.ends
        self.bounds, self.bounded = (low, high if high > low else low + 1), np.isfinite(bounds[1] - bounds[0])
        """Ends of the scores; where nothing bounds them, those that any model had."""
        self.present = np.flatnonzero(sums.counts.any(axis=0))
        """Units with a scored problem: a subject has few of its benchmark's."""
        self.sums, self.counts = sums.sums[:, self.present], sums.counts[:, self.present]
        self.a, self.b, self.ranked, self.confidence = a, b, ranked, confidence
        self.has_own_sums = sums.differ(a, b)
        self.drawn, self.clustered, self.quantum = drawn.of(self.present), clustered, sums.tolerance
        models, size = len(self.sums), drawn.size
        self.lifts = Lifts.empty(a.size)
        self.as_far, self.farther, self.coins_a, self.coins_b = np.zeros((4, a.size), dtype=np.int64)
        """Flips of a pair that came as far from zero as its data, and farther; its wins where only signs count."""
        self.means, self.flipped = np.empty((models, size)), np.empty((models, size))
        pairs = np.triu_indices(ranked.size, 1)
        self.same_problems = not sums.differ(ranked[pairs[0]], ranked[pairs[1]]).any()
        """Ranked models are scored on the same problems: flips of any two are differences of rows."""
        self.flips = min(size, max(_MIN_FLIPS, _MAX_RIVALS // max(1, ranked.size**2))) if self.same_problems else size
        self.farthest = np.zeros((ranked.size, self.flips if ranked.size else 0), dtype=np.float32)
        """The largest |t| of each flip, over all rivals of a ranked model."""
        self.rank_index = np.full(models, -1)
        if not self.same_problems:
            self.rank_index[ranked] = np.arange(ranked.size)
        self.lock = Lock()
        self.threads = None if size * (self.sums.size + 50 * a.size) > _SMALL else 1
        parallel_map(self._draw, blocks(size, 4 * sum(self.sums.shape)), self.threads)

    def finish(self) -> tuple[Lifts, Ranks]:
        """Return the comparisons and ranks, after all pairs have been compared."""
        # p-values come from flips, or are exact where only signs count.
        lifts, exact = self.lifts, self.coins_a >= 0
        wins_a, wins_b = self.coins_a[exact], self.coins_b[exact]
        p = np.stack(flip_test(lifts.t, self.as_far, self.farther, self.drawn.size))
        p[:, exact] = sign_test(wins_b, wins_a)[0], *sign_test(wins_a, wins_b)
        p[:, lifts.by_means] = lifts.p_a[lifts.by_means], lifts.p_b[lifts.by_means], lifts.p_two_sided[lifts.by_means]
        lifts.p_a[:], lifts.p_b[:], lifts.p_two_sided[:] = p
        return lifts, Ranks(*self._rank_ranges(), self._share_of_leads())

    def _draw(self, columns: slice) -> None:
        """Compute the mean of each model in each resample, and its sum in each flip."""
        weights, signs = self.drawn.factors(columns, np.float64)
        self.means[:, columns] = ratio(self.sums @ weights, self.counts @ weights)
        self.flipped[:, columns] = self.sums @ signs

    def compare(self, pairs: Ints, wins: Floats, differences: Floats | None = None) -> None:
        """Compare pairs, by number: either all scored on the same problems, or all with differences of their own."""
        step = max(1, _BLOCK // self.drawn.size) if differences is None else PAIRS_WITH_OWN_SUMS
        slices = [slice(first, first + step) for first in range(0, pairs.size, step)]
        parallel_map(lambda at: self._compare(pairs[at], wins[:, at], at, differences), slices, self.threads)

    def _compare(self, pairs: Ints, wins: Floats, at: slice, differences: Floats | None) -> None:
        a, b, lifts = self.a[pairs], self.b[pairs], self.lifts
        if differences is None:
            by_unit, counts = self.sums[b] - self.sums[a], self.counts[a if len(self.counts) > 1 else a * 0]
            lifted, flipped = self.means[b], self.flipped[b]
            row = a[0] if a[0] == a[-1] else a  # pairs come model by model: mostly one row, which need not be copied
            lifted -= self.means[row]
            flipped -= self.flipped[row]
            problems = counts.sum(axis=1)
            grain = problems * self.quantum
        else:
            by_unit, first, counts = differences[:, at][:, :, self.present]
            problems = counts.sum(axis=1)
            lifted, flipped, rounding = self._resample(by_unit, counts)
            grain = problems * self.quantum + rounding
        total = by_unit.sum(axis=1)
        total[np.abs(total) <= problems * self.quantum] = 0  # rounding: equal, not a tiny winner
        lift, norm = total / problems, np.sqrt(np.einsum("ij,ij->i", by_unit, by_unit))
        lifts.problems[pairs], lifts.wins_a[pairs], lifts.wins_b[pairs] = problems, wins[0], wins[1]
        lifts.lift[pairs], lifts.t[pairs] = lift, total / np.where(norm > 0, norm, 1)
        units = np.count_nonzero(counts, axis=1) if self.clustered else problems
        lo, hi = percentile_ends(lifted, lift, units, self.confidence)
        for end, outer in ((lo, np.minimum), (hi, np.maximum)):
            end[np.abs(end) <= self.quantum] = 0
            outer(end, lift, out=end)
        size = None if self.clustered else problems
        inner_lo, inner_hi = equivalence_interval(by_unit, counts, size, self.bounds, self.bounded, self.confidence)
        tied = (wins[0] + wins[1] == 0) & ~np.isnan(lo)  # all resamples are 0, which proves nothing
        lifts.lo[pairs], lifts.hi[pairs] = np.where(tied, inner_lo, lo), np.where(tied, inner_hi, hi)
        lifts.inner_lo[pairs], lifts.inner_hi[pairs] = inner_lo, inner_hi
        unequal_n = np.flatnonzero(self.n_differs[a, b])
        if unequal_n.size:
            own = self.sums[a] if differences is None else first
            self._compare_means(pairs, np.stack([own, own + by_unit])[:, unequal_n], counts, units, unequal_n)
        self.coins_a[pairs], self.coins_b[pairs] = self._coins(wins, by_unit, counts)
        np.abs(flipped, out=flipped)
        far = np.abs(total)
        self.as_far[pairs] = np.count_nonzero(flipped >= (far - grain)[:, None], axis=1)
        self.farther[pairs] = np.count_nonzero(flipped > (far + grain)[:, None], axis=1)
        self._add_rivals(self.rank_index[a], self.rank_index[b], flipped, norm)

    def _compare_means(self, pairs: Ints, sums: Floats, counts: Floats, units: Floats | Ints, at: Ints) -> None:
        """Replace the intervals and p-values of pairs whose numbers of attempts differ much."""
        lifts, size, at_pairs = self.lifts, np.where(units > 1, units, np.nan)[at], pairs[at]
        ends = mean_pair_ends(sums, counts[at], size, self.bounds)
        lo, hi = ends(max(0.0, 2 * self.confidence - 1))
        lifts.lo[at_pairs], lifts.hi[at_pairs] = ends(self.confidence)
        lifts.inner_lo[at_pairs] = np.minimum(lo, lifts.inner_lo[at_pairs])
        lifts.inner_hi[at_pairs] = np.maximum(hi, lifts.inner_hi[at_pairs])
        p = invert(ends, at.size)
        b_leads = lifts.lift[at_pairs] > 0
        lifts.by_means[at_pairs], lifts.p_two_sided[at_pairs] = True, p
        lifts.p_a[at_pairs], lifts.p_b[at_pairs] = np.abs(b_leads - p / 2), np.abs(~b_leads - p / 2)

    def _resample(self, by_unit: Floats, counts: Floats) -> tuple[Floats, Floats, Floats]:
        """Return lifts and flipped sums of pairs from differences of their own, and the rounding of the latter."""
        # In 32 bits, which halves the time: rounded to whole numbers so small that all sums are exact.
        pairs, units = by_unit.shape
        lifted, flipped = (np.empty((pairs, self.drawn.size)) for _ in range(2))
        rows = np.concatenate([by_unit, counts])
        most = (_EXACT / MAX_WEIGHT - units) / np.maximum(np.abs(rows).sum(axis=1), 1e-300)
        scale = 2.0 ** np.floor(np.log2(most))[:, None]
        rounded = np.rint(rows * scale).astype(np.float32)
        for columns in blocks(self.drawn.size, 4 * units):
            weights, signs = self.drawn.factors(columns, np.float32)
            top, bottom = np.split((rounded @ weights) / scale, 2)
            lifted[:, columns] = ratio(top, bottom)
            flipped[:, columns] = (rounded[:pairs] @ signs) / scale[:pairs]
        return lifted, flipped, 2 * np.sqrt(units) / scale[:pairs, 0]

    def _coins(self, wins: Floats, by_unit: Floats, counts: Floats) -> Floats:
        """Return the wins of pairs whose differences are all equally large, where only signs count; else -1."""
        if self.clustered:  # signs are of clusters
            a, b = ((sign * by_unit > counts * self.quantum).sum(axis=1) for sign in (-1, 1))
            wins = np.stack([a, b, np.abs(by_unit).sum(axis=1), np.einsum("ij,ij->i", by_unit, by_unit)])
        return np.where(unequal(*wins), -1, wins[:2])

    def _add_rivals(self, a: Ints, b: Ints, flipped: Floats, norm: Floats) -> None:
        """Update the farthest flips of ranked models by those of a block of pairs; scales `flipped`."""
        ranked = np.flatnonzero((a >= 0) & (b >= 0))
        if not ranked.size:
            return
        if ranked.size < a.size:
            flipped, norm, a, b = flipped[ranked], norm[ranked], a[ranked], b[ranked]
        flipped *= np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)[:, None]
        first = np.flatnonzero(np.diff(a, prepend=-1))
        with self.lock:
            for low, high in zip(first, [*first[1:], a.size], strict=True):
                mine, rivals = self.farthest[a[low]], b[low:high]
                np.maximum(mine, flipped[low:high].max(axis=0), out=mine)
                self.farthest[rivals] = np.maximum(self.farthest[rivals], flipped[low:high])

    def _rank_ranges(self) -> tuple[Ints, Ints]:
        """Return the ranks that are left to each ranked model: below the models significantly above it, and above
        those significantly below it (Mogstad et al. 2024). Of two models, the stricter limit holds for both.

        Fills `separated` of the compared pairs, and leaves these out.
        """
        many, separated = self.ranked.size, self.lifts.separated
        lo, hi = np.ones(many, dtype=np.int64), np.full(many, many, dtype=np.int64)
        index = int(np.ceil(self.confidence * (self.flips + 1))) - 1
        position = np.full(len(self.sums), -1)
        position[self.ranked] = np.arange(many)
        one, two = position[self.a], position[self.b]
        separated[:] = (one < 0) | (two < 0)
        inside = np.flatnonzero(~separated)
        if many < 2 or index >= self.flips:
            return lo, hi
        if self.same_problems:
            ahead = self._compare_rivals()
        else:
            a, b, ahead = self.rank_index[self.a], self.rank_index[self.b], np.zeros((many, many))
            both = (a >= 0) & (b >= 0)
            ahead[a[both], b[both]] = self.lifts.t[both]
            ahead -= ahead.T  # row: how far each other model is ahead of this one
        limit = np.partition(self.farthest, index, axis=1)[:, index, None] * (1 + _ROUNDING)
        above = (ahead > np.maximum(limit, limit.T)) & ~self.n_differs[np.ix_(self.ranked, self.ranked)]
        one, two = one[inside], two[inside]
        separated[inside] = above[one, two] | above[two, one]
        separated[self.lifts.by_means & (self.lifts.p_two_sided * (many - 1) <= 1 - self.confidence)] = True
        above[one, two] = above[two, one] = False
        lo += np.count_nonzero(above, axis=1)
        hi -= np.count_nonzero(above, axis=0)
        return lo, hi

    def _compare_rivals(self) -> Floats:
        """Fill `farthest` from all pairs of ranked models, all scored on the same problems; return t of all pairs."""
        # t is the difference of two sums over the distance of two rows, and all distances come from one product.
        sums = self.sums[self.ranked]
        total, distance = sums.sum(axis=1), distances(sums)
        flipped = self.flipped[self.ranked, : self.flips]
        flipped -= np.median(flipped, axis=0)
        close = np.abs(flipped).max() <= _FLOAT32_RATIO * np.min(distance, initial=np.inf, where=distance > 0)
        dtype = np.float32 if close else np.float64  # twice as fast, where it separates the nearest two rows
        inverse = np.divide(1, distance, out=np.zeros_like(distance), where=distance > 0).astype(dtype)

        def fill(columns: slice) -> None:
            mine = np.ascontiguousarray(flipped[:, columns], dtype=dtype)
            farthest, buffer = np.zeros_like(mine), np.empty_like(mine)
            for row in range(len(mine) - 1):  # with the rows that follow: every two rows once
                gap, others = buffer[row + 1 :], farthest[row + 1 :]
                np.abs(np.subtract(mine[row + 1 :], mine[row], out=gap), out=gap)
                gap *= inverse[row, row + 1 :, None]
                np.maximum(farthest[row], gap.max(axis=0), out=farthest[row])
                np.maximum(others, gap, out=others)
            self.farthest[:, columns] = farthest

        parallel_map(fill, blocks(self.flips, 4 * len(flipped)), self.threads)
        ahead: Floats = total - total[:, None]
        problems = self.counts[self.ranked if len(self.counts) > 1 else self.ranked * 0].sum(axis=1)
        ahead[np.abs(ahead) <= problems[:, None] * self.quantum] = 0
        ahead *= inverse.astype(np.float64)
        return ahead

    def _share_of_leads(self) -> Floats:
        """Return the share of resamples in which each ranked model leads; equal models share the lead."""
        means = np.nan_to_num(self.means[self.ranked], nan=-np.inf)
        leads = means >= means.max(axis=0, initial=-np.inf) - self.quantum
        share: Floats = (leads / leads.sum(axis=0)).mean(axis=1)
        return share
