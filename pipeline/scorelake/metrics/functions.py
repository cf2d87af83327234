"""Every metric as a function of n attempts and c passed ones per problem, or of a matrix R of attempts.

Each returns one number, the value over all problems; a problem with fewer than k attempts is an error. `summarize`
averages over the others, counts them, and adds intervals and the posterior.
"""

# ruff: noqa: N803  (R, R0 and w are the letters of the papers)

from __future__ import annotations

from collections.abc import Callable, Sequence

from scorelake.errors import MetricError
from scorelake.metrics.arguments import (
    Counts,
    Function,
    Matrix,
    check_enough,
    check_k,
    document,
    outcome_counts,
    prior_outcome_counts,
)
from scorelake.metrics.families import FAMILIES
from scorelake.metrics.groups import summarize_all, summarize_levels
from scorelake.metrics.registry import Metric, parse, spectrum

_REFERENCES = {family.name: family.reference for family in FAMILIES}


def _metric(family: str, note: str = "") -> Callable[[Function], Function]:
    return document(f"float\n    Value over all problems.{note}", _REFERENCES[family])


@_metric("pass@k")
def pass_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the probability that at least one of k attempts passes: the mean of 1 - C(n - c, k) / C(n, k).

    >>> sl.metrics.pass_at_k(n=10, c=2, k=1)
    0.2
    >>> sl.metrics.pass_at_k(R=[[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], k=2)
    0.95
    """
    return _value(parse(f"pass@{check_k('pass@k', k)}"), n, c, R)


@_metric("pass^k")
def pass_hat_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the probability that all of k attempts pass: the mean of C(c, k) / C(n, k).

    >>> round(sl.metrics.pass_hat_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.45
    """
    return _value(parse(f"pass^{check_k('pass^k', k)}"), n, c, R)


@_metric("g-pass@k_tau")
def g_pass_at_k_tau(
    n: Counts = None, c: Counts = None, k: int | None = None, tau: float = 1.0, *, R: Matrix = None
) -> float:
    """Estimate the probability that at least a share tau of k attempts passes, and at least one.

    >>> sl.metrics.g_pass_at_k_tau(n=[5, 5], c=[3, 4], k=2, tau=0.5)
    0.95
    """
    return _value(parse(f"g-pass@{check_k('g-pass@k', k)}_{float(tau)}"), n, c, R)


@_metric("mg-pass@k")
def mg_pass_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate G-Pass@k averaged over the thresholds from 1/2 to 1.

    >>> round(sl.metrics.mg_pass_at_k(n=[5, 5], c=[3, 4], k=3), 6)
    0.166667
    """
    return _value(parse(f"mg-pass@{check_k('mg-pass@k', k)}"), n, c, R)


@_metric("maj@k")
def maj_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the probability that more than half of k attempts pass.

    >>> sl.metrics.maj_at_k(n=[5, 5], c=[3, 4], k=3)
    0.85
    """
    return _value(parse(f"maj@{check_k('maj@k', k)}"), n, c, R)


@_metric("auc@k")
def auc_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the area under pass@1, ..., pass@k (trapezoids, divided by k - 1).

    >>> sl.metrics.auc_at_k(n=[5, 5], c=[3, 4], k=2)
    0.825
    """
    return _value(parse(f"auc@{check_k('auc@k', k)}"), n, c, R)


@_metric("spectrum@k")
def threshold_spectrum_at_k(
    n: Counts = None, c: Counts = None, k: int | None = None, weights: Sequence[float] = (), *, R: Matrix = None
) -> float:
    """Estimate the expected credit w_1 + ... + w_j for j passed attempts of k.

    >>> sl.metrics.threshold_spectrum_at_k(n=[5, 5], c=[3, 4], k=2, weights=[0.25, 0.75])
    0.575
    """
    metric = spectrum([float(weight) for weight in weights])
    if metric.k != check_k("threshold_spectrum", k):
        raise MetricError(f"threshold_spectrum: {metric.k} weights for k = {k}", hint="one for each of the k draws")
    return _value(metric, n, c, R)


@_metric("geom@k", " NaN if a negative power of 0 makes a problem's value infinite.")
def geom_at_k(
    n: Counts = None,
    c: Counts = None,
    k: int | None = None,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    *,
    R: Matrix = None,
) -> float:
    """Estimate the mean over problems of pass@k ** pass_power * pass^k ** unanimous_power.

    >>> round(sl.metrics.geom_at_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.647106
    """
    return _value(parse(f"geom@{check_k('geom@k', k)}_{float(pass_power)}_{float(unanimous_power)}"), n, c, R)


@_metric("geom-ds@k", " NaN if a negative power of 0 makes it infinite.")
def geom_ds_at_k(
    n: Counts = None,
    c: Counts = None,
    k: int | None = None,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    *,
    R: Matrix = None,
) -> float:
    """Estimate mean(pass@k) ** pass_power * mean(pass^k) ** unanimous_power, with means over problems.

    >>> round(sl.metrics.geom_ds_at_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.653835
    """
    return _value(parse(f"geom-ds@{check_k('geom-ds@k', k)}_{float(pass_power)}_{float(unanimous_power)}"), n, c, R)


@_metric("geo-spectrum@k")
def geo_spectrum_at_k(
    n: Counts = None,
    c: Counts = None,
    k: int | None = None,
    lam: float = 0.5,
    weights: Sequence[float] | None = None,
    *,
    R: Matrix = None,
) -> float:
    """Estimate mean(pass@k) ** lam * mean(S) ** (1 - lam), where S is mg-pass@k or the spectrum of `weights`.

    >>> round(sl.metrics.geo_spectrum_at_k(n=[5, 5], c=[3, 4], k=3), 6)
    0.408248
    """
    suffix = f"@{check_k('geo-spectrum@k', k)}_{float(lam)}"
    if weights is None:
        return _value(parse(f"geo-spectrum{suffix}"), n, c, R)
    spectra = {"own": [float(weight) for weight in weights]}
    return _value(parse(f"geo-spectrum-own{suffix}", spectra), n, c, R)


@_metric("avg@N")
def avg(n: Counts = None, c: Counts = None, *, R: Matrix = None, w: Counts = None) -> float:
    """Compute the mean reward over the attempts of each problem, averaged over problems.

    >>> sl.metrics.avg(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], w=[0, 0.5, 1])
    0.6
    """
    return _value(parse("avg@N"), n, c, R, w)


@_metric("bayes@N")
def bayes(n: Counts = None, c: Counts = None, *, R: Matrix = None, w: Counts = None, R0: Matrix = None) -> float:
    """Compute the posterior mean reward under a uniform Dirichlet prior, averaged over problems.

    >>> sl.metrics.bayes(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], w=[0, 0.5, 1])
    0.5625
    """
    return _value(parse("bayes@N"), n, c, R, w, R0)


@_metric("max@k")
def max_at_k(
    n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None, w: Counts = None
) -> float:
    """Estimate the expected best reward of k attempts; pass@k for rewards 0 and 1.

    >>> round(sl.metrics.max_at_k(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], k=2, w=[0, 0.5, 1]), 6)
    0.85
    """
    return _value(parse(f"max@{check_k('max@k', k)}"), n, c, R, w)


def _value(metric: Metric, n: Counts, c: Counts, R: Matrix, w: Counts = None, R0: Matrix = None) -> float:
    """Return the value of a metric for which all problems have enough attempts."""
    levels, counts = outcome_counts(n, c, R, w)
    attempts = counts.sum(axis=1)
    check_enough(metric.name, attempts, metric.draws)
    if metric.family.rewards is None:
        return summarize_all([metric], attempts, counts[:, 1])[0].value
    prior = prior_outcome_counts(R0, levels.size, len(counts))
    return summarize_levels(metric, levels, counts, prior_counts=prior).value
