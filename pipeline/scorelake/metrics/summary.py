"""Estimates of problems in, one summary per group out."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scorelake.errors import MetricError
from scorelake.metrics.draws import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate, blend


@dataclass(frozen=True)
class Summary:
    """One metric of one group. Undefined numbers are NaN.

    value: finite-bank estimate. mu, sigma, lo, hi: posterior, problems fixed. se: problems a sample too.
    """

    value: float
    mu: float
    sigma: float
    lo: float
    hi: float
    se: float
    problems: int
    problems_scored: int


@dataclass(frozen=True)
class Summaries:
    """The same, as arrays over many groups."""

    value: Floats
    mu: Floats
    sigma: Floats
    lo: Floats
    hi: Floats
    se: Floats
    problems: Ints
    problems_scored: Ints

    def first(self) -> Summary:
        columns = {name: column[0].item() for name, column in vars(self).items()}
        return Summary(**columns)


@dataclass(frozen=True)
class Mixture:
    """Several priors instead of one: for each its columns of the estimate, and its weight in each group."""

    place: Ints
    """priors x rows"""
    weight: Floats
    """priors x groups, summing to 1 in each group"""


def aggregate(
    estimate: Estimate,
    place: Ints,
    problems: Ints,
    starts: Ints,
    confidence: float = 0.95,
    min_coverage: float = 1.0,
    mixture: Mixture | None = None,
    clusters: Ints | None = None,
) -> Summaries:
    """Unweighted means over the problems of each group.

    Row i stands for problems[i] >= 1 equal problems whose estimate is column place[i]; group g owns the rows
    from starts[g] to the next start, at least one. Sums run in the order of the rows, so equal rows give
    equal bits. With a mixture of priors the posterior is averaged over them, their disagreement included.
    `clusters` says where each cluster of problems begins, within the groups; se then counts clusters.
    """
    check_shares(confidence, min_coverage)
    weight = problems.astype(float)

    def total(distinct: Floats) -> Floats:
        """Sums over groups; whatever can be done once per distinct column is done before its rows are spread."""
        return np.add.reduceat(distinct[..., place] * weight, starts, axis=-1)

    mu, spread = (
        _posterior(estimate, place, weight, starts)
        if mixture is None
        else _mixed(mixture, [_posterior(estimate, each, weight, starts) for each in mixture.place])
    )
    mu, variance = (mu[0], spread[0, 0]) if estimate.powers is None else blend(mu, spread, estimate.powers)
    sigma = np.sqrt(variance)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * sigma
    lo, hi = np.clip(mu - reach, *estimate.bounds), np.clip(mu + reach, *estimate.bounds)

    # finite values: the scored problems only
    scored = ~np.isnan(estimate.value[0])
    count_all = np.add.reduceat(problems, starts)
    count = count_all if scored.all() else np.add.reduceat(problems * scored[place], starts)
    average = ratio(total(np.where(scored, estimate.value, 0)), count)
    off = estimate.value[:, place] - np.repeat(average, np.diff(np.append(starts, place.size)), axis=-1)
    if not scored.all():
        off = np.where(scored[place], off, 0)
    if clusters is None:
        squares = np.add.reduceat(off[:, None] * off[None] * weight, starts, axis=-1)
        sample = ratio(ratio(squares, count - 1.0), count)
    else:
        sample = _between_clusters(off * weight, problems * scored[place], starts, clusters)
    average, error = (
        (average[0], sample[0, 0]) if estimate.powers is None else blend(average, sample, estimate.powers)
    )
    hidden = count < np.maximum(min_coverage * count_all * (1 - 1e-12), 1)
    return Summaries(
        value=np.where(hidden, np.nan, average),
        mu=mu,
        sigma=sigma,
        lo=lo,
        hi=hi,
        se=np.where(hidden, np.nan, np.sqrt(error)),
        problems=count_all,
        problems_scored=count,
    )


def _posterior(estimate: Estimate, place: Ints, weight: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """Group means (parts x groups) and their covariance, over every problem that has a posterior.

    avg@N has none without attempts.
    """
    mean, covariance = estimate.mean[:, place], estimate.covariance[:, :, place]
    known = ~np.isnan(mean[0])
    m = np.add.reduceat(weight * known, starts)
    mu = ratio(np.add.reduceat(np.where(known, mean, 0) * weight, starts, axis=-1), m)
    spread = ratio(np.add.reduceat(np.where(known, covariance, 0) * weight, starts, axis=-1), m**2)
    return mu, spread


def _mixed(mixture: Mixture, parts: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Means and covariance of the mixture: the average within the priors, and the spread between them."""
    mu = sum((w * m for w, (m, _) in zip(mixture.weight, parts, strict=True)), np.zeros_like(parts[0][0]))
    spread = np.zeros_like(parts[0][1])
    for w, (m, within) in zip(mixture.weight, parts, strict=True):
        spread += w * (within + (m - mu)[:, None] * (m - mu)[None])
    return mu, spread


def _between_clusters(off: Floats, scored: Ints, starts: Ints, clusters: Ints) -> Floats:
    """Covariance of the group means when whole clusters are the sample; one problem each gives the plain one."""
    first = np.searchsorted(clusters, starts)
    sums = np.add.reduceat(off, clusters, axis=-1)
    many = np.add.reduceat(np.add.reduceat(scored, clusters) > 0, first, dtype=np.int64)
    count = np.add.reduceat(scored, starts)
    squares = np.add.reduceat(sums[:, None] * sums[None], first, axis=-1)
    return ratio(squares, count**2) * ratio(many.astype(float), many - 1)


def check_shares(confidence: float, min_coverage: float) -> None:
    """confidence in (0, 1), min_coverage in [0, 1]."""
    if not 0 < confidence < 1:
        raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= min_coverage <= 1:
        raise MetricError(f"min_coverage must be in [0, 1], got {min_coverage!r}")
