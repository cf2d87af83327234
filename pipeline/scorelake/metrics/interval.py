"""Confidence intervals of values, with problems as a random sample or with the problems fixed."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import scipy

from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.threads import parallel_map

_MIN_CONCENTRATION = 1e-6
"""Smallest concentration of the Beta distribution, whatever the variance."""
_PARALLEL = 1000
"""Below this number of values a second thread costs more than it saves."""


def interval(
    value: Floats,
    se: Floats,
    units: Floats | Ints,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """Compute the confidence interval of values whose problems are a random sample.

    A Beta distribution is fitted to the mean, with half a problem added at the far end for what problems not in the
    sample could score. For scores of 0 and 1 the interval lies between Jeffreys and Clopper-Pearson.

    Parameters
    ----------
    value, se, units : array
        Values, their standard errors, and the number of problems or of clusters of them.
    bounds : (float, float)
        Smallest and largest possible value. If infinite, Student's interval is used, which needs two units.
    confidence : float, default 0.95

    Returns
    -------
    lo, hi : array of float
        Ends that contain the value; NaN where the value is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> lo, hi = sl.metrics.interval(np.array([0.0]), np.array([0.0]), np.array([30]))
    >>> lo[0].item(), round(hi[0].item(), 3)
    (0.0, 0.081)
    """
    low, high = bounds
    if not np.isfinite(high - low):
        freedom = np.where(units > 1, units - 1.0, np.nan)
        half_width = scipy.special.stdtrit(freedom, (1 + confidence) / 2) * np.maximum(se, 0)
        return value - half_width, value + half_width
    if high == low:
        return value.copy(), value.copy()
    share, share_se = (value - low) / (high - low), se / (high - low)
    threads = None if value.size > _PARALLEL else 1
    mirrored, upper = parallel_map(lambda v: _upper_end(v, share_se, units, confidence), (1 - share, share), threads)
    lo, hi = low + (high - low) * (1 - mirrored), low + (high - low) * upper
    return np.minimum(lo, value), np.maximum(hi, value)  # rounding must not exclude the value


def _upper_end(v: Floats, se: Floats, units: Floats | Ints, confidence: float) -> Floats:
    """Return the upper end of values in [0, 1]: a quantile of a Beta with half a problem at 1 added."""
    u = np.asarray(units, dtype=np.float64)
    squares = np.where(u > 1, np.minimum(u * (u - 1) * se**2, u * v * (1 - v)), 0.0)
    a = u + 0.5
    m = (u * v + 0.5) / a
    variance = (squares + u * (v - m) ** 2 + (1 - m) ** 2 / 2) / (a * (a + 1))
    inside = (v < 1) & (variance > 0)
    k = np.maximum(np.divide(m * (1 - m), variance, out=np.ones_like(m), where=inside) - 1, _MIN_CONCENTRATION)
    hi = np.where(np.isnan(v), np.nan, 1.0)
    rows = np.flatnonzero(inside)
    m, k = m[rows], k[rows]
    quantile = scipy.special.betaincinv(m * k, (1 - m) * k, (1 + confidence) / 2)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    normal = np.minimum(m + z * np.sqrt(m * (1 - m) / (k + 1)), 1.0)  # betaincinv is NaN for k beyond 1e14
    hi[rows] = np.maximum(v[rows], np.where(np.isnan(quantile), normal, quantile))
    return hi


def rerun(
    value: Floats, variance: Floats, attempts: Floats | Ints, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Compute the interval of values if the same problems were attempted again.

    Wilson's interval (1927) at the effective number of attempts, value (1 - value) / variance.

    Parameters
    ----------
    value, variance : array of float
        Values and their variances with the problems fixed. A variance of 0 (all attempts of every problem agree) is
        replaced by that of one deviating attempt; NaN (no problem has two attempts) gives no interval.
    attempts : array
        Number of attempts behind each value.
    confidence : float, default 0.95

    Returns
    -------
    lo, hi : array of float

    Examples
    --------
    >>> import numpy as np
    >>> lo, hi = sl.metrics.rerun(np.array([0.5]), np.array([1 / 24]), np.array([8]))
    >>> round(lo[0].item(), 4), round(hi[0].item(), 4)
    (0.1876, 0.8124)
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    n = np.asarray(attempts, dtype=np.float64)
    noise = np.where(variance > 0, variance, ratio(np.ones_like(n), n) ** 2)
    size = np.where(np.isnan(variance), np.nan, ratio(value * (1 - value), noise))
    size = np.where((value > 0) & (value < 1), size, np.where(np.isnan(size), np.nan, n))
    center = value + z * z / (2 * size)
    half_width = z * np.sqrt(value * (1 - value) / size + (z / (2 * size)) ** 2)
    scale = 1 + z * z / size
    lo, hi = (center - half_width) / scale, (center + half_width) / scale
    return np.clip(np.minimum(lo, value), 0, 1), np.clip(np.maximum(hi, value), 0, 1)
