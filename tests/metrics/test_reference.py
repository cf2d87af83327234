"""The kernels against published and exact values."""

import csv
from pathlib import Path

import numpy as np
import pytest

from scorelake import metrics
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


def test_four_tasks_of_ten() -> None:
    got = [metrics.summarize(f"pass@{k}", 10, [0, 1, 2, 4]).value for k in (1, 3, 5)]
    assert got == pytest.approx([0.175, 0.417, 0.563], abs=5e-4)


@pytest.mark.parametrize(
    ("k", "tau", "need"),
    [(25, 0.28, 7), (100, 0.55, 55), (10, 0.3, 3), (10, 0.30000000000000004, 3), (10, 0.7, 7), (30, 0.1, 3)],
)
def test_thresholds_are_decimal(k: int, tau: float, need: int) -> None:
    assert threshold(tau, k) == need
    credit = metrics.parse(f"g-pass@{k}_{tau}").credit
    assert int(np.argmax(credit)) == need
