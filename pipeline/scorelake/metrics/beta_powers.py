"""E[A^k] for A ~ Beta(v, t - v), in closed form: what pass@k, pass^k and max@k are made of, at any k and any n.

log E[A^k] is the sum of k terms log((v + i) / (t + i)), and the chance that k draws without replacement all miss is
of the same form. The terms fall smoothly and have one sign, so that nothing cancels: the first ones are added, the
rest are an integral (Gauss's rule on a logarithmic scale) with the first two corrections of Euler and Maclaurin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from scorelake.metrics.distributions import Floats, Ints, blocks

_ADDED = 64
"""Terms added one by one; beyond them the corrections left out are below 1e-13 of the sum."""
_FEW = 256
"""So many terms are simply added."""
_NODES = 96
"""Enough for k = 1e18: the integrand is smooth over a strip of width pi around the logarithmic scale."""


def power(v: Floats, t: Floats, k: int) -> tuple[Floats, Floats]:
    """E[A^k], A ~ Beta(v, t - v), and how much it lacks of 1, each to its last digits; 0 < v <= t.

    The two are worked out apart, so whoever needs only one of them asks for that one.
    """
    return mean_power(v, t, k), lack(v, t, k)


def mean_power(v: Floats, t: Floats, k: int) -> Floats:
    """E[A^k]."""
    if k > _FEW:
        return np.exp(_log_power(v, t, k))
    out, i = np.empty(v.size), np.arange(k, dtype=np.float64)
    for at in blocks(v.size, k):
        out[at] = ((v[at, None] + i) / (t[at, None] + i)).prod(axis=1)
    return out


def lack(v: Floats, t: Floats, k: int) -> Floats:
    """1 - E[A^k]."""
    return -np.expm1(_log_power(v, t, k))


def power_variance(v: Floats, t: Floats, k: int) -> Floats:
    """Var[A^k], from what E[A^2k] / E[A^k]^2 exceeds 1 by: no difference of large numbers."""

    def term(at: slice, i: Floats) -> Floats:
        low, high = v[at, None], t[at, None]
        return np.log1p(k * (high - low) / ((low + i) * (high + k + i)))

    growth = _sum(term, v, [(1, v + k), (1, t), (-1, v), (-1, t + k)], k)
    return mean_power(v, t, k) * mean_power(v + k, t + k, k) * -np.expm1(-growth)


def within(m: Ints, n: Ints, k: int) -> tuple[Floats, Floats]:
    """Chance that k draws without replacement from n are all among m of them, and that they are not; needs k <= n."""
    return all_within(m, n, k), not_within(m, n, k)


def all_within(m: Ints, n: Ints, k: int) -> Floats:
    """The chance that all of them are; 0 where m < k."""
    return _drawn(mean_power, m, n, k, 0.0)


def not_within(m: Ints, n: Ints, k: int) -> Floats:
    """The chance that one of them is not; 1 where m < k."""
    return _drawn(lack, m, n, k, 1.0)


def _drawn(kernel: Callable[[Floats, Floats, int], Floats], m: Ints, n: Ints, k: int, certain: float) -> Floats:
    """The product over (m - i) / (n - i), taken from its other end, is E[A^k] of a Beta."""
    at = np.flatnonzero(m >= k)
    out = np.full(m.shape, certain)
    out[at] = kernel((m[at] - k + 1).astype(np.float64), (n[at] - k + 1).astype(np.float64), k)
    return out


def _log_power(v: Floats, t: Floats, k: int) -> Floats:
    def term(at: slice, i: Floats) -> Floats:
        top, bottom = v[at, None] + i, t[at, None] + i
        small = 2 * top < bottom  # each logarithm where it loses no digits
        out = np.log(top / bottom, where=small, out=np.empty(top.shape))
        return np.log1p((v[at, None] - t[at, None]) / bottom, where=~small, out=out)

    return _sum(term, v, [(1, v), (-1, t)], k)


def _sum(term: Callable[[slice, Floats], Floats], start: Floats, logs: list[tuple[int, Floats]], k: int) -> Floats:
    """Sum of term(i), i = 0..k-1, for every row. A term is the signed sum of log(a + i) over `logs`.

    No a is smaller than `start`, which is positive: so far from 0 the terms stay smooth.
    """
    out = np.empty(start.size)
    added = k if k <= _FEW else _ADDED
    for at in blocks(start.size, added + _NODES):
        out[at] = term(at, np.arange(added, dtype=np.float64)[None]).sum(axis=1)
        if added < k:
            first = start[at, None] + (added - 0.5)
            width = np.log1p((k - added) / first)  # of the rest, on the logarithmic scale
            x, w = _gauss()
            further = first * np.expm1(width * x)
            rest = (term(at, added - 0.5 + further) * (first + further) * w * width).sum(axis=1)
            out[at] += rest - _slopes(logs, at, k - 0.5) + _slopes(logs, at, added - 0.5)
    return out


def _slopes(logs: list[tuple[int, Floats]], at: slice, x: float) -> Floats:
    """The corrections of the midpoint rule at one end: f' / 24 - 7 f''' / 5760."""
    return sum(sign * (1 / (a[at] + x) / 24 - 14 / (a[at] + x) ** 3 / 5760) for sign, a in logs)  # type: ignore[return-value]


@cache
def _gauss() -> tuple[Floats, Floats]:
    """Points and weights from 0 to 1."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    return (1 + x)[None] / 2, w[None] / 2
