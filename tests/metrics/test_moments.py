"""Moments of groups of problems: of buckets they add up, and they are the textbook sums."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.estimate import Estimate
from scorelake.metrics.summary import Moments, aggregate, problem_histogram, summarize_moments

ROWS, GROUPS = 900, 5


def _estimate(rng: np.random.Generator, parts: int, offset: float = 0.0) -> Estimate:
    value = rng.random((parts, ROWS)) * 0.1 + offset
    value[:, rng.random(ROWS) < 0.1] = np.nan
    mean, square = rng.random((parts, ROWS)), rng.random((parts, ROWS))
    undefined = rng.random(ROWS) < 0.05
    mean[:, undefined] = square[:, undefined] = np.nan
    repeated = np.stack([rng.random(ROWS), rng.integers(0, 3, ROWS).astype(float)])
    powers, bounds = (None if parts == 1 else (0.5, 0.5)), ((-np.inf, np.inf) if offset else (0.0, 1.0))
    return Estimate(value, mean, square[:, None] * square[None], powers, bounds, repeated=repeated)


def _histogram(group: Ints, groups: int) -> csr_array:
    return problem_histogram(group, np.arange(ROWS), 1, (groups, ROWS))


def _bucket(estimate: Estimate, histogram: csr_array, rows: Ints) -> Moments:
    """Moments of some problems; the groups that have none of them are empty."""
    part = histogram[:, rows]
    present = np.flatnonzero(np.diff(part.indptr))
    cut = Estimate(
        estimate.value[:, rows], estimate.mean[:, rows], estimate.covariance[..., rows], estimate.powers,
        estimate.bounds, repeated=None if estimate.repeated is None else estimate.repeated[:, rows],
    )  # fmt: skip
    return Moments.of(cut, part[present]).expand(present, histogram.shape[0])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("buckets", [2, 7, 300])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_of_buckets_add_up(parts: int, buckets: int, offset: float) -> None:
    rng = np.random.default_rng(buckets + parts)
    estimate, histogram = _estimate(rng, parts, offset), _histogram(rng.integers(0, GROUPS, ROWS), GROUPS)
    bucket = rng.integers(0, buckets, ROWS)
    first, *others = (_bucket(estimate, histogram, np.flatnonzero(bucket == i)) for i in range(buckets))
    total = sum(others, first)
    for name, want in vars(Moments.of(estimate, histogram)).items():
        if name != "kind":
            digits = 1e-9 if offset else 1e-14  # a million and a bit leaves nine digits of the bit
            assert getattr(total, name) == pytest.approx(want, rel=1e-12, abs=digits), name


@pytest.mark.parametrize("clustered", [False, True])
def test_against_the_textbook(clustered: bool) -> None:
    rng = np.random.default_rng(4)
    estimate, group, cluster = _estimate(rng, 1), rng.integers(0, GROUPS, ROWS), rng.integers(0, 30, ROWS)
    order = np.unique(group * 30 + cluster)
    clusters = None
    if clustered:
        starts = np.searchsorted(order, 30 * np.arange(GROUPS))
        clusters = _histogram(np.searchsorted(order, group * 30 + cluster), order.size), starts
    (got,) = aggregate([estimate], _histogram(group, GROUPS), min_coverage=0.5, clusters=clusters)
    for i in range(GROUPS):
        at = (group == i) & ~np.isnan(estimate.value[0])
        values: Floats = estimate.value[0][at]
        mean = values.mean()
        if clustered:
            sums = [(values[cluster[at] == each] - mean).sum() for each in np.unique(cluster[at])]
            se = np.sqrt(len(sums) / (len(sums) - 1) * np.square(sums).sum()) / values.size
        else:
            se = values.std(ddof=1) / values.size**0.5
        assert (got.value[i], got.se[i]) == (pytest.approx(mean, rel=1e-12), pytest.approx(se, rel=1e-12))
        assert got.mu[i] == pytest.approx(np.nanmean(estimate.mean[0][group == i]), rel=1e-12)
        variance = estimate.covariance[0, 0][group == i]
        assert got.sigma[i] == pytest.approx(np.nansum(variance) ** 0.5 / (~np.isnan(variance)).sum(), rel=1e-12)


def test_equal_values_have_no_spread() -> None:
    """0.1 added a thousand times is not 100; its spread is 0 all the same."""
    value = np.full((1, 1000), 0.1)
    estimate = Estimate(value, value, value[None] * 0)
    group = np.zeros(500, dtype=np.int64)
    halves = [problem_histogram(group, np.arange(500) + first, 1, (1, 1000)) for first in (0, 500)]
    moments = Moments.of(estimate, halves[0]) + Moments.of(estimate, halves[1])
    (summary,) = summarize_moments([[moments]], 0.95, 0.9)
    assert summary.se[0] < 1e-15
    assert summary.value[0] == pytest.approx(0.1, rel=1e-15)
