"""Series of steps: reference values, other implementations, and error rates in simulation."""

import numpy as np
import pytest
from scipy.stats import fisher_exact

from scorelake import metrics

Y = [0.40, 0.44, 0.47, 0.46, 0.52, 0.55]


def test_smoothing_gives_the_reference_values() -> None:
    expected = [0.404487, 0.431827, 0.458386, 0.485228, 0.514645, 0.545428]
    assert metrics.smooth(Y, [0.0004] * 6, q=1e-4) == pytest.approx(expected, abs=1e-6)


def test_smoothing_is_least_squares_over_all_paths() -> None:
    """Unequal gaps and variances, level and slope of each step as unknowns."""
    steps, noise, q = np.array([0, 1, 3, 4, 8, 9.0]), np.array([4, 1, 2, 3, 1, 2]) * 1e-4, 3e-5
    rows, right = [], []
    for t in range(6):
        row = np.zeros(12)
        row[2 * t] = 1 / np.sqrt(noise[t])
        rows.append(row)
        right.append(Y[t] / np.sqrt(noise[t]))
    for t, gap in enumerate(np.diff(steps)):
        covariance = q * np.array([[gap**3 / 3, gap**2 / 2], [gap**2 / 2, gap]])
        change = np.zeros((2, 12))
        change[:, 2 * t + 2 : 2 * t + 4] = np.eye(2)
        change[:, 2 * t : 2 * t + 2] = -np.array([[1, gap], [0, 1]])
        rows.extend(np.linalg.cholesky(np.linalg.inv(covariance)).T @ change)
        right.extend([0, 0])
    levels = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)[0][::2]
    assert metrics.smooth(Y, noise, steps, q) == pytest.approx(levels, abs=1e-9)


def test_smoothing_finds_a_line_and_follows_a_curve() -> None:
    rng = np.random.default_rng(0)
    x = np.arange(60)
    noise = rng.normal(0, 0.02, 60)
    line, curve = 0.2 + 0.01 * x, 0.5 + 0.3 * np.sin(x / 8)
    assert np.abs(metrics.smooth(line + noise, [0.0004] * 60) - line).max() < 0.02
    assert np.abs(metrics.smooth(curve + noise, [0.0004] * 60) - curve).mean() < 0.012
    assert metrics.smooth([0.1, 0.2], [1, 1]).tolist() == [0.1, 0.2]


def test_learned_is_fishers_exact_test() -> None:
    rng = np.random.default_rng(1)
    n1, n2 = rng.integers(0, 9, 60), rng.integers(0, 9, 60)
    c1, c2 = rng.binomial(n1, 0.4), rng.binomial(n2, 0.6)
    p, q = metrics.learned(n1, c1, n2, c2)
    table = zip(c1, n1 - c1, c2, n2 - c2, strict=True)
    assert p == pytest.approx([fisher_exact([[a, b], [c, d]])[1] for a, b, c, d in table], rel=1e-9)
    assert (q >= p).all()


@pytest.mark.slow
def test_the_band_holds_the_whole_curve() -> None:
    """20 steps, 100 problems whose rates rise at different times."""
    rng = np.random.default_rng(2)
    weights = rng.poisson(size=(400, 100))
    inside = []
    for _ in range(200):
        start = rng.uniform(-2, 2, 100)
        rates = 1 / (1 + np.exp(-(start + np.linspace(-1, 1, 20)[:, None])))
        lo, hi = metrics.simultaneous_band(rng.binomial(4, rates) / 4, weights)
        grid = np.linspace(-2, 2, 2001)
        true = (1 / (1 + np.exp(-(grid + np.linspace(-1, 1, 20)[:, None])))).mean(axis=1)
        inside.append(((lo <= true) & (true <= hi)).all())
    assert 0.92 <= np.mean(inside) <= 0.995


@pytest.mark.slow
def test_the_best_step_is_not_the_luckiest() -> None:
    rng = np.random.default_rng(3)
    weights = rng.poisson(size=(400, 60))
    naive, corrected, kept = [], [], []
    for _ in range(150):
        scores = rng.binomial(4, 0.5, (30, 60)) / 4
        step, value, contenders = metrics.best_step(scores, weights)
        naive.append(scores[step].mean() - 0.5)
        corrected.append(value - 0.5)
        kept.append(contenders.mean())
    assert np.mean(naive) > 0.05
    assert abs(np.mean(corrected)) < np.sqrt(0.25 / 240)  # one standard error
    assert np.mean(kept) > 0.92  # each of the steps, which are equal, stays in the set


def test_a_change_is_found_and_none_is_invented() -> None:
    rng = np.random.default_rng(4)
    assert metrics.change_point([*rng.normal(0, 1, 20), *rng.normal(3, 1, 20)])[0] == pytest.approx(20, abs=1)
    p = np.array([metrics.change_point(rng.normal(size=25), 200, seed)[1] for seed in range(300)])
    assert 0.02 <= (p <= 0.05).mean() <= 0.085


def test_crossovers() -> None:
    low, high = [0.3, 0.4, 0.5, 0.5, 0.4, 0.3, 0.4], [0.9, 0.8, 0.7, 0.7, 0.8, 0.9, 0.95]
    assert metrics.crossovers(low, high) == [(0, 2, "rises"), (3, 5, "falls")]
    assert metrics.crossovers([0.1], [0.2]) == []
