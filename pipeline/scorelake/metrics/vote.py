"""Plurality vote: the probability that the most common of k answers is right, from each problem's answer counts.

k of a problem's attempts are drawn without replacement; the most common answer wins, ties are split at random. An
answer given by m attempts of which w passed is right with weight w / m. An attempt without an answer (blank) can be
drawn but does not vote; if all k are blank, the verdict of one of them counts.

A problem's value is the sum over its right answers of weight x probability to win. That probability depends only on
how many attempts gave each answer; problems share few such patterns, and each is evaluated once.

Reference: Wang et al. 2022, Self-Consistency Improves Chain of Thought Reasoning in Language Models.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scorelake.errors import MetricError
from scorelake.metrics.beta_powers import all_within
from scorelake.metrics.counts import totals, whole_numbers
from scorelake.metrics.distributions import (
    Floats,
    Ints,
    binomial,
    binomial_cdf,
    binomial_sf,
    blocks,
    expected,
    gauss_legendre,
    hypergeometric,
    ratio,
)

Complex = NDArray[np.complex128]

_TOLERANCE = 1e-13
"""Error of a probability that is summed over roots of unity; values this close to 0 or 1 are 0 or 1."""
_NEGLIGIBLE = 1e-19  # probability that does not change a digit of the result


def vote(counts: Sequence[int], right: Sequence[bool], k: int) -> float:
    """Return the expected accuracy of the most common of k answers to one problem.

    counts, right: attempts that gave each answer, and whether it is right. k: attempts drawn without replacement;
    NaN if there are fewer.

    >>> round(sl.metrics.vote([2, 2, 1], [True, False, False], 3), 6)
    0.433333
    """
    if k < 1 or len(counts) != len(right):
        raise MetricError(f"vote@{k}: k must be >= 1, and every answer right or not")
    m = whole_numbers("counts", counts)
    order = np.argsort(-m)
    m, passes = m[order], (m * np.array(right, dtype=bool))[order]
    n, c = np.array([m.sum()]), np.array([passes.sum()])
    return float(Ballots(n, c, np.zeros(m.size, dtype=np.int64), m, passes).vote(k)[0])


class Ballots:
    """The answers of many problems, prepared for votes at any k."""

    def __init__(self, n: Ints, c: Ints, owner: Ints, count: Ints, passes: Ints) -> None:
        """Collapse the problems to their patterns of answer counts."""
        # n, c: attempts and passed attempts per problem; attempts in none of its answers are blank. owner, count,
        # passes: per answer the index of its problem (rising), attempts that gave it (falling within a problem), and
        # how many of them passed.
        assert (np.diff(count)[np.diff(owner) == 0] <= 0).all()
        given = count > 0
        owner, count, passes = owner[given], count[given], passes[given]
        self.n, self.c = n, c
        self.blank, self.blank_passes = n - totals(owner, count, n.size), c - totals(owner, passes, n.size)
        pattern, first, size, times = _patterns(self.blank, owner, count)
        right = passes > 0
        self.owner, self.weight = owner[right], passes[right] / count[right]
        # One race per distinct pair of a pattern and the size of a right answer in it
        sizes, index = np.unique(count[right], return_inverse=True)
        races, self.race = np.unique(pattern[self.owner] * sizes.size + index, return_inverse=True)
        pattern, index = np.divmod(races, max(1, sizes.size))
        self.race_n, self.own, self.size = n[first[pattern]], sizes[index], size[pattern]
        self.rivals = times[pattern] - (self.size == self.own[:, None])

    def vote(self, k: int) -> Floats:
        """Return vote@k of each problem; NaN where k > n."""
        value = ratio(self.c.astype(np.float64), self.n)
        if k > 1:
            won = self.weight * self._win_probabilities(k)[self.race]
            value = np.bincount(self.owner, won, self.n.size).astype(np.float64)
            all_blank = all_within(self.blank, np.maximum(self.n, k), k)
            value += all_blank * ratio(self.blank_passes.astype(np.float64), np.maximum(self.blank, 1))
        value = np.where(value < _TOLERANCE, 0.0, np.where(value > 1 - _TOLERANCE, 1.0, value))
        return np.where(self.n >= k, value, np.nan)

    def _win_probabilities(self, k: int) -> Floats:
        """Return the probability to win each race, by problems with the same n; 0 where k > n."""
        out = np.zeros(self.race_n.size)
        order = np.argsort(self.race_n, kind="stable")
        cuts = [*np.flatnonzero(np.diff(self.race_n[order], prepend=-1)).tolist(), order.size]
        for rows in (order[a:b] for a, b in pairwise(cuts)):
            n, own, size, rivals = int(self.race_n[rows[0]]), self.own[rows], self.size[rows], self.rivals[rows]
            if n > k:
                out[rows] = _majority(k, n, own) + _plurality(k, n, own, size, rivals)
            elif n == k:  # all attempts are drawn: the most common answers win
                is_beaten = ((size > own[:, None]) & (rivals > 0)).any(axis=1)
                out[rows] = np.where(is_beaten, 0.0, 1 / (1 + (rivals * (size == own[:, None])).sum(axis=1)))
        return out


def _patterns(blank: Ints, owner: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Collapse problems to distinct patterns of answer counts; counts fall within a problem."""
    # Returns each problem's pattern, the first problem of each pattern, and as patterns x columns the different sizes
    # of answers (falling, padded with 0) and how many answers have each. Counts 3, 1, 1: sizes 3, 1 and times 1, 2.
    ends = np.searchsorted(owner, np.arange(blank.size + 1))
    text = np.insert(count, ends[:-1], blank).tobytes()  # each problem: blank attempts, then its counts
    cuts = (8 * (ends + np.arange(blank.size + 1))).tolist()
    codes: dict[bytes, int] = {}
    pattern = np.array([codes.setdefault(text[a:b], len(codes)) for a, b in pairwise(cuts)], dtype=np.int64)
    first = np.unique(pattern, return_index=True)[1]
    is_first = np.isin(owner, first)
    row, count = pattern[owner[is_first]], count[is_first]
    starts = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(count, prepend=-1) != 0))
    column = np.arange(starts.size) - np.searchsorted(row[starts], row[starts])
    size, times = np.zeros((2, len(codes), int(column.max(initial=-1)) + 1), dtype=np.int64)
    size[row[starts], column], times[row[starts], column] = count[starts], np.diff(starts, append=row.size)
    return pattern, first, size, times


def _majority(k: int, n: int, own: Ints) -> Floats:
    """Return the probability of more than k / 2 votes, whatever the rivals get."""
    sizes, index = np.unique(own.astype(float), return_inverse=True)
    chance, credit = np.empty(sizes.size), (np.arange(k + 1) > k // 2).astype(float)
    for rows in blocks(sizes.size, k + 1):
        chance[rows] = expected(hypergeometric(np.full_like(sizes[rows], n), sizes[rows], k), credit)
    return chance[index]


def _plurality(k: int, n: int, own: Ints, size: Ints, rivals: Ints) -> Floats:
    """Return the probability to win with j votes, summed over j up to k / 2; `rivals` answers have each size."""
    # Draws without replacement are independent binomials per answer, given that they sum to k. An answer wins with j
    # votes if no rival has more; t rivals with as many leave it the share 1 / (1 + t), the integral of y^t over [0,
    # 1]. So the probability is a coefficient of a product of polynomials, one per rival, cut after x^j with the last
    # term times y. The product is evaluated at roots of unity, the integral with as many Gauss nodes as make it
    # exact.
    p, half = k / n, k // 2
    # All n + 1 roots, or so many that a binomial around k has less than 1e-20 beyond them; the lower half mirrors.
    points = min(n + 1, k + int(8 * np.sqrt(k)) + 12)
    m = np.arange(points // 2 + 1)
    roots, root_weights = np.exp(2j * np.pi * m / points), (1.0 + ((m > 0) & (2 * m < points))) / points
    sizes, index = np.unique(np.append(size.ravel(), own), return_inverse=True)
    pmf = binomial(sizes, p, half)
    rival, mine = index[: size.size].reshape(size.shape), pmf[index[size.size :]]
    blank = n - own - (size * rivals).sum(axis=1)
    below = np.zeros((sizes.size, roots.size), dtype=np.complex128)
    total = np.zeros(own.size)
    for j in range(1, half + 1):
        below += pmf[:, j - 1, None] * roots ** (j - 1)
        tied = pmf[:, j, None] * roots**j
        phase = root_weights * roots.conj() ** (k - j)
        is_cut = (binomial_sf(j, sizes, p) > _NEGLIGIBLE)[rival]  # a prefix of the columns: sizes fall
        chance = mine[:, j] * binomial_cdf(j, sizes, p)[rival].min(axis=1, initial=1.0, where=rivals > 0)
        room = blank + (np.minimum(size, j) * rivals).sum(axis=1)
        free = n - own - (size * rivals * is_cut).sum(axis=1)  # rivals that are never cut are one binomial together
        nodes = np.minimum((rivals * is_cut).sum(axis=1), (k - j) // j) // 2 + 1
        candidates = np.flatnonzero((chance > _NEGLIGIBLE) & (own >= j) & (room >= k - j))
        candidates = candidates[np.argsort(-is_cut[candidates].sum(axis=1), kind="stable")]  # most cut columns first
        for degree in np.unique(nodes[candidates]).tolist():
            same_degree = candidates[nodes[candidates] == degree]
            factors = [(weight, below + y * tied) for y, weight in zip(*gauss_legendre(degree), strict=True)]
            for block in blocks(same_degree.size, 4 * roots.size):
                rows = same_degree[block]
                exponents, at = np.unique(free[rows], return_inverse=True)
                start = ((1 - p + p * roots) ** exponents[:, None])[at]
                product = _product(start, factors, rival[rows], rivals[rows], is_cut[rows])
                coefficient = (product.real * phase.real - product.imag * phase.imag).sum(axis=1)
                total[rows] += mine[rows, j] * np.maximum(coefficient, 0)
    return np.asarray(total / binomial(np.array([n]), p, k)[0, k])  # the chance that binomials sum to k


def _product(
    start: Complex, factors: list[tuple[float, Complex]], rival: Ints, rivals: Ints, is_cut: NDArray[np.bool_]
) -> Complex:
    """Multiply `start` by the polynomials of all rivals that are cut, and sum over the Gauss nodes."""
    total = np.zeros_like(start)
    for weight, factor in factors:
        term = start.copy()
        for column, many in enumerate(is_cut.sum(axis=0).tolist()):  # a column concerns the first rows only
            if many:
                each, times = factor[rival[:many, column]], rivals[:many, column]
                repeated = np.flatnonzero(times != 1)
                each[repeated] **= times[repeated, None]
                term[:many] *= each
        total += weight * term
    return total
