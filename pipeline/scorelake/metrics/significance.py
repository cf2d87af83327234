"""Tests and their adjustment: wins, p-values and spreads in, p-values and sizes out."""

from __future__ import annotations

from math import ceil, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from scorelake.metrics.coins import at_least
from scorelake.metrics.distributions import Floats, Ints

RADEMACHER = 1 / (4 * NormalDist().cdf(-sqrt(2)))
"""No sum of fairly flipped numbers passes x more often than this (3.18) times as often as a normal one with the same
variance does (Bentkus and Dzindzalieta, 2015)."""

_LEAST = 1e-300
"""A p-value is never 0."""


def sign_test(wins_a: ArrayLike, wins_b: ArrayLike) -> tuple[Floats, Floats]:
    """Exact one-sided (B ahead) and two-sided p-values of the disagreements; no disagreement gives 1.

    Among equals each disagreement is a fair coin: B's wins are Binomial(wins_a + wins_b, 1/2).
    """
    a, b = np.broadcast_arrays(np.asarray(wins_a, dtype=np.int64), np.asarray(wins_b, dtype=np.int64))
    one_sided = at_least(b, a + b)
    two_sided = np.minimum(1, 2 * at_least(np.maximum(a, b), a + b))
    return one_sided, two_sided


def flip_test(t: Floats, as_far: Ints, farther: Ints, flips: int) -> tuple[Floats, Floats, Floats]:
    """p-values of the sign-flip test: A ahead, B ahead, two-sided.

    In: sum d / sqrt(sum d^2), and how many of the flips came at least as far from zero, and farther. The data as they
    are count as one more flip, and a flip counts both ways round. Below what so many flips can tell, the p-value is
    the bound that holds for every sum of flipped numbers.
    """
    from scipy.special import ndtr  # noqa: PLC0415  (loads slowly)

    far = np.abs(t)
    bound = np.maximum(2 * RADEMACHER * ndtr(-far), _LEAST)
    two_sided = np.where(bound < 1 / (flips + 1), bound, (1 + as_far) / (flips + 1))
    ahead, behind = two_sided / 2, 1 - farther / (2 * (flips + 1))
    return np.where(t < 0, ahead, behind), np.where(t > 0, ahead, behind), two_sided


def holm(p: ArrayLike) -> Floats:
    """Holm's step-down adjustment of a family of p-values: valid whatever their dependence."""
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(raw.size, 0, -1))
    return _placed(order, np.minimum(stepped, 1))


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """q of every p-value of a family: claiming all with q <= x, a share of about x of the claims is false."""
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    share = raw[order] * raw.size / np.arange(1, raw.size + 1)
    return _placed(order, np.minimum(np.minimum.accumulate(share[::-1])[::-1], 1))


def _placed(order: Ints, values: Floats) -> Floats:
    """Values in an order, back where they came from."""
    out = np.empty_like(values)
    out[order] = values
    return out


def detectable_lift(se: float, confidence: float = 0.95, power: float = 0.8) -> float:
    """The true lift that a two-sided interval of this standard error tells from zero with this power."""
    return _reach(confidence, power) * se


def problems_needed(variance: float, lift: float, confidence: float = 0.95, power: float = 0.8) -> int:
    """How many problems tell such a lift from zero, when the problems' differences have this variance."""
    return ceil((_reach(confidence, power) * sqrt(variance) / lift) ** 2)


def _reach(confidence: float, power: float) -> float:
    """Standard errors between zero and a lift that is detected with the given power."""
    normal = NormalDist()
    return normal.inv_cdf((1 + confidence) / 2) + normal.inv_cdf(power)
