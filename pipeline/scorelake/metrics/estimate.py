"""Counts in, estimates out: the finite-bank value and the posterior moments of every distinct (n, c).

All metrics that share a k share the two distributions, which are by far the largest part of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scorelake.errors import MetricError
from scorelake.metrics.beta_powers import all_within, lack, mean_power, not_within, power_variance
from scorelake.metrics.distributions import Floats, Ints, beta_binomial, blocks, hypergeometric, product_credits
from scorelake.metrics.registry import Metric
from scorelake.metrics.vote import Ballots
from scorelake.threads import parallel_map

_UNIT = (0.0, 1.0)
_ENDS = ("pass@k", "pass^k")


@dataclass(frozen=True)
class Estimate:
    """One metric over rows: parts x rows, and parts x parts x rows for the covariance.

    There is one part, unless the metric is a blend of two group means; then `powers` says how to blend.
    """

    value: Floats
    mean: Floats
    covariance: Floats
    powers: tuple[float, float] | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    """What values there can be; not finite where that is not known."""
    clip: tuple[float, float] | None = None
    """Where the posterior interval ends, if not at the bounds."""
    undefined: NDArray[np.bool_] | None = None
    """Rows that have attempts enough and still no value: no group that has one has a value."""
    repeated: Floats | None = None
    """Where it is a mean of 0/1: the variance of each row's mean over attempts, and its n; both 0 below n = 2."""


Prior = tuple[float, float] | tuple[Floats, Floats]
"""A Beta prior's two pseudo-counts: the same for all rows, or one pair per row."""


def evaluate(
    metrics: Sequence[Metric], n: Ints, c: Ints, prior: Prior, worth: tuple[float, float] = _UNIT
) -> list[Estimate]:
    """Estimates of each metric for the rows (n, c), given as they should be computed: distinct.

    worth is what avg@N, bayes@N and max@k take a failed and a passed attempt for.
    """
    for metric in metrics:
        if metric.family.vote is not None:
            raise MetricError(
                f"{metric.name}: n and c do not say what was answered", hint="use of_answers() or vote()"
            )

    def at(k: int) -> dict[Metric, Estimate]:
        same_k = [metric for metric in dict.fromkeys(metrics) if metric.draws == k]
        closed = [metric for metric in same_k if metric.closed]
        drawn = [metric for metric in same_k if metric.parts and not metric.closed]
        out = dict(zip(closed, _closed(closed, k, n, c, prior) if closed else [], strict=True))
        out |= dict(zip(drawn, _drawn(drawn, k, n, c, prior) if drawn else [], strict=True))
        out |= {metric: of_levels(metric, rewards, counts, mass) for metric in same_k if not metric.parts}
        return {metric: replace(e, repeated=again) if _is_mean(metric, worth) else e for metric, e in out.items()}

    again = _repeated(n, c)
    order = np.argsort(worth, kind="stable")  # levels rise
    rewards = np.array(worth, dtype=np.float64)[order]
    counts = np.stack([n - c, c], axis=1)[:, order]
    mass = np.atleast_2d(np.stack([prior[1], prior[0]], axis=-1))[:, order]
    found = parallel_map(at, sorted({metric.draws for metric in metrics}, reverse=True))  # the longest first
    out = {metric: estimate for some in found for metric, estimate in some.items()}
    return [out[metric] for metric in metrics]


def _is_mean(metric: Metric, worth: tuple[float, float]) -> bool:
    return metric.is_mean and (bool(metric.parts) or worth == _UNIT)


def _repeated(n: Ints, c: Ints) -> Floats:
    """c (n - c) / (n^2 (n - 1)) without bias, and n, of the rows that have two attempts."""
    twice = n > 1
    m, right = np.where(twice, n, 2).astype(np.float64), np.where(twice, c, 0).astype(np.float64)
    return np.stack([right / m * ((m - right) / m) / (m - 1), np.where(twice, m, 0.0)])


def of_levels(metric: Metric, rewards: Floats, counts: Ints, mass: Floats) -> Estimate:
    """Estimate of a metric of reward levels; rewards rising, one row of counts per problem."""
    family = metric.family
    assert family.finite is not None
    assert family.posterior is not None
    mean, variance = family.posterior(rewards, counts, mass, metric.draws)
    value = family.finite(rewards, counts, mass, metric.draws)
    bounds = (float(rewards[0]), float(rewards[-1]))
    return Estimate(value[None], mean[None], variance[None, None], bounds=bounds)


def of_answers(metric: Metric, ballots: Ballots) -> Estimate:
    """Estimate of a vote: the finite value only, since a posterior needs a belief in answers never given."""
    assert metric.family.vote is not None
    value = metric.family.vote(ballots, metric.draws)
    unknown = np.full(value.size, np.nan)
    return Estimate(value[None], unknown[None], unknown[None, None])


def blend(parts: Floats, covariance: Floats, powers: tuple[float, float]) -> tuple[Floats, Floats]:
    """The product of two parts to their powers, and its variance to first order; both 0 where it is 0.

    A part of 0 to a negative power is not defined, unless the other part makes the product 0.
    """
    exponent = np.array(powers)[:, None]
    none = parts == 0
    value = (np.where(none & (exponent < 0), 1.0, parts) ** exponent).prod(axis=0)
    value[(none & (exponent < 0)).any(axis=0) & ~(none & (exponent > 0)).any(axis=0)] = np.nan
    slope = value * np.divide(exponent, parts, out=np.zeros_like(parts), where=parts > 0)
    return value, np.einsum("ir,ijr,jr->r", slope, covariance, slope)


def of_ends(metrics: Sequence[Metric], n: Ints, c: Ints) -> list[Estimate]:
    """pass@k and pass^k of rows (n, c): the finite value only, for many k at little cost."""
    unknown = np.full(n.size, np.nan)
    assert all(metric.family.name in _ENDS for metric in metrics)
    found = parallel_map(lambda metric: _end(metric.family.name, metric.draws, n, c), metrics)
    return [Estimate(value[None], unknown[None], unknown[None, None]) for value in found]


def _end(name: str, k: int, n: Ints, c: Ints) -> Floats:
    """Finite values of pass@k or of pass^k, NaN where k > n."""
    enough = np.flatnonzero(n >= k)
    value = np.full(n.size, np.nan)
    m, right = n[enough], c[enough]
    if k == 1:
        value[enough] = right / m
    else:
        value[enough] = not_within(m - right, m, k) if name == "pass@k" else all_within(right, m, k)
    return value


def _closed(metrics: Sequence[Metric], k: int, n: Ints, c: Ints, prior: Prior) -> list[Estimate]:
    """pass@k, pass^k and their blends: powers of p and of 1 - p, whose squares are the same at 2k."""
    value = np.stack([_end(name, k, n, c) for name in _ENDS])
    alpha, beta = (np.asarray(x, dtype=np.float64) for x in (c + prior[0], n - c + prior[1]))
    total = alpha + beta
    none, every = mean_power(beta, total, k), mean_power(alpha, total, k)
    mean, covariance = np.stack([lack(beta, total, k), every]), np.empty((2, 2, n.size))
    covariance[0, 0], covariance[1, 1] = power_variance(beta, total, k), power_variance(alpha, total, k)
    apart = lack(total, total + k, k)  # how far E[p^k (1-p)^k] is from the product of the two means
    covariance[0, 1] = covariance[1, 0] = none * every * apart
    return [
        _estimate(metric, value[part], mean[part], covariance[np.ix_(part, part)])
        for metric, part in ((metric, [_ENDS.index(name) for name in metric.parts]) for metric in metrics)
    ]


def _estimate(metric: Metric, value: Floats, mean: Floats, covariance: Floats) -> Estimate:
    """One metric from its parts: a single one as it is, group means to be blended later, or a blend per problem."""
    if metric.powers is None:
        return Estimate(value, mean, covariance)
    bounds = (0.0, 1.0) if min(metric.powers) >= 0 else (-np.inf, np.inf)
    if metric.family.pooled:
        return Estimate(value, mean, covariance, metric.powers, bounds, _UNIT)
    blended, _ = blend(value, covariance, metric.powers)
    mu, spread = blend(mean, covariance, metric.powers)
    undefined = np.isnan(blended) & ~np.isnan(value).any(axis=0)
    return Estimate(blended[None], mu[None], spread[None, None], None, bounds, _UNIT, undefined)


def _drawn(metrics: Sequence[Metric], k: int, n: Ints, c: Ints, prior: Prior) -> list[Estimate]:
    """Other credit metrics and blends at one k."""
    vectors = list({credit.tobytes(): credit for metric in metrics for credit in metric.credits}.values())
    place = {credit.tobytes(): i for i, credit in enumerate(vectors)}
    parts = [[place[credit.tobytes()] for credit in metric.credits] for metric in metrics]
    crossed = list({(p[0], p[1]): None for p in parts if len(p) == 2})
    value = _finite(vectors, k, n, c)
    mean, variance, cross = _posterior(
        vectors,
        crossed,
        k,
        np.asarray(c + prior[0], dtype=np.float64),
        np.asarray(n - c + prior[1], dtype=np.float64),
    )
    out = []
    for metric, part in zip(metrics, parts, strict=True):
        covariance = np.zeros((len(part), len(part), n.size))
        for row, p in enumerate(part):
            covariance[row, row] = variance[p]
        if len(part) == 2:
            covariance[0, 1] = covariance[1, 0] = cross[crossed.index((part[0], part[1]))]
        out.append(_estimate(metric, value[part], mean[part], covariance))
    return out


def _finite(vectors: list[Floats], k: int, n: Ints, c: Ints) -> Floats:
    """Unbiased values, vectors x rows; NaN where k > n.

    Summed over the smaller side, credit or missing credit, so that certain outcomes are exactly 0 or 1.
    """
    value = np.full((len(vectors), n.size), np.nan)
    enough = np.flatnonzero(n >= k)
    for rows in blocks(enough.size, k + 1):
        at = enough[rows]
        pmf = hypergeometric(n[at].astype(float), c[at].astype(float), k)
        for i, a in enumerate(vectors):
            won, missed = (pmf * a).sum(axis=1), (pmf * (1 - a)).sum(axis=1)
            value[i, at] = np.where(won <= missed, won, 1 - missed)
    return value


def _posterior(
    vectors: list[Floats], crossed: list[tuple[int, int]], k: int, alpha: Floats, beta: Floats
) -> tuple[Floats, Floats, Floats]:
    """Posterior means and variances (vectors x rows) and the covariances of the crossed pairs.

    A variance is E[g^2] - E[g]^2 of the smaller side, g or 1 - g: that side's square is at most
    of the size of the draws' own variance, so no digits are lost but those that n >> k costs by nature.
    """
    squares = product_credits(
        [(a, a) for a in vectors]
        + [(1 - a, 1 - a) for a in vectors]
        + [(1 - vectors[i], vectors[j]) for i, j in crossed]
    )
    won2, missed2, cross2 = (
        squares[: len(vectors)],
        squares[len(vectors) : 2 * len(vectors)],
        squares[2 * len(vectors) :],
    )
    mean, variance = np.empty((len(vectors), alpha.size)), np.empty((len(vectors), alpha.size))
    cross = np.empty((len(crossed), alpha.size))
    for rows in blocks(alpha.size, 2 * k + 1):
        once = beta_binomial(alpha[rows], beta[rows], k)
        twice = beta_binomial(alpha[rows], beta[rows], 2 * k)
        won = [(once * a).sum(axis=1) for a in vectors]
        missed = [(once * (1 - a)).sum(axis=1) for a in vectors]
        for i, (w, m) in enumerate(zip(won, missed, strict=True)):
            var_won, var_missed = (
                (twice * won2[i]).sum(axis=1) - w * w,
                (twice * missed2[i]).sum(axis=1) - m * m,
            )
            mean[i, rows] = np.where(w <= m, w, 1 - m)
            variance[i, rows] = np.maximum(np.where(w <= m, var_won, var_missed), 0)
        for i, (p, q) in enumerate(crossed):
            cross[i, rows] = missed[p] * won[q] - (twice * cross2[i]).sum(axis=1)
    return mean, variance, cross


def blended(parts: Floats, covariance: Floats, powers: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """The only part of a metric and its variance, or the blend of two."""
    return (parts[0], covariance[0, 0]) if powers is None else blend(parts, covariance, powers)
