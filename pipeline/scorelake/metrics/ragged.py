"""Scores of models that were not all given the same problems, and bounds for attempts that were not graded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr, ndtri

from scorelake.errors import MetricError
from scorelake.metrics.counts import pairs, whole_numbers
from scorelake.metrics.distributions import Floats, Ints, blocks

_MAX_STEP = 2.0  # longest Newton step on the logit scale: from a rate near 0 or 1 the full step overshoots


class RaschFit(NamedTuple):
    """Abilities of models and difficulties of problems: the success rate is expit(ability - difficulty)."""

    ability: Floats
    difficulty: Floats
    value_all: Floats  # expected score of each model over all problems, its standard error, and the problems it tried
    se: Floats
    tried: Ints
    misfit: Floats  # squared deviations over their expected size, per model: near 1 where the Rasch model holds


def rasch(
    model: ArrayLike,
    problem: ArrayLike,
    n: ArrayLike,
    c: ArrayLike,
    variances: tuple[float, float] | None = None,
    iterations: int = 500,
    tolerance: float = 1e-9,
) -> RaschFit:
    """Fit a Rasch model to counts, and predict each model's score over all problems.

    model, problem: of each cell, numbered from 0, with n attempts of which c passed. variances: of the normal
    distributions of abilities (which may be infinite) and of difficulties; by default estimated. The fit ends when no
    parameter moves by more than the tolerance. Of two models with the same rate, one tried only the easier problem:

    >>> fit = sl.metrics.rasch([0, 0, 1], [0, 1, 0], n=[8, 8, 8], c=[6, 2, 4])
    >>> bool(fit.value_all[1] < 0.5)
    True
    """
    j, i = whole_numbers("model", model), whole_numbers("problem", problem)
    n_, c_ = (np.asarray(x, dtype=np.float64) for x in pairs(n, c))
    models, problems = int(j.max(initial=-1)) + 1, int(i.max(initial=-1)) + 1
    if not models:
        raise MetricError("there are no attempts")
    rate = (np.bincount(j, c_, models) + 0.5) / (np.bincount(j, n_, models) + 1)
    t, b = np.log(rate / (1 - rate)), np.zeros(problems)
    s2t, s2b = (1.0, 1.0) if variances is None else variances
    for _ in range(iterations):
        before = np.concatenate([t, b])
        t, precision_t = _newton(t, b, j, i, n_, c_, float(t.mean()), s2t)
        minus_b, precision_b = _newton(-b, -t, i, j, n_, c_, 0.0, s2b)
        b = -minus_b
        # attempts do not say where zero is, the distribution of b does
        t, b = t - b.mean(), b - b.mean()
        if variances is None:
            s2t = float(((t - t.mean()) ** 2 + 1 / precision_t).mean())
            s2b = float((b**2 + 1 / precision_b).mean())
        if np.abs(np.concatenate([t, b]) - before).max() < tolerance:
            break
    return _predict(t, b, j, i, n_, c_, s2t)


def _newton(
    t: Floats, b: Floats, j: Ints, i: Ints, n: Floats, c: Floats, center: float, variance: float
) -> tuple[Floats, Floats]:
    """Take one Newton step in all t at once, which do not depend on each other; return also their precisions."""
    p = expit(t[j] - b[i])
    gradient = np.bincount(j, c - n * p, t.size) - (t - center) / variance
    precision = np.bincount(j, n * p * (1 - p), t.size) + 1 / variance
    step = np.clip(gradient / np.maximum(precision, 1e-12), -_MAX_STEP, _MAX_STEP)
    return np.asarray(t + step), np.asarray(precision)


def _predict(t: Floats, b: Floats, j: Ints, i: Ints, n: Floats, c: Floats, s2t: float) -> RaschFit:
    value, slope = np.empty(t.size), np.empty(t.size)
    for rows in blocks(t.size, b.size):
        p = expit(t[rows, None] - b)
        value[rows], slope[rows] = p.mean(axis=1), (p * (1 - p)).mean(axis=1)
    p = expit(t[j] - b[i])
    squares, expected = (np.bincount(j, x, t.size) for x in ((c - n * p) ** 2, n * p * (1 - p)))
    tried = np.bincount(j[n > 0], minlength=t.size).astype(np.int64)
    correction = tried / np.maximum(tried - 1, 1)
    se = slope * np.sqrt(squares * correction) / (expected + 1 / s2t)
    return RaschFit(t, b, value, se, tried, squares / np.maximum(expected, 1e-300))


def ungraded_bounds(
    correct: ArrayLike, graded: ArrayLike, attempted: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Bound the success rate whatever the attempts that were not graded would have been (Imbens and Manski, 2004).

    Wilson's interval of the graded share; what is missing counts as failed for lo and as passed for hi. The interval
    contains the rate with this confidence, not both of its bounds.

    >>> np.round(sl.metrics.ungraded_bounds(60, 90, 100), 6).tolist()
    [0.522987, 0.768252]
    """
    counts = (x.astype(np.float64) for x in (*pairs(graded, correct), pairs(attempted, graded)[0]))
    g, c, a = np.broadcast_arrays(*counts)
    size = np.maximum(g, 1)
    v, share = np.where(g > 0, c / size, 0.5), g / np.maximum(a, 1)
    # from 1.96 standard errors without a gap between the bounds to 1.64 with a wide one, by bisection
    gap = (1 - share) / np.maximum(share * np.sqrt(v * (1 - v) / size), 1e-300)
    low, high = np.zeros(v.shape), np.full(v.shape, float(ndtri((1 + confidence) / 2)))
    for _ in range(50):
        z = (low + high) / 2
        enough = ndtr(z + gap) - ndtr(-z) >= confidence
        low, high = np.where(enough, low, z), np.where(enough, z, high)
    center, reach = v + high**2 / (2 * size), high * np.sqrt(v * (1 - v) / size + (high / (2 * size)) ** 2)
    lo, hi = ((center + sign * reach) / (1 + high**2 / size) * share for sign in (-1, 1))
    return np.where(g > 0, lo, 0.0), np.where(g > 0, hi + 1 - share, 1.0)
