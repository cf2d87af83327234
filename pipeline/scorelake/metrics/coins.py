"""Tosses of a fair coin: how likely so many heads or more are.

The sign test asks for tails at any number of problems. A library of special functions has them, but loading it
takes longer than every test of a run; and a fair coin is simple enough.
"""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np

from scorelake.metrics.distributions import Floats, Ints

_FEW = 16
"""Below it the error of Stirling's formula is looked up, above it four terms of its series are exact."""
_STIRLING = np.array([0.0] + [lgamma(x + 1) - (x + 0.5) * log(x) + x - log(2 * pi) / 2 for x in range(1, _FEW)])


def at_least(heads: Ints, tosses: Ints) -> Floats:
    """P(X >= heads), X ~ Binomial(tosses, 1/2), to a relative error of about 1e-12 however small it is."""
    many = 2 * heads > tosses
    upper = np.clip(np.where(many, heads, tosses - heads + 1), 1, np.maximum(tosses, 1))
    tail = _upper(upper, np.maximum(tosses, 1))
    return np.where(heads <= 0, 1.0, np.where(heads > tosses, 0.0, np.where(many, tail, 1 - tail)))


def _upper(heads: Ints, tosses: Ints) -> Floats:
    """The same for more than half of the tosses: the chance of exactly so many, times a series that falls."""
    up, down = heads.astype(np.float64), (tosses - heads).astype(np.float64)
    total, term = np.zeros_like(up), np.ones_like(up)
    while (term > 1e-17 * total).any():
        total += term
        up += 1
        term *= down / up
        down -= 1
    return total * np.exp(_log_exactly(heads, tosses))


def _log_exactly(heads: Ints, tosses: Ints) -> Floats:
    """log P(X = heads) for 0 < heads: Stirling's formula, with its error, around the middle (after Loader 2000)."""
    tails = tosses - heads
    off = (heads - tails) / tosses
    inside = np.where(tails > 0, off, 0.0)
    apart = tosses / 2 * (np.log1p(-(inside**2)) + 2 * inside * np.arctanh(inside))
    wide = np.log(tosses / (2 * pi * heads * np.maximum(tails, 1))) / 2
    return np.where(tails > 0, _error(tosses) - _error(heads) - _error(tails) - apart + wide, -tosses * log(2))


def _error(x: Ints) -> Floats:
    """log x! less Stirling's formula."""
    y = np.maximum(x, 1).astype(np.float64)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / y**2) / y**2) / y**2) / y**2) / y
    return np.where(x < _FEW, _STIRLING[np.minimum(x, _FEW - 1)], series)
