"""Metrics of graded rewards: avg@N, bayes@N and max@k from counts per reward level.

Arrays have one row per problem and one column per level, levels rising. `mass` is the Dirichlet prior's
pseudo-count per level. Binary outcomes are the two levels 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scorelake.metrics.counts import distinct
from scorelake.metrics.draws import Floats, Ints, blocks, ratio

Moments = tuple[Floats, Floats]


def avg_finite(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Floats:
    """The plain mean reward of each problem; NaN without attempts."""
    n = counts.sum(axis=1)
    return ratio((counts * rewards).sum(axis=1), n)


def avg_posterior(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Moments:
    """The plain mean, with the posterior's variance rescaled from pseudo-counts to attempts."""
    n = counts.sum(axis=1)
    _, variance = bayes_posterior(rewards, counts, mass, k)
    total = n + mass.sum(axis=1)
    return avg_finite(rewards, counts, mass, k), variance * ratio(total, n) ** 2


def bayes_finite(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Floats:
    """The posterior mean; NaN without attempts, where it would be only the prior."""
    mean, _ = bayes_posterior(rewards, counts, mass, k)
    return np.where(counts.sum(axis=1) > 0, mean, np.nan)


def bayes_posterior(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Moments:
    """Mean and variance of the weighted reward under the Dirichlet posterior."""
    v = counts + mass
    total = v.sum(axis=1)
    mean = (v * rewards).sum(axis=1) / total
    spread = (v * (rewards - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, spread / (total + 1)


def max_finite(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Floats:
    """Expected best of k draws without replacement; NaN where k > n."""
    below = counts.cumsum(axis=1)
    n = below[:, -1]
    above = any_above(below[:, :-1], n[:, None], k)
    return np.where(n >= k, rewards[0] + (np.diff(rewards) * above).sum(axis=1), np.nan)


def any_above(below: Ints, n: Ints, k: int) -> Floats:
    """P(one of k draws without replacement is not among `below` of the n attempts); needs k <= n."""

    def chance(low: Floats, high: Floats) -> tuple[Floats]:
        share = (high - low) / np.maximum(high - np.arange(k), 1)
        with np.errstate(divide="ignore"):  # a certain hit: log 0, whose exponential is 0
            return (-np.expm1(np.log1p(-np.minimum(share, 1)).sum(axis=1)),)

    return _per_distinct(chance, below, n, k)[0]


def max_posterior(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Moments:
    """Mean and variance of the expected best of k draws under the Dirichlet posterior.

    With A_l the posterior mass at or below level l, g = lowest + sum_l gap_l (1 - A_l^k). For l <= m the
    ratio A_l / A_m is independent of A_m, so Cov(A_l^k, A_m^k) = E[A_l^k] (E[A_m^2k] / E[A_m^k] - E[A_m^k]),
    whose second factor knows only m: the double sum over levels is one running sum. Every term is positive,
    and equal rewards (gap 0) merge by themselves.
    """

    def power_moments(v: Floats, total: Floats) -> tuple[Floats, Floats, Floats]:
        i = np.arange(k, dtype=float)
        log_mean = np.log1p((v - total) / (total + i)).sum(axis=1)  # log E[A^k]
        ratio = ((v + k + i) / (total + k + i)).prod(axis=1)  # E[A^2k] / E[A^k]
        growth = np.log1p(k * (total - v) / ((v + i) * (total + k + i))).sum(axis=1)  # log(ratio / E[A^k])
        return np.exp(log_mean), -np.expm1(log_mean), ratio * -np.expm1(-growth)

    v = (counts + mass).cumsum(axis=1)
    gap = np.diff(rewards)
    below, above, excess = _per_distinct(power_moments, v[:, :-1], v[:, -1:], k)
    weight = gap * below
    lower = weight.cumsum(axis=1) - weight
    mean = rewards[0] + (gap * above).sum(axis=1)
    return mean, (gap * excess * (weight + 2 * lower)).sum(axis=1)


def _per_distinct(
    kernel: Callable[[Floats, Floats], tuple[Floats, ...]], low: Floats | Ints, high: Floats | Ints, k: int
) -> list[Floats]:
    """kernel(low, high) for every entry, computed once per distinct pair, in blocks of pairs x k."""
    low, high = np.broadcast_arrays(low, high)
    lows, highs, place = _distinct(low.ravel(), high.ravel())
    parts = [kernel(lows[rows, None], highs[rows, None]) for rows in blocks(lows.size, k)]
    return [np.concatenate(column)[place].reshape(low.shape) for column in zip(*parts, strict=True)]


def _distinct(low: Floats | Ints, high: Floats | Ints) -> tuple[Floats, Floats, Ints]:
    """The distinct pairs, and every entry's place among them; whole numbers are found without a sort."""
    n, c = high.astype(np.int64), low.astype(np.int64)
    if (n == high).all() and (c == low).all() and (c <= n).all() and (c >= 0).all():
        pairs = distinct(n, c)
        return pairs.c.astype(np.float64), pairs.n.astype(np.float64), pairs.place
    both, place = np.unique(low + 1j * high, return_inverse=True)
    return both.real, both.imag, place
