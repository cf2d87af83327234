"""Decisions and plans: reference values, exact evidence, and error rates in simulation."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from scorelake import metrics


def test_multipliers_for_many_looks() -> None:
    values = metrics.look_multiplier([10, 100, 300, 1000])
    assert values == pytest.approx([5.38585, 3.15918, 3.035122, 3.11094], abs=1e-5)


@pytest.mark.parametrize(("wins", "losses"), [(13, 3), (10, 2), (15, 0), (0, 0), (40, 41)])
def test_the_e_value_is_the_exact_fraction(wins: int, losses: int) -> None:
    many = wins + losses
    exact = Fraction(2**many, (many + 1) * comb(many, wins))
    assert metrics.e_value(wins, losses) == pytest.approx(float(exact), rel=1e-13)


def test_the_e_values_of_the_formulas() -> None:
    assert metrics.e_value([13, 10, 15], [3, 2, 0]) == pytest.approx([6.884034, 4.773893, 2048], abs=1e-6)


def test_verdicts_by_benchmark_and_over_all() -> None:
    each = metrics.verdicts([0.0, -0.03, -0.2], [0.1, 0.0, -0.021], margin=0.02)
    assert each.tolist() == ["pass", "undecided", "fail"]
    assert metrics.joint_verdict(each, [0.99, 0.5, 0.04]) == "undecided"  # .04 three times is .12
    assert metrics.joint_verdict(each, [0.99, 0.5, 0.016]) == "fail"
    assert metrics.joint_verdict(["pass"] * 3, [0.9] * 3) == "pass"
    assert metrics.verdicts([0.001, -0.001], [0.1, 0.1], margin=0).tolist() == ["pass", "undecided"]


def test_a_plan_reaches_its_power() -> None:
    """Pilot of 400 problems with 8 attempts; a lift of .06 at n = 4, tested by z on the mean difference."""
    rng = np.random.default_rng(5)

    def counts(problems: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        base = rng.beta(1, 1, problems) * 0.88
        taste = rng.normal(0, 0.05, problems)
        return rng.binomial(n, base), rng.binomial(n, np.clip(base + 0.06 + taste, 0, 1))

    a, b = counts(400, 8)
    variance = metrics.pilot_variance(np.full(400, 8), a, np.full(400, 8), b)
    size = int(metrics.problems_needed(0.06, variance, 4))
    assert metrics.attempts_needed(0.06, variance, size) == 4
    t = []
    for _ in range(500):
        a, b = counts(size, 4)
        d = (b - a) / 4
        t.append(d.mean() / d.std(ddof=1) * np.sqrt(size))
    assert 0.73 < (np.array(t) > 1.96).mean() < 0.9


def test_variance_of_a_pilot_has_two_parts() -> None:
    n, a, b = np.array([4, 4, 4, 1]), np.array([0, 2, 4, 1]), np.array([4, 2, 0, 0])
    attempts, problems = metrics.pilot_variance(n, a, n, b)  # the problem with one attempt tells nothing
    assert attempts == pytest.approx(2 / 3 * 2 / 6, rel=1e-12)
    assert problems == pytest.approx(1 - 2 / 3 * 2 / 6 / 4, rel=1e-12)
    resampled = metrics.pilot_variance(n, a, n, b, np.array([[1, 1, 1, 1], [2, 0, 2, 5]]))
    assert resampled[1][0] == pytest.approx(problems, rel=1e-12)
    assert resampled[0][1] == 0


def test_best_number_of_attempts() -> None:
    assert metrics.best_attempts((0.25, 0.03), 5) == pytest.approx(6.454972, abs=1e-6)
    assert np.isinf(metrics.best_attempts((0.25, 0.0), 5))
