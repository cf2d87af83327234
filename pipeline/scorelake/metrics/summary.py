"""Estimates of problems in, one summary per group out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

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


def aggregate(
    estimate: Estimate,
    place: Ints,
    problems: Ints,
    starts: Ints,
    confidence: float = 0.95,
    min_coverage: float = 1.0,
) -> Summaries:
    """Unweighted means over the problems of each group.

    Row i stands for problems[i] >= 1 equal problems whose estimate is column place[i]; group g owns the rows
    from starts[g] to the next start, at least one. Sums run in the order of the rows, so equal rows give
    equal bits.
    """
    check_shares(confidence, min_coverage)
    weight = problems.astype(float)

    def total(distinct: Floats) -> Floats:
        """Sums over groups; whatever can be done once per distinct column is done before its rows are spread."""
        return np.add.reduceat(distinct[..., place] * weight, starts, axis=-1)

    # posterior: every problem that has one (avg@N has none without attempts)
    known = ~np.isnan(estimate.mean[0])
    m = total(known.astype(float))
    mu = ratio(total(np.where(known, estimate.mean, 0)), m)
    spread = ratio(total(np.where(known, estimate.covariance, 0)), m**2)
    mu, variance = (mu[0], spread[0, 0]) if estimate.powers is None else blend(mu, spread, estimate.powers)
    sigma = np.sqrt(variance)
    reach = ndtri((1 + confidence) / 2) * sigma
    lo, hi = np.clip(mu - reach, *estimate.bounds), np.clip(mu + reach, *estimate.bounds)

    # finite values: the scored problems only
    scored = ~np.isnan(estimate.value[0])
    count_all = np.add.reduceat(problems, starts)
    count = count_all if scored.all() else np.add.reduceat(problems * scored[place], starts)
    average = ratio(total(np.where(scored, estimate.value, 0)), count)
    off = estimate.value[:, place] - np.repeat(average, np.diff(np.append(starts, place.size)), axis=-1)
    if not scored.all():
        off = np.where(scored[place], off, 0)
    squares = np.add.reduceat(off[:, None] * off[None] * weight, starts, axis=-1)
    sample = ratio(ratio(squares, count - 1.0), count)
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


def check_shares(confidence: float, min_coverage: float) -> None:
    """confidence in (0, 1), min_coverage in [0, 1]."""
    if not 0 < confidence < 1:
        raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= min_coverage <= 1:
        raise MetricError(f"min_coverage must be in [0, 1], got {min_coverage!r}")
