"""Metrics of graded rewards: avg@N, bayes@N and max@k from counts per reward level.

Arrays have one row per problem and one column per level, levels rising. `mass` is the Dirichlet prior's
pseudo-count per level. Binary outcomes are the two levels 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scorelake.metrics.beta_powers import power, power_variance, within
from scorelake.metrics.counts import distinct
from scorelake.metrics.distributions import Floats, Ints, ratio

Moments = tuple[Floats, Floats]
_WHOLE = 2.0**53
"""From here on floats have gaps between whole numbers."""


def avg_finite(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Floats:
    """The plain mean reward of each problem; NaN without attempts."""
    n = counts.sum(axis=1)
    return ratio((counts * rewards).sum(axis=1), n)


def avg_posterior(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Moments:
    """The plain mean, with the variance of a flat prior's posterior rescaled from pseudo-counts to attempts.

    Prior outcomes are no attempts: whatever is believed beforehand, the mean of the attempts is what it is.
    """
    n = counts.sum(axis=1)
    _, variance = bayes_posterior(rewards, counts, np.ones((1, rewards.size)), k)
    total = n + rewards.size
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
    above = any_above(below[:, :-1], np.maximum(n, k)[:, None], k)
    return np.where(n >= k, rewards[0] + (np.diff(rewards) * above).sum(axis=1), np.nan)


def any_above(below: Ints, n: Ints, k: int) -> Floats:
    """P(one of k draws without replacement is not among `below` of the n attempts); needs k <= n."""
    return _per_distinct(lambda low, high: within(low, high, k), below, n)[1]


def max_posterior(rewards: Floats, counts: Ints, mass: Floats, k: int) -> Moments:
    """Mean and variance of the expected best of k draws under the Dirichlet posterior.

    With A_l the posterior mass at or below level l, g = lowest + sum_l gap_l (1 - A_l^k). For l <= m the
    ratio A_l / A_m is independent of A_m, so Cov(A_l^k, A_m^k) = E[A_l^k] (E[A_m^2k] / E[A_m^k] - E[A_m^k]),
    whose second factor knows only m: the double sum over levels is one running sum. Every term is positive,
    and equal rewards (gap 0) merge by themselves.
    """

    def power_moments(v: Floats, total: Floats) -> tuple[Floats, Floats, Floats]:
        below, above = power(v, total, k)
        return below, above, power_variance(v, total, k) / np.where(below > 0, below, 1)

    v = (counts + mass).cumsum(axis=1)
    gap = np.diff(rewards)
    below, above, excess = _per_distinct(power_moments, v[:, :-1], v[:, -1:])
    weight = gap * below
    lower = weight.cumsum(axis=1) - weight
    mean = rewards[0] + (gap * above).sum(axis=1)
    return mean, (gap * excess * (weight + 2 * lower)).sum(axis=1)


def _per_distinct(
    kernel: Callable[[Any, Any], tuple[Floats, ...]], low: Floats | Ints, high: Floats | Ints
) -> list[Floats]:
    """kernel(low, high) for every entry, computed once per distinct pair; whole numbers stay whole."""
    low, high = np.broadcast_arrays(low, high)
    lows, highs, place = _distinct(low.ravel(), high.ravel())
    return [column[place].reshape(low.shape) for column in kernel(lows, highs)]


def _distinct(low: Floats | Ints, high: Floats | Ints) -> tuple[Floats | Ints, Floats | Ints, Ints]:
    """The distinct pairs, and every entry's place among them; whole numbers are found without a sort."""
    if low.dtype.kind == "i":
        pairs = distinct(high, low)  # type: ignore[arg-type]
        return pairs.c, pairs.n, pairs.inverse
    if high.max(initial=0) < _WHOLE and (high == np.floor(high)).all() and (low == np.floor(low)).all():
        pairs = distinct(high.astype(np.int64), low.astype(np.int64))
        return pairs.c.astype(np.float64), pairs.n.astype(np.float64), pairs.inverse
    both, place = np.unique(low + 1j * high, return_inverse=True)
    return both.real, both.imag, place
