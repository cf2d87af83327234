"""Distributions of the number of successes in k draws, as arrays of rows x successes.

scipy.stats is not used for the first two: `hypergeom.pmf` takes 40 to 750 times as long, and `betabinom.pmf` has a
relative error of 2e-11 at n = 5,000 and 5e-9 at n = 1,000,000. Built from the ratios of neighbouring probabilities,
both stay below 4e-15.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 1 << 20  # numbers per block: bounds the memory and keeps a block in the processor's cache


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Split `rows` rows of `width` numbers into slices of about BLOCK numbers (one empty slice for no rows)."""
    step = max(1, BLOCK // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, max(1, rows), step))


def ratio(top: Floats, bottom: Floats | Ints) -> Floats:
    """Divide, giving NaN where the denominator is not positive."""
    out = np.full(np.broadcast_shapes(top.shape, bottom.shape), np.nan)
    np.divide(top, bottom, out=out, where=np.broadcast_to(bottom > 0, out.shape))
    return out


def expected(pmf: Floats, credit: Floats) -> Floats:
    """Return the expected credit per row; the smaller of credit and 1 - credit is summed, so 0 and 1 are exact."""
    won, missed = (pmf * credit).sum(axis=1), (pmf * (1 - credit)).sum(axis=1)
    return np.asarray(np.where(won <= missed, won, 1 - missed))


def hypergeometric(n: Floats, c: Floats, k: int, first: Floats | None = None, width: int = 0) -> Floats:
    """P(j successes in k <= n draws without replacement from n attempts, c of them correct), rows x j."""
    # j runs over 0..k, or per row over `width` values from `first` on when the others have negligible weight.
    j = np.arange(k, dtype=float)[None, :] if first is None else first[:, None] + np.arange(width - 1.0)
    n, c = n[:, None], c[:, None]
    up = np.maximum(c - j, 0) * np.maximum(k - j, 0)
    down = (j + 1) * np.maximum(n - c - k + j + 1, 0)
    return _from_ratios(up, down)


def beta_binomial(alpha: Floats, beta: Floats, k: int) -> Floats:
    """P(j successes in k draws) for a success rate ~ Beta(alpha, beta), rows x (0..k)."""
    j = np.arange(k, dtype=float)[None, :]
    return _from_ratios((k - j) * (alpha[:, None] + j), (j + 1) * (beta[:, None] + (k - 1 - j)))


def binomial(size: Ints, p: float, maximum: int) -> Floats:
    """P(i successes in `size` trials), rows x (0..maximum), for p < 1."""
    i = np.arange(maximum, dtype=float)[None, :]
    pmf = _from_ratios(np.maximum(size[:, None] - i, 0) * p, (i + 1) * (1 - p))
    return pmf * binomial_cdf(maximum, size, p)[:, None]


def binomial_cdf(maximum: int, size: Ints, p: float) -> Floats:
    """P(X <= maximum); betainc, because bdtr has an error of 6e-14."""
    tail = scipy.special.betainc(np.maximum(size - maximum, 1), maximum + 1, 1 - p)
    return np.where(size > maximum, tail, 1.0)


def binomial_sf(minimum: int, size: Ints, p: float) -> Floats:
    """P(X >= minimum) for minimum >= 1."""
    tail = scipy.special.betainc(minimum, np.maximum(size - minimum + 1, 1), p)
    return np.where(size >= minimum, tail, 0.0)


@cache
def gauss_legendre(count: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on [0, 1], exact up to degree 2 * count - 1."""
    x, weight = np.polynomial.legendre.leggauss(count)
    return (1 + x) / 2, weight / 2


def product_credits(pairs: list[tuple[Floats, Floats]]) -> list[Floats]:
    """Return the credit over 2k draws of the product of two metrics over k draws each, for every pair."""
    # With i successes in the first k of 2k draws and d - i in the second k, the credit for d is the average of u[i] *
    # v[d - i] over the splits of d, which are hypergeometric. Credits are monotone, so the product has its weight
    # around i = d / 2: splits ten standard deviations away (1e-21) are left out.
    k = len(pairs[0][0]) - 1
    width = min(k, 2 * int(10 * np.sqrt(k / 8) + 4)) + 1
    d = np.arange(2 * k + 1, dtype=float)
    first = np.clip(np.floor(d / 2) - width // 2, 0, max(0, k + 1 - width))
    out = [np.empty(2 * k + 1) for _ in pairs]
    for rows in blocks(2 * k + 1, width):
        split = hypergeometric(np.full(len(d[rows]), 2.0 * k), d[rows], k, first[rows], width)
        i = first[rows, None].astype(np.int64) + np.arange(width)
        rest = np.clip(d[rows, None].astype(np.int64) - i, 0, k)  # out of range only where split is 0
        for (u, v), credit in zip(pairs, out, strict=True):
            credit[rows] = (split * u[i] * v[rest]).sum(axis=1)
    return out


def _from_ratios(up: Floats, down: Floats) -> Floats:
    """Build probabilities from the ratios up / down of neighbours, each row with sum 1."""
    # Decreasing steps are multiplied from the left, increasing ones (inverted) from the right: every factor is at
    # most 1, so nothing overflows wherever the mode is, and only negligible probabilities underflow.
    decrease = np.divide(up, down, out=np.ones_like(up), where=up < down)
    increase = np.divide(down, up, out=np.ones_like(up), where=down < up)
    pmf = np.ones((up.shape[0], up.shape[1] + 1))
    np.cumprod(decrease, axis=1, out=pmf[:, 1:])
    pmf[:, :-1] *= np.cumprod(increase[:, ::-1], axis=1)[:, ::-1]
    pmf /= pmf.sum(axis=1, keepdims=True)
    return pmf
