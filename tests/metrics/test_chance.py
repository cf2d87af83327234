"""Weights and signs: what they promise, and that they depend on a problem's own number alone."""

import numpy as np
import pytest

from scorelake.metrics import chance as module
from scorelake.metrics.chance import MOST_TIMES, MOST_UNITS, TIMES, Units, chance


def test_the_table_of_a_byte_has_the_moments_of_a_poisson() -> None:
    x = TIMES.astype(int)
    assert (x.size, x.sum(), (x * (x - 1)).sum(), x.max()) == (256, 256, 256, MOST_TIMES)


def test_a_unit_has_its_own_chances_whatever_the_others() -> None:
    key = np.random.default_rng(1).integers(0, 2**64, 50, dtype=np.uint64)
    all_of_them = chance(key, 1000, 7)
    some = chance(key[[31, 4]], 1000, 7)
    for name in ("times", "heads"):
        assert np.array_equal(getattr(some, name), getattr(all_of_them, name)[:, [31, 4]])


@pytest.mark.parametrize("resamples", [100, 1001])
def test_more_resamples_begin_with_the_same_draws(resamples: int) -> None:
    key = np.arange(5, dtype=np.uint64)
    few, many = chance(key, resamples, 0), chance(key, resamples * 8, 0)
    assert few.times.shape == few.heads.shape == (resamples, 5)
    assert np.array_equal(few.times, many.times[:resamples])


def test_chances_are_fair_and_independent() -> None:
    drawn = chance(np.arange(200, dtype=np.uint64), 5000, 3)
    signs = drawn.heads * 2.0 - 1
    assert abs(signs.mean()) < 4 / 1000
    assert abs(drawn.times.mean() - 1) < 4 / 1000
    between = np.corrcoef(np.concatenate([drawn.times.T - 1.0, signs.T]))
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 6 / 5000**0.5  # 80,000 correlations of standard deviation 1 / sqrt(5000)


def test_seeds_differ() -> None:
    key = np.arange(3, dtype=np.uint64)
    assert not np.array_equal(chance(key, 640, 0).heads, chance(key, 640, 1).heads)
    assert np.array_equal(chance(key, 640, 5).heads, chance(key, 640, 2**64 + 5).heads)


def test_problems_with_one_number_are_one_unit() -> None:
    units = Units.of(np.array([9, 4, 9, 7], dtype=np.uint64))
    assert (units.of_problem.tolist(), units.key.tolist(), units.clustered) == ([2, 0, 2, 1], [4, 7, 9], True)
    assert not Units.of(np.array([3, 1], dtype=np.uint64)).clustered


def test_many_problems_are_dealt_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever problems are looked at, a problem is in the same hand."""
    assert MOST_UNITS == 2048
    monkeypatch.setattr(module, "MOST_UNITS", 8)
    key = np.random.default_rng(2).integers(0, 2**64, 40, dtype=np.uint64)
    units = Units.of(key)
    assert units.key.tolist() == list(range(8))
    assert np.array_equal(units.of_problem, (key % np.uint64(8)).astype(int))
    assert np.array_equal(Units.of(key[10:]).of_problem, units.of_problem[10:])
