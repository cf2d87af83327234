"""Forecasts, consistency and judges: the reference values of the formulas, laws and simulations."""

import numpy as np
import pytest
from scipy.stats import binom

from scorelake import metrics

SMALL = (np.full(5, 8), np.array([0, 1, 2, 4, 8]), np.array([8, 4, 3, 2, 3]))
LARGE = (np.full(17, 16), np.arange(17), np.array([40, 9, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2, 3, 3, 4, 9]))


def problems(n: np.ndarray, c: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(n, times), np.repeat(c, times)


@pytest.mark.parametrize(
    ("k", "value", "lo", "hi"),
    [(16, 0.631493, 0.444, 0.936), (32, 0.688981, 0.452, 0.994), (80, 0.751719, 0.453, 1.0)],
)
def test_a_forecast_from_few_problems(k: int, value: float, lo: float, hi: float) -> None:
    result = metrics.forecast(*problems(*SMALL), k)
    assert result[0] == pytest.approx(value, abs=2e-5)
    assert result[1:] == pytest.approx((lo, hi), abs=2e-3)


@pytest.mark.parametrize(
    ("k", "value", "lo", "hi"), [(32, 0.64757, 0.4665, 0.8945), (64, 0.69311, 0.4665, 0.9846), (256, 0.76734, 0, 1)]
)
def test_a_forecast_lies_within_cruder_bounds(k: int, value: float, lo: float, hi: float) -> None:
    result = metrics.forecast(*problems(*LARGE), k)
    assert result[0] == pytest.approx(value, abs=2e-5)
    assert lo <= result[1] < value < result[2] <= hi


@pytest.mark.parametrize("c", [0, 8])
def test_nothing_and_everything_solved(c: int) -> None:
    value, lo, hi = metrics.forecast([8] * 30, [c] * 30, 16)
    assert (lo if c == 0 else hi) == c / 8
    assert hi - lo < 0.15
    assert value == pytest.approx(c / 8, abs=1e-3)


@pytest.mark.slow
def test_forecasts_cover() -> None:
    rng = np.random.default_rng(1)
    covered = []
    for shape in ((0.3, 0.7), (0.5, 3), (2, 2)):
        true = 1 - np.prod((shape[1] + np.arange(16)) / (sum(shape) + np.arange(16)))
        for _ in range(10):
            c = rng.binomial(8, rng.beta(*shape, 100))
            _, lo, hi = metrics.forecast(np.full(100, 8), c, 16)
            covered.append(lo <= true <= hi)
    assert np.mean(covered) >= 0.9


def test_cover() -> None:
    expected = {(5, 3, 0.5): 0.65625, (5, 3, 0.8): 0.09888, (16, 12, 0.75): 0.4261135911, (16, 16, 0.9): 0.8332281830}
    for (n, c, tau), posterior in expected.items():
        summary = metrics.summarize(f"cover@{tau}", n, c)
        assert (summary.value, summary.mu) == (float(c / n >= tau), pytest.approx(posterior, abs=1e-10))
    assert metrics.summarize("cover@0.6", [5, 5, 0], [3, 2, 0], min_coverage=0.5).value == 0.5, "3 of 5 is 60%"


def test_agreement_of_two_attempts() -> None:
    assert metrics.finite("agree@2", [5, 5, 64, 1], [1, 2, 32, 1]) == pytest.approx(
        [3 / 5, 2 / 5, 31 / 63, np.nan], nan_ok=True
    )
    p, c = 0.3, np.arange(8)
    weights = binom.pmf(c, 7, p)
    assert weights @ metrics.finite("agree@2", 7, c) == pytest.approx(p**2 + (1 - p) ** 2), "unbiased at any n"


@pytest.mark.parametrize("n", [3, 7, 10, 49, 100])
def test_cover_over_all_thresholds_is_the_mean(n: int) -> None:
    c = np.arange(n + 1)
    covers = [metrics.finite(f"cover@{j / n}", n, c) for j in range(1, n + 1)]
    assert np.mean(covers, axis=0) == pytest.approx(c / n, rel=1e-12)


def test_a_judge_is_corrected() -> None:
    judged, gold = np.array([1, 0.75, 0.5, 0, 0.25, 1, 0.5, 0]), [1, 1, 0.5, 0]
    value, se, lo, hi = metrics.judge_corrected(judged, gold, judged[:4], range(4), min_labelled=4)
    assert (value, se) == pytest.approx((0.5625, 0.176777), abs=1e-6)
    assert lo < value < hi
    assert np.isnan(metrics.judge_corrected(judged, gold, judged[:4], range(4))).all()


def test_corrected_intervals_cover() -> None:
    """A judge that passes 30% of what fails, 40 of 200 problems labelled."""
    rng = np.random.default_rng(7)
    covered, naive = [], []
    for _ in range(300):
        true = rng.binomial(1, rng.beta(1, 1, (200, 1)), (200, 4))
        judged = np.where(true == 1, 1, rng.random((200, 4)) < 0.3)
        labelled = rng.choice(200, 40, replace=False)
        gold, seen = true[labelled].mean(axis=1), judged[labelled].mean(axis=1)
        _, _, lo, hi = metrics.judge_corrected(judged.mean(axis=1), gold, seen, labelled)
        covered.append(lo <= 0.5 <= hi)
        naive.append(judged.mean() - 0.5)
    assert np.mean(naive) > 0.1
    assert 0.92 <= np.mean(covered) <= 0.98


def test_quality_of_a_judge() -> None:
    rng = np.random.default_rng(9)
    gold = rng.random(600) < 0.6
    judged = np.where(gold, rng.random(600) < 0.9, rng.random(600) < 0.2)
    quality = metrics.judge_quality(judged, gold, np.repeat(np.arange(150), 4))
    hit, miss = (judged & gold).sum(), (~judged & ~gold).sum()
    chance = (gold.mean() * judged.mean()) + (1 - gold.mean()) * (1 - judged.mean())
    agreement = (hit + miss) / 600
    expected = [agreement, hit / gold.sum(), miss / (~gold).sum(), (agreement - chance) / (1 - chance)]
    assert [each[0] for each in quality.values()] == pytest.approx(expected, rel=1e-12)
    assert quality["sensitivity"][1] < 0.9 < quality["sensitivity"][2]
    assert quality["specificity"][1] < 0.8 < quality["specificity"][2]
