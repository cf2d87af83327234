"""How many of k draws succeed: the two distributions that every binary metric is averaged over.

Both are built from the ratio of neighbouring probabilities, never from factorials: no overflow at any n,
no cancellation of large logarithms, and a relative error of a few roundings per step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 1 << 20
"""Numbers held at once in a (problems x draws) block: memory stays flat, and blocks stay in the cache."""


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Cut `rows` rows of `width` numbers each into slices of about BLOCK numbers (no rows: one empty)."""
    step = max(1, BLOCK // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, max(1, rows), step))


def ratio(top: Floats, bottom: Floats | Ints) -> Floats:
    """top / bottom, NaN where the bottom is not positive."""
    out = np.full(np.broadcast_shapes(top.shape, bottom.shape), np.nan)
    np.divide(top, bottom, out=out, where=np.broadcast_to(bottom > 0, out.shape))
    return out


def hypergeometric(n: Floats, c: Floats, k: int, first: Floats | None = None, width: int = 0) -> Floats:
    """P(j successes in k draws without replacement from n attempts, c of them correct), rows x j.

    j runs over 0..k, or over `width` values from `first` on (per row) when the rest carries no weight.
    Needs k <= n.
    """
    j = np.arange(k, dtype=float)[None, :] if first is None else first[:, None] + np.arange(width - 1.0)
    n, c = n[:, None], c[:, None]
    up = np.maximum(c - j, 0) * np.maximum(k - j, 0)
    down = (j + 1) * np.maximum(n - c - k + j + 1, 0)
    return _from_ratios(up, down)


def beta_binomial(alpha: Floats, beta: Floats, k: int) -> Floats:
    """P(j successes in k draws), rows x (0..k), when the success rate is Beta(alpha, beta)."""
    j = np.arange(k, dtype=float)[None, :]
    up = (k - j) * (alpha[:, None] + j)
    down = (j + 1) * (beta[:, None] + (k - 1 - j))
    return _from_ratios(up, down)


def binomial(m: Ints, share: float, most: int) -> Floats:
    """P(i of m attempts are drawn), rows x (0..most), when each is drawn with probability share < 1."""
    i = np.arange(most, dtype=float)[None, :]
    pmf = _from_ratios(np.maximum(m[:, None] - i, 0) * share, (i + 1) * (1 - share))
    return pmf * at_most(m, share, most)[:, None]


def at_most(m: Ints, share: float, most: int) -> Floats:
    """P(no more than `most` of m attempts are drawn)."""
    from scipy.special import betainc  # noqa: PLC0415  (loads slowly; only votes need it)

    out: Floats = np.where(m > most, betainc(np.maximum(m - most, 1), most + 1, 1 - share), 1.0)
    return out


def at_least(m: Ints, share: float, least: int) -> Floats:
    """P(`least` >= 1 or more of m attempts are drawn)."""
    from scipy.special import betainc  # noqa: PLC0415  (loads slowly; only votes need it)

    out: Floats = np.where(m >= least, betainc(least, np.maximum(m - least + 1, 1), share), 0.0)
    return out


def _from_ratios(up: Floats, down: Floats) -> Floats:
    """Probabilities whose neighbours have the ratios up/down, each row scaled to sum 1.

    Steps that shrink are multiplied from the left, steps that grow (inverted) from the right; every factor
    is at most 1, so nothing overflows wherever the mode lies, and what underflows weighs nothing.
    """
    shrink = np.divide(up, down, out=np.ones_like(up), where=up < down)
    grow = np.divide(down, up, out=np.ones_like(up), where=down < up)
    pmf = np.ones((up.shape[0], up.shape[1] + 1))
    np.cumprod(shrink, axis=1, out=pmf[:, 1:])
    pmf[:, :-1] *= np.cumprod(grow[:, ::-1], axis=1)[:, ::-1]
    pmf /= pmf.sum(axis=1, keepdims=True)
    return pmf


def product_credits(pairs: list[tuple[Floats, Floats]]) -> list[Floats]:
    """Credit vectors over 2k draws for the products of two metrics over k draws each.

    With i successes in the first k of 2k draws and d - i in the second k, the product's credit for d is the
    average of u[i] * v[d - i] over the even splits of d, which are hypergeometric. Credits rise or fall
    with j, so a product of two lives around i = d/2; splits ten deviations away (1e-21) are left out.
    """
    k = len(pairs[0][0]) - 1
    width = min(k, 2 * int(10 * np.sqrt(k / 8) + 4)) + 1
    d = np.arange(2 * k + 1, dtype=float)
    first = np.clip(np.floor(d / 2) - width // 2, 0, max(0, k + 1 - width))
    out = [np.empty(2 * k + 1) for _ in pairs]
    for rows in blocks(2 * k + 1, width):
        split = hypergeometric(np.full(len(d[rows]), 2.0 * k), d[rows], k, first[rows], width)
        i = first[rows, None].astype(np.int64) + np.arange(width)
        rest = np.clip(d[rows, None].astype(np.int64) - i, 0, k)  # out of range only where split is 0
        for (u, v), b in zip(pairs, out, strict=True):
            b[rows] = (split * u[i] * v[rest]).sum(axis=1)
    return out
