"""Series of one model's scores over training steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from scorelake.metrics.counts import pairs
from scorelake.metrics.distributions import Floats, hypergeometric, ratio
from scorelake.metrics.interval import interval
from scorelake.metrics.significance import benjamini_hochberg

_CONTENDER_RESAMPLES = 500  # every step is held against all others in each of them; 1,000 steps take 3 s


def _moments(scores: Floats, weights: NDArray[np.number]) -> tuple[Floats, Floats, Floats]:
    """Return the mean of each step, its standard error, and the means in resamples (steps x resamples)."""
    units = scores.shape[1]
    drawn = np.asarray(weights, dtype=np.float64).T
    return scores.mean(axis=1), scores.std(axis=1, ddof=1) / np.sqrt(units), scores @ drawn / drawn.sum(axis=0)


def simultaneous_band(
    scores: Floats, weights: NDArray[np.number], bounds: tuple[float, float] = (0.0, 1.0), confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Compute a band that contains the whole curve of a series.

    scores: steps x problems. weights: how often each problem is drawn, resamples x problems. The intervals of the
    steps are widened to the largest deviation over all steps (max-T).

    >>> rng = np.random.default_rng(0)
    >>> lo, hi = sl.metrics.simultaneous_band(rng.random((3, 50)), rng.poisson(size=(1000, 50)))
    >>> bool((lo < 0.5).all() and (hi > 0.5).all())
    True
    """
    value, se, means = _moments(scores, weights)
    farthest = np.nan_to_num(ratio(np.abs(means - value[:, None]), se[:, None]), nan=0.0).max(axis=0)
    level = 2 * float(ndtr(np.quantile(farthest, confidence))) - 1
    return interval(value, se, np.full(value.size, scores.shape[1]), bounds, max(level, confidence))


def best_step(
    scores: Floats, weights: NDArray[np.number], confidence: float = 0.95
) -> tuple[int, float, NDArray[np.bool_]]:
    """Find the best step, its value without the luck of having been picked, and all steps that may be the best.

    scores: steps x problems. weights: how often each problem is drawn, resamples x problems.

    >>> rng = np.random.default_rng(1)
    >>> scores = rng.binomial(8, [[0.2], [0.5], [0.6]], (3, 50)) / 8
    >>> step, corrected, contenders = sl.metrics.best_step(scores, rng.poisson(size=(1000, 50)))
    >>> step, round(corrected, 2), contenders.tolist()
    (2, 0.6, [False, False, True])
    """
    value, _, means = _moments(scores, weights)
    step = int(value.argmax())
    corrected = float(value[step] - (means.max(axis=0) - value[means.argmax(axis=0)]).mean())
    covariance = np.cov(scores) / scores.shape[1]
    variance = np.diag(covariance) + np.diag(covariance)[:, None] - 2 * covariance
    behind, contenders = value[step] - value, np.ones(value.size, dtype=bool)
    means = means[:, :_CONTENDER_RESAMPLES].astype(np.float32)
    for i in np.flatnonzero(variance[step] > 0):  # it may be the best if no step leads it by more than chance
        others = variance[i] > 0
        se, lead = np.sqrt(variance[i, others]), (value - value[i])[others]
        noise = means[others] - means[i]
        noise -= lead.astype(np.float32)[:, None]
        noise /= se.astype(np.float32)[:, None]
        contenders[i] = (lead / se).max() <= np.quantile(noise.max(axis=0), confidence)
    return step, corrected, contenders & ((variance[step] > 0) | (behind == 0))


def smooth(values: ArrayLike, variances: ArrayLike, steps: ArrayLike | None = None, q: float | None = None) -> Floats:
    """Smooth a series by a local linear trend, as a Kalman smoother does.

    variances: of the values if the same problems were attempted again. steps: where the values are, rising. q: by
    which variance the slope moves in a step; by default that of maximum likelihood.

    >>> sl.metrics.smooth([0.40, 0.44, 0.47, 0.46, 0.52, 0.55], [0.0004] * 6, q=1e-4).round(6).tolist()
    [0.404487, 0.431827, 0.458386, 0.485228, 0.514645, 0.545428]
    """
    y = np.asarray(values, dtype=np.float64)
    variance = np.maximum(np.broadcast_to(np.asarray(variances, dtype=np.float64), y.shape), 1e-12)
    gaps = np.diff(np.arange(y.size) if steps is None else np.asarray(steps, dtype=np.float64))
    if y.size < 3:
        return y.copy()
    # Reinsch: the second differences z of the values have covariance q trend + noise, here as bands of a matrix
    shape = (y.size, y.size - 2)
    second = np.stack([1 / gaps[:-1], -1 / gaps[:-1] - 1 / gaps[1:], 1 / gaps[1:]])
    differences: Any = scipy.sparse.dia_array((second, [0, -1, -2]), shape=shape, dtype=np.float64).tocsr()
    z, dense_noise = differences.T @ y, differences.T @ (differences * variance[:, None])
    trend_band, noise_band = np.zeros((2, 3, z.size))
    trend_band[0], trend_band[1, :-1] = (gaps[1:] + gaps[:-1]) / 3, gaps[1:-1] / 6
    for j in range(min(3, z.size)):
        noise_band[j, : z.size - j] = dense_noise.diagonal(-j)

    def solve(q: float) -> tuple[float, Floats]:
        """Return minus twice the log-likelihood, and the inverse covariance of z times z."""
        factor = scipy.linalg.cholesky_banded(q * trend_band + noise_band, lower=True)
        solved = scipy.linalg.cho_solve_banded((factor, True), z)
        return float(2 * np.log(factor[0]).sum() + z @ solved), solved

    if q is None:
        start = np.log(variance.mean() / np.median(gaps) ** 3)
        q = float(
            np.exp(scipy.optimize.minimize_scalar(lambda x: solve(np.exp(x))[0], bounds=(start - 25, start + 7)).x)
        )
    return np.asarray(y - variance * (differences @ solve(q)[1]))


def learned(n_1: ArrayLike, c_1: ArrayLike, n_2: ArrayLike, c_2: ArrayLike) -> tuple[Floats, Floats]:
    """Test for each problem whether its success rate changed: Fisher's exact p-values, and q adjusted over problems.

    >>> p, q = sl.metrics.learned([8, 8], [0, 4], [8, 8], [8, 5])
    >>> p.round(6).tolist(), q.round(6).tolist()
    ([0.000155, 1.0], [0.000311, 1.0])
    """
    (n1, c1), (n2, c2) = pairs(n_1, c_1), pairs(n_2, c_2)
    n, c = (n1 + n2).astype(np.float64), (c1 + c2).astype(np.float64)
    p = np.ones(n1.shape)
    for k in np.unique(n1[(n1 > 0) & (n2 > 0)]).tolist():
        rows = np.flatnonzero((n1 == k) & (n2 > 0))
        pmf = hypergeometric(n[rows], c[rows], k)
        seen = pmf[np.arange(rows.size), c1[rows]]
        p[rows] = np.minimum((pmf * (pmf <= seen[:, None] * (1 + 1e-7))).sum(axis=1), 1)
    return p, benjamini_hochberg(p)


def change_point(values: ArrayLike, permutations: int = 1000, seed: int = 0) -> tuple[int, float]:
    """Find the first point after the largest change of the mean, and its p-value by permuting the points.

    >>> sl.metrics.change_point([0.5, 0.51, 0.49, 0.5, 0.52, 0.4, 0.41, 0.39, 0.4, 0.42])[0]
    5
    """
    y = np.asarray(values, dtype=np.float64)
    orders = np.random.default_rng(seed).permuted(np.tile(y, (permutations, 1)), axis=1)
    every = np.concatenate([y[None], orders]) - y.mean()
    left = np.arange(1, y.size)
    statistic = np.abs(np.cumsum(every, axis=1)[:, :-1]) / np.sqrt(left * (y.size - left))
    largest = statistic.max(axis=1)
    return int(statistic[0].argmax()) + 1, float((largest >= largest[0] * (1 - 1e-12)).mean())


def crossovers(low: ArrayLike, high: ArrayLike) -> list[tuple[int, int, str]]:
    """List the stretches (first, last, direction of low) in which two smoothed curves move in opposite directions.

    >>> sl.metrics.crossovers([0.3, 0.4, 0.5, 0.5], [0.7, 0.8, 0.75, 0.7])
    [(1, 2, 'rises')]
    """
    signs = np.sign(np.diff(np.asarray(low, dtype=np.float64)))
    opposite = np.where(signs * np.sign(np.diff(np.asarray(high, dtype=np.float64))) < 0, signs, 0)
    turns = [*np.flatnonzero(np.diff(opposite, prepend=0)).tolist(), opposite.size]
    return [(a, b, "rises" if opposite[a] > 0 else "falls") for a, b in pairwise(turns) if opposite[a]]
