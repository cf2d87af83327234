"""Powers of a Beta against exact fractions: any k, any n."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorelake import metrics
from scorelake.metrics.beta_powers import complement, mean_power, power_variance
from scorelake.metrics.counts import distinct

BIG = 2**63 - 1


def moment(v: int, t: int, k: int) -> Fraction:
    """E[A^k] as a product over the smaller of k and t - v: both ways of writing it."""
    if k <= t - v:
        top, bottom, times = v, t, k
    else:
        top, bottom, times = v, v + k, t - v
    up = down = 1
    for i in range(times):
        up, down = up * (top + i), down * (bottom + i)
    return Fraction(up, down)


def close(got: float, want: Fraction, rel: float) -> None:
    assert abs(Fraction(got) - want) <= want * Fraction(rel), (got, float(want))


@given(st.integers(1, 10**9), st.integers(1, 40), st.one_of(st.integers(1, 600), st.integers(1, 10**9)))
def test_moments(v: int, more: int, k: int) -> None:
    t = v + more
    low, high = np.array([float(v)]), np.array([float(t)])
    exact = moment(v, t, k)
    close(mean_power(low, high, k)[0], exact, 1e-12)
    close(complement(low, high, k)[0], 1 - exact, 1e-12)
    close(power_variance(low, high, k)[0], moment(v, t, 2 * k) - exact**2, 1e-10)


@pytest.mark.parametrize("k", [1, 2, 8, 300, 5000, 10**6])
def test_pass_at_k_is_exact_up_to_a_million(k: int) -> None:
    n = 10**6
    c = np.array([0, 1, 3, 40, n - 40, n - 1, n])
    passed, unanimous = metrics.finite(f"pass@{k}", n, c), metrics.finite(f"pass^{k}", n, c)
    for i, right in enumerate(c.tolist()):
        miss = _all_within(n - right, n, k)
        close(passed[i], 1 - miss, 1e-12)
        close(unanimous[i], _all_within(right, n, k), 1e-12)
    mean, variance = metrics.posterior(f"pass@{k}", n, c[1:4])
    for got, spread, right in zip(mean, variance, (1, 3, 40), strict=True):
        low = moment(n - right + 1, n + 2, k)
        close(got, 1 - low, 1e-12)
        close(spread, moment(n - right + 1, n + 2, 2 * k) - low**2, 1e-9)


def _all_within(m: int, n: int, k: int) -> Fraction:
    """C(m, k) / C(n, k) by the shorter of its two products."""
    if m < k:
        return Fraction(0)
    if n - m <= k:
        return Fraction(comb(n - k, n - m), comb(n, n - m))
    return Fraction(comb(m, k), comb(n, k))


@pytest.mark.parametrize("n", [3_037_000_499, 3_037_000_500, 4_300_000_000, 10**12, 10**15, 2**53 + 2, BIG])
def test_any_number_of_attempts(n: int) -> None:
    """The key of a pair must not wrap: from 3,037,000,500 on, n (n + 1) is no 64-bit number."""
    many, right = np.array([n, n, n - 1, 5, n]), np.array([n, n // 4, 0, 3, n])
    pairs = distinct(many, right)
    assert pairs.n[pairs.inverse].tolist() == many.tolist()
    assert pairs.c[pairs.inverse].tolist() == right.tolist()
    assert metrics.finite("pass@1", many, right) == pytest.approx([1, 0.25, 0, 0.6, 1], rel=1e-9)
    for name in ("pass@4", "pass^4", "maj@4", "g-pass@4_0.5", "auc@4", "max@4", "geom@4"):
        value, (mean, variance) = metrics.finite(name, n, [n, n // 4]), metrics.posterior(name, n, [n, n // 4])
        small = metrics.finite(name, 4 * 10**8, 10**8)
        assert value == pytest.approx([1, small], rel=1e-7), name
        assert mean == pytest.approx([1, small], rel=1e-7), name
        assert ((variance >= 0) & (variance < 1e-8)).all(), name
    assert metrics.summarize("avg@N", [n, n], [n, 0]).value == 0.5
    assert metrics.vote([n - 4, 3], [True, False], 2) == pytest.approx(1, abs=1e-8)
