"""Metric families: every metric is one entry of FAMILIES.

To add a metric, write its credit function and add an entry; names, aliases, the command line, tables, intervals and
the posterior follow. A credit function of k (and of the parameter, if there is one) returns the credit a[j] for
j = 0..k successes among k draws, in [0, 1] and monotone in j. At least two successes:

    def twice(k: int) -> Floats:
        return _at_least(2, k)

    Family("twice@k", "1 if j >= 2", "an example", credit=twice)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np

from scorelake.metrics.beta_powers import any_above, complement, mean_power, per_distinct, power_variance
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.vote import Ballots


@dataclass(frozen=True)
class Family:
    """A family of metrics. Exactly one of `credit`, `blend`, `rewards` and `vote` defines its values."""

    name: str
    """With k for the number of draws, such as pass@k."""
    formula: str
    reference: str
    aliases: tuple[str, ...] = ()
    parameter: str | None = None
    """What follows the k in a name: tau, lambda, powers; or weights, which come from the config file."""
    default: float | None = None
    takes_k: bool = True
    credit: Callable[..., Floats] | None = None
    """credit(k) or credit(k, parameter) -> the credit a[0..k] for j successes, in [0, 1] and monotone in j."""
    blend: tuple[str, str] | None = None
    """Keys of the two credit families whose values are multiplied, each to a power."""
    pooled: bool = False
    """Whether a blend is of the two group means instead of each problem's two values."""
    rewards: Callable[[Floats, Any, Floats, int], tuple[Floats, Floats, Floats]] | None = None
    """rewards(levels, counts, prior, k) -> value, posterior mean and variance per problem.

    Levels are the rising rewards (0 and 1 for pass/fail); counts and the prior's Dirichlet pseudo-counts have one row
    per problem and one column per level.
    """
    vote: Callable[..., Floats] | None = None
    """vote(answers, k) -> the value per problem."""

    @property
    def key(self) -> str:
        return normalize(re.sub(r"@?[kN](_tau)?$", "", self.name))


def normalize(word: str) -> str:
    """Return a family's name without case and separators, for lookup."""
    return re.sub(r"[\s_@-]", "", word.lower())


def threshold(tau: float, k: int) -> int:
    """Return ceil(tau * k) in decimal arithmetic: 0.28 * 25 is 7, also if tau has rounding errors of a float."""
    return int((round(Decimal(repr(float(tau))), 12) * k).to_integral_value(rounding=ROUND_CEILING))


def _at_least(successes: int, k: int) -> Floats:
    return (np.arange(k + 1) >= successes).astype(float)


def pass_at(k: int) -> Floats:
    return _at_least(1, k)


def pass_hat(k: int) -> Floats:
    return _at_least(k, k)


def g_pass(k: int, tau: float) -> Floats:
    return _at_least(max(1, threshold(tau, k)), k)


def mg_pass(k: int) -> Floats:
    return np.asarray(2 * np.maximum(np.arange(k + 1.0) - (k + 1) // 2, 0) / k)


def majority(k: int) -> Floats:
    return _at_least(k // 2 + 1, k)


def auc(k: int) -> Floats:
    """Closed form: the probabilities C(k-j, i) / C(k, i) of i draws without success sum to (k+1) / (j+1)."""
    j = np.arange(k + 1.0)
    if k == 1:
        return j
    ends = (j / k + (j >= 1)) / 2
    return ((k + 1) * j / (j + 1) - ends) / (k - 1)


def spectrum_credit(k: int, weights: tuple[float, ...]) -> Floats:
    return np.asarray(np.minimum(np.concatenate([[0.0], np.cumsum(weights)]), 1.0))


def avg(levels: Floats, counts: Ints, prior: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Plain mean; NaN without attempts. Its variance is that of a flat prior, scaled from pseudo-counts to attempts.

    Prior outcomes are not attempts: they do not change the mean of the attempts.
    """
    n = counts.sum(axis=1)
    mean = ratio((counts * levels).sum(axis=1), n)
    _, variance = _dirichlet_moments(levels, counts + np.ones(levels.size))
    return mean, mean, variance * ratio(n + float(levels.size), n) ** 2


def bayes(levels: Floats, counts: Ints, prior: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Posterior mean; no value without attempts, where it would only be the prior's mean."""
    mean, variance = _dirichlet_moments(levels, counts + prior)
    return np.where(counts.sum(axis=1) > 0, mean, np.nan), mean, variance


def best(levels: Floats, counts: Ints, prior: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Expected best of k draws without replacement, and its moments under the Dirichlet posterior.

    With A_l the posterior mass at or below level l, the expected best is levels[0] + sum_l gap_l (1 - A_l^k). For
    l <= m the ratio A_l / A_m is independent of A_m, so
    Cov(A_l^k, A_m^k) = E[A_l^k] (E[A_m^2k] / E[A_m^k] - E[A_m^k]). The second factor depends on m only: the double
    sum is one running sum of positive terms.
    """

    def power_moments(v: Floats, total: Floats) -> tuple[Floats, Floats, Floats]:
        below = mean_power(v, total, k)
        return below, complement(v, total, k), power_variance(v, total, k) / np.where(below > 0, below, 1)

    gap, at_or_below = np.diff(levels), counts.cumsum(axis=1)
    n = at_or_below[:, -1]
    reached = any_above(at_or_below[:, :-1], np.maximum(n, k)[:, None], k)
    value = np.where(n >= k, levels[0] + (gap * reached).sum(axis=1), np.nan)
    v = (counts + prior).cumsum(axis=1)
    below, above, excess = per_distinct(power_moments, v[:, :-1], v[:, -1:])
    weight = gap * below
    lower = weight.cumsum(axis=1) - weight
    mean = levels[0] + (gap * above).sum(axis=1)
    return value, mean, (gap * excess * (weight + 2 * lower)).sum(axis=1)


def _dirichlet_moments(levels: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the expected reward for category probabilities ~ Dirichlet(v)."""
    total = v.sum(axis=1)
    mean = (v * levels).sum(axis=1) / total
    return mean, (v * (levels - mean[:, None]) ** 2).sum(axis=1) / total / (total + 1)


_CODEX = "Chen et al. 2021, Evaluating Large Language Models Trained on Code"
_STABLE = "Liu et al. 2024, Are Your LLMs Capable of Stable Reasoning?"
_BAYES = "Hariri et al. 2025, Don't Pass@k"
_VOTE = "Wang et al. 2022, Self-Consistency Improves Chain of Thought Reasoning"
_AUC = "trapezoidal mean of Chen et al. 2021 over the draws"
_OWN = "the user's own weights over thresholds"
_BEST = "best of k; pass@k when rewards are 0 and 1"
_BLEND = "geometric blend of the data set's means"
_ENDS: dict[str, Any] = {"parameter": "powers", "blend": ("pass", "pass^")}
_STAR: dict[str, Any] = {
    "aliases": ("geo-spectrum-star",),
    "parameter": "lambda",
    "default": 0.5,
    "blend": ("pass", "mgpass"),
}

FAMILIES = (
    Family("pass@k", "1 if j >= 1", _CODEX, credit=pass_at),
    Family("pass^k", "1 if j = k", "Yao et al. 2024, tau-bench", ("pass-hat", "unanimous"), credit=pass_hat),
    Family("g-pass@k_tau", "1 if j >= max(1, ceil(tau k))", _STABLE, parameter="tau", credit=g_pass),
    Family("mg-pass@k", "(2/k) max(j - ceil(k/2), 0)", _STABLE, credit=mg_pass),
    Family("maj@k", "1 if j >= floor(k/2) + 1", "strict majority of the draws", credit=majority),
    Family("auc@k", "area under pass@1..pass@k of the k draws, trapezoids", _AUC, credit=auc),
    Family("spectrum@k", "w_1 + ... + w_j", _OWN, ("threshold-spectrum",), "weights", credit=spectrum_credit),
    Family("geom@k", "mean of pass@k^a pass^k^b, a = b = 1/2", "geometric blend per problem", **_ENDS),
    Family("geom-ds@k", "(mean pass@k)^a (mean pass^k)^b, a = b = 1/2", _BLEND, pooled=True, **_ENDS),
    Family("geo-spectrum@k", "(mean pass@k)^L (mean mg-pass@k)^(1-L)", _BLEND, pooled=True, **_STAR),
    Family("avg@N", "mean reward of all attempts", _BAYES, ("mean",), takes_k=False, rewards=avg),
    Family("bayes@N", "posterior mean reward", _BAYES, takes_k=False, rewards=bayes),
    Family("max@k", "expected best reward of k draws", _BEST, ("best",), rewards=best),
    Family("vote@k", "the most common answer of k draws is right", _VOTE, ("cons",), vote=Ballots.vote),
)
