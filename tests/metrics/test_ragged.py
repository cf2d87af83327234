"""Uneven boards and ungraded attempts: the reference values of the formulas, and recovery in simulation."""

import numpy as np
import pytest

from scorelake import metrics


def cells(rows: list[list[tuple[int, int] | None]]) -> tuple[np.ndarray, ...]:
    """Models x problems of (c, n)."""
    given = [(j, i, each[1], each[0]) for j, row in enumerate(rows) for i, each in enumerate(row) if each]
    return tuple(np.array(column) for column in zip(*given, strict=True))


def test_a_partial_row_with_both_variances() -> None:
    fit = metrics.rasch(*cells([[(c, 4) for c in row] for row in ([4, 3, 2, 0], [4, 4, 3, 1], [2, 1])]), (4.0, 4.0))
    assert fit.ability == pytest.approx([0.248881, 1.419699, -1.607269], abs=1e-5)
    assert fit.difficulty == pytest.approx([-1.782341, -0.798136, 0.244292, 2.336184], abs=1e-5)
    assert fit.value_all == pytest.approx([0.558931, 0.728137, 0.251609], abs=1e-6)


def test_uneven_columns_with_flat_abilities() -> None:
    problems = [
        [(8, 8), (7, 8), None],
        [(6, 8), (4, 8), (5, 8)],
        [(5, 8), None, (2, 8)],
        [(2, 8), (1, 8), None],
        [(0, 8), (0, 8), (1, 8)],
    ]
    fit = metrics.rasch(*cells([list(column) for column in zip(*problems, strict=True)]), (np.inf, 9.0))
    assert fit.ability == pytest.approx([0.23889421, -0.97304948, -0.50010236], abs=1e-6)
    assert fit.value_all == pytest.approx([0.525, 0.34999597, 0.41566173], abs=1e-7)
    assert fit.tried.tolist() == [5, 4, 3]


def test_full_coverage_gives_the_observed_means() -> None:
    rng = np.random.default_rng(0)
    c = rng.binomial(4, 0.5, (5, 30))
    j, i = np.divmod(np.arange(150), 30)
    fit = metrics.rasch(j, i, np.full(150, 4), c.ravel(), (np.inf, 9.0))
    assert fit.value_all == pytest.approx(c.mean(axis=1) / 4, abs=1e-8)


def test_a_model_that_tried_the_easiest_problems() -> None:
    """Bias of the plain mean .2 and more; the adjusted one has a tenth, and its interval covers."""
    rng = np.random.default_rng(1)
    bias, covered = [], []
    for _ in range(60):
        ability, difficulty = rng.normal(0, 1, 12), np.sort(rng.normal(0, 1.5, 100))
        rate = 1 / (1 + np.exp(difficulty - ability[:, None]))
        tried = np.ones(rate.shape, dtype=bool)
        tried[0, 30:] = False
        j, i = np.nonzero(tried)
        c = rng.binomial(4, rate[j, i])
        fit = metrics.rasch(j, i, np.full(j.size, 4), c)
        lo, hi = metrics.interval(fit.value_all, fit.se, fit.tried)
        bias.append((c[j == 0].mean() / 4 - rate[0].mean(), fit.value_all[0] - rate[0].mean()))
        covered.append(lo[0] <= rate[0].mean() <= hi[0])
    naive, adjusted = np.mean(bias, axis=0)
    assert naive > 0.2
    assert abs(adjusted) < naive / 4
    assert np.mean(covered) > 0.85


@pytest.mark.parametrize(
    ("counts", "ends"),
    [
        ((60, 90, 100), (0.522987, 0.768252)),
        ((60, 99, 100), (0.507124, 0.695731)),
        ((5, 8, 10), (0.277372, 0.871670)),
        ((0, 0, 10), (0, 1)),
    ],
)
def test_bounds_of_ungraded_attempts(counts: tuple[int, int, int], ends: tuple[float, float]) -> None:
    assert metrics.ungraded_bounds(*counts) == pytest.approx(ends, abs=1e-6)
