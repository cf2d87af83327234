"""Every metric, registered once.

To add a metric, write one function here and decorate it with `register`; names, aliases, the command line, tables,
intervals and the posterior follow. Most metrics need only their credit: a function of k (and of the parameter, if
there is one) that returns the credit a[j] for j = 0..k successes among k draws, in [0, 1] and monotone in j. At least
two successes:

    @register("twice@k", "1 if j >= 2", "an example")
    def twice(k: int) -> Floats:
        return _at_least(2, k)

`kind="rewards"` registers a function of (levels, counts, prior, k): levels are the rising rewards, counts and prior
(Dirichlet pseudo-counts) have one row per problem and one column per level; pass/fail has the levels 0 and 1. It
returns the value, the posterior mean and the posterior variance of each problem. `kind="vote"` registers a function
of (answers, k). A product of two credit metrics is an entry `add(Family(..., blend=...))`.
"""

from __future__ import annotations

import numpy as np

from scorelake.metrics.beta_powers import any_above, complement, mean_power, per_distinct, power_variance
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.registry import Family, add, register, threshold
from scorelake.metrics.vote import Ballots

_CODEX = "Chen et al. 2021, Evaluating Large Language Models Trained on Code"
_STABLE = "Liu et al. 2024, Are Your LLMs Capable of Stable Reasoning?"
_BAYES = "Hariri et al. 2025, Don't Pass@k"


def _at_least(successes: int, k: int) -> Floats:
    return (np.arange(k + 1) >= successes).astype(float)


@register("pass@k", "1 if j >= 1", _CODEX)
def pass_at(k: int) -> Floats:
    return _at_least(1, k)


@register("pass^k", "1 if j = k", "Yao et al. 2024, tau-bench", aliases=("pass-hat", "unanimous"))
def pass_hat(k: int) -> Floats:
    return _at_least(k, k)


@register("g-pass@k_tau", "1 if j >= max(1, ceil(tau k))", _STABLE, parameter="tau")
def g_pass(k: int, tau: float) -> Floats:
    return _at_least(max(1, threshold(tau, k)), k)


@register("mg-pass@k", "(2/k) max(j - ceil(k/2), 0)", _STABLE)
def mg_pass(k: int) -> Floats:
    credit: Floats = 2 * np.maximum(np.arange(k + 1.0) - (k + 1) // 2, 0) / k
    return credit


@register("maj@k", "1 if j >= floor(k/2) + 1", "strict majority of the draws")
def maj(k: int) -> Floats:
    return _at_least(k // 2 + 1, k)


@register(
    "auc@k",
    "area under pass@1..pass@k of the k draws, trapezoids",
    "trapezoidal mean of Chen et al. 2021 over the draws",
)
def auc(k: int) -> Floats:
    """Closed form: the probabilities C(k-j, i) / C(k, i) of i draws without success sum to (k+1) / (j+1)."""
    j = np.arange(k + 1.0)
    if k == 1:
        return j
    ends = (j / k + (j >= 1)) / 2
    return ((k + 1) * j / (j + 1) - ends) / (k - 1)


@register(
    "spectrum@k",
    "w_1 + ... + w_j",
    "the user's own weights over thresholds",
    aliases=("threshold-spectrum",),
    parameter="weights",
)
def spectrum_credit(k: int, weights: tuple[float, ...]) -> Floats:
    credit: Floats = np.minimum(np.concatenate([[0.0], np.cumsum(weights)]), 1.0)
    return credit


add(
    Family(
        "geom@k",
        "mean of pass@k^a pass^k^b, a = b = 1/2",
        "geometric blend per problem",
        parameter="powers",
        blend=("pass@", "pass^"),
    )
)
add(
    Family(
        "geom-ds@k",
        "(mean pass@k)^a (mean pass^k)^b, a = b = 1/2",
        "geometric blend of the data set's means",
        parameter="powers",
        blend=("pass@", "pass^"),
        pooled=True,
    )
)
add(
    Family(
        "geo-spectrum@k",
        "(mean pass@k)^L (mean mg-pass@k)^(1-L)",
        "geometric blend of the data set's means",
        aliases=("geo-spectrum-star",),
        parameter="lambda",
        default=0.5,
        blend=("pass@", "mg-pass@"),
        pooled=True,
    )
)


@register("avg@N", "mean reward of all attempts", _BAYES, kind="rewards", aliases=("mean",), takes_k=False)
def avg(levels: Floats, counts: Ints, prior: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Plain mean; NaN without attempts. Its variance is that of a flat prior, scaled from pseudo-counts to attempts.

    Prior outcomes are not attempts: they do not change the mean of the attempts.
    """
    n = counts.sum(axis=1)
    mean = ratio((counts * levels).sum(axis=1), n)
    _, variance = _dirichlet_moments(levels, counts + np.ones((1, levels.size)))
    return mean, mean, variance * ratio(n + float(levels.size), n) ** 2


@register("bayes@N", "posterior mean reward", _BAYES, kind="rewards", takes_k=False)
def bayes(levels: Floats, counts: Ints, prior: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Posterior mean; no value without attempts, where it would only be the prior's mean."""
    mean, variance = _dirichlet_moments(levels, counts + prior)
    return np.where(counts.sum(axis=1) > 0, mean, np.nan), mean, variance


@register(
    "max@k",
    "expected best reward of k draws",
    "best of k; pass@k when rewards are 0 and 1",
    kind="rewards",
    aliases=("best",),
)
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


register(
    "vote@k",
    "the most common answer of k draws is right",
    "Wang et al. 2022, Self-Consistency Improves Chain of Thought Reasoning",
    kind="vote",
    aliases=("cons",),
)(Ballots.vote)
