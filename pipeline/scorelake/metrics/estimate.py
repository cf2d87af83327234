"""Values and posterior moments of metrics for rows of counts (n, c).

Metrics with the same k share the hypergeometric and beta-binomial distributions, which take most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorelake.errors import MetricError
from scorelake.metrics.beta_powers import all_within, any_above, complement, mean_power, power_variance
from scorelake.metrics.counts import Counts, distinct, pairs, prior_pair, reward_levels
from scorelake.metrics.distributions import (
    Floats,
    Ints,
    beta_binomial,
    blocks,
    expected,
    hypergeometric,
    product_credits,
)
from scorelake.metrics.families import Metric, as_metric
from scorelake.threads import parallel_map

_UNIT = (0.0, 1.0)
Prior: TypeAlias = tuple[float, float] | tuple[Floats, Floats]
"""Pseudo-counts (alpha, beta) of a Beta prior: the same for all rows, or one pair per row."""


@dataclass(frozen=True)
class MetricKind:
    """Properties of a metric that are the same for all problems."""

    bounds: tuple[float, float] = _UNIT  # smallest and largest possible value; infinite if unknown
    clip: tuple[float, float] | None = None  # limits of the posterior interval, where they are not the bounds
    powers: tuple[float, float] | None = None  # exponents of a blend of two group means


@dataclass(frozen=True)
class Estimate:
    """Values and posterior moments of one metric, parts x rows; there are two parts for a blend of group means."""

    value: Floats
    mean: Floats
    covariance: Floats  # parts x parts x rows
    kind: MetricKind = MetricKind()
    undefined: NDArray[np.bool_] | None = None
    """Rows with enough attempts but no value: a group that has one has no value."""
    repeated: Floats | None = None
    """For means of 0/1: the variance of each row's mean over attempts, 0 below n = 2; and its n."""
    seen: Floats | None = None
    """For rewards without bounds, 2 x rows: the largest of -reward and of reward; -inf without attempts."""


def evaluate(
    metrics: Sequence[Metric],
    n: Ints,
    c: Ints,
    prior: Prior,
    weights: tuple[float, float] = _UNIT,
    posterior: bool = True,
) -> list[Estimate]:
    """Estimate each metric for the rows (n, c), which should be distinct; without posterior only its value."""
    # `prior` has the pseudo-counts (alpha, beta) of a Beta; `weights` are the rewards of a failed and a passed
    # attempt for avg@N, bayes@N and max@k. Votes raise MetricError: counts do not determine them.
    for metric in metrics:
        if metric.family.vote is not None:
            message = f"{metric.name}: n and c do not determine the answers"
            raise MetricError(message, hint="use vote()")
    order = np.argsort(weights, kind="stable")  # levels rise
    levels = np.array(weights, dtype=np.float64)[order]
    counts = np.stack([n - c, c], axis=1)[:, order]
    pseudo_counts = np.atleast_2d(np.stack([prior[1], prior[0]], axis=-1))[:, order]
    alpha, beta = (np.asarray(x, dtype=np.float64) for x in (c + prior[0], n - c + prior[1]))
    repeated = _attempt_noise(n, c)

    def evaluate_at(k: int) -> dict[Metric, Estimate]:
        same_k = [metric for metric in dict.fromkeys(metrics) if metric.draws == k]
        closed = [metric for metric in same_k if metric.has_closed_form]
        summed = [metric for metric in same_k if metric.parts and not metric.has_closed_form]
        out = {}
        for metric in same_k:
            if metric.family.rate is not None:
                value, *moments = metric.family.rate(n, c, alpha, beta, metric.k or metric.param)
                out[metric] = _single(value, *moments, undefined=np.isnan(value) & (n >= metric.draws))
            elif not metric.parts:
                out[metric] = of_levels(metric, levels, counts, pseudo_counts)
        out |= _closed_forms(closed, k, n, c, alpha, beta, posterior) if closed else {}
        out |= _sums_over_draws(summed, k, n, c, alpha, beta, posterior) if summed else {}
        for metric in same_k:
            if metric.is_mean and (metric.parts or weights == _UNIT):
                out[metric] = replace(out[metric], repeated=repeated)
        return out

    by_k = parallel_map(evaluate_at, sorted({metric.draws for metric in metrics}, reverse=True))  # longest first
    estimates = {metric: estimate for group in by_k for metric, estimate in group.items()}
    return [estimates[metric] for metric in metrics]


def of_levels(metric: Metric, levels: Floats, counts: Ints, prior: Floats) -> Estimate:
    """Estimate a metric of rewards; levels rise, and there is one row of counts per problem."""
    assert metric.family.rewards is not None
    bounds = float(levels[0]), float(levels[-1])
    return _single(*metric.family.rewards(levels, counts, prior, metric.draws), kind=MetricKind(bounds))


def estimate_levels(name: str | Metric, rewards: ArrayLike, counts: ArrayLike, prior_counts: Counts) -> Estimate:
    """Estimate avg@N, bayes@N or max@k of each problem from its counts per reward level."""
    levels, table, prior = reward_levels(rewards, counts, prior_counts)
    metric = as_metric(name)
    if metric.family.rewards is None:
        raise MetricError(
            f"{metric.name}: only avg@N, bayes@N and max@k are defined on reward levels",
            hint="the others need passed / not passed: use finite() and posterior() with n and c",
        )
    return of_levels(metric, levels, table, prior)


def of_ends(metrics: Sequence[Metric], n: Ints, c: Ints) -> list[Estimate]:
    """Estimate pass@k and pass^k without their posterior: cheap for many k."""
    values = parallel_map(lambda metric: _end_value(metric.family.key, metric.draws, n, c), metrics)
    return [without_posterior(value) for value in values]


def blend(parts: Floats, covariance: Floats, powers: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """Multiply two parts, each to its power; return the product and its first-order variance, 0 where it is 0."""
    # Without powers there is one part, which is returned. A part of 0 to a negative power gives NaN, unless the other
    # part makes the product 0.
    if powers is None:
        return parts[0], covariance[0, 0]
    exponent = np.array(powers)[:, None]
    is_zero = parts == 0
    infinite, vanishing = is_zero & (exponent < 0), is_zero & (exponent > 0)
    value = (np.where(infinite, 1.0, parts) ** exponent).prod(axis=0)
    value[infinite.any(axis=0) & ~vanishing.any(axis=0)] = np.nan
    a, b = value * np.divide(exponent, parts, out=np.zeros_like(parts), where=parts > 0)
    # term by term: the order in which einsum adds depends on the number of rows
    return value, a * a * covariance[0, 0] + 2 * a * b * covariance[0, 1] + b * b * covariance[1, 1]


def finite(name: str | Metric, n: ArrayLike, c: ArrayLike) -> Floats:
    """Return the unbiased estimate of each problem from its n attempts; NaN where k > n."""
    return _per_problem(name, n, c, (1.0, 1.0))[0]


def posterior(
    name: str | Metric, n: ArrayLike, c: ArrayLike, prior: tuple[float, float] = (1.0, 1.0)
) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of each problem under a Beta prior, for any k >= 1."""
    _, mean, variance = _per_problem(name, n, c, prior_pair(prior))
    return mean, variance


def finite_levels(name: str | Metric, rewards: ArrayLike, counts: ArrayLike) -> Floats:
    """Return avg@N, bayes@N or max@k of each problem from its counts per reward level (problems x levels)."""
    return np.asarray(estimate_levels(name, rewards, counts, None).value[0])


def posterior_levels(
    name: str | Metric, rewards: ArrayLike, counts: ArrayLike, prior_counts: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of avg@N, bayes@N or max@k under Dirichlet(1 + prior_counts)."""
    estimate = estimate_levels(name, rewards, counts, prior_counts)
    return estimate.mean[0], estimate.covariance[0, 0]


def _per_problem(
    name: str | Metric, n: ArrayLike, c: ArrayLike, prior: tuple[float, float]
) -> tuple[Floats, Floats, Floats]:
    """Return value, posterior mean and variance of each problem."""
    metric = as_metric(name)
    all_n, all_c = pairs(n, c)
    n_, c_, index = distinct(all_n, all_c)
    (estimate,) = evaluate([metric], n_, c_, prior)
    # a blend of group means: one problem is its own group
    blends = [blend(part, estimate.covariance, estimate.kind.powers) for part in (estimate.value, estimate.mean)]
    value, mean, variance = (column[index].reshape(all_n.shape)[()] for column in (blends[0][0], *blends[1]))
    return value, mean, variance


def without_posterior(value: Floats, bounds: tuple[float, float] = _UNIT, seen: Floats | None = None) -> Estimate:
    """Return the estimate of a metric that has values only."""
    unknown = np.full(value.size, np.nan)
    return _single(value, unknown, unknown, kind=MetricKind(bounds), seen=seen)


def _single(value: Floats, mean: Floats, variance: Floats, **others: Any) -> Estimate:
    return Estimate(value[None], mean[None], variance[None, None], **others)


def _attempt_noise(n: Ints, c: Ints) -> Floats:
    """Unbiased variance c (n - c) / (n^2 (n - 1)) of the mean over attempts, 0 for rows with n < 2; and n."""
    m, passed = np.maximum(n, 2.0), np.where(n > 1, c, 0.0)
    return np.stack([passed / m * ((m - passed) / m) / (m - 1), n])


def _end_value(key: str, k: int, n: Ints, c: Ints) -> Floats:
    """Return the value of pass@k (key "pass") or pass^k, NaN where k > n; at k = 1 both are exactly c / n."""
    enough = np.maximum(n, k)
    value = any_above(n - c, enough, k) if key == "pass" and k > 1 else all_within(c, enough, k)
    return np.where(n >= k, value, np.nan)


def _closed_forms(
    metrics: Sequence[Metric], k: int, n: Ints, c: Ints, alpha: Floats, beta: Floats, posterior: bool
) -> dict[Metric, Estimate]:
    """Estimate pass@k, pass^k and their blends from E[p^k], E[(1-p)^k] and the same at 2k."""
    mean, covariance = np.full((2, n.size), np.nan), np.full((2, 2, n.size), np.nan)
    if posterior:
        none, every = mean_power(beta, alpha, k), mean_power(alpha, beta, k)
        # E[p^k (1-p)^k] falls short of the product of the two means by this share
        cross = none * every * complement(alpha + beta, np.full(n.size, float(k)), k)
        mean = np.stack([complement(beta, alpha, k), every])
        covariance = np.array([[power_variance(beta, alpha, k), cross], [cross, power_variance(alpha, beta, k)]])
    value, out = np.stack([_end_value(key, k, n, c) for key in ("pass", "pass^")]), {}
    for metric in metrics:
        index = [("pass", "pass^").index(part.family.key) for part in metric.parts]
        out[metric] = _combine(metric, value[index], mean[index], covariance[np.ix_(index, index)])
    return out


def _sums_over_draws(
    metrics: Sequence[Metric], k: int, n: Ints, c: Ints, alpha: Floats, beta: Floats, posterior: bool
) -> dict[Metric, Estimate]:
    """Estimate credit metrics and blends by summing their credits over the distributions of k and 2k draws."""
    # Of a credit a and its complement 1 - a the smaller sum is used, so that certain outcomes are exactly 0 or 1. A
    # variance is E[g^2] - E[g]^2 of the smaller of g and 1 - g: its square is at most of the order of the variance of
    # the draws, so the difference loses only the digits that n >> k costs anyway.
    vectors = [[part.credit for part in metric.parts] for metric in metrics]
    pairs = [[(x, x) for a in each for x in (a, 1 - a)] + [(1 - a, b) for a, b in pairwise(each)] for each in vectors]
    products = iter(product_credits([pair for each in pairs for pair in each]) if posterior else ())
    squares = [list(islice(products, len(each))) for each in pairs]
    sizes = [len(each) for each in vectors]
    moments = [(*np.full((2, size, n.size), np.nan), np.full((size, size, n.size), np.nan)) for size in sizes]
    for rows in blocks(n.size, 2 * k + 1):
        is_scored = n[rows] >= k
        drawn = hypergeometric(n[rows][is_scored].astype(float), c[rows][is_scored].astype(float), k)
        for each, (value, _, _) in zip(vectors, moments, strict=True):
            for i, credit in enumerate(each):
                value[i, rows][is_scored] = expected(drawn, credit)
        if not posterior:
            continue
        once, twice = (beta_binomial(alpha[rows], beta[rows], draws) for draws in (k, 2 * k))
        for each, square, (_, mean, covariance) in zip(vectors, squares, moments, strict=True):
            second = [(twice * x).sum(axis=1) for x in square]
            first = [[(once * x).sum(axis=1) for x in (a, 1 - a)] for a in each]
            for i, (won, missed) in enumerate(first):
                mean[i, rows] = np.where(won <= missed, won, 1 - missed)
                spread = np.where(won <= missed, second[2 * i] - won * won, second[2 * i + 1] - missed * missed)
                covariance[i, i, rows] = np.maximum(spread, 0)
            if len(each) == 2:
                covariance[0, 1, rows] = covariance[1, 0, rows] = first[0][1] * first[1][0] - second[4]
    return {metric: _combine(metric, *each) for metric, each in zip(metrics, moments, strict=True)}


def _combine(metric: Metric, value: Floats, mean: Floats, covariance: Floats) -> Estimate:
    """Return the estimate of a metric from its parts; a blend per problem is multiplied out here."""
    if metric.powers is None:
        return Estimate(value, mean, covariance)
    bounds = _UNIT if min(metric.powers) >= 0 else (-np.inf, np.inf)
    if metric.family.pooled:
        return Estimate(value, mean, covariance, MetricKind(bounds, _UNIT, metric.powers))
    product, _ = blend(value, covariance, metric.powers)
    mu, variance = blend(mean, covariance, metric.powers)
    undefined = np.isnan(product) & ~np.isnan(value).any(axis=0)
    return _single(product, mu, variance, kind=MetricKind(bounds, _UNIT), undefined=undefined)
