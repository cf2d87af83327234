"""The interval of a value: what the same model would score on other problems like these.

One closed form for every metric, from the value, its standard error and the number of units (problems, or clusters
of them). What the problems not seen could do is worth half a problem at the far end, so that all problems failed
does not mean that none can be solved. For scores of 0 and 1 it lies between Jeffreys and Clopper-Pearson.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.threads import parallel_map

_FLATTEST = 1e-6
"""The least weight of a Beta: it must have one, however large the variance."""
_FEW = 1000
"""So many values are done before another thread has started."""


def interval(
    value: Floats,
    se: Floats,
    units: Floats | Ints,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """lo and hi of each value, which lies between them; NaN where there is no value.

    bounds are the least and the largest value the metric can have. Where they are not finite nothing is known of the
    problems not seen: the interval is Student's, and NaN where there is only one unit.
    """
    low, high = bounds
    if not np.isfinite(high - low):
        from scipy.special import stdtrit  # noqa: PLC0415  (loads slowly)

        more = np.where(units > 1, units - 1.0, np.nan)
        reach = stdtrit(more, (1 + confidence) / 2) * np.maximum(se, 0)
        return value - reach, value + reach
    if high == low:
        return value.copy(), value.copy()
    share, spread = (value - low) / (high - low), se / (high - low)
    far, near = parallel_map(
        lambda v: _upper(v, spread, units, confidence), (1 - share, share), None if value.size > _FEW else 1
    )
    lo, hi = low + (high - low) * (1 - far), low + (high - low) * near
    return np.minimum(lo, value), np.maximum(hi, value)  # whatever rounding does


def _upper(v: Floats, se: Floats, units: Floats | Ints, confidence: float) -> Floats:
    """The upper end for values from 0 to 1, as METRICS has it: a Beta with half a problem at 1 added."""
    from scipy.special import betaincinv  # noqa: PLC0415  (loads slowly)

    u = np.asarray(units, dtype=np.float64)
    squares = np.where(u > 1, np.minimum(u * (u - 1) * se**2, u * v * (1 - v)), 0.0)
    a = u + 0.5
    m = (u * v + 0.5) / a
    variance = (squares + u * (v - m) ** 2 + (1 - m) ** 2 / 2) / (a * (a + 1))
    inside = (v < 1) & (variance > 0)
    k = np.maximum(np.divide(m * (1 - m), variance, out=np.ones_like(m), where=inside) - 1, _FLATTEST)
    at = np.flatnonzero(inside)
    hi = np.where(np.isnan(v), np.nan, 1.0)
    m, k = m[at], k[at]
    end = betaincinv(m * k, (1 - m) * k, (1 + confidence) / 2)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    normal = np.minimum(m + z * np.sqrt(m * (1 - m) / (k + 1)), 1.0)  # where the library gives up: K beyond 1e14
    hi[at] = np.maximum(v[at], np.where(np.isnan(end), normal, end))
    return hi


def rerun(
    value: Floats, variance: Floats, attempts: Floats | Ints, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """What the same problems, attempted again, would score: Wilson's interval at the effective number of attempts.

    variance is that of the value while the problems stay; NaN where no problem has two attempts, and there is no
    interval. Where all attempts of every problem agree it is 0, which is taken as one attempt that does not.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    n = np.asarray(attempts, dtype=np.float64)
    noise = np.where(variance > 0, variance, ratio(np.ones_like(n), n) ** 2)
    size = np.where(np.isnan(variance), np.nan, ratio(value * (1 - value), noise))
    size = np.where((value > 0) & (value < 1), size, np.where(np.isnan(size), np.nan, n))
    middle = value + z * z / (2 * size)
    reach = z * np.sqrt(value * (1 - value) / size + (z / (2 * size)) ** 2)
    scale = 1 + z * z / size
    lo, hi = (middle - reach) / scale, (middle + reach) / scale
    return np.clip(np.minimum(lo, value), 0, 1), np.clip(np.maximum(hi, value), 0, 1)
