"""Groups: coverage, undefined values, standard errors, many groups at once."""

import math

import numpy as np
import pytest

from scorelake import metrics
from scorelake.metrics.estimate import evaluate
from scorelake.metrics.summary import aggregate, problem_histogram


def test_k_above_n_is_not_papered_over() -> None:
    got = metrics.summarize("pass@8", [10, 10, 4], [1, 2, 4])
    assert math.isnan(got.value)
    assert math.isnan(got.se)
    assert (got.problems, got.problems_scored) == (3, 2)
    assert 0 < got.mu < 1, "the posterior uses all problems"


def test_lower_coverage_averages_the_scored_ones() -> None:
    got = metrics.summarize("pass@8", [10, 10, 4], [1, 2, 4], min_coverage=2 / 3)
    assert got.value == pytest.approx(metrics.finite("pass@8", [10, 10], [1, 2]).mean(), rel=1e-15)
    nothing = metrics.summarize("pass@8", [4], [4], min_coverage=0)
    assert math.isnan(nothing.value)


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


def test_se_is_the_sample_standard_error() -> None:
    n, c = np.full(6, 10), np.array([0, 3, 5, 5, 9, 10])
    values = metrics.finite("maj@3", n, c)
    assert metrics.summarize("maj@3", n, c).se == pytest.approx(values.std(ddof=1) / math.sqrt(6), rel=1e-12)
    assert math.isnan(metrics.summarize("maj@3", 10, 3).se), "one problem has no spread"


def test_a_blend_of_nothing_is_zero() -> None:
    got = metrics.summarize("geom-ds@2", [3, 3], [0, 0])
    assert (got.value, got.se) == (0, 0)
    mean, variance = metrics.posterior("geo-spectrum@1", 3, 2)  # mg-pass@1 is 0 by definition
    assert (mean, variance) == (0, 0)


def test_groups_are_independent() -> None:
    rng = np.random.default_rng(7)
    n = rng.integers(1, 30, 60)
    c = rng.integers(0, n + 1)
    times = rng.integers(1, 5, 60)
    starts = np.array([0, 7, 8, 40])
    group = np.repeat(np.arange(4), np.diff(starts, append=60))
    histogram = problem_histogram(group, np.arange(60), times, (4, 60))
    for name in ("pass@2", "geom@2", "geom-ds@2", "avg@N", "max@3"):
        (estimate,) = evaluate([metrics.parse(name)], n, c, (1.0, 1.0))
        (many,) = aggregate([estimate], histogram, min_coverage=0.2)
        for i, (a, b) in enumerate(zip(starts, [*starts[1:], 60], strict=True)):
            one = metrics.summarize(name, n[a:b], c[a:b], times[a:b], min_coverage=0.2)
            for field, number in vars(one).items():
                assert getattr(many, field)[i] == pytest.approx(number, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("clustered", [False, True])
def test_a_metric_has_the_same_bits_with_and_without_others(clustered: bool) -> None:
    rng = np.random.default_rng(8)
    n = rng.integers(3, 30, 60)  # some below k
    c = rng.integers(0, n + 1)
    group, times = np.repeat(np.arange(4), 15), rng.integers(1, 5, 60)
    histogram = problem_histogram(group, rng.permutation(60), times, (4, 60))
    clusters = None
    if clustered:
        clusters = problem_histogram(np.arange(60) // 5, np.arange(60), times, (12, 60)), np.array([0, 3, 6, 9])
    names = ("pass@2", "geom-ds@2", "pass^2", "geo-spectrum@4", "maj@2", "mg-pass@4", "pass@4", "avg@N", "bayes@N")
    estimates = evaluate([metrics.parse(name) for name in (*names, "pass@2")], n, c, (1.0, 1.0))
    together = aggregate(estimates, histogram, min_coverage=0.2, clusters=clusters)
    for estimate, want in zip(estimates, together, strict=True):
        (got,) = aggregate([estimate], histogram, min_coverage=0.2, clusters=clusters)
        for field, numbers in vars(got).items():
            assert np.array_equal(getattr(want, field), numbers, equal_nan=True), field


def test_confidence_widens_and_clips() -> None:
    wide, narrow = (metrics.summarize("pass@1", [20], [10], confidence=x) for x in (0.99, 0.5))
    assert 0 < wide.mu_lo < narrow.mu_lo < narrow.mu_hi < wide.mu_hi < 1
    assert metrics.summarize("pass@8", [20], [20]).mu_hi == 1
    rubric = metrics.summarize_levels("avg@N", [-1.0, 3.0], [[1, 1]])
    assert (rubric.mu_lo, rubric.mu_hi) == (-1.0, 3.0)
