"""Plurality vote: how often the most common of k answers is a right one, from the answer counts of a problem.

Draw k of a problem's attempts without replacement; the answer that most of them gave wins, ties split at random.
An answer given by m attempts of which w passed is worth w / m: what the verdict of any one of them is expected to be.
An attempt without an answer is drawn but does not vote; if none of the k has an answer, one of them is taken.

So a problem's value is the sum over its right answers of worth x chance to win, and the chance depends only on how
many attempts gave each answer. Problems of a lake share few such patterns, and each is evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scorelake.errors import MetricError
from scorelake.metrics.counts import totals, whole_numbers
from scorelake.metrics.distributions import Floats, Ints, at_least, at_most, binomial, blocks, hypergeometric, ratio

Waves = NDArray[np.complex128]
Flags = NDArray[np.bool_]

_CERTAIN = 1e-13
"""Chances are summed from waves and carry an error of this order; so close to 0 or 1 they are 0 or 1."""
_NOTHING = 1e-19
"""A chance that changes no digit."""


def vote(counts: Sequence[int], right: Sequence[bool], k: int) -> float:
    """Expected accuracy of the most common answer of one problem; NaN where k > n.

    counts[i] attempts gave answer i, and right[i] says whether it is a right one.
    """
    if k < 1 or len(counts) != len(right):
        raise MetricError(f"vote@{k}: k must be >= 1, and every answer right or not")
    m = whole_numbers("counts", counts)
    order = np.argsort(-m)
    m, passes = m[order], (m * np.array(right, dtype=bool))[order]
    n, c = np.array([m.sum()]), np.array([passes.sum()])
    return float(Ballots(n, c, np.zeros(m.size, dtype=np.int64), m, passes).vote(k)[0])


class Ballots:
    """The answers of many problems: what does not depend on k is worked out once."""

    def __init__(self, n: Ints, c: Ints, owner: Ints, count: Ints, passes: Ints) -> None:
        """n graded and c passed attempts of each problem, and its answers.

        Answer i is one of problem owner[i] (rising), given by count[i] attempts (falling within a problem) of which
        passes[i] passed. Attempts of a problem that are in none of its answers gave none.
        """
        assert (np.diff(count)[np.diff(owner) == 0] <= 0).all()
        given = count > 0
        owner, count, passes = owner[given], count[given], passes[given]
        self.n, self.c = n, c
        self.silent, self.silent_passes = n - totals(owner, count, n.size), c - totals(owner, passes, n.size)
        patterns, pattern = _patterns(n, self.silent, owner, count)
        right = passes > 0
        self.owner, self.worth = owner[right], passes[right] / count[right]
        sizes, size = np.unique(count[right], return_inverse=True)
        pairs, self.pair = np.unique(pattern[self.owner] * sizes.size + size, return_inverse=True)
        self.races = patterns.races(pairs // max(1, sizes.size), sizes[pairs % max(1, sizes.size)])

    def vote(self, k: int) -> Floats:
        """vote@k of each problem; NaN where k > n."""
        value = ratio(self.c.astype(np.float64), self.n)
        if k > 1:
            won = self.worth * self.races.chances(k)[self.pair]
            value = np.bincount(self.owner, won, self.n.size).astype(np.float64)
            value += self._nobody_votes(k)
        value = np.where(value < _CERTAIN, 0.0, np.where(value > 1 - _CERTAIN, 1.0, value))
        return np.where(self.n >= k, value, np.nan)

    def _nobody_votes(self, k: int) -> Floats:
        """What is added by draws without any answer: one of them is taken."""
        worth = np.zeros(self.n.size)
        rows = np.flatnonzero((self.silent >= k) & (self.silent_passes > 0))
        for some in blocks(rows.size, k + 1):
            at = rows[some]
            chance = hypergeometric(self.n[at].astype(float), self.silent[at].astype(float), k)[:, k]
            worth[at] = chance * self.silent_passes[at] / self.silent[at]
        return worth


@dataclass(frozen=True)
class _Patterns:
    """Different patterns: attempts, and how many answers have each size, largest first."""

    n: Ints
    size: Ints
    """patterns x sizes, 0 where a pattern has fewer different sizes than others"""
    times: Ints

    def races(self, pattern: Ints, own: Ints) -> _Races:
        """An answer of size `own` in each of some patterns, against the others."""
        size, times = self.size[pattern], self.times[pattern]
        return _Races(self.n[pattern], own, size, times - (size == own[:, None]))


def _patterns(n: Ints, silent: Ints, owner: Ints, count: Ints) -> tuple[_Patterns, Ints]:
    """Collapse problems to their patterns, and say which is whose; counts fall within a problem."""
    ends = np.searchsorted(owner, np.arange(n.size + 1))
    text = np.insert(count, ends[:-1], silent).tobytes()  # each problem: attempts without an answer, then its counts
    cuts = (8 * (ends + np.arange(n.size + 1))).tolist()
    seen: dict[bytes, int] = {}
    place = np.array([seen.setdefault(text[a:b], len(seen)) for a, b in pairwise(cuts)], dtype=np.int64)
    first = np.unique(place, return_index=True)[1]
    chosen = np.zeros(n.size, dtype=bool)
    chosen[first] = True
    owner, count = place[owner[chosen[owner]]], count[chosen[owner]]
    starts = np.flatnonzero((np.diff(owner, prepend=-1) != 0) | (np.diff(count, prepend=-1) != 0))
    column = np.arange(starts.size) - np.searchsorted(owner[starts], owner[starts])
    size = np.zeros((len(seen), int(column.max(initial=-1)) + 1), dtype=np.int64)
    times = np.zeros_like(size)
    size[owner[starts], column] = count[starts]
    times[owner[starts], column] = np.diff(starts, append=owner.size)
    return _Patterns(n[first], size, times), place


@dataclass(frozen=True)
class _Races:
    """Answers whose chances to win are asked for: attempts of the problem, own size, and the rivals' sizes."""

    n: Ints
    own: Ints
    size: Ints
    times: Ints

    def chances(self, k: int) -> Floats:
        """Of winning among k draws; 0 where k > n, which is not asked for."""
        out = np.zeros(self.n.size)
        order = np.argsort(self.n, kind="stable")
        cuts = [*np.flatnonzero(np.diff(self.n[order], prepend=-1)).tolist(), order.size]
        for rows in (order[a:b] for a, b in pairwise(cuts)):
            race = _Race(k, int(self.n[rows[0]]), self.own[rows], self.size[rows], self.times[rows])
            if race.n >= k:
                out[rows] = race.all_drawn() if race.n == k else race.majority() + race.plurality()
        return out


@dataclass(frozen=True)
class _Race:
    """Some races of the same n, at one k."""

    k: int
    n: int
    own: Ints
    size: Ints
    times: Ints

    def all_drawn(self) -> Floats:
        """k = n: the most common answers win."""
        beaten = ((self.size > self.own[:, None]) & (self.times > 0)).any(axis=1)
        ties = (self.times * (self.size == self.own[:, None])).sum(axis=1)
        return np.where(beaten, 0.0, 1 / (1 + ties))

    def majority(self) -> Floats:
        """Chance of more than half of the votes, whatever the others do."""
        sizes, place = np.unique(self.own, return_inverse=True)
        chance = np.empty(sizes.size)
        for rows in blocks(sizes.size, self.k + 1):
            drawn = hypergeometric(np.full(sizes[rows].size, float(self.n)), sizes[rows].astype(float), self.k)
            won, missed = drawn[:, self.k // 2 + 1 :].sum(axis=1), drawn[:, : self.k // 2 + 1].sum(axis=1)
            chance[rows] = np.where(won <= missed, won, 1 - missed)
        return chance[place]

    def plurality(self) -> Floats:
        """Chance to win with j votes, summed over j up to half of k.

        Draws without replacement are independent binomials per answer, given that they add up to k. An answer wins
        with j votes if no other has more, and t others with as many leave it the share 1 / (1 + t), which is the
        integral of y^t from 0 to 1. So the chance is a coefficient of a product of polynomials, one per rival: cut
        after j votes, the last term times y. The product is taken at roots of unity instead of multiplied out, and
        the integral by as many Gauss nodes as make it exact.
        """
        share, half = self.k / self.n, self.k // 2
        wave = _Wave.of(self.k, self.n)
        sizes, place = np.unique(np.append(self.size.ravel(), self.own), return_inverse=True)
        drawn = binomial(sizes, share, half)
        rival, mine = place[: self.size.size].reshape(self.size.shape), drawn[place[self.size.size :]]
        below = np.zeros((sizes.size, wave.root.size), dtype=np.complex128)
        total = np.zeros(self.own.size)
        for j in range(1, half + 1):
            below += drawn[:, j - 1, None] * wave.root ** (j - 1)
            level = drawn[:, j, None] * wave.root**j
            cut = at_least(sizes, share, j) > _NOTHING  # the others are as good as never cut
            behind = mine[:, j] * at_most(sizes, share, j)[rival].min(axis=1, initial=1.0, where=self.times > 0)
            for nodes, rows in self._level(j, cut[rival], behind > _NOTHING):
                factors = [(w, below + y * level) for y, w in _gauss(nodes)]
                for some in blocks(rows.size, 4 * wave.root.size):
                    at = rows[some]
                    product = self._product(at, cut[rival[at]], rival[at], factors, wave)
                    total[at] += mine[at, j] * np.maximum(wave.coefficient(product, self.k - j), 0)
        as_drawn: float = binomial(np.array([self.n]), share, self.k)[0, self.k]
        return total / as_drawn

    def _level(self, j: int, cut: Flags, worthwhile: Flags) -> list[tuple[int, Ints]]:
        """The races that can be won with j votes, by the number of Gauss nodes they need, most rivals first."""
        silent = self.n - self.own - (self.size * self.times).sum(axis=1)
        room = silent + (np.minimum(self.size, j) * self.times).sum(axis=1)
        ties = np.minimum((self.times * cut).sum(axis=1), (self.k - j) // j)
        rows = np.flatnonzero(worthwhile & (self.own >= j) & (room >= self.k - j))
        rows = rows[np.lexsort((-cut[rows].sum(axis=1), ties[rows] // 2))]
        nodes = ties[rows] // 2 + 1
        cuts = np.flatnonzero(np.diff(nodes)) + 1
        return [(int(nodes[part[0]]), rows[part]) for part in np.split(np.arange(rows.size), cuts) if part.size]

    def _product(self, at: Ints, cut: Flags, rival: Ints, factors: list[tuple[float, Waves]], wave: _Wave) -> Waves:
        """Of all rivals' polynomials at the roots of unity; rivals that are not cut are one binomial together."""
        times = self.times[at]
        free = wave.power(self.n - self.own[at] - (self.size[at] * times * cut).sum(axis=1))
        total = np.zeros_like(free)
        reach = cut.sum(axis=0).tolist()  # races come with most rivals first: column g concerns the first reach[g]
        for weight, factor in factors:
            term = free.copy()
            for g, many in enumerate(reach):
                if many:
                    each, t = factor[rival[:many, g]], times[:many, g]
                    other = np.flatnonzero(t != 1)
                    each[other] **= t[other, None]
                    term[:many] *= each
            total += weight * term
        return total


@dataclass(frozen=True)
class _Wave:
    """Roots of unity enough for polynomials of degree n whose weight lies around k, and sums over them."""

    root: Waves
    """The upper half; the lower is its mirror image."""
    weight: Floats
    share: float

    @staticmethod
    def of(k: int, n: int) -> _Wave:
        """All n + 1, or so many that a binomial around k has less than 1e-20 beyond them."""
        points = min(n + 1, k + int(8 * np.sqrt(k)) + 12)
        m = np.arange(points // 2 + 1)
        mirrored = (m > 0) & (2 * m < points)
        return _Wave(np.exp(2j * np.pi * m / points), (1.0 + mirrored) / points, k / n)

    def coefficient(self, values: Waves, degree: int) -> Floats:
        """Of x^degree, from the polynomial's values at the roots."""
        phase = self.weight * self.root.conj() ** degree
        out: Floats = (values.real * phase.real - values.imag * phase.imag).sum(axis=1)
        return out

    def power(self, exponents: Ints) -> Waves:
        """(1 - share + share x)^exponent at the roots, rows x roots."""
        several, place = np.unique(exponents, return_inverse=True)
        base = 1 - self.share + self.share * self.root
        with np.errstate(divide="ignore", invalid="ignore"):  # a base of 0 is 0 to any power but 0
            out = np.exp(several[:, None] * np.log(base))
        out[:, base == 0] = 0
        out[several == 0] = 1
        return out[place]


@cache
def _gauss(nodes: int) -> list[tuple[float, float]]:
    """Points and weights that integrate polynomials of degree 2 nodes - 1 from 0 to 1."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return list(zip(((1 + x) / 2).tolist(), (w / 2).tolist(), strict=True))
