"""Tests of paired differences and their adjustment, decisions with known error rates, and sample sizes."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, ndtr, ndtri

from scorelake.metrics.counts import pairs
from scorelake.metrics.distributions import Floats, Ints, ratio

RADEMACHER = 1 / (4 * NormalDist().cdf(-sqrt(2)))
"""A sum of numbers with random signs exceeds x at most this many times (3.18) as often as a normal variable of the
same variance (Bentkus and Dzindzalieta, 2015)."""
_MIN_P = 1e-300


def sign_test(wins_a: ArrayLike, wins_b: ArrayLike) -> tuple[Floats, Floats]:
    """Return exact p-values, one-sided (B ahead) and two-sided; 1 where there is no win."""
    # Among equal models B's wins are Binomial(wins_a + wins_b, 1/2).
    a, b = np.broadcast_arrays(np.asarray(wins_a, dtype=np.int64), np.asarray(wins_b, dtype=np.int64))
    one_sided, larger = _binomial_tail(b, a), _binomial_tail(np.maximum(a, b), np.minimum(a, b))
    return one_sided, np.minimum(1, 2 * larger)


def _binomial_tail(wins: Ints, losses: Ints) -> Floats:
    """Return P(at least this many wins) of a fair coin. scipy's bdtrc is 0.39 instead of 0.5 at 1e8 tosses."""
    tail: Floats = np.where(wins == 0, 1.0, betainc(np.maximum(wins, 1), losses + 1, 0.5))[()]
    return tail


def flip_test(t: Floats, as_far: Ints, farther: Ints, flips: int) -> tuple[Floats, Floats, Floats]:
    """Return p-values of the sign-flip test: A ahead, B ahead, two-sided."""
    # Takes t = sum d / sqrt(sum d^2), and the number of flips at least as far from zero as the data, and farther. The
    # data count as one more flip. Below the resolution of the flips the p-value is the bound RADEMACHER.
    bound = np.maximum(2 * RADEMACHER * ndtr(-np.abs(t)), _MIN_P)
    two_sided = np.where(bound < 1 / (flips + 1), bound, (1 + as_far) / (flips + 1))
    ahead, behind = two_sided / 2, 1 - farther / (2 * (flips + 1))
    return np.where(t < 0, ahead, behind), np.where(t > 0, ahead, behind), two_sided


def holm(p: ArrayLike) -> Floats:
    """Return p-values of a family adjusted by Holm's step-down method."""
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(raw.size, 0, -1))
    return np.minimum(stepped, 1)[np.argsort(order, kind="stable")]


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Return p-values of a family adjusted by Benjamini and Hochberg (false discovery rate)."""
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    share = raw[order] * raw.size / np.arange(1, raw.size + 1)
    return np.minimum(np.minimum.accumulate(share[::-1])[::-1], 1)[np.argsort(order, kind="stable")]


def detectable_lift(se: float, confidence: float = 0.95, power: float = 0.8, pairs: int = 1) -> float:
    """Return the true lift that is separated from zero with this power, after adjustment over so many pairs."""
    normal = NormalDist()
    return (normal.inv_cdf(1 - (1 - confidence) / 2 / pairs) + normal.inv_cdf(power)) * se


Variance: TypeAlias = tuple[Floats | float, Floats | float]  # of attempts and of problems, see pilot_variance
_RESERVE = 1.1  # planned numbers of problems are larger by this: without it, a power of .8 came out at .72 to .83


def look_multiplier(looks: ArrayLike, best: float = 300, confidence: float = 0.95) -> Floats:
    """Compute the standard errors (in place of 1.96) by which an interval must reach to hold at all looks at once.

    looks: so far. best: number of looks at which the interval is narrowest.

    >>> sl.metrics.look_multiplier([10, 300]).round(5).tolist()
    [5.38585, 3.03512]
    """
    x = 8.2112 * np.asarray(looks, dtype=np.float64) / best
    return np.asarray(np.sqrt((x + 1) / x * np.log((x + 1) / (1 - confidence) ** 2)))


def e_value(wins: ArrayLike, losses: ArrayLike) -> Floats:
    """Compute the evidence against a fair coin, valid at any number of looks: 20 or more rejects at 5%.

    >>> round(sl.metrics.e_value(wins=13, losses=3).item(), 6)
    6.884034
    """
    w, lost = np.asarray(wins, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    return np.asarray(np.exp((w + lost) * np.log(2) + betaln(w + 1, lost + 1)))


def verdicts(lower: ArrayLike, upper: ArrayLike, margin: float = 0.02) -> NDArray[np.str_]:
    """Decide whether a candidate is not worse than its base by more than a margin; with 0, whether it is better.

    lower, upper: one-sided bounds of the lift. `pass` if the lower one is above -margin, `fail` if the upper one is
    below it.

    >>> sl.metrics.verdicts([-0.01, -0.05, -0.05], [0.03, 0.01, -0.03]).tolist()
    ['pass', 'undecided', 'fail']
    """
    passed, failed = np.asarray(lower) > -margin, np.asarray(upper) < -margin
    return np.asarray(np.where(passed, "pass", np.where(failed, "fail", "undecided")))


def joint_verdict(each: ArrayLike, p_fail: ArrayLike, confidence: float = 0.95) -> str:
    """Decide over benchmarks: pass if each passes (intersection-union), fail if one fails after Holm's adjustment.

    p_fail: one-sided p-value of each benchmark that the lift is below -margin.

    >>> sl.metrics.joint_verdict(["pass", "fail"], p_fail=[0.9, 0.03])
    'undecided'
    """
    if (np.asarray(each) == "pass").all():
        return "pass"
    return "fail" if (holm(p_fail) <= 1 - confidence).any() else "undecided"


def pilot_variance(
    n_a: ArrayLike, c_a: ArrayLike, n_b: ArrayLike, c_b: ArrayLike, weights: NDArray[np.number] | None = None
) -> Variance:
    """Split the variance of a paired difference at n attempts of each model: attempts / n + problems.

    Problems with fewer than two attempts of a model are left out. weights: how often each problem is drawn, resamples
    x problems; each part, with an entry per resample, then shows how far a plan depends on the pilot.

    >>> [float(part) for part in sl.metrics.pilot_variance([4, 4], [0, 2], [4, 4], [4, 2])]
    [0.3333333333333333, 0.4166666666666667]
    """
    counts = np.stack(np.broadcast_arrays(*pairs(n_a, c_a), *pairs(n_b, c_b))).astype(np.float64)
    used = (counts[::2] > 1).all(axis=0)
    counts = counts[:, used]
    n, c, drawn = counts[::2], counts[1::2], np.ones(counts.shape[1])
    if weights is not None:
        drawn = np.asarray(weights, dtype=np.float64)[:, used]
    within, difference = c * (n - c) / (n * (n - 1)), np.diff(c / n, axis=0)[0]
    size = drawn.sum(axis=-1)
    square = drawn @ difference**2 - ratio((drawn @ difference) ** 2, size)
    problems = ratio(square, size - 1) - ratio(drawn @ (within / n).sum(axis=0), size)
    return ratio(drawn @ within.sum(axis=0), size), np.maximum(problems, 0)


def problems_needed(
    lift: ArrayLike, variance: Variance, n: ArrayLike, power: float = 0.8, level: float = 0.025
) -> Floats:
    """Compute how many problems show a lift with this power at n attempts per problem and model, level one-sided.

    >>> sl.metrics.problems_needed(0.05, (0.25, 0.03), n=4).item()
    320.0
    """
    per_problem = np.asarray(variance[1]) + np.asarray(variance[0]) / np.asarray(n)
    return np.asarray(np.ceil(per_problem / _precision(lift, power, level)))


def attempts_needed(
    lift: ArrayLike, variance: Variance, problems: ArrayLike, power: float = 0.8, level: float = 0.025
) -> Floats:
    """Compute how many attempts per problem and model show a lift on so many problems; NaN if no number does.

    >>> sl.metrics.attempts_needed([0.05, 0.01], (0.25, 0.03), problems=320).tolist()
    [4.0, nan]
    """
    left = np.asarray(problems) * _precision(lift, power, level) - np.asarray(variance[1])
    return np.ceil(ratio(np.asarray(variance[0]), left))


def _precision(lift: ArrayLike, power: float, level: float) -> Floats:
    """Return the variance per problem at which one problem shows the lift."""
    z = ndtri(1 - level) + ndtri(power)
    return np.asarray(np.asarray(lift, dtype=np.float64) ** 2 / (_RESERVE * z**2))


def best_attempts(variance: Variance, cost_ratio: ArrayLike) -> Floats:
    """Compute the attempts per problem that cost least, if a problem costs so many times an attempt.

    >>> round(sl.metrics.best_attempts((0.25, 0.03), cost_ratio=5).item(), 2)
    6.45
    """
    with np.errstate(divide="ignore"):  # problems that do not differ: one problem, as many attempts as possible
        return np.asarray(np.maximum(np.sqrt(np.asarray(cost_ratio) * np.divide(*variance)), 1.0))
