"""Groups: coverage, undefined values, standard errors, many groups at once, and moments that add up."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from scorelake import metrics
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.estimate import Estimate, MetricKind
from scorelake.metrics.summary import Moments, aggregate, problem_histogram, summarize_moments


def test_k_above_n_is_not_papered_over() -> None:
    got = metrics.summarize("pass@8", [10, 10, 4], [1, 2, 4])
    assert math.isnan(got.value)
    assert math.isnan(got.se)
    assert (got.problems, got.problems_scored) == (3, 2)
    assert 0 < got.mu < 1, "the posterior uses all problems"
    assert math.isnan(metrics.summarize("maj@3", 10, 3).se), "one problem has no spread"


def test_lower_coverage_averages_the_scored_ones() -> None:
    got = metrics.summarize("pass@8", [10, 10, 4], [1, 2, 4], min_coverage=2 / 3)
    assert got.value == pytest.approx(metrics.finite("pass@8", [10, 10], [1, 2]).mean(), rel=1e-15)
    nothing = metrics.summarize("pass@8", [4], [4], min_coverage=0)
    assert math.isnan(nothing.value)


def test_problems_without_a_value_have_bounds() -> None:
    """Wherever they lie: all of them failed, or all passed."""
    got = metrics.summarize("pass@8", [16] * 9 + [4], [0, 1, 2, 4, 3, 2, 5, 1, 0, 3])
    assert (got.bound_lo, got.bound_hi) == pytest.approx((0.9 * got.lo, 0.9 * got.hi + 0.1), rel=1e-12)
    full = metrics.summarize("pass@2", [4, 5], [1, 2])
    assert (full.bound_lo, full.bound_hi) == (full.lo, full.hi)
    rubric = metrics.summarize_levels("max@2", [-1.0, 3.0], [[1, 1]] * 9 + [[0, 1]])
    assert rubric.bound_lo == pytest.approx(0.9 * rubric.lo - 0.1, rel=1e-12)
    assert rubric.bound_hi == pytest.approx(0.9 * rubric.hi + 0.3, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "n", "c", "value", "lo", "hi"),
    [
        ("geom-ds@2", [5, 5], [3, 4], 0.653835, 0.197791, 0.900091),
        ("geo-spectrum@3", [5, 5], [3, 4], 0.408248, 0.150868, 0.854734),
        ("geom-ds@8", 16, [0, 1, 2, 4, 8, 12, 15, 16, 16, 3], 0.454242, 0.197625, 0.700721),
        ("geom-ds@8", 16, [0, 1, 2, 4, 3, 2, 5, 1, 0, 3], 0, 0, 0.435030),
    ],
)
def test_blends_have_the_intervals_of_their_parts(
    name: str, n: list[int], c: list[int], value: float, lo: float, hi: float
) -> None:
    got = metrics.summarize(name, n, c)
    assert (got.value, got.lo, got.hi) == pytest.approx((value, lo, hi), abs=1e-6)


def test_powers_of_blends_may_be_zero_or_negative() -> None:
    c = [1, 2, 4, 13, 12, 15, 11]
    first, blend = (metrics.summarize(name, 16, c) for name in ("pass@2", "geom-ds@2_1.0_0.0"))
    assert (blend.value, blend.lo, blend.hi) == pytest.approx((first.value, first.lo, first.hi), rel=1e-12)
    both = metrics.summarize("geom-ds@2_0.5_-0.5", 16, c)
    assert both.lo < both.value < both.hi
    assert math.isnan(metrics.summarize("geom-ds@8_0.5_-0.5", 16, [1] * 5).lo), "pass^8 is 0: infinite"


def test_problems_without_attempts_are_counted_and_never_zero() -> None:
    got = metrics.summarize("avg@N", [4, 0], [4, 0], min_coverage=0.5)
    assert (got.value, got.mu, got.problems, got.problems_scored) == (1.0, 1.0, 2, 1)
    assert math.isnan(metrics.summarize("pass@1", [4, 0], [4, 0]).value)
    assert math.isnan(float(metrics.finite("bayes@N", 0, 0)))


def test_no_problems_at_all() -> None:
    got = metrics.summarize("pass@1", [], [])
    assert got.problems == 0
    assert math.isnan(got.mu)
    assert metrics.summarize("pass@1", [5], [3], problems=[0]).problems == 0
    assert metrics.summarize_levels("avg@N", [0, 1], np.zeros((0, 2))).problems == 0


def test_a_blend_of_nothing_is_zero() -> None:
    got = metrics.summarize("geom-ds@2", [3, 3], [0, 0])
    assert (got.value, got.se) == (0, 0)
    mean, variance = metrics.posterior("geo-spectrum@1", 3, 2)  # mg-pass@1 is 0 by definition
    assert (mean, variance) == (0, 0)


def test_confidence_widens_and_clips() -> None:
    wide, narrow = (metrics.summarize("pass@1", [20], [10], confidence=x) for x in (0.99, 0.5))
    assert 0 < wide.mu_lo < narrow.mu_lo < narrow.mu_hi < wide.mu_hi < 1
    assert metrics.summarize("pass@8", [20], [20]).mu_hi == 1
    rubric = metrics.summarize_levels("avg@N", [-1.0, 3.0], [[1, 1]])
    assert (rubric.mu_lo, rubric.mu_hi) == (-1.0, 3.0)


ROWS, GROUPS = 900, 5


def _estimate(rng: np.random.Generator, parts: int, offset: float = 0.0) -> Estimate:
    value = rng.random((parts, ROWS)) * 0.1 + offset
    value[:, rng.random(ROWS) < 0.1] = np.nan
    mean, square = rng.random((parts, ROWS)), rng.random((parts, ROWS))
    undefined = rng.random(ROWS) < 0.05
    mean[:, undefined] = square[:, undefined] = np.nan
    repeated, seen = np.stack([rng.random(ROWS), rng.integers(0, 3, ROWS).astype(float)]), rng.random((2, ROWS))
    kind = MetricKind((-np.inf, np.inf) if offset else (0.0, 1.0), powers=None if parts == 1 else (0.5, 0.5))
    return Estimate(value, mean, square[:, None] * square[None], kind, repeated=repeated, seen=seen)


def _histogram(group: Ints, groups: int) -> csr_array:
    return problem_histogram(group, np.arange(ROWS), 1, (groups, ROWS))


@pytest.mark.parametrize("clustered", [False, True])
def test_against_the_textbook(clustered: bool) -> None:
    rng = np.random.default_rng(4)
    estimate, group, cluster = _estimate(rng, 1), rng.integers(0, GROUPS, ROWS), rng.integers(0, 30, ROWS)
    order = np.unique(group * 30 + cluster)
    clusters = None
    if clustered:
        starts = np.searchsorted(order, 30 * np.arange(GROUPS))
        clusters = _histogram(np.searchsorted(order, group * 30 + cluster), order.size), starts
    (got,) = aggregate([estimate], _histogram(group, GROUPS), min_coverage=0.5, clusters=clusters)
    for i in range(GROUPS):
        at = (group == i) & ~np.isnan(estimate.value[0])
        values: Floats = estimate.value[0][at]
        mean = values.mean()
        if clustered:
            means = np.array([values[cluster[at] != each].mean() for each in np.unique(cluster[at])])
            sizes = np.unique(cluster[at], return_counts=True)[1]
            se = means.std() * (means.size - 1) ** 0.5  # leave out one cluster at a time
            assert got.units[i] == pytest.approx((means.size * values.size**2 / np.square(sizes).sum()) ** 0.5)
        else:
            se = values.std(ddof=1) / values.size**0.5
        assert (got.value[i], got.se[i]) == (pytest.approx(mean, rel=1e-12), pytest.approx(se, rel=1e-12))
        assert got.mu[i] == pytest.approx(np.nanmean(estimate.mean[0][group == i]), rel=1e-12)
        variance = estimate.covariance[0, 0][group == i]
        assert got.sigma[i] == pytest.approx(np.nansum(variance) ** 0.5 / (~np.isnan(variance)).sum(), rel=1e-12)


def test_equal_values_have_no_spread() -> None:
    """0.1 added a thousand times is not 100; its spread is 0 all the same."""
    value = np.full((1, 1000), 0.1)
    estimate = Estimate(value, value, value[None] * 0)
    group = np.zeros(500, dtype=np.int64)
    halves = [problem_histogram(group, np.arange(500) + first, 1, (1, 1000)) for first in (0, 500)]
    moments = Moments.of(estimate, halves[0]) + Moments.of(estimate, halves[1])
    (summary,) = summarize_moments([[moments]], 0.95, 0.9)
    assert summary.se[0] < 1e-15
    assert summary.value[0] == pytest.approx(0.1, rel=1e-15)
