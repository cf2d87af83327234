"""Moments of A^k for A ~ Beta(v, w), v > 0, w >= 0: the closed forms of pass@k, pass^k and max@k, at any k and n.

log E[A^k] = sum_{i<k} log((v + i) / (v + w + i)), and the probability that k draws without replacement avoid a set
has the same form. All terms have one sign, so nothing cancels: the first are added, the rest are integrated (Gauss on
a logarithmic scale, two Euler-Maclaurin corrections). A difference of scipy.special.betaln has a relative error of
2e-11 at n = 5,000 and 3e-9 at n = 1,000,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.counts import distinct
from scorelake.metrics.distributions import Floats, Ints, blocks, gauss_legendre

_DIRECT = 256  # up to this k all terms are added
_ADDED = 64  # terms added before integrating; the corrections left out are then below 1e-13 of the sum
_NODES = 96  # sufficient for k = 1e18: the integrand is analytic in a strip of width pi around the logarithmic scale


def mean_power(v: Floats, w: Floats, k: int) -> Floats:
    """E[A^k]."""
    if k > _DIRECT:
        return np.exp(_log_mean_power(v, w, k))
    out, i, t = np.empty(v.size), np.arange(k, dtype=np.float64), v + w
    for rows in blocks(v.size, k):
        out[rows] = ((v[rows, None] + i) / (t[rows, None] + i)).prod(axis=1)
    return out


def complement(v: Floats, w: Floats, k: int) -> Floats:
    """1 - E[A^k], accurate also where it is small: w is no difference of two large numbers."""
    return -np.expm1(_log_mean_power(v, w, k))


def power_variance(v: Floats, w: Floats, k: int) -> Floats:
    """Var[A^k], from log(E[A^2k] / E[A^k]^2) > 0 instead of a difference."""
    t = v + w

    def term(rows: slice, i: Floats) -> Floats:
        return np.log1p(k * w[rows, None] / ((v[rows, None] + i) * (t[rows, None] + k + i)))

    growth = _sum_terms(term, v, [(1, v + k), (1, t), (-1, v), (-1, t + k)], k)
    return mean_power(v, w, k) * mean_power(v + k, w, k) * -np.expm1(-growth)


def all_within(m: Ints, n: Ints, k: int) -> Floats:
    """P(k draws without replacement from n are all among m of them), C(m, k) / C(n, k); needs k <= n."""
    return _without_replacement(mean_power, m, n, k, 0.0)


def any_above(below: Ints, n: Ints, k: int) -> Floats:
    """P(one of k draws without replacement from n is not among `below` of them), 1 - C(below, k) / C(n, k)."""
    return _without_replacement(complement, below, n, k, 1.0)


def per_distinct(kernel: Callable[[Any, Any], tuple[Floats, ...]], v: NDArray[Any], w: NDArray[Any]) -> list[Floats]:
    """Evaluate kernel(v, w) elementwise, once per distinct pair."""
    if v.dtype.kind != "f" or not (max(v.max(initial=0), w.max(initial=0)) >= 2.0**52 or (v % 1 + w % 1).any()):
        total, whole, index = distinct((v + w).astype(np.int64), v.astype(np.int64))  # distinct() needs no sort
        columns = kernel(whole.astype(v.dtype), (total - whole).astype(w.dtype))
    else:
        pairs, index = np.unique(v.ravel() + 1j * w.ravel(), return_inverse=True)
        columns = kernel(pairs.real, pairs.imag)
    return [column[index].reshape(v.shape) for column in columns]


def _without_replacement(
    kernel: Callable[[Floats, Floats, int], Floats], m: Ints, n: Ints, k: int, otherwise: float
) -> Floats:
    """Apply a kernel where m >= k: the product of (m - i) / (n - i), taken from its other end, is E[A^k]."""
    rows = np.flatnonzero(m >= k)
    out = np.full(m.shape, otherwise)
    out[rows] = kernel((m[rows] - k + 1).astype(np.float64), (n[rows] - m[rows]).astype(np.float64), k)
    return out


def _log_mean_power(v: Floats, w: Floats, k: int) -> Floats:
    t = v + w

    def term(rows: slice, i: Floats) -> Floats:
        top, bottom = v[rows, None] + i, t[rows, None] + i
        small = 2 * top < bottom  # use the logarithm that keeps all digits
        out = np.log(top / bottom, where=small, out=np.empty(top.shape))
        return np.log1p(-w[rows, None] / bottom, where=~small, out=out)

    return _sum_terms(term, v, [(1, v), (-1, t)], k)


def _sum_terms(
    term: Callable[[slice, Floats], Floats], start: Floats, logs: list[tuple[int, Floats]], k: int
) -> Floats:
    """Sum term(i) over i = 0..k-1; term(i) is the signed sum of log(a + i) over `logs`, with a >= start > 0."""

    def correction(rows: slice, x: float) -> Floats:
        """Euler-Maclaurin correction of the midpoint rule at one end: f' / 24 - 7 f''' / 5760."""
        terms = [sign * (1 / (a[rows] + x) / 24 - 14 / (a[rows] + x) ** 3 / 5760) for sign, a in logs]
        return np.asarray(np.sum(terms, axis=0))

    out = np.empty(start.size)
    added = k if k <= _DIRECT else _ADDED
    for rows in blocks(start.size, added + _NODES):
        out[rows] = term(rows, np.arange(added, dtype=np.float64)[None]).sum(axis=1)
        if added < k:
            first = start[rows, None] + (added - 0.5)
            width = np.log1p((k - added) / first)  # of the remaining range, on the logarithmic scale
            x, weight = gauss_legendre(_NODES)
            offset = first * np.expm1(width * x)
            integral = (term(rows, added - 0.5 + offset) * (first + offset) * weight * width).sum(axis=1)
            out[rows] += integral - correction(rows, k - 0.5) + correction(rows, added - 0.5)
    return out
