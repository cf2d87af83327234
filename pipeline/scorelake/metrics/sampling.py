"""Detect attempts whose number depends on their outcomes.

Values are unbiased if n was fixed before the outcomes were known. Retrying what failed and stopping at a pass break
this: stopping at the first pass, at most 16 attempts, biases pass@1 by +.10. The metric stopped@k is not biased.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from scorelake.errors import MetricError
from scorelake.metrics.counts import pairs
from scorelake.metrics.distributions import Floats, ratio

LEVEL = 0.05  # share of groups with n fixed in advance that may be called adaptive by one test


def stops_after(n: ArrayLike, c: ArrayLike) -> int:
    """Return the number of passes after which the problems of a group were no longer attempted; 0 if none is seen.

    Problems below the largest n must have at least so many passes, all others at most so many. If n did not depend on
    the outcomes, every choice of the problems with a smaller n would be as likely: the share of choices that look
    like this must be at most 5%. Retries where none of the first m attempts passed are found by the passes among
    these: stops_after(minimum(n, m + 1), first_passes).

    >>> sl.metrics.stops_after(n=[1, 3, 2, 8, 1, 8, 8], c=[1, 1, 1, 0, 1, 0, 0])
    1
    """
    attempts, passes = pairs(n, c)
    below = attempts < attempts.max(initial=0)
    if not below.any():
        return 0
    least = int(passes[below].min())
    if least < 1 or passes[~below].max() > least:
        return 0
    level, at_level = (int(np.count_nonzero(at & (passes == least))) for at in (below | True, below))
    chance = Fraction(comb(level, at_level), comb(below.size, int(below.sum())))
    return least if chance <= LEVEL else 0


def order_statistics(
    n: ArrayLike, c: ArrayLike, m: ArrayLike, first_passes: ArrayLike, last: ArrayLike
) -> tuple[float, float]:
    """Return two normal deviates of a group: is the last attempt special, and are the first m?

    Both are standard normal if n was fixed in advance, since the order of a problem's verdicts is then arbitrary.
    m: a number of attempts, the smallest n of the group. first_passes, last: the passes among the first m attempts
    of each problem, and the verdict of the last, 1 or 0.

    >>> z1, z2 = sl.metrics.order_statistics([3, 4, 2, 1], [1, 1, 1, 1], 1, [0, 0, 0, 1], [1, 1, 1, 1])
    >>> round(z1, 2), round(z2, 2)
    (2.36, -1.33)
    """
    return deviates(*(float(term.sum()) for term in order_terms(n, c, m, first_passes, last)))


def order_terms(
    n: ArrayLike, c: ArrayLike, m: ArrayLike, first_passes: ArrayLike, last: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the difference and variance of the last attempt, and those of the first m, by problem."""
    attempts, passes = (x.astype(np.float64) for x in pairs(n, c))
    if (attempts < 1).any():
        raise MetricError("order_statistics: every problem needs an attempt")
    rate, drawn = passes / attempts, np.asarray(m, dtype=np.float64)
    spread = rate * (1 - rate)
    others = np.where(attempts > 1, (attempts - drawn) / np.maximum(attempts - 1, 1), 0.0)
    return np.asarray(last) - rate, spread, np.asarray(first_passes) - drawn * rate, drawn * spread * others


def deviates(last: float, last_variance: float, first: float, first_variance: float) -> tuple[float, float]:
    """Return the normal deviates of sums of order_terms."""
    z1, z2 = np.nan_to_num(ratio(np.array([last, first]), np.sqrt([last_variance, first_variance]))).tolist()
    return z1, z2


def depends_on_outcomes(z1: float, z2: float) -> bool:
    """Return whether two deviates of order_statistics say so: at level .05 over both."""
    return bool(2 * ndtr(-max(abs(z1), abs(z2))) <= LEVEL / 2)


def retry_p_value(z1: float, z2: float) -> float:
    """Return the p-value of attempts that were made until they passed: the last too good, or the first too bad.

    The other direction is no retry: logs that give only counts are often written with the passes first.
    """
    return float(min(1.0, 4 * ndtr(-max(z1, -z2, 0.0))))
