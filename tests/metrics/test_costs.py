"""Costs against enumeration of all orders, exact fractions and the reference values of the formulas."""

from fractions import Fraction
from itertools import permutations
from math import comb

import numpy as np
import pytest

from scorelake import metrics
from scorelake.metrics.costs import BINS, budget_edges


@pytest.mark.parametrize("n", range(1, 31))
def test_attempts_until_solved_is_the_exact_fraction(n: int) -> None:
    c, k = np.arange(n + 1), np.arange(1, n + 2)
    exact = [[float(sum(Fraction(comb(n - x, j), comb(n, j)) for j in range(y))) for x in c] for y in k[:-1]]
    values = metrics.attempts_until_solved(n, c, k)
    assert values[:-1] == pytest.approx(np.array(exact), rel=1e-14)
    assert np.isnan(values[-1]).all()


def test_attempts_until_solved_of_many_attempts() -> None:
    assert metrics.attempts_until_solved(64, 4, 16) == pytest.approx(9.998810153358011, rel=1e-14)
    assert metrics.attempts_until_solved([5, 16, 10], [3, 1, 3], 3)[0] == 1.5
    assert metrics.attempts_until_solved(16, 1, 8) == 6.25


@pytest.mark.parametrize("passed", [(0, 1, 0, 0, 1), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (0, 0, 0, 1, 0)])
def test_cost_at_k_is_the_mean_over_all_orders(passed: tuple[int, ...]) -> None:
    costs = (3, 5, 2, 8, 4)
    spent = np.zeros((5, 1))
    orders = list(permutations(range(5)))
    for order in orders:
        for k in range(1, 6):
            drawn = [passed[i] for i in order[:k]]
            stop = drawn.index(1) + 1 if 1 in drawn else k
            spent[k - 1] += sum(costs[i] for i in order[:stop])
    won = sum(cost for cost, p in zip(costs, passed, strict=True) if p)
    values = metrics.cost_at_k([won], [sum(costs) - won], [5], [sum(passed)], [1, 2, 3, 4, 5])
    assert values == pytest.approx(spent / len(orders), rel=1e-14)
    if passed == (0, 1, 0, 0, 1):
        assert values[[0, 1, 2, 4], 0] == pytest.approx([22 / 5, 141 / 20, 503 / 60, 53 / 6], rel=1e-14)


def test_budget_curve_counts_what_passed_within_each_edge() -> None:
    rng = np.random.default_rng(3)
    edges = budget_edges(-8)
    costs, passed = rng.lognormal(size=(20, 6)), rng.random((20, 6)) < 0.5
    bins = np.zeros((20, BINS))
    np.add.at(bins, (np.nonzero(passed)[0], np.searchsorted(edges, costs[passed])), 1)
    value, se = metrics.budget_curve(bins, np.full(20, 6))
    shares = np.stack([(passed & (costs <= edge)).mean(axis=1) for edge in [*edges, np.inf]])
    assert value == pytest.approx(shares.mean(axis=1), rel=1e-13)
    assert se == pytest.approx(shares.std(axis=1, ddof=1) / np.sqrt(20), rel=1e-12)
    assert edges[8] == 1


def test_a_model_is_dominated_only_beyond_chance() -> None:
    sure, unsure = 1e-4, 0.04
    better = np.full((3, 3), 1.0)
    cheaper = np.full((3, 3), 1.0)
    better[0, 1], cheaper[0, 1] = sure, sure
    better[0, 2], cheaper[0, 2] = sure, unsure
    assert metrics.dominated(better, cheaper).tolist() == [False, True, False]
    better[1, 2] = cheaper[1, 2] = np.nan  # one rival less: now .04 is still above .05
    assert metrics.dominated(better[::2, ::2], cheaper[::2, ::2]).tolist() == [False, True]


def test_the_front_by_value_holds_equal_models() -> None:
    score, cost = np.array([0.5, 0.7, 0.6, 0.5, 0.7]), np.array([1.0, 2.0, 3.0, 1.0, 2.5])
    assert metrics.front_by_value(score, cost).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]  # equal ones are both on it
    shares = metrics.front_by_value(np.stack([score, score], axis=1), np.stack([cost, -cost], axis=1)).mean(axis=1)
    assert shares.tolist() == [0.5, 0.5, 0.5, 0.5, 0.5]


def test_intervals_of_ratios_cover() -> None:
    """Lognormal costs that depend on the difficulty and on the verdict, 60 problems with 4 attempts each."""
    rng = np.random.default_rng(11)
    weights = rng.poisson(size=(600, 60))

    def lake(problems: int) -> tuple[np.ndarray, ...]:
        rate = rng.beta(0.7, 0.9, problems)
        passed = rng.random((problems, 4)) < rate[:, None]
        cost = rng.lognormal(1.5 - 2 * rate[:, None] - 0.3 * passed, 0.5)
        return passed, cost

    def of(passed: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c = passed.sum(axis=1)
        spent = metrics.cost_at_k((cost * passed).sum(axis=1), (cost * ~passed).sum(axis=1), 4, c, 2)
        return np.asarray(metrics.finite("pass@2", np.full(c.size, 4), c)), spent

    passed, cost = lake(400_000)
    solved, spent = of(passed, cost)
    true_ratio, true_pass = solved.mean() / spent.mean(), cost.sum() / passed.sum()
    covered = np.zeros((400, 2))
    for i in range(400):
        passed, cost = lake(60)
        ends = [
            metrics.solved_per_cost(*of(passed, cost), largest=2 * cost.max()),
            metrics.cost_of_pass(cost.sum(axis=1), passed.sum(axis=1), weights),
        ]
        covered[i] = [lo <= true <= hi for (_, lo, hi), true in zip(ends, (true_ratio, true_pass), strict=True)]
    assert (covered.mean(axis=0) > 0.92).all(), covered.mean(axis=0)
    assert (covered.mean(axis=0) < 0.995).all(), covered.mean(axis=0)


def test_nothing_solved() -> None:
    assert np.isnan(metrics.cost_of_pass([1, 2], [0, 0], np.ones((10, 2)))).all()
    value, lo, hi = metrics.solved_per_cost([0, 0], [2, 2], largest=2)
    assert (value, lo) == (0, 0)
    assert hi > 0
