"""The interval of a value: METRICS's edge values, Student's where nothing bounds it, and Wilson's of a rerun."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import beta, t

from scorelake import metrics
from scorelake.metrics.estimate import evaluate
from scorelake.metrics.summary import aggregate, problem_histogram


def one(value: float, se: float, units: float, **options: object) -> tuple[float, float]:
    lo, hi = metrics.interval(np.array([value]), np.array([se]), np.array([units]), **options)  # type: ignore[arg-type]
    return float(lo[0]), float(hi[0])


def plain(v: float, se: float, u: float, confidence: float = 0.95) -> float:
    """The upper end, number by number as METRICS writes it, with another library's quantile."""
    if v == 1:
        return 1.0
    s = 0.0 if u == 1 else min(u * (u - 1) * se**2, u * v * (1 - v))
    a = u + 1 / 2
    m = (u * v + 1 / 2) / a
    variance = (s + u * (v - m) ** 2 + (1 - m) ** 2 / 2) / (a * (a + 1))
    k = max(m * (1 - m) / variance - 1, 1e-6)
    return max(v, float(beta.ppf((1 + confidence) / 2, m * k, (1 - m) * k)))


@pytest.mark.parametrize(
    ("value", "se", "units", "lo", "hi"),
    [
        (0.0, math.nan, 1, 0, 0.951),
        (0.0, 0.0, 2, 0, 0.753),
        (0.0, 0.0, 30, 0, 0.081),
        (0.0, 0.0, 1000, 0, 0.0025),
        (0.5, math.nan, 1, 0.085, 0.915),
        (0.5, 0.0, 30, 0.470, 0.530),
        (20 / 30, math.sqrt(20 / 30 * 10 / 30 / 29), 30, 0.482, 0.824),
    ],
)
def test_the_edge_values(value: float, se: float, units: int, lo: float, hi: float) -> None:
    assert one(value, se, units) == pytest.approx((lo, hi), abs=1e-3 if units < 1000 else 1e-4)
    mirrored = one(1 - value, se, units)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((lo, hi), abs=1e-3)


@given(
    st.floats(0, 1),
    st.floats(0, 0.6),
    st.one_of(st.integers(1, 2000), st.integers(1, 10**12), st.floats(1, 1e4)),
    st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
@example(0.9375, 0.0, 56_690_283, 0.5)
def test_it_is_the_formula_and_contains_the_value(v: float, se: float, units: float, confidence: float) -> None:
    lo, hi = one(v, se, units, confidence=confidence)
    assert 0 <= lo <= v <= hi <= 1
    if units < 2000:
        assert hi == pytest.approx(plain(v, se, units, confidence), abs=1e-9)
        assert lo == pytest.approx(1 - plain(1 - v, se, units, confidence), abs=1e-9)


@given(st.floats(-1e6, 1e6), st.floats(0, 1), st.floats(0.001, 1e6), st.floats(0, 0.5), st.integers(1, 500))
def test_other_bounds_are_a_scale(low: float, share: float, width: float, se: float, units: int) -> None:
    value = min(low + share * width, low + width)
    lo, hi = one(value, se * width, units, bounds=(low, low + width))
    assert lo <= value <= hi
    plain_lo, plain_hi = one((value - low) / (low + width - low), se, units)
    assert ((lo - low) / width, (hi - low) / width) == pytest.approx((plain_lo, plain_hi), abs=1e-6)


def test_without_bounds_it_is_students() -> None:
    reach = float(t.ppf(0.975, 11)) * 0.3
    assert one(7.0, 0.3, 12, bounds=(-math.inf, math.inf)) == pytest.approx((7 - reach, 7 + reach), rel=1e-12)
    assert all(map(math.isnan, one(7.0, math.nan, 1, bounds=(-math.inf, math.inf))))
    assert one(2.0, 0.0, 1, bounds=(2.0, 2.0)) == (2.0, 2.0), "a metric that can have one value has it"
    assert all(map(math.isnan, one(math.nan, math.nan, 0)))
    assert all(map(math.isnan, one(math.nan, 0.1, 5, bounds=(-math.inf, math.inf))))
    assert all(map(math.isnan, one(7.0, 0.0, 12, bounds=(-math.inf, math.inf)))), "equal rewards are no certainty"


def test_rewards_without_bounds_may_end_where_rewards_were_seen() -> None:
    """Half a problem at the smallest and the largest reward; never narrower than Student's interval."""
    unbounded, seen = (-math.inf, math.inf), (np.array([-10.0]), np.array([30.0]))
    for value, se, units in ((7.0, 0.3, 12), (7.0, 9.0, 3), (-10.0, 0.0, 5), (7.0, math.nan, 1)):
        students, known = one(value, se, units, bounds=unbounded), one(value, se, units, bounds=(-10.0, 30.0))
        got = one(value, se, units, bounds=unbounded, seen=seen)
        if math.isnan(students[0]):
            assert all(map(math.isnan, got))
        else:
            assert got == (min(students[0], known[0]), max(students[1], known[1]))


def test_units_are_problems_scored_or_their_clusters() -> None:
    n, c = np.full(12, 4), np.repeat([0, 1, 4], 4)
    got = metrics.summarize("pass@2", n, c)
    assert (got.lo, got.hi) == one(got.value, got.se, 12)
    (estimate,) = evaluate([metrics.parse("pass@2")], n, c, (1.0, 1.0))
    every = np.arange(12)
    histogram, clusters = (
        problem_histogram(group, every, 1, (group[-1] + 1, 12)) for group in (every * 0, every // 4)
    )
    clustered = aggregate([estimate], histogram, clusters=(clusters, np.array([0])))[0].first()
    assert clustered.value == got.value
    assert (clustered.lo, clustered.hi) == one(clustered.value, clustered.se, 3)
    assert clustered.lo < got.lo < got.hi < clustered.hi


def test_the_same_problems_again_is_wilsons() -> None:
    """References worked out by hand: V = 2 * 2*2/(16*3) / 4 and v = 1/2, so n_eff = 6."""
    got = metrics.summarize("pass@1", [4, 4], [2, 2])
    z, size = 1.959963984540054, 6.0
    middle, reach = 0.5, z * math.sqrt(0.25 / size + z * z / (4 * size * size)) / (1 + z * z / size)
    assert (got.rerun_lo, got.rerun_hi) == pytest.approx((middle - reach, middle + reach), rel=1e-12)
    for name in ("avg@N", "bayes@N"):
        other = metrics.summarize(name, [4, 4], [2, 2])
        assert (other.rerun_lo, other.rerun_hi) == pytest.approx((got.rerun_lo, got.rerun_hi), rel=1e-12)
    for name in ("pass@2", "maj@1", "pass^1", "max@1"):
        assert math.isnan(metrics.summarize(name, [4, 4], [2, 2]).rerun_lo), name
    assert math.isnan(metrics.summarize("pass@1", [1, 1], [0, 1]).rerun_hi), "one attempt each tells nothing of noise"


def test_a_single_attempt_is_as_noisy_as_one_of_the_others() -> None:
    """An attempt of the others has the variance 2 * 2 / (4 * 3) = 1/3, the mean of four 1/12."""
    ragged, even = (metrics.summarize("pass@1", n, c) for n, c in (([4, 4, 1], [2, 2, 0]), ([4, 4], [2, 2])))
    lo, hi = metrics.rerun(np.array([1 / 3]), np.array([(2 / 12 + 1 / 3) / 9]), np.array([9]))
    assert (ragged.rerun_lo, ragged.rerun_hi) == pytest.approx((lo[0], hi[0]), rel=1e-12)
    assert ragged.rerun_lo < even.rerun_lo
    # The others agree; four problems at the pooled rate (11 of 12 passed, and 1 of 2) have the variance 9/49.
    steady, attempts = metrics.summarize("pass@1", [4, *[1] * 11], [4, *[1] * 10, 0]), 15
    lo, hi = metrics.rerun(
        np.array([11 / 12]), np.array([11 * 4 / 5 * (12 / 14) * (2 / 14) / 144]), np.array([attempts])
    )
    assert (steady.rerun_lo, steady.rerun_hi) == pytest.approx((lo[0], hi[0]), rel=1e-12)


def test_attempts_that_all_agree_still_leave_room() -> None:
    nothing = metrics.summarize("pass@1", [4] * 10, [0] * 10)
    assert nothing.rerun_lo == 0
    assert nothing.rerun_hi == pytest.approx(1.96**2 / (40 + 1.96**2), rel=1e-4)
    split = metrics.summarize("pass@1", [4] * 10, [0, 4] * 5)
    assert 0.4 < split.rerun_lo < 0.5 < split.rerun_hi < 0.6


@pytest.mark.parametrize("n", ["1 to 16", "90% 1"])
def test_a_rerun_of_uneven_n_covers_rare_noise(n: str) -> None:
    """Few of 30 problems are noisy, and may have few attempts: by each one's own noise .886 were covered.

    Where 90% have one attempt, the mean noise of the other 10% covered .92.
    """
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        p = np.where(rng.random(30) < 0.95, 0.97, 0.02)
        attempts = rng.integers(1, 17, 30) if n == "1 to 16" else np.where(np.arange(30) < 27, 1, 16)
        got = metrics.summarize("pass@1", attempts, rng.binomial(attempts, p))
        covered.append(got.rerun_lo <= p.mean() <= got.rerun_hi)
    assert np.mean(covered) >= (0.92 if n == "1 to 16" else 0.945)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8))
def test_a_rerun_contains_the_value(pairs: list[tuple[int, int]]) -> None:
    n, c = [max(p) for p in pairs], [min(p) for p in pairs]
    for name in ("pass@1", "avg@N", "bayes@N"):
        got = metrics.summarize(name, n, c, min_coverage=0)
        is_defined = max(n) > 1
        assert math.isnan(got.rerun_lo) == math.isnan(got.rerun_hi) == (not is_defined)
        assert not is_defined or 0 <= got.rerun_lo <= got.value <= got.rerun_hi <= 1
