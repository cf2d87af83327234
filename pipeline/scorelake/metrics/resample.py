"""Scores of many models on the same problems in; lifts with intervals and p-values, and ranges of ranks out.

One resample says how often each unit is drawn, one flip which way each unit is turned, and both are shared by all
models: the sums of all rows are one product of two matrices, and pairs scored on the same problems are differences of
two rows. Pairs that share only some of their problems have sums of their own, which are one more product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from threading import Lock

import numpy as np

from scorelake.metrics.chance import MOST_TIMES, Chance, Words, chance
from scorelake.metrics.distributions import Floats, Ints, blocks, ratio
from scorelake.metrics.gaps import Apart, Sums, Table, Wins, grid, true_in_rows, uneven
from scorelake.metrics.matrix import Matrix
from scorelake.metrics.significance import flip_test, sign_test
from scorelake.threads import parallel_map

_WORK = 1 << 27
"""Resampled lifts of all pairs that are looked at; where there are more pairs, they have fewer resamples each."""
_FEWEST = 2000
_NEAR, _FAR = 1 << 19, 128
"""Numbers in a block of pairs with the same problems; and pairs of a block of others, which share the chances that
are made ready for it."""
_CACHED = 4
"""Parts of a block of numbers: chances are used while they are in the processor's own cache."""
_PAIR, _SMALL = 50, 1 << 26
"""What a pair costs in each resample, in products of two numbers; and so little of these that threads would spend it
waiting for each other: 60 subjects of 25 models take 1.4 seconds without them, and 2.0 with them."""
_RIVALS, _ENOUGH = 1 << 34, 500
"""Numbers that ranges of ranks are made of, one per flip and two rows, and the fewest flips: of thousands of rows
they come from fewer flips than there are, 687 for 5,000. With 2,000 these took 228 seconds, in five subjects."""
_LOOSE, _ROUNDED = 300, 1e-4
"""Equal differences of numbers of 32 bits, which are so many times as large at most, differ by less."""
_EXACT = 1 << 24
"""Whole numbers up to here are exact in 32 bits."""


@dataclass(frozen=True)
class Plan:
    """How to resample; the same plan gives the same chances."""

    resamples: int = 10_000
    seed: int = 0
    confidence: float = 0.95

    def enough(self, pairs: int) -> int:
        """Resamples for each of so many pairs."""
        return min(self.resamples, max(_FEWEST, _WORK // max(1, pairs)))


@dataclass(frozen=True)
class Sample:
    """Rows of scores over problems (NaN where not scored), pairs of rows to compare, and rows to rank.

    `unit` says which of the units with the numbers `key` each problem belongs to. Every pair must have a problem in
    common, of two units at least. Every two ranked rows must be a pair, the lower row first, or all of them be scored
    on the same problems.
    """

    scores: Matrix
    unit: Ints
    key: Words
    a: Ints
    b: Ints
    ranked: Ints
    clustered: bool = False


@dataclass(frozen=True)
class Lifts:
    """One entry per pair: row b against row a over the problems scored in both."""

    problems: Ints
    lift: Floats
    lo: Floats
    hi: Floats
    near_lo: Floats
    """The ends of the interval that leaves out twice as much: 90% instead of 95%."""
    near_hi: Floats
    wins_a: Ints
    wins_b: Ints
    p_a: Floats
    """One-sided, A ahead; B ahead; two-sided."""
    p_b: Floats
    p_two_sided: Floats
    t: Floats
    """sum d / sqrt(sum d^2) over units: how far the lift is from zero."""

    @classmethod
    def empty(cls, pairs: int) -> Lifts:
        whole = ("problems", "wins_a", "wins_b")
        return cls(*(np.zeros(pairs, np.int64 if field.name in whole else float) for field in fields(cls)))


@dataclass(frozen=True)
class Gaps:
    """Row b minus row a over the problems scored in both, in steps; one entry per pair."""

    wins: Wins
    by_unit: Floats
    """pairs x units, as is the number of problems."""
    counts: Floats

    @cached_property
    def problems(self) -> Ints:
        many: Ints = self.counts.sum(axis=1).astype(np.int64)
        return many

    @property
    def total(self) -> Floats:
        total: Floats = self.by_unit.sum(axis=1)  # exact: whole numbers
        return total


@dataclass(frozen=True)
class Ranks:
    """One entry per ranked row: the range of its rank, and the share of resamples in which it leads."""

    lo: Ints
    hi: Ints
    best: Floats


def resampled(sample: Sample, plan: Plan, resamples: int) -> tuple[Lifts, Ranks]:
    """Compare the pairs of a sample, and rank its rows; all problems are at hand."""
    scores = sample.scores
    step = grid(np.nanmax(np.abs(scores.numbers), initial=0.0), scores.place.shape[1])
    table = Table(scores, sample.unit, step)
    drawn = chance(sample.key, resamples, plan.seed)
    pairs = Pairs(table.sums(), step, sample.a, sample.b, sample.ranked, sample.clustered, drawn, plan)
    near, far = pairs.todo()
    pairs.compare(near, table.wins(sample.a[near], sample.b[near]), None)
    for first in range(0, far.size, _FAR):
        some = far[first : first + _FAR]
        a, b = sample.a[some], sample.b[some]
        pairs.compare(some, table.wins(a, b), table.apart(a, b))
    return pairs.found()


class Pairs:
    """Pairs of rows, compared from sums of their problems, and what all of them share."""

    def __init__(
        self, sums: Sums, step: float, a: Ints, b: Ints, ranked: Ints, clustered: bool, drawn: Chance, plan: Plan
    ) -> None:
        """`drawn` are the chances of all units; every other argument is as in a sample."""
        self.sums, self.step, self.a, self.b, self.ranked = sums.among(drawn.units), step, a, b, ranked
        self.clustered, self.drawn, self.plan = clustered, drawn.of(self.sums.unit), plan
        rows, pairs, many = len(sums.steps), a.size, drawn.resamples
        self.lifts = Lifts.empty(pairs)
        self.as_far, self.farther, self.coins_a, self.coins_b = np.zeros((4, pairs), dtype=np.int64)
        """How many flips of a pair came as far from zero as its data, and farther; its wins as tosses of a coin."""
        self.means, self.flipped = (np.empty((rows, many)) for _ in range(2))
        self.alike = bool((sums.kind[ranked] == sums.kind[ranked[:1]]).all())
        """Ranked rows are scored on the same problems: flips of any two are differences of what is there."""
        self.place = np.full(rows, -1)
        self.flips = min(many, max(_ENOUGH, _RIVALS // max(1, ranked.size**2))) if self.alike else many
        """How many flips ranges of ranks come from."""
        self.farthest = np.zeros((ranked.size, self.flips if ranked.size else 0), dtype=np.float32)
        """Over all rivals of a ranked row, the largest |t| of each flip."""
        if not self.alike:
            self.place[ranked] = np.arange(ranked.size)
        self.lock = Lock()
        work = many * (self.sums.steps.size + _PAIR * pairs)
        self.threads = None if work > _SMALL else 1
        parallel_map(self._draw, blocks(many, _CACHED * sum(self.sums.steps.shape)), self.threads)

    def todo(self) -> tuple[Ints, Ints]:
        """The pairs, by number: those scored on the same problems, and the others, which need sums of their own."""
        same = self.sums.kind[self.a] == self.sums.kind[self.b]
        return np.flatnonzero(same), np.flatnonzero(~same)

    def compare(self, some: Ints, wins: Wins, apart: Apart | None) -> None:
        """Everything of some pairs, all of one sort."""
        if apart is not None:
            apart = apart.among(self.sums.unit)
        blocks_of = self._blocks(some.size, apart is not None)
        parallel_map(lambda at: self._compare(some[at], wins.of(at), apart, at), blocks_of, self.threads)

    def found(self) -> tuple[Lifts, Ranks]:
        """When all pairs are compared."""
        self._test()
        return self.lifts, Ranks(*self._range(), self._leading())

    def _draw(self, columns: slice) -> None:
        """The mean of every row in each resample, over its own problems, and its sum in each flip."""
        sums, rows = self.sums, len(self.sums.steps)
        times, signs = self.drawn.numbers(columns, np.float64)
        drawn = np.concatenate([sums.steps, sums.counts]) @ times
        self.means[:, columns] = ratio(drawn[:rows], drawn[rows + sums.kind]) * self.step
        self.flipped[:, columns] = sums.steps @ signs

    def _blocks(self, pairs: int, apart: bool) -> Iterator[slice]:
        """So many pairs at a time."""
        step = _FAR if apart else max(1, _NEAR // self.drawn.resamples)
        return (slice(first, first + step) for first in range(0, pairs, step))

    def _gaps(self, at: Ints, wins: Wins, apart: Apart | None, where: slice) -> Gaps:
        """All sums of a block of pairs: of rows scored on the same problems, differences of sums that are there."""
        if apart is None:
            a, b, sums = self.a[at], self.b[at], self.sums
            return Gaps(wins, sums.steps[b] - sums.steps[a], sums.counts[sums.kind[a]])
        return Gaps(wins, apart.by_unit[where], apart.counts[where])

    def _compare(self, at: Ints, wins: Wins, apart: Apart | None, where: slice) -> None:
        """Everything of one block of pairs."""
        a, b, lifts = self.a[at], self.b[at], self.lifts
        gap = self._gaps(at, wins, apart, where)
        grain = gap.problems.astype(np.float64)  # each gap is within a step of what it should be
        if apart is None:
            lifted, flipped = (rows[b] for rows in (self.means, self.flipped))
            one = a[0] if a[0] == a[-1] else a  # pairs come row by row: mostly one, which need not be copied
            lifted -= self.means[one]
            flipped -= self.flipped[one]
        else:
            lifted, flipped, grain = self._of_their_own(gap)
        total = gap.total
        total[np.abs(total) <= gap.problems] = 0  # below the grid: equal, not a tiny winner
        lift = total / gap.problems * self.step
        norm = np.sqrt(np.einsum("ij,ij->i", gap.by_unit, gap.by_unit))
        lifts.problems[at], lifts.wins_a[at], lifts.wins_b[at] = gap.problems, wins.a, wins.b
        lifts.lift[at], lifts.t[at] = lift, total / np.where(norm > 0, norm, 1)
        units = np.count_nonzero(gap.counts, axis=1) if self.clustered else gap.problems
        lifts.lo[at], lifts.hi[at], lifts.near_lo[at], lifts.near_hi[at] = self._ends(lifted, lift, units)
        self.coins_a[at], self.coins_b[at] = _coins(gap, self.clustered)
        np.abs(flipped, out=flipped)
        far = np.abs(total)
        self.as_far[at] = true_in_rows(flipped >= (far - grain)[:, None])
        self.farther[at] = true_in_rows(flipped > (far + grain)[:, None])
        self._rival(self.place[a], self.place[b], flipped, norm)

    def _of_their_own(self, gap: Gaps) -> tuple[Floats, Floats, Floats]:
        """Lifts and flipped sums of pairs that share only some of their problems, and how exact the latter are.

        Of whole numbers so small that sums in 32 bits are exact, which halves the time.
        """
        many, units = gap.by_unit.shape
        lifted, flipped = (np.empty((many, self.drawn.resamples)) for _ in range(2))
        rows = np.concatenate([gap.by_unit, gap.counts])
        most = (_EXACT / MOST_TIMES - units) / np.maximum(1, np.abs(rows).sum(axis=1))
        scale = 2.0 ** np.floor(np.log2(most))[:, None]
        whole = np.rint(rows * scale).astype(np.float32)
        for columns in blocks(self.drawn.resamples, _CACHED * units):
            times, signs = self.drawn.numbers(columns, np.float32)
            top, bottom = np.split((whole @ times) / scale, 2)
            lifted[:, columns] = ratio(top, bottom) * self.step
            flipped[:, columns] = (whole[:many] @ signs) / scale[:many]
        return lifted, flipped, gap.problems + 2 * np.sqrt(units) / scale[:many, 0]

    def _ends(self, lifted: Floats, lift: Floats, units: Ints) -> list[Floats]:
        """Percentiles of the resampled lifts, stretched about the lift, which they contain; uses the lifts up."""
        from scipy.special import ndtri, stdtrit  # noqa: PLC0415  (loads slowly)

        out = []
        outside = 1 - self.plan.confidence
        tails = (outside / 2, min(outside, 0.5))
        more = np.where(units > 1, units - 1, np.nan)
        ends = percentiles(lifted, lift, (tails[0], 1 - tails[0], tails[1], 1 - tails[1]))
        for i, end in enumerate(ends):
            tail, outer = tails[i // 2], (np.minimum, np.maximum)[i % 2]
            stretch = np.sqrt(units / more) * (stdtrit(more, tail) / ndtri(tail) if tail < 0.5 else 1)
            stretched = lift + stretch * (end - lift)
            stretched[np.abs(stretched) <= self.step] = 0
            out.append(outer(stretched, lift))
        return out

    def _rival(self, a: Ints, b: Ints, flipped: Floats, norm: Floats) -> None:
        """What the flips of a block, in absolute numbers, add to the farthest ones of ranked rows."""
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

    def _test(self) -> None:
        """p-values of all pairs: by their flips, or exactly where only the signs of the gaps count."""
        lifts, alike = self.lifts, self.coins_a >= 0
        wins_a, wins_b = self.coins_a[alike], self.coins_b[alike]
        p = np.stack(flip_test(lifts.t, self.as_far, self.farther, self.drawn.resamples))
        p[:, alike] = sign_test(wins_b, wins_a)[0], *sign_test(wins_a, wins_b)
        lifts.p_a[:], lifts.p_b[:], lifts.p_two_sided[:] = p

    def _range(self) -> tuple[Ints, Ints]:
        """Ranks that are left to a row: below those significantly above it, above those significantly below."""
        many = self.ranked.size
        lo, hi = np.ones(many, dtype=np.int64), np.full(many, many, dtype=np.int64)
        place = int(np.ceil(self.plan.confidence * (self.flips + 1))) - 1
        if many < 2 or place >= self.flips:
            return lo, hi
        all_of_them = self._rivals() if self.alike else None
        limit = np.partition(self.farthest, place, axis=1)[:, place] * (1 + _ROUNDED)
        if all_of_them is not None:
            for row, ahead in enumerate(all_of_them):
                lo[row] += np.count_nonzero(ahead > limit[row])
                hi[row] -= np.count_nonzero(-ahead > limit[row])
            return lo, hi
        a, b, t = self.place[self.a], self.place[self.b], self.lifts.t
        both = (a >= 0) & (b >= 0)
        a, b, t = a[both], b[both], t[both]
        for me, ahead in ((a, t), (b, -t)):  # how far the other is ahead of me
            np.add.at(lo, me[ahead > limit[me]], 1)
            np.add.at(hi, me[-ahead > limit[me]], -1)
        return lo, hi

    def _rivals(self) -> Floats:
        """How far each ranked row is ahead of each, and what the flips make of it, where all have the same problems.

        As in a block of pairs, but of all pairs, and nothing else of them: t of two rows is the difference of two
        sums over the distance of two rows, and all distances come from one product.
        """
        sums = self.sums.steps[self.ranked] * self.step
        total, apart = sums.sum(axis=1), distances(sums)
        flipped = self.flipped[self.ranked, : self.flips] * self.step
        flipped -= np.median(flipped, axis=0)
        alike = np.abs(flipped).max() <= _LOOSE * np.min(apart, initial=np.inf, where=apart > 0)
        kind = np.float32 if alike else np.float64  # twice as quick, where it tells the nearest two rows apart
        inverse = np.divide(1, apart, out=np.zeros_like(apart), where=apart > 0).astype(kind)

        def most(columns: slice) -> None:
            mine = np.ascontiguousarray(flipped[:, columns], dtype=kind)
            farthest, room = np.zeros_like(mine), np.empty_like(mine)
            for row in range(len(mine) - 1):  # with those that follow: every two rows once, for both of them
                gap, others = room[row + 1 :], farthest[row + 1 :]
                np.abs(np.subtract(mine[row + 1 :], mine[row], out=gap), out=gap)
                gap *= inverse[row, row + 1 :, None]
                np.maximum(farthest[row], gap.max(axis=0), out=farthest[row])
                np.maximum(others, gap, out=others)
            self.farthest[:, columns] = farthest

        parallel_map(most, blocks(self.flips, _CACHED * len(flipped)), self.threads)
        ahead: Floats = total - total[:, None]
        ahead[np.abs(ahead) <= self.sums.problems * self.step] = 0  # below the grid: equal, not a tiny winner
        ahead *= inverse.astype(np.float64)
        return ahead

    def _leading(self) -> Floats:
        """The share of resamples in which a row leads; equals share the lead."""
        means = np.nan_to_num(self.means[self.ranked], nan=-np.inf)
        if not means.size:
            return np.zeros(0)
        leads = means >= means.max(axis=0) - self.step
        share: Floats = (leads / leads.sum(axis=0)).mean(axis=1)
        return share


def distances(rows: Floats) -> Floats:
    """How far every two rows are apart, 0 for equal ones: from one product; where that would cancel, one by one."""
    off = rows - np.median(rows, axis=0)
    square = np.einsum("ij,ij->i", off, off)
    apart = square[:, None] + square - 2 * (off @ off.T)
    a, b = np.nonzero(np.triu(apart <= 1e-6 * (square[:, None] + square), 1))
    for some in blocks(a.size, rows.shape[1]):
        gap = rows[b[some]] - rows[a[some]]
        apart[a[some], b[some]] = apart[b[some], a[some]] = np.einsum("ij,ij->i", gap, gap)
    np.fill_diagonal(apart, 0)
    out: Floats = np.sqrt(np.maximum(apart, 0))
    return out


def _coins(gap: Gaps, clustered: bool) -> tuple[Ints, Ints]:
    """Who won how many of the gaps of a pair, if all are equally large, so that only their signs count; -1 if not."""
    wins_a, wins_b, size, square = gap.wins.a, gap.wins.b, gap.wins.size, gap.wins.square
    if clustered:  # what is flipped is a cluster
        wins_a, wins_b = ((sign * gap.by_unit > gap.counts).sum(axis=1) for sign in (-1, 1))
        size, square = np.abs(gap.by_unit).sum(axis=1), np.einsum("ij,ij->i", gap.by_unit, gap.by_unit)
    alike = ~uneven(wins_a + wins_b, size, square)
    return np.where(alike, wins_a, -1), np.where(alike, wins_b, -1)


def percentiles(values: Floats, instead: Floats, tails: tuple[float, ...]) -> list[Floats]:
    """The values at some shares of each row, to 1/65,000 of the largest; `instead` stands for those that are NaN.

    As whole numbers of 16 bits: these are sorted several times faster than values are selected, all tails at once.
    """
    low = values.min(axis=1)
    if np.isnan(low).any():
        lost = np.isnan(values)
        values[lost] = np.broadcast_to(instead[:, None], values.shape)[lost]
        low = values.min(axis=1)
    most = np.maximum(values.max(axis=1), -low)
    scale = np.divide(32_767, most, out=np.ones_like(most), where=most > 0)
    values *= scale[:, None]
    codes = np.rint(values, out=values).astype(np.int16)
    codes.sort(axis=1, kind="stable")  # of 16 bits: by digits
    last = codes.shape[1] - 1
    places = [int(tail * last) if tail < 0.5 else last - int((1 - tail) * last) for tail in tails]
    return [codes[:, place] / scale for place in places]
