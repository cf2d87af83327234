"""Public functions: one metric per problem, or of a group of problems with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.arguments import outcome_counts, prior_outcome_counts, problem_counts
from scorelake.metrics.attempts import Attempts
from scorelake.metrics.counts import distinct, level_prior, level_table, pairs, prior_pair, whole_numbers
from scorelake.metrics.distributions import Floats
from scorelake.metrics.estimate import Estimate, blend, evaluate, of_levels
from scorelake.metrics.registry import Metric, parse
from scorelake.metrics.summary import Summary, aggregate, check_shares


def finite(name: str | Metric, n: ArrayLike, c: ArrayLike) -> Floats:
    """Return the unbiased estimate of each problem from its n attempts; NaN where k > n."""
    (out,) = _per_problem(name, n, c, (1.0, 1.0), ("value",))
    return out


def posterior(
    name: str | Metric, n: ArrayLike, c: ArrayLike, prior: tuple[float, float] = (1.0, 1.0)
) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of each problem under a Beta prior, for any k >= 1."""
    mean, variance = _per_problem(name, n, c, prior_pair(prior), ("mean", "variance"))
    return mean, variance


def finite_levels(name: str | Metric, rewards: ArrayLike, counts: ArrayLike) -> Floats:
    """Return avg@N, bayes@N or max@k of each problem from its counts per reward level (problems x levels)."""
    levels, table = level_table(rewards, counts)
    value: Floats = of_levels(_of_rewards(name), levels, table, level_prior(rewards, None)).value[0]
    return value


def posterior_levels(
    name: str | Metric, rewards: ArrayLike, counts: ArrayLike, prior_counts: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of avg@N, bayes@N or max@k under Dirichlet(1 + prior_counts)."""
    estimate = _of_levels(name, rewards, counts, prior_counts)
    return estimate.mean[0], estimate.covariance[0, 0]


def summarize(
    name: str | Metric,
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    problems: ArrayLike | None = None,
    prior: tuple[float, float] = (1.0, 1.0),
    confidence: float = 0.95,
    min_coverage: float = 0.9,
    bounds: tuple[float, float] | None = None,
    *,
    R: Attempts | None = None,  # noqa: N803 - the papers' letters
    w: ArrayLike | None = None,
    R0: Attempts | None = None,  # noqa: N803
) -> Summary:
    """Summarize one metric over a group of problems: value, interval, posterior, and problems with a value.

    n, c: attempts and correct attempts of every problem; `problems` is the number of problems with each pair, by
    default one. Or R: a matrix of attempts, a row per problem; for avg@N, bayes@N and max@k with the weights of its
    outcomes 0, 1, ... (w) and earlier outcomes of the same problems (R0). prior: the two pseudo-counts of a Beta.
    min_coverage: below this share of problems with k attempts there is no value. bounds: ends of mu_lo and mu_hi.

    >>> summary = sl.metrics.summarize("pass@2", n=[5, 5], c=[3, 4])
    >>> summary.value, round(summary.lo, 4), round(summary.hi, 4), summary.problems_scored
    (0.95, 0.2668, 0.9943, 2)
    >>> summary.mu, summary.sigma
    (0.8392857142857143, 0.0972627...)
    """
    if w is None and R0 is None:
        return summarize_all([name], *problem_counts(n, c, R), problems, prior, confidence, min_coverage, bounds)[0]
    worth, table = outcome_counts(n, c, R, w)
    earlier = prior_outcome_counts(R0, worth.size, len(table))
    return summarize_levels(name, worth, table, problems, earlier, confidence, min_coverage, bounds)


def summarize_all(
    names: Sequence[str | Metric],
    n: ArrayLike,
    c: ArrayLike,
    problems: ArrayLike | None = None,
    prior: tuple[float, float] = (1.0, 1.0),
    confidence: float = 0.95,
    min_coverage: float = 0.9,
    bounds: tuple[float, float] | None = None,
) -> list[Summary]:
    """Summarize many metrics of one group; metrics with the same k share their distributions."""
    metrics = [_metric(name) for name in names]
    check_shares(confidence, min_coverage)
    all_n, all_c = pairs(n, c)
    times = _times(problems, all_n.shape)
    n_, c_, index = distinct(all_n, all_c)
    weight = np.bincount(index, times, minlength=n_.size)
    n_, c_, weight = n_[weight > 0], c_[weight > 0], weight[weight > 0]
    if weight.size == 0:
        return [_empty()] * len(metrics)
    estimates = evaluate(metrics, n_, c_, prior_pair(prior))
    summaries_of = aggregate(estimates, scipy.sparse.csr_array(weight[None, :]), confidence, min_coverage, bounds)
    return [summaries.first() for summaries in summaries_of]


def summarize_levels(
    name: str | Metric,
    rewards: ArrayLike,
    counts: ArrayLike,
    problems: ArrayLike | None = None,
    prior_counts: ArrayLike | None = None,
    confidence: float = 0.95,
    min_coverage: float = 0.9,
    bounds: tuple[float, float] | None = None,
) -> Summary:
    """Summarize avg@N, bayes@N or max@k over reward levels."""
    estimate = _of_levels(name, rewards, counts, prior_counts)
    check_shares(confidence, min_coverage)
    times = _times(problems, (estimate.value.shape[1],))
    if not times.any():
        return _empty()
    return aggregate([estimate], scipy.sparse.csr_array(times[None, :]), confidence, min_coverage, bounds)[0].first()


def _metric(name: str | Metric) -> Metric:
    return name if isinstance(name, Metric) else parse(name)


def _of_rewards(name: str | Metric) -> Metric:
    metric = _metric(name)
    if metric.family.rewards is None:
        raise MetricError(
            f"{metric.name}: only avg@N, bayes@N and max@k are defined on reward levels",
            hint="the others need passed / not passed: use finite() and posterior() with n and c",
        )
    return metric


def _of_levels(name: str | Metric, rewards: ArrayLike, counts: ArrayLike, prior_counts: ArrayLike | None) -> Estimate:
    levels, table = level_table(rewards, counts)
    mass = level_prior(rewards, prior_counts)
    if mass.shape[0] not in (1, table.shape[0]):
        raise MetricError(f"prior_counts has {mass.shape[0]} rows for {table.shape[0]} problems")
    return of_levels(_of_rewards(name), levels, table, mass)


def _per_problem(
    name: str | Metric, n: ArrayLike, c: ArrayLike, prior: tuple[float, float], want: tuple[str, ...]
) -> list[Floats]:
    metric = _metric(name)
    all_n, all_c = pairs(n, c)
    n_, c_, index = distinct(all_n, all_c)
    (estimate,) = evaluate([metric], n_, c_, prior)
    out = {"value": estimate.value[0], "mean": estimate.mean[0], "variance": estimate.covariance[0, 0]}
    if estimate.powers is not None:  # one problem is its own group
        out["value"], _ = blend(estimate.value, estimate.covariance, estimate.powers)
        out["mean"], out["variance"] = blend(estimate.mean, estimate.covariance, estimate.powers)
    return [out[column][index].reshape(all_n.shape)[()] for column in want]


def _times(problems: ArrayLike | None, shape: tuple[int, ...]) -> Floats:
    """Return the number of problems of each entry; exact up to 2^53 problems."""
    if problems is None:
        return np.ones(int(np.prod(shape)))
    times = whole_numbers("problems", problems)
    try:
        return np.broadcast_to(times, shape).ravel().astype(np.float64)
    except ValueError:
        raise MetricError(f"problems has shape {times.shape}, n and c have {shape}") from None


def _empty() -> Summary:
    undefined: dict[str, Any] = dict.fromkeys((field.name for field in fields(Summary)), float("nan"))
    return Summary(**undefined | {"problems": 0, "problems_scored": 0})
