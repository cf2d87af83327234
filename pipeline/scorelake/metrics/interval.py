"""Confidence intervals of values, with problems as a random sample or with the problems fixed."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import scipy

from scorelake.metrics.distributions import Floats, Ints, ratio

_MIN_CONCENTRATION = 1e-6  # smallest concentration of the Beta distribution, whatever the variance


def interval(
    value: Floats,
    se: Floats,
    units: Floats | Ints,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float | Floats = 0.95,
    seen: tuple[Floats, Floats] | None = None,
    far_problems: float = 0.5,
) -> tuple[Floats, Floats]:
    """Compute the confidence interval of values whose problems are a random sample.

    A Beta distribution is fitted to the mean, with half a problem added at the far end for what problems not in the
    sample could score. For scores of 0 and 1 the interval lies between Jeffreys and Clopper-Pearson.

    units: the number of problems or of clusters of them. bounds: smallest and largest possible value; if infinite,
    Student's interval, which needs two units that differ. seen: without bounds, smallest and largest reward behind
    each value; the interval is the wider of both. far_problems: problems added at the far end. The ends contain the
    value, and are NaN where it is NaN.

    >>> lo, hi = sl.metrics.interval(np.array([0.0]), np.array([0.0]), np.array([30]))
    >>> lo[0].item(), round(hi[0].item(), 3)
    (0.0, 0.081)
    """
    low, high = bounds
    if not np.isfinite(high - low):
        freedom = np.where(units > 1, units - 1.0, np.nan)
        half_width = scipy.special.stdtrit(freedom, (1 + confidence) / 2) * np.where(se > 0, se, np.nan)
        inner = (value, value) if seen is None else _beta_ends(value, se, units, *seen, confidence, far_problems)
        return np.minimum(value - half_width, inner[0]), np.maximum(value + half_width, inner[1])  # NaN stays
    if high == low:
        return value.copy(), value.copy()
    return _beta_ends(value, se, units, np.asarray(low), np.asarray(high), confidence, far_problems)


def _beta_ends(
    value: Floats, se: Floats, units: Floats | Ints, low: Floats, high: Floats, confidence: float | Floats, far: float
) -> tuple[Floats, Floats]:
    width = high - low
    share, share_se = ratio(value - low, width), ratio(se, width)
    mirrored, upper = (_upper_end(v, share_se, units, confidence, far) for v in (1 - share, share))
    lo, hi = low + width * (1 - mirrored), low + width * upper
    return np.minimum(lo, value), np.maximum(hi, value)  # rounding must not exclude the value


def _upper_end(v: Floats, se: Floats, units: Floats | Ints, confidence: float | Floats, far: float) -> Floats:
    """Return the upper end of values in [0, 1]: a quantile of a Beta with `far` problems at 1 added."""
    u = np.asarray(units, dtype=np.float64)
    squares = np.where(u > 1, np.minimum(u * (u - 1) * se**2, u * v * (1 - v)), 0.0)
    a = u + far
    m = (u * v + far) / a
    variance = (squares + u * (v - m) ** 2 + far * (1 - m) ** 2) / (a * (a + 1))
    inside = (v < 1) & (variance > 0)
    k = np.maximum(np.divide(m * (1 - m), variance, out=np.ones_like(m), where=inside) - 1, _MIN_CONCENTRATION)
    hi = np.where(np.isnan(v), np.nan, 1.0)
    rows = np.flatnonzero(inside)
    m, k = m[rows], k[rows]
    level = np.broadcast_to((1 + np.asarray(confidence)) / 2, v.shape)[rows]
    quantile = scipy.special.betaincinv(m * k, (1 - m) * k, level)  # NaN for k beyond 1e14: then a normal one
    normal = np.minimum(m + scipy.special.ndtri(level) * np.sqrt(m * (1 - m) / (k + 1)), 1.0)
    hi[rows] = np.maximum(v[rows], np.where(np.isnan(quantile), normal, quantile))
    return hi


def blend_interval(
    parts: Floats,
    covariance: Floats,
    units: Floats | Ints,
    powers: tuple[float, float],
    confidence: float,
    largest: tuple[float, float] = (1.0, 1.0),
) -> tuple[Floats, Floats]:
    """Return the interval of a product of two means, each to its power, from their own intervals."""
    # parts: the two means of each group, from 0 to the largest; their covariance is of estimates, 2 x 2 x groups. The
    # ends of the parts are put together on the logarithmic scale by their correlation: the delta method covered only
    # .50 in some cells.
    se, exponent = np.sqrt(np.einsum("iig->ig", covariance)), np.array(powers)[:, None]
    both = zip(parts, se, largest, strict=True)
    ends = [interval(part, error, units, (0.0, end), confidence) for part, error, end in both]
    lower, upper = np.swapaxes(ends, 0, 1)
    worst, best = np.where(exponent >= 0, (lower, upper), (upper, lower))
    correlation = np.nan_to_num(ratio(covariance[0, 1], se[0] * se[1])) * np.sign(powers[0] * powers[1])

    def distance(end: Floats) -> Floats:
        x, y = np.where(exponent == 0, 0.0, np.abs(exponent * np.log(parts / end)))
        return np.asarray(np.nan_to_num(np.sqrt(np.maximum(x * x + y * y + 2 * correlation * x * y, 0)), nan=np.inf))

    with np.errstate(divide="ignore", invalid="ignore"):  # where a part or an end is 0
        value, cap = ((each**exponent).prod(axis=0) for each in (parts, best))
        lo, hi = value * np.exp(-distance(worst)), np.minimum(value * np.exp(distance(best)), cap)
    is_zero = ((parts == 0) & (exponent > 0)).any(axis=0)
    return np.where(is_zero, 0.0, lo), np.where(is_zero, cap, hi)


def cluster_spread(sums: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return standard errors of means by the delete-one-cluster jackknife, and the effective number of clusters."""
    # Takes sums and numbers of problems by cluster, on the last axis. Clusters of equal size count in full.
    problems = counts.sum(axis=-1, keepdims=True)
    own = counts > 0
    clusters = np.count_nonzero(own, axis=-1)
    without = np.divide(problems - counts, 1.0, out=np.ones_like(counts), where=own & (counts < problems))
    moved = np.where(own, (counts * (sums.sum(axis=-1, keepdims=True) / problems) - sums) / without, 0.0)
    moved -= own * (moved.sum(axis=-1) / clusters)[..., None]
    error = np.sqrt((1 - 1 / clusters) * np.einsum("...k,...k->...", moved, moved))
    effective = np.sqrt(clusters * problems[..., 0] ** 2 / np.einsum("...k,...k->...", counts, counts))
    return np.where(clusters > 1, error, np.nan), effective


def equivalence_interval(
    sums: Floats,
    counts: Floats,
    problems: Floats | None,
    bounds: tuple[float, float],
    bounded: bool,
    confidence: float,
) -> tuple[Floats, Floats]:
    """Return an interval of mean differences with this confidence on each side, which margins are tested with."""
    # The bootstrap of ties is [0, 0]: by it 20 ties "proved" a margin of 0.001. Here one whole problem is added at
    # the far end. Takes sums of differences and numbers of problems by unit, the number of problems where units are
    # not clusters, and the ends of the scores; without known bounds it is no narrower than Student's interval.
    error, clusters = cluster_spread(sums, counts)
    units = clusters if problems is None else problems
    lift, span = sums.sum(axis=-1) / counts.sum(axis=-1), bounds[1] - bounds[0]
    lo, hi = interval(lift, error, units, (-span, span), max(0.0, 2 * confidence - 1), far_problems=1.0)
    if not bounded:
        half_width = scipy.special.stdtrit(np.maximum(units - 1, 1), confidence) * np.nan_to_num(error)
        lo, hi = np.minimum(lo, lift - half_width), np.maximum(hi, lift + half_width)
    return lo, hi


_MAX_Z = 7.0  # smaller p-values than this z has (2.6e-12) are given as that


_FAR = 0.75
"""Problems at the far end of each of two means that are compared: with 1/2 equal models were called different in up
to 6.1% of 72 cells of 1, 2 or 4 attempts against 16, with 3/4 in up to 5.0%."""

Ends = Callable[[float | Floats], tuple[Floats, Floats]]  # returns the ends of intervals at a confidence level


def mean_pair_ends(sums: Floats, counts: Floats, units: Floats, bounds: tuple[float, float]) -> Ends:
    """Return the intervals of b minus a without assuming equal spreads; sums of a and b are 2 x pairs x units."""
    # Where one model has many more attempts per problem, differences are not symmetric and signs cannot be flipped.
    # The ends are those of the two means, put together by the correlation of the problems' values. counts: the
    # problems that were added up, pairs x units; units: the number of problems or clusters of each pair.
    means = sums.sum(axis=2) / counts.sum(axis=1)
    off = sums - means[:, :, None] * counts
    square = np.einsum("ijk,ijk->ij", off, off)
    errors = cluster_spread(sums, np.broadcast_to(counts, sums.shape))[0]
    correlation = np.nan_to_num(ratio(np.einsum("jk,jk->j", *off), np.sqrt(square[0] * square[1])))
    lift, both = means[1] - means[0], (means.ravel(), errors.ravel(), np.tile(units, 2), bounds)

    def reach(x: Floats, y: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(x**2 + y**2 - 2 * correlation * x * y, 0)))

    def ends(confidence: float | Floats) -> tuple[Floats, Floats]:
        levels = np.tile(np.broadcast_to(confidence, lift.shape), 2)
        sides = interval(*both, levels, far_problems=_FAR)
        (down_a, down_b), (up_a, up_b) = (np.abs(end.reshape(2, -1) - means) for end in sides)
        return lift - reach(down_b, up_a), lift + reach(up_b, down_a)

    return ends


def invert(ends: Ends, pairs: int) -> Floats:
    """Return two-sided p-values: 1 minus the confidence at which an interval reaches zero, by bisection."""
    low, high = np.zeros(pairs), np.full(pairs, _MAX_Z)
    for _ in range(40):
        z = (low + high) / 2
        lo, hi = ends(2 * scipy.special.ndtr(z) - 1)
        excluded = (lo > 0) | (hi < 0)
        low, high = np.where(excluded, z, low), np.where(excluded, high, z)
    return 2 * scipy.special.ndtr(-low)


def rerun(
    value: Floats, variance: Floats, attempts: Floats | Ints, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Compute the interval of values if the same problems were attempted again.

    Wilson's interval (1927) at the effective number of attempts, value (1 - value) / variance. variance: with the
    problems fixed; 0 (all attempts of every problem agree) is replaced by that of one deviating attempt, NaN (no
    problem has two attempts) gives no interval. attempts: behind each value.

    >>> lo, hi = sl.metrics.rerun(np.array([0.5]), np.array([1 / 24]), np.array([8]))
    >>> round(lo[0].item(), 4), round(hi[0].item(), 4)
    (0.1876, 0.8124)
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    n = np.asarray(attempts, dtype=np.float64)
    noise = np.where(variance > 0, variance, ratio(np.ones_like(n), n) ** 2)
    size = np.where((value > 0) & (value < 1), ratio(value * (1 - value), noise), n)
    size[np.isnan(variance)] = np.nan
    center = value + z * z / (2 * size)
    half_width = z * np.sqrt(value * (1 - value) / size + (z / (2 * size)) ** 2)
    scale = 1 + z * z / size
    lo, hi = (center - half_width) / scale, (center + half_width) / scale
    return np.clip(np.minimum(lo, value), 0, 1), np.clip(np.maximum(hi, value), 0, 1)
