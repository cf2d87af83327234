"""Every metric, once. To add one, write its credit for j successes among k draws and register it."""

from __future__ import annotations

import numpy as np

from scorelake.metrics import levels
from scorelake.metrics.distributions import Floats
from scorelake.metrics.registry import Family, add, register, threshold
from scorelake.metrics.vote import Ballots


def _successes(k: int) -> Floats:
    return np.arange(k + 1, dtype=float)


def _at_least(k: int, successes: int) -> Floats:
    return (_successes(k) >= successes).astype(float)


@register(
    name="pass@k",
    formula="1 if j >= 1",
    reference="Chen et al. 2021, Evaluating Large Language Models Trained on Code",
)
def pass_at(k: int) -> Floats:
    return _at_least(k, 1)


@register(
    name="pass^k",
    formula="1 if j = k",
    reference="Yao et al. 2024, tau-bench",
    aliases=("pass-hat", "unanimous"),
)
def pass_hat(k: int) -> Floats:
    return _at_least(k, k)


@register(
    name="g-pass@k_tau",
    formula="1 if j >= max(1, ceil(tau k))",
    reference="Liu et al. 2024, Are Your LLMs Capable of Stable Reasoning?",
    parameter="tau",
)
def g_pass(k: int, tau: float) -> Floats:
    return _at_least(k, max(1, threshold(tau, k)))


@register(
    name="mg-pass@k",
    formula="(2/k) max(j - ceil(k/2), 0)",
    reference="Liu et al. 2024, Are Your LLMs Capable of Stable Reasoning?",
)
def mg_pass(k: int) -> Floats:
    return 2 * np.maximum(_successes(k) - (k + 1) // 2, 0) / k


@register(name="maj@k", formula="1 if j >= floor(k/2) + 1", reference="strict majority of the draws")
def maj(k: int) -> Floats:
    return _at_least(k, k // 2 + 1)


@register(
    name="auc@k",
    formula="area under pass@1..pass@k of the k draws, trapezoids",
    reference="trapezoidal mean of Chen et al. 2021 over the draws",
)
def auc(k: int) -> Floats:
    """Closed form: the chances C(k-j, i)/C(k, i) of i draws without success add up to (k+1)/(j+1)."""
    j = _successes(k)
    if k == 1:
        return j
    ends = (j / k + (j >= 1)) / 2
    return ((k + 1) * j / (j + 1) - ends) / (k - 1)


@register(
    name="spectrum@k",
    formula="w_1 + ... + w_j",
    reference="the user's own weights over thresholds",
    aliases=("threshold-spectrum",),
    parameter="weights",
)
def spectrum_credit(k: int, weights: tuple[float, ...]) -> Floats:
    credit: Floats = np.minimum(np.concatenate([[0.0], np.cumsum(weights)]), 1.0)
    return credit


add(
    Family(
        name="geom@k",
        formula="mean of pass@k^a pass^k^b, a = b = 1/2",
        reference="geometric blend per problem",
        parameter="powers",
        blend=("pass@", "pass^"),
        powers=lambda _: (0.5, 0.5),
    )
)
add(
    Family(
        name="geom-ds@k",
        formula="(mean pass@k)^a (mean pass^k)^b, a = b = 1/2",
        reference="geometric blend of the data set's means",
        parameter="powers",
        blend=("pass@", "pass^"),
        powers=lambda _: (0.5, 0.5),
        pooled=True,
    )
)
add(
    Family(
        name="geo-spectrum@k",
        formula="(mean pass@k)^L (mean mg-pass@k)^(1-L)",
        reference="geometric blend of the data set's means",
        aliases=("geo-spectrum-star",),
        parameter="lambda",
        default=0.5,
        blend=("pass@", "mg-pass@"),
        powers=lambda lam: (float(lam or 0), 1 - float(lam or 0)),
        pooled=True,
    )
)
add(
    Family(
        name="avg@N",
        formula="mean reward of all attempts",
        reference="Hariri et al. 2025, Don't Pass@k",
        aliases=("mean",),
        takes_k=False,
        finite=levels.avg_finite,
        posterior=levels.avg_posterior,
    )
)
add(
    Family(
        name="bayes@N",
        formula="posterior mean reward",
        reference="Hariri et al. 2025, Don't Pass@k",
        takes_k=False,
        finite=levels.bayes_finite,
        posterior=levels.bayes_posterior,
    )
)
add(
    Family(
        name="max@k",
        formula="expected best reward of k draws",
        reference="best of k; pass@k when rewards are 0 and 1",
        aliases=("best",),
        finite=levels.max_finite,
        posterior=levels.max_posterior,
    )
)
add(
    Family(
        name="vote@k",
        formula="the most common answer of k draws is right",
        reference="Wang et al. 2022, Self-Consistency Improves Chain of Thought Reasoning",
        aliases=("cons",),
        vote=Ballots.vote,
    )
)
