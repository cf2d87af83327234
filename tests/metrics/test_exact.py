"""The kernels against brute force in exact fractions."""

from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise, product

import numpy as np
import pytest
from exact import by_subsets, credit, named, polynomial_moment, rising, squared

from scorelake import metrics


@pytest.mark.parametrize("n", range(1, 9))
def test_finite_values_over_all_subsets(n: int) -> None:
    for k in range(1, n + 1):
        for metric, a in named(k):
            want = [float(by_subsets(a, n, c, k)) for c in range(n + 1)]
            np.testing.assert_allclose(metrics.finite(metric, n, range(n + 1)), want, rtol=2e-15, atol=0)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 12])
def test_posterior_moments(k: int) -> None:
    cases = [(n, c) for n in (0, 1, 5, 40) for c in {0, 1, n // 2, n} if c <= n]
    for metric, a in named(k):
        mean, variance = metrics.posterior(metric, *zip(*cases, strict=True))
        for i, (n, c) in enumerate(cases):
            e = polynomial_moment(a, 1 + c, 1 + n - c)
            v = polynomial_moment(squared(a, a), 1 + c, 1 + n - c) - e * e
            assert mean[i] == pytest.approx(float(e), rel=5e-15)
            assert variance[i] == pytest.approx(float(v), rel=1e-12)


def test_blends_by_the_delta_method() -> None:
    k, n, c = 4, 9, 6
    p, u, g = credit("pass", k), credit("pass^", k), credit("mg-pass", k)
    for name, x, y, a in (("geom@4", p, u, 0.5), ("geom-ds@4", p, u, 0.5), ("geo-spectrum@4_0.25", p, g, 0.25)):
        e = [float(polynomial_moment(z, 1 + c, 1 + n - c)) for z in (x, y)]
        second = [[float(polynomial_moment(squared(z, w), 1 + c, 1 + n - c)) for w in (x, y)] for z in (x, y)]
        cov = np.array(second) - np.outer(e, e)
        mu = e[0] ** a * e[1] ** (1 - a)
        slope = np.array([a * mu / e[0], (1 - a) * mu / e[1]])
        mean, variance = metrics.posterior(name, n, c)
        assert mean == pytest.approx(mu, rel=1e-12)
        assert variance == pytest.approx(slope @ cov @ slope, rel=1e-9)
        values = [float(by_subsets(z, n, c, k)) for z in (x, y)]
        assert metrics.finite(name, n, c) == pytest.approx(values[0] ** a * values[1] ** (1 - a), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_max_over_all_subsets(k: int) -> None:
    rewards = [-1.5, 0.25, 0.25, 2.0]
    for outcomes in combinations_with_replacement(range(4), 6):
        counts = np.bincount(outcomes, minlength=4)
        best = [max(rewards[outcomes[i]] for i in draw) for draw in combinations(range(6), k)]
        got = metrics.finite_levels(f"max@{k}", rewards, [counts])[0]
        assert got == pytest.approx(sum(best) / len(best), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("k", [1, 2, 8, 40])
def test_max_posterior_by_the_double_sum(k: int) -> None:
    rewards = [Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)]
    counts = [3, 0, 5, 2]
    v = [sum(counts[: i + 1]) + i + 1 for i in range(4)]

    def power(low: int, high: int, times: int) -> Fraction:
        return Fraction(rising(low, times), rising(high, times))

    gaps = [b - a for a, b in pairwise(rewards)]
    mean = 1 - sum((g * power(v[i], v[3], k) for i, g in enumerate(gaps)), Fraction(0))
    variance = Fraction(0)
    for i, j in product(range(3), repeat=2):
        low, high = min(i, j), max(i, j)
        joint = power(v[low], v[high], k) * power(v[high], v[3], 2 * k)
        variance += gaps[i] * gaps[j] * (joint - power(v[i], v[3], k) * power(v[j], v[3], k))
    got_mean, got_variance = metrics.posterior_levels(f"max@{k}", [float(r) for r in rewards], [counts])
    assert got_mean[0] == pytest.approx(float(mean), rel=1e-14)
    assert got_variance[0] == pytest.approx(float(variance), rel=1e-12)


def test_rubric_moments_with_prior_outcomes() -> None:
    w, counts, extra = [Fraction(0), Fraction(1, 3), Fraction(1)], [4, 1, 2], [2, 0, 1]
    v = [1 + a + b for a, b in zip(counts, extra, strict=True)]
    total = sum(v)
    m1 = sum(x * y for x, y in zip(v, w, strict=True)) / Fraction(total)
    m2 = sum(x * y * y for x, y in zip(v, w, strict=True)) / Fraction(total)
    mean, variance = metrics.posterior_levels("bayes@N", [float(x) for x in w], [counts], extra)
    assert mean[0] == pytest.approx(float(m1), rel=1e-14)
    assert variance[0] == pytest.approx(float((m2 - m1 * m1) / (total + 1)), rel=1e-13)


@pytest.mark.parametrize("k", [1, 8, 1000])
@pytest.mark.parametrize("c", [0, 1, 999, 500_000, 999_999, 1_000_000])
def test_a_million_attempts(k: int, c: int) -> None:
    n = 1_000_000
    for stem in ("pass@{}", "pass^{}", "g-pass@{}_0.3", "mg-pass@{}", "maj@{}", "auc@{}", "geom@{}", "max@{}"):
        mean, variance = metrics.posterior(stem.format(k), n, c)
        assert 0 <= metrics.finite(stem.format(k), n, c) <= 1
        assert 0 <= mean <= 1
        assert 0 <= variance < 0.25
