"""Aggregate estimates of problems to groups: values, intervals, and posteriors.

A group is a row of a sparse matrix H (groups x estimates): H[g, i] is how many problems of group g have the estimate
of column i. Sums over groups are products with H. Moments of disjoint sets of problems add up, so that problems may
be summarized file by file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import Any, Generic, TypeVar

import numpy as np
import scipy

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate, MetricKind, blend
from scorelake.metrics.interval import blend_interval, interval, rerun
from scorelake.threads import parallel_map

Number = TypeVar("Number")
Count = TypeVar("Count")


@dataclass(frozen=True)
class SummaryColumns(Generic[Number, Count]):
    """Columns of a summary; undefined numbers are NaN."""

    value: Number
    lo: Number
    hi: Number  # the problems are a sample, as for se
    se: Number
    bound_lo: Number
    bound_hi: Number  # lo and hi wherever the problems without a value lie
    rerun_lo: Number
    rerun_hi: Number  # the same problems again
    mu: Number
    sigma: Number
    mu_lo: Number
    mu_hi: Number  # posterior, problems fixed
    problems: Count
    problems_scored: Count


class Summary(SummaryColumns[float, int]):
    """One metric of one group."""


@dataclass(frozen=True)
class Summaries(SummaryColumns[Floats, Ints]):
    """One metric of many groups."""

    units: Floats  # sample size: problems scored, or the effective number of clusters with one
    bounds: tuple[float, float]  # smallest and largest possible value

    def first(self) -> Summary:
        """Return the summary of the first group."""
        return Summary(**{field.name: getattr(self, field.name)[0].item() for field in fields(Summary)})


@dataclass(frozen=True)
class Moments:
    """Moments of one metric over groups of problems; groups are the last axis of every array."""

    kind: MetricKind
    problems: Floats
    scored: Floats
    """Problems with a value; their average (parts x groups) and squared deviations (parts x parts x groups)."""
    average: Floats
    square: Floats
    has_posterior: Floats  # problems with a posterior; the sums of its means and covariances
    mean: Floats
    covariance: Floats
    undefined: Floats  # problems that have enough attempts but no value
    noise: Floats
    """Sums over problems, 6 x groups: noise v of the mean, v n, n, v n (n - 1), 1 / n; problems with n > 1. All 0
    where noise is unknown."""
    seen: Floats  # for rewards without bounds, 2 x groups: the largest of -reward and of reward; else 0 x groups

    @classmethod
    def of(cls, estimate: Estimate, histogram: scipy.sparse.csr_array) -> Moments:
        """Compute the moments of the groups of a histogram (groups x columns of the estimate)."""
        parts, size = estimate.value.shape
        scored, has_posterior = ~np.isnan(estimate.value[0]), ~np.isnan(estimate.mean[0])
        noise, n = np.zeros((2, size)) if estimate.repeated is None else estimate.repeated
        noises = np.stack([noise, noise * n, n, noise * n * (n - 1), np.where(n > 0, 1 / np.maximum(n, 1), 0), n > 1])
        covariance = np.where(has_posterior, np.nan_to_num(estimate.covariance, nan=0.0), 0.0)
        columns = [
            np.ones((1, size)),
            scored[None],
            np.where(scored, estimate.value, 0.0),
            has_posterior[None],
            np.where(has_posterior, estimate.mean, 0.0),
            covariance.reshape(parts * parts, size),
            np.zeros((1, size)) if estimate.undefined is None else estimate.undefined[None],
            noises,
        ]
        totals: Floats = (histogram @ np.concatenate(columns).T).T
        ends = np.cumsum([len(column) for column in columns[:-1]])
        problems, count, total, posterior, mean, within, undefined, noise_sums = np.split(totals, ends)
        average = np.nan_to_num(ratio(total, count), nan=0.0)
        seen = np.zeros((0, count.shape[1]))
        if estimate.seen is not None:
            seen = np.maximum.reduceat(estimate.seen[:, histogram.indices], histogram.indptr[:-1], axis=-1)
        return cls(
            estimate.kind, problems[0], count[0], average, _squares(estimate.value, average, histogram),
            posterior[0], mean, within.reshape(parts, parts, -1), undefined[0], noise_sums, seen,
        )  # fmt: skip

    def __add__(self, other: Moments) -> Moments:
        """Merge the moments of other problems of the same groups (Chan, Golub and LeVeque)."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in vars(self) if name != "kind"}
        share = np.nan_to_num(ratio(other.scored, sums["scored"]), nan=0.0)
        gap = other.average - self.average
        sums["average"] = self.average + gap * share
        sums["square"] += gap[:, None] * gap[None] * (self.scored * share)
        sums["seen"] = np.maximum(self.seen, other.seen)
        return Moments(self.kind, **sums)

    def expand(self, index: Ints, groups: int) -> Moments:
        """Place each group at its index among more groups; the others are empty."""
        arrays: dict[str, Any] = {}
        for name, array in vars(self).items():
            if name != "kind":
                arrays[name] = np.full((*array.shape[:-1], groups), -np.inf if name == "seen" else 0.0)
                arrays[name][..., index] = array
        return replace(self, **arrays)

    def sample(self, clusters: tuple[Moments, Ints] | None) -> tuple[Floats, Floats, Floats]:
        """Return averages, their covariance when the problems are a sample, and the number of units."""
        # With the moments of clusters and the first cluster of each group, clusters are the sample: the covariance is
        # the delete-one-cluster jackknife's, and clusters of unequal size count as fewer (see cluster_spread).
        count = self.scored
        average = np.where(count > 0, self.average, np.nan)
        if clusters is None:
            return average, ratio(ratio(self.square, count - 1), count), count
        each, starts = clusters
        sizes, problems = np.diff(starts, append=each.scored.size), each.scored
        units = np.add.reduceat((problems > 0).astype(np.float64), starts)
        others = np.repeat(count, sizes) - problems
        moved = np.nan_to_num(ratio(problems * (np.repeat(self.average, sizes, axis=-1) - each.average), others))
        shift = np.add.reduceat(moved, starts, axis=-1) / np.maximum(units, 1)
        moved -= (problems > 0) * np.repeat(shift, sizes, axis=-1)
        square = np.add.reduceat(moved[:, None] * moved[None], starts, axis=-1)
        effective = np.sqrt(units * ratio(count**2, np.add.reduceat(problems**2, starts)))
        return average, square * np.where(units > 1, 1 - 1 / np.maximum(units, 1), np.nan), np.nan_to_num(effective)


def _squares(value: Floats, average: Floats, histogram: scipy.sparse.csr_array) -> Floats:
    """Sum the products of deviations from the group averages, parts x parts x groups."""
    # From deviations, not from squares of values: equal values must give exactly 0.
    index, starts = histogram.indices, histogram.indptr[:-1]
    deviation = value[:, index] - np.repeat(average, np.diff(histogram.indptr), axis=-1)
    deviation[np.isnan(deviation)] = 0.0
    return np.asarray(np.add.reduceat(deviation[:, None] * deviation[None] * histogram.data, starts, axis=-1))


def aggregate(
    estimates: Sequence[Estimate],
    histogram: scipy.sparse.csr_array,
    confidence: float = 0.95,
    min_coverage: float = 0.9,
    clip: tuple[float, float] | None = None,
    clusters: tuple[scipy.sparse.csr_array, Ints] | None = None,
) -> list[Summaries]:
    """Summarize groups of problems: unweighted means over the problems of each group."""
    # There is one estimate per metric, over the columns of the histogram, which has the number of problems, groups x
    # columns; every group has at least one. clip: ends of the posterior interval, by default those of the metric.
    # clusters: the same by cluster (clusters x columns), sorted by group, and the first cluster of each group;
    # standard errors then treat clusters as the sample.
    check_shares(confidence, min_coverage)
    moments = parallel_map(lambda estimate: Moments.of(estimate, histogram), estimates)
    by_cluster = clusters and ([Moments.of(estimate, clusters[0]) for estimate in estimates], clusters[1])
    return summarize_moments([[each] for each in moments], confidence, min_coverage, clip, by_cluster)


def summarize_moments(
    moments: Sequence[Sequence[Moments]],
    confidence: float,
    min_coverage: float,
    clip: tuple[float, float] | None = None,
    clusters: tuple[Sequence[Moments], Ints] | None = None,
    weights: Floats | None = None,
) -> list[Summaries]:
    """Turn the moments of each metric into summaries."""
    # With a mixture of priors there are moments under each prior, and the weights (priors x groups) of the mixture.
    if not moments:
        return []
    kinds = [each[0].kind for each in moments]
    samples = [each[0].sample(clusters and (clusters[0][i], clusters[1])) for i, each in enumerate(moments)]
    rows = [
        (*blend(mean, covariance, kind.powers), units, *_posterior(each, weights))
        for (mean, covariance, units), kind, each in zip(samples, kinds, moments, strict=True)
    ]
    average, error, units, mu, variance = (np.stack(column) for column in zip(*rows, strict=True))
    problems = moments[0][0].problems
    count = np.stack([each[0].scored for each in moments])
    hidden = count < np.maximum(min_coverage * problems * (1 - 1e-12), 1)
    hidden |= np.stack([each[0].undefined > 0 for each in moments])
    value, se = np.where(hidden, np.nan, average), np.where(hidden, np.nan, np.sqrt(error))
    ends = [_ends(*row, confidence) for row in zip([each[0] for each in moments], samples, value, se, strict=True)]
    lo, hi = np.where(np.isnan(value), np.nan, np.swapaxes(ends, 0, 1))
    noise = np.stack([each[0].noise for each in moments], axis=1)
    reruns = rerun(value, _variance_of_rerun(noise, count, value), noise[2], confidence)
    sigma = np.sqrt(variance)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * sigma
    limits = np.array([clip or kind.clip or kind.bounds for kind in kinds])[:, :, None]
    mu_ends = (np.clip(end, limits[:, 0], limits[:, 1]) for end in (mu - reach, mu + reach))
    counts = (np.broadcast_to(problems, count.shape).astype(np.int64), count.astype(np.int64), units)
    columns: Any = (value, lo, hi, se, *_bounds(lo, hi, 1 - count / problems, kinds), *reruns, mu, sigma, *mu_ends)
    bounds = [kind.bounds for kind in kinds]
    return [Summaries(*row) for row in zip(*columns, *counts, bounds, strict=True)]


def _variance_of_rerun(sums: Floats, count: Floats, value: Floats) -> Floats:
    """Return the variances of means if the same problems were attempted again, from Moments.noise."""
    own, of_attempt, attempts, pooled, inverse, repeated = sums
    # n = 1: the mean noise of the others, of which there may be few, and of four problems at the pooled rate, which
    # is an upper limit. With 90% of problems at n = 1 the others alone covered .82 in the worst shape.
    pooled_rate = (value * count + 1) / (count + 2)
    of_attempt = np.where(repeated > 0, of_attempt + 4 * pooled_rate * (1 - pooled_rate), np.nan) / (repeated + 4)
    own = own + np.where(count > repeated, (count - repeated) * of_attempt, 0.0)
    # The fewer attempts, the more noise, and the less is seen of it: take what all say together where that is more.
    # 30 problems with n = 1 to 16 covered .886 without it; where all n are equal both are the same.
    variance = ratio(np.maximum(own, inverse * ratio(pooled, attempts - count)), count**2)
    return np.where(count > repeated, np.maximum(variance, 1 / np.maximum(attempts, 1) ** 2), variance)


def _ends(
    moments: Moments, sample: tuple[Floats, Floats, Floats], value: Floats, se: Floats, confidence: float
) -> tuple[Floats, Floats]:
    """Return lo and hi of one metric."""
    mean, covariance, units = sample
    if moments.kind.powers is not None:
        return blend_interval(mean, covariance, units, moments.kind.powers, confidence)
    seen = (-moments.seen[0], moments.seen[1]) if moments.seen.size else None
    return interval(value, se, units, moments.kind.bounds, confidence, seen)


def _bounds(lo: Floats, hi: Floats, missing: Floats, kinds: Sequence[MetricKind]) -> tuple[Floats, Floats]:
    """Return lo and hi wherever the missing share of problems lies; NaN for blends and where nothing bounds them."""
    unknown = (np.nan, np.nan)
    ends = np.array([unknown if kind.powers or np.isinf(kind.bounds[0]) else kind.bounds for kind in kinds])
    low, high = ends.T[:, :, None]
    bound_lo, bound_hi = lo * (1 - missing) + low * missing, hi * (1 - missing) + high * missing
    return np.where(missing > 0, bound_lo, lo), np.where(missing > 0, bound_hi, hi)


def _posterior(moments: Sequence[Moments], weights: Floats | None) -> tuple[Floats, Floats]:
    """Return mean and variance of a metric, problems fixed; a mixture of priors adds the spread between them."""
    share = np.ones((1, moments[0].problems.size)) if weights is None else weights
    means = np.stack([ratio(each.mean, each.has_posterior) for each in moments])
    within = np.stack([ratio(each.covariance, each.has_posterior**2) for each in moments])
    mu = np.einsum("pg,pig->ig", share, means)
    gap = means - mu
    spread = np.einsum("pg,pijg->ijg", share, within + gap[:, :, None] * gap[:, None])
    return blend(mu, spread, moments[0].kind.powers)


def check_shares(confidence: float, min_coverage: float) -> None:
    """Raise unless confidence is in (0, 1) and min_coverage in [0, 1]."""
    if not 0 < confidence < 1:
        raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= min_coverage <= 1:
        raise MetricError(f"min_coverage must be in [0, 1], got {min_coverage!r}")


def problem_histogram(group: Ints, column: Ints, problems: Any, shape: tuple[int, int]) -> scipy.sparse.csr_array:
    """Build the sparse matrix of problems, groups x columns, from one row per entry; equal entries are added."""
    data = np.broadcast_to(np.asarray(problems, dtype=np.float64), group.shape)
    return scipy.sparse.csr_array((data, (group, column)), shape=shape)
