"""Bootstrap weights and signs: their moments, and that they depend on the hash of a problem only."""

import numpy as np
import pytest

from scorelake.metrics.bootstrap import MAX_UNITS, MAX_WEIGHT, WEIGHTS, Units, resample


def test_weights_have_the_moments_of_a_poisson() -> None:
    x = WEIGHTS.astype(int)
    assert (x.size, x.sum(), (x * (x - 1)).sum(), x.max()) == (256, 256, 256, MAX_WEIGHT)


def test_weights_of_a_unit_do_not_depend_on_other_units() -> None:
    key = np.random.default_rng(1).integers(0, 2**64, 50, dtype=np.uint64)
    every = resample(key, 1000, 7)
    two = resample(key[[31, 4]], 1000, 7)
    for name in ("weights", "signs"):
        assert np.array_equal(getattr(two, name), getattr(every, name)[:, [31, 4]])


@pytest.mark.parametrize("resamples", [100, 1001])
def test_more_resamples_begin_with_the_same_draws(resamples: int) -> None:
    key = np.arange(5, dtype=np.uint64)
    few, many = resample(key, resamples, 0), resample(key, resamples * 8, 0)
    assert few.weights.shape == few.signs.shape == (resamples, 5)
    assert np.array_equal(few.weights, many.weights[:resamples])


def test_weights_and_signs_are_fair_and_independent() -> None:
    drawn = resample(np.arange(200, dtype=np.uint64), 5000, 3)
    signs = drawn.signs * 2.0 - 1
    assert abs(signs.mean()) < 4 / 1000
    assert abs(drawn.weights.mean() - 1) < 4 / 1000
    between = np.corrcoef(np.concatenate([drawn.weights.T - 1.0, signs.T]))
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 6 / 5000**0.5  # 80,000 correlations of standard deviation 1 / sqrt(5000)


def test_seeds_differ() -> None:
    key = np.arange(3, dtype=np.uint64)
    assert not np.array_equal(resample(key, 640, 0).signs, resample(key, 640, 1).signs)
    assert np.array_equal(resample(key, 640, 5).signs, resample(key, 640, 2**64 + 5).signs)


def test_problems_with_one_hash_are_one_unit() -> None:
    units = Units.of(np.array([9, 4, 9, 7], dtype=np.uint64))
    assert (units.index.tolist(), units.key.tolist(), units.clustered) == ([2, 0, 2, 1], [4, 7, 9], True)
    assert not Units.of(np.array([3, 1], dtype=np.uint64)).clustered


def test_the_block_of_a_problem_depends_on_its_hash_only() -> None:
    assert MAX_UNITS == 2048
    key = np.random.default_rng(2).integers(0, 2**64, 40, dtype=np.uint64)
    units = Units.of(key, max_units=8)
    assert units.key.tolist() == list(range(8))
    assert np.array_equal(units.index, (key % np.uint64(8)).astype(int))
    assert np.array_equal(Units.of(key[10:], max_units=8).index, units.index[10:])
