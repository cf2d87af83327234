"""What it costs to solve problems, from the number of attempts and the sums of a measure per problem.

A measure is what an attempt costs: money, tokens or seconds. Problems where a number is undefined get NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from scorelake.errors import MetricError
from scorelake.metrics.bootstrap import percentile_ends
from scorelake.metrics.counts import pairs, whole_numbers
from scorelake.metrics.distributions import Floats, ratio
from scorelake.metrics.interval import blend_interval

BINS = 64  # logarithmic bins of a measure, four per doubling
FEW = 10
FIRST_EDGE = {"cost": -48, "tokens": 16, "time": -8}
"""Where they start, by the kind of measure: at 0.0002 (up to 11) for cost, 16 (740,000) for tokens, 0.25 (12,000)."""


def attempts_until_solved(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """Compute the expected number of attempts until one passes, at most k, drawn from n of which c passed.

    There is a number per problem, and a row per k; NaN where n < k. It is the sum of 1 - pass@j over j < k.

    >>> sl.metrics.attempts_until_solved(n=[5, 5, 16], c=[3, 0, 1], k=3).tolist()
    [1.5, 3.0, 2.8125]
    """
    n_, c_ = pairs(n, c)
    return cost_at_k(c_, n_ - c_, n_, c_, k)


def cost_at_k(passed_cost: ArrayLike, failed_cost: ArrayLike, n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """Compute the expected cost of sampling until an attempt passes, giving up after k: the mean over all orders.

    passed_cost, failed_cost: sums of the measure over the passed and the other attempts of each problem. With costs
    of 1 it is attempts_until_solved. Of costs 3, 5, 2, 8 and 4, where the second and the last attempt passed:

    >>> sl.metrics.cost_at_k(passed_cost=9, failed_cost=13, n=5, c=2, k=[1, 2]).round(2).tolist()
    [4.4, 7.05]
    """
    limits = whole_numbers("k", k)
    if limits.min(initial=1) < 1:
        raise MetricError("k must be at least 1")
    sums = (np.asarray(cost, dtype=np.float64) for cost in (passed_cost, failed_cost))
    passed, failed, n_, c_ = np.broadcast_arrays(*sums, *pairs(n, c))
    # an attempt comes after t failures with C(f, t) / C(n-1, t), or C(f-1, t) / C(n-1, t) if it is itself one of them
    spent, before_pass, before_fail = np.zeros(n_.shape), np.ones(n_.shape), np.ones(n_.shape)
    out = np.full((limits.size, *n_.shape), np.nan)
    for t in range(int(limits.max(initial=0))):
        spent = spent + (passed * before_pass + failed * before_fail) / np.maximum(n_, 1)
        out[limits.ravel() == t + 1] = np.where(n_ > t, spent, np.nan)
        left = np.maximum(n_ - 1 - t, 1)
        before_pass = before_pass * np.maximum(n_ - c_ - t, 0) / left
        before_fail = before_fail * np.maximum(n_ - c_ - 1 - t, 0) / left
    return out.reshape(limits.shape + n_.shape)[()]


def solved_per_cost(
    solved: ArrayLike, cost: ArrayLike, largest: float, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Compute the mean of pass@k over the mean of cost@k, and its interval.

    solved, cost: both of each problem; problems in which either is NaN are left out. largest: the largest possible
    cost, k times that of the dearest attempt. The ends join those of both means by the correlation of the problems.

    >>> np.round(sl.metrics.solved_per_cost([1, 0.5, 0, 1], [2, 3, 4, 2], largest=8), 4).tolist()
    [0.2273, 0.0387, 0.6164]
    """
    both = np.stack([np.asarray(solved, dtype=np.float64), np.asarray(cost, dtype=np.float64)])
    both = both[:, ~np.isnan(both).any(axis=0)]
    if not both[1].any():
        return np.nan, np.nan, np.nan
    means, units = both.mean(axis=1, keepdims=True), np.array([both.shape[1]])
    covariance = np.cov(both, ddof=0)[:, :, None] / max(both.shape[1] - 1, 1)
    lo, hi = blend_interval(means, covariance, units, (1.0, -1.0), confidence, (1.0, largest))
    return float(means[0, 0] / means[1, 0]), float(lo[0]), float(hi[0])


def cost_of_pass(
    cost: ArrayLike, passes: ArrayLike, weights: NDArray[np.number], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Compute the sum of the measure over the number of passes, and its interval; NaN where nothing passed.

    cost, passes: sums of each problem. weights: how often each is drawn, resamples x problems.

    >>> weights = np.random.default_rng(0).poisson(size=(2000, 4))
    >>> sl.metrics.cost_of_pass([3, 4, 2, 5], [1, 2, 0, 1], weights)[0]
    3.5
    """
    spent, passed = np.asarray(cost, dtype=np.float64), np.asarray(passes, dtype=np.float64)
    if not passed.any():
        return np.nan, np.nan, np.nan
    value, drawn = float(spent.sum() / passed.sum()), np.asarray(weights, dtype=np.float64)
    ratios = np.nan_to_num(ratio(drawn @ spent, drawn @ passed), nan=np.inf)
    if spent.size < 2 or value == 0:
        return value, min(float(ratios.min()), value), max(float(ratios.max()), value)
    with np.errstate(divide="ignore"):  # the log scale of a ratio; resamples may cost nothing
        logs = np.log(ratios)[None]
    (lo,), (hi,) = percentile_ends(logs, np.log([value]), np.array([spent.size]), confidence)
    return value, min(float(np.exp(lo)), value), max(float(np.exp(hi)), value)


def mean_cost(
    cost: ArrayLike, problems: ArrayLike, weights: ArrayLike, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Compute the mean of the measure over problems, and its interval: a studentized bootstrap of the logarithm.

    cost, problems: sums and numbers of the problems of each unit. weights: how often each unit is drawn, resamples x
    units. Costs are skewed: of 30 lognormal ones the mean is covered by 93%, by percentiles by 90%, by t by 88%.
    Resamples of fewer than FEW units often have one unit and no variance: they take Student's t of the logarithm.
    """
    spent, size, drawn = (np.asarray(x, dtype=np.float64) for x in (cost, problems, weights))
    value = float(spent.sum() / size.sum())
    deviation = spent - value * size
    if spent.size < 2 or not deviation.any():
        return (value, value, value) if spent.size > 1 else (value, np.nan, np.nan)
    ends, se = np.array([(1 - confidence) / 2, (1 + confidence) / 2]), np.sqrt((deviation**2).sum()) / spent.sum()
    if spent.size < FEW:
        low, high = stdtrit(spent.size - 1, ends) * np.sqrt(spent.size / (spent.size - 1))
        return value, value * float(np.exp(-high * se)), value * float(np.exp(-low * se))
    sums = drawn @ spent
    means = ratio(sums, drawn @ size)
    squares = drawn @ spent**2 - 2 * means * (drawn @ (spent * size)) + means**2 * (drawn @ size**2)
    with np.errstate(divide="ignore", invalid="ignore"):  # resamples may cost nothing, or always the same
        t = (np.log(means) - np.log(value)) * sums / np.sqrt(np.maximum(squares, 0))
    low, high = np.quantile(t[np.isfinite(t)], ends)
    most = float(np.nanmax(ratio(spent, size)))  # without the dearest unit a resample may have nearly no variance
    with np.errstate(over="ignore"):
        lo, hi = value * float(np.exp(-high * se)), value * float(np.exp(-low * se))
    return value, min(lo, value), min(max(hi, value), most)


def budget_edges(first: int) -> Floats:
    """Return the upper edges of the bins, 2^(first/4) and so on; the last bin has none and holds what is dearer."""
    return np.asarray(2.0 ** ((first + np.arange(BINS - 1.0)) / 4))


def budget_curve(passed_bins: ArrayLike, n: ArrayLike) -> tuple[Floats, Floats]:
    """Compute what one attempt scores if it must stop at the upper edge of each bin, and the standard error.

    >>> sl.metrics.budget_curve([[1, 0, 1], [0, 1, 2]], n=[4, 3])[0].round(4).tolist()
    [0.125, 0.2917, 0.75]
    """
    share = np.cumsum(np.asarray(passed_bins), axis=1) / np.asarray(n, dtype=np.float64)[:, None]
    return share.mean(axis=0), ratio(share.std(axis=0), np.sqrt([len(share) - 1.0]))


def front_by_value(score: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
    """Flag models unless another is at least as good and as cheap, and better in one; columns each by themselves.

    >>> sl.metrics.front_by_value([0.5, 0.7, 0.6], [1.0, 2.0, 3.0]).tolist()
    [True, True, False]
    """
    scores, costs = np.asarray(score, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    beaten = np.isnan(scores + costs)
    for s, x in zip(scores, costs, strict=True):
        beaten |= (s >= scores) & (x <= costs) & ((s > scores) | (x < costs))
    return np.asarray(~beaten)


def dominated(p_better: Floats, p_cheaper: Floats, confidence: float = 0.95) -> NDArray[np.bool_]:
    """Flag the models that some rival beats in score and in cost, each with p <= (1 - confidence) / rivals.

    p_better, p_cheaper: one-sided p-values that model i beats model j, models x models; NaN where not compared.

    >>> sl.metrics.dominated(np.array([[1, 0.001], [1, 1]]), np.array([[1, 0.02], [1, 1]])).tolist()
    [False, True]
    """
    both = np.maximum(p_better, p_cheaper)
    others = ~np.eye(len(both), dtype=bool) & ~np.isnan(both)
    limit = (1 - confidence) / np.maximum(others.sum(axis=0), 1)
    return np.asarray((others & (np.nan_to_num(both, nan=1.0) <= limit)).any(axis=0))
