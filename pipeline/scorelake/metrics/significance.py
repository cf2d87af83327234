"""Tests of paired differences, their adjustment for many pairs, and sample sizes."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, ndtr

from scorelake.metrics.distributions import Floats, Ints

RADEMACHER = 1 / (4 * NormalDist().cdf(-sqrt(2)))
"""A sum of numbers with random signs exceeds x at most this many times (3.18) as often as a normal variable of the
same variance (Bentkus and Dzindzalieta, 2015)."""
_MIN_P = 1e-300


def sign_test(wins_a: ArrayLike, wins_b: ArrayLike) -> tuple[Floats, Floats]:
    """Return exact p-values, one-sided (B ahead) and two-sided; 1 where there is no win.

    Among equal models B's wins are Binomial(wins_a + wins_b, 1/2).
    """
    a, b = np.broadcast_arrays(np.asarray(wins_a, dtype=np.int64), np.asarray(wins_b, dtype=np.int64))
    one_sided, larger = _binomial_tail(b, a), _binomial_tail(np.maximum(a, b), np.minimum(a, b))
    return one_sided, np.minimum(1, 2 * larger)


def _binomial_tail(wins: Ints, losses: Ints) -> Floats:
    """Return P(at least this many wins) of a fair coin. scipy's bdtrc is 0.39 instead of 0.5 at 1e8 tosses."""
    tail: Floats = np.where(wins == 0, 1.0, betainc(np.maximum(wins, 1), losses + 1, 0.5))[()]
    return tail


def flip_test(t: Floats, as_far: Ints, farther: Ints, flips: int) -> tuple[Floats, Floats, Floats]:
    """Return p-values of the sign-flip test: A ahead, B ahead, two-sided.

    Takes t = sum d / sqrt(sum d^2), and the number of flips at least as far from zero as the data, and farther. The
    data count as one more flip. Below the resolution of the flips the p-value is the bound RADEMACHER.
    """
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
