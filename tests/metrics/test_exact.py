"""The kernels against brute force in exact fractions, published values, and powers of a Beta at any k and n."""

import csv
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise, product
from pathlib import Path

import numpy as np
import pytest
from exact import by_subsets, credit, named, polynomial_moment, rising, squared
from hypothesis import given
from hypothesis import strategies as st

from scorelake import metrics
from scorelake.metrics.beta_powers import complement, mean_power, power_variance
from scorelake.metrics.counts import distinct
from scorelake.metrics.families import threshold

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = {
    "pass": "pass@{k}",
    "pass_hat": "pass^{k}",
    "g_pass": "g-pass@{k}_{tau}",
    "mg_pass": "mg-pass@{k}",
    "maj": "maj@{k}",
    "auc": "auc@{k}",
}
N, C = [5, 5], [3, 4]


def reference() -> dict[str, list[dict[str, str]]]:
    by_metric: dict[str, list[dict[str, str]]] = {}
    with (FIXTURES / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            by_metric.setdefault(NAMES[row["metric"]].format(**row), []).append(row)
    return by_metric


def test_every_row_of_the_exact_table() -> None:
    rows_checked = 0
    for name, rows in reference().items():
        columns = {
            key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key not in ("metric", "tau")
        }
        mean, variance = metrics.posterior(name, columns["n"], columns["c"])
        value = metrics.finite(name, columns["n"], columns["c"])
        # Tighter than required, to keep the accuracy reached: no floor on values and means.
        np.testing.assert_allclose(value, columns["finite"], rtol=5e-15)
        np.testing.assert_allclose(mean, columns["posterior_mean"], rtol=5e-15)
        np.testing.assert_allclose(variance, columns["posterior_var"], rtol=5e-12)
        rows_checked += len(rows)
    assert rows_checked == 1458


@pytest.mark.parametrize(
    ("name", "value", "mu", "sigma", "lo", "hi"),
    [
        ("pass@1", 0.7, 0.642857, 0.118451, 0.4107, 0.8750),
        ("pass@2", 0.95, 0.839286, 0.097263, 0.6487, 1.0),
        ("pass^2", 0.45, 0.446429, 0.146167, 0.1599, 0.7329),
        ("maj@2", 0.45, 0.446429, 0.146167, 0.1599, 0.7329),
        ("g-pass@2_1.0", 0.45, 0.446429, 0.146167, 0.1599, 0.7329),
        ("mg-pass@2", 0.45, None, None, None, None),
        ("g-pass@2_0.5", 0.95, None, None, None, None),
        ("maj@3", 0.85, 0.684524, 0.151958, 0.3867, 0.9824),
        ("mg-pass@3", 0.166667, None, None, None, None),
        ("auc@2", 0.825, None, None, None, None),
        ("auc@3", 0.9, None, None, None, None),
        ("geom@2", 0.647106, 0.610666, 0.133107, 0.3498, 0.8716),
        ("geom-ds@2", 0.653835, 0.612112, 0.132755, 0.3519, 0.8723),
        ("geo-spectrum@3", 0.408248, 0.447288, 0.114255, 0.2234, 0.6712),
        ("geo-spectrum@3_1.0", 1.0, None, None, None, None),
        ("bayes@N", 0.642857, 0.642857, 0.118451, 0.4107, 0.8750),
        ("avg@N", 0.7, 0.7, 0.165831, 0.3750, 1.0),
        ("max@2", 0.95, 0.839286, 0.097263, 0.6487, 1.0),
    ],
)
def test_the_two_problem_example(
    name: str, value: float, mu: float | None, sigma: float | None, lo: float | None, hi: float | None
) -> None:
    got = metrics.summarize(name, N, C)
    assert got.value == pytest.approx(value, abs=5e-7)
    if mu is not None:
        assert (got.mu, got.sigma) == pytest.approx((mu, sigma), abs=5e-7)
        assert (got.mu_lo, got.mu_hi) == pytest.approx((lo, hi), abs=5e-5)
    assert (got.problems, got.problems_scored) == (2, 2)


WEIGHTS, OUTCOMES = [0, 0.5, 1], [[1, 2, 2], [1, 2, 2]]


@pytest.mark.parametrize(
    ("name", "prior", "value", "mu", "sigma", "lo", "hi"),
    [
        ("bayes@N", None, 0.5625, 0.5625, 0.091998, None, None),
        ("bayes@N", [[1, 0, 1], [0, 1, 1]], 0.575, 0.575, 0.084275, None, None),
        ("avg@N", None, 0.6, 0.6, 0.147196, 0.3115, 0.8885),
        ("max@2", None, 0.85, 0.75, 0.08812, 0.5773, 0.9227),
    ],
)
def test_the_rubric_example(
    name: str, prior: object, value: float, mu: float, sigma: float, lo: float | None, hi: float | None
) -> None:
    got = metrics.summarize_levels(name, WEIGHTS, OUTCOMES, prior_counts=prior)  # type: ignore[arg-type]
    assert (got.value, got.mu, got.sigma) == pytest.approx((value, mu, sigma), abs=5e-7)
    if lo is not None:
        assert (got.mu_lo, got.mu_hi) == pytest.approx((lo, hi), abs=5e-5)


@pytest.mark.parametrize(
    ("k", "tau", "need"),
    [(25, 0.28, 7), (100, 0.55, 55), (10, 0.3, 3), (10, 0.30000000000000004, 3), (10, 0.7, 7), (30, 0.1, 3)],
)
def test_thresholds_are_decimal(k: int, tau: float, need: int) -> None:
    assert threshold(tau, k) == need
    credit = metrics.parse(f"g-pass@{k}_{tau}").credit
    assert int(np.argmax(credit)) == need


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
    both = np.array([float(v)]), np.array([float(more)])
    exact = moment(v, t, k)
    close(mean_power(*both, k)[0], exact, 1e-12)
    close(complement(*both, k)[0], 1 - exact, 1e-12)
    close(power_variance(*both, k)[0], moment(v, t, 2 * k) - exact**2, 1e-10)


@pytest.mark.parametrize("name", ["pass@{k}", "pass^{k}", "max@{k}"])
@pytest.mark.parametrize("k", [1, 4, 64])
@pytest.mark.parametrize("c", [0, 1, 10**6])
def test_a_fractional_prior_keeps_its_digits_at_a_million(name: str, k: int, c: int) -> None:
    """The rest 0.3 of a million and one was a difference, which left nine digits of it."""
    n, prior = 10**6, (0.3, 0.7)
    alpha, beta = (Fraction(x) + many for x, many in zip(prior, (c, n - c), strict=True))
    each = alpha if name.startswith("pass^") else beta
    power = Fraction(1)
    for i in range(k):
        power *= (each + i) / (alpha + beta + i)
    mean = float(metrics.posterior(name.format(k=k), n, c, prior)[0])
    close(mean, power if name.startswith("pass^") else 1 - power, 1e-12)


@pytest.mark.parametrize("k", [1, 2, 8, 300, 5000, 10**6])
def test_pass_at_k_is_exact_up_to_a_million(k: int) -> None:
    n = 10**6
    c = np.array([0, 1, 3, 40, n - 40, n - 1, n])
    passed, unanimous = metrics.finite(f"pass@{k}", n, c), metrics.finite(f"pass^{k}", n, c)
    for i, right in enumerate(c.tolist()):  # C(m, k) / C(n, k) is the same product
        miss, every = (moment(m - k + 1, n - k + 1, k) if m >= k else Fraction(0) for m in (n - right, right))
        close(passed[i], 1 - miss, 1e-12)
        close(unanimous[i], every, 1e-12)
    mean, variance = metrics.posterior(f"pass@{k}", n, c[1:4])
    for got, spread, right in zip(mean, variance, (1, 3, 40), strict=True):
        low = moment(n - right + 1, n + 2, k)
        close(got, 1 - low, 1e-12)
        close(spread, moment(n - right + 1, n + 2, 2 * k) - low**2, 1e-9)


@pytest.mark.parametrize("n", [3_037_000_499, 3_037_000_500, 4_300_000_000, 10**12, 10**15, 2**53 + 2, 2**63 - 1])
def test_any_number_of_attempts(n: int) -> None:
    """The key of a pair must not wrap: from 3,037,000,500 on, n (n + 1) is no 64-bit number."""
    many, right = np.array([n, n, n - 1, 5, n]), np.array([n, n // 4, 0, 3, n])
    n_, c_, index = distinct(many, right)
    assert n_[index].tolist() == many.tolist()
    assert c_[index].tolist() == right.tolist()
    assert metrics.finite("pass@1", many, right) == pytest.approx([1, 0.25, 0, 0.6, 1], rel=1e-9)
    for name in ("pass@4", "pass^4", "maj@4", "g-pass@4_0.5", "auc@4", "max@4", "geom@4"):
        value, (mean, variance) = metrics.finite(name, n, [n, n // 4]), metrics.posterior(name, n, [n, n // 4])
        small = metrics.finite(name, 4 * 10**8, 10**8)
        assert value == pytest.approx([1, small], rel=1e-7), name
        assert mean == pytest.approx([1, small], rel=1e-7), name
        assert ((variance >= 0) & (variance < 1e-8)).all(), name
    assert metrics.summarize("avg@N", [n, n], [n, 0]).value == 0.5
    assert metrics.vote([n - 4, 3], [True, False], 2) == pytest.approx(1, abs=1e-8)
