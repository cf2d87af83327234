"""Public functions of metrics: of n attempts and c passed ones per problem, or of a matrix R of attempts.

`pass_at_k` and the functions after it return one number, the value over all problems; a problem with fewer than k
attempts is an error. `summarize` averages over the others, counts them, and adds intervals and the posterior.
"""

# ruff: noqa: N803  (R, R0 and w are the letters of the papers)

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.counts import (
    Attempts,
    Counts,
    Matrix,
    check_enough,
    check_k,
    distinct,
    outcome_counts,
    pairs,
    prior_outcome_counts,
    prior_pair,
    problem_counts,
    whole_numbers,
)
from scorelake.metrics.distributions import Floats
from scorelake.metrics.estimate import Estimate, estimate_levels, evaluate
from scorelake.metrics.families import FAMILIES, Metric, as_metric, parse, spectrum
from scorelake.metrics.summary import Summary, aggregate, check_shares

Function = TypeVar("Function", bound=Callable[..., Any])

_PAPERS = {family.name: family.reference for family in FAMILIES}
_VALUE = "float\n    Value over all problems."
_PARAMETERS = {
    "n": ("int or array_like of int, optional", "Attempts of each problem."),
    "c": ("int or array_like of int, optional", "Passed attempts of each problem."),
    "k": ("int", "Attempts drawn."),
    "tau": ("float, default 1.0", "Required share of passed attempts, in [0, 1]."),
    "weights": ("sequence of float", "w_1, ..., w_k, each >= 0, with sum at most 1."),
    "pass_power": ("float, default 0.5", "Exponent of pass@k."),
    "unanimous_power": ("float, default 0.5", "Exponent of pass^k; the two must not both be 0."),
    "lam": ("float, default 0.5", "Exponent of pass@k, in [0, 1]."),
    "R": (
        "matrix of attempts, optional",
        "Instead of n and c: one row per problem, of any length. Entries are 1 (passed), 0 (failed)\n"
        "    or None (missing); with w, outcomes 0, 1, 2, ...",
    ),
    "w": ("array_like of float, default (0, 1)", "Reward of each outcome 0, 1, 2, ..."),
    "R0": ("matrix of attempts, optional", "Earlier outcomes of the same problems, added to the prior."),
    "eta": ("float, default 1.0", "Weight of each earlier outcome in R0, in [0, 1]."),
    "prior": ("array_like, default 1.0", "Pseudo-counts > 0: one number, one per outcome, or one row per problem."),
    "thresholds": ("array_like, optional", "Rising shares of the full score; by default 1/k, 2/k, ..., 1."),
}


def document(reference: str, returns: str = _VALUE) -> Callable[[Function], Function]:
    """Return a decorator that completes a docstring with the numpydoc sections that the public functions share."""

    def decorate(function: Function) -> Function:
        summary, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        parameters = [(name, *_PARAMETERS[name]) for name in inspect.signature(function).parameters]
        sections = {
            "Parameters": "\n".join(f"{name} : {kind}\n    {text}" for name, kind, text in parameters),
            "Returns": returns,
            "Raises": "MetricError\n    If an argument is invalid or a problem has too few attempts.",
            "References": reference,
            "Examples": examples,
        }
        text = [f"{title}\n{'-' * len(title)}\n{body}" for title, body in sections.items()]
        function.__doc__ = "\n\n".join([summary, *text])
        return function

    return decorate


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
    R: Attempts | None = None,
    w: ArrayLike | None = None,
    R0: Attempts | None = None,
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
    all_n, all_c = pairs(n, c)
    n_, c_, index = distinct(all_n, all_c)
    times = np.bincount(index, _times(problems, all_n.shape), minlength=n_.size)
    estimates = evaluate([as_metric(name) for name in names], n_, c_, prior_pair(prior))
    return _summarize(estimates, times, (confidence, min_coverage), bounds)


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
    estimate = estimate_levels(name, rewards, counts, prior_counts)
    times = _times(problems, estimate.value[0].shape)
    return _summarize([estimate], times, (confidence, min_coverage), bounds)[0]


def _times(problems: ArrayLike | None, shape: tuple[int, ...]) -> Floats:
    """Return the number of problems of each entry; exact up to 2^53 problems."""
    times = whole_numbers("problems", 1 if problems is None else problems)
    try:
        return np.broadcast_to(times, shape).ravel().astype(np.float64)
    except ValueError:
        raise MetricError(f"problems has shape {times.shape}, n and c have {shape}") from None


def _summarize(
    estimates: Sequence[Estimate], times: Any, shares: tuple[float, float], bounds: tuple[float, float] | None
) -> list[Summary]:
    """Summarize a group in which each estimate occurs so many times; shares are confidence and min_coverage."""
    check_shares(*shares)
    if not times.any():
        nothing: list[Any] = [np.nan] * 12 + [0, 0]
        return [Summary(*nothing)] * len(estimates)
    return [each.first() for each in aggregate(estimates, scipy.sparse.csr_array(times[None, :]), *shares, bounds)]


@document(_PAPERS["pass@k"])
def pass_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the probability that at least one of k attempts passes: the mean of 1 - C(n - c, k) / C(n, k).

    >>> sl.metrics.pass_at_k(n=10, c=2, k=1)
    0.2
    >>> sl.metrics.pass_at_k(R=[[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], k=2)
    0.95
    """
    return _value(parse(f"pass@{check_k('pass@k', k)}"), n, c, R)


@document(_PAPERS["pass^k"])
def pass_hat_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the probability that all of k attempts pass: the mean of C(c, k) / C(n, k).

    >>> round(sl.metrics.pass_hat_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.45
    """
    return _value(parse(f"pass^{check_k('pass^k', k)}"), n, c, R)


@document(_PAPERS["g-pass@k_tau"])
def g_pass_at_k_tau(
    n: Counts = None, c: Counts = None, k: int | None = None, tau: float = 1.0, *, R: Matrix = None
) -> float:
    """Estimate the probability that at least a share tau of k attempts passes, and at least one.

    >>> sl.metrics.g_pass_at_k_tau(n=[5, 5], c=[3, 4], k=2, tau=0.5)
    0.95
    """
    return _value(parse(f"g-pass@{check_k('g-pass@k', k)}_{float(tau)}"), n, c, R)


@document(_PAPERS["mg-pass@k"])
def mg_pass_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate G-Pass@k averaged over the thresholds from 1/2 to 1.

    >>> round(sl.metrics.mg_pass_at_k(n=[5, 5], c=[3, 4], k=3), 6)
    0.166667
    """
    return _value(parse(f"mg-pass@{check_k('mg-pass@k', k)}"), n, c, R)


@document(_PAPERS["maj@k"])
def maj_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the probability that more than half of k attempts pass.

    >>> sl.metrics.maj_at_k(n=[5, 5], c=[3, 4], k=3)
    0.85
    """
    return _value(parse(f"maj@{check_k('maj@k', k)}"), n, c, R)


@document(_PAPERS["auc@k"])
def auc_at_k(n: Counts = None, c: Counts = None, k: int | None = None, *, R: Matrix = None) -> float:
    """Estimate the area under pass@1, ..., pass@k (trapezoids, divided by k - 1).

    >>> sl.metrics.auc_at_k(n=[5, 5], c=[3, 4], k=2)
    0.825
    """
    return _value(parse(f"auc@{check_k('auc@k', k)}"), n, c, R)


@document(_PAPERS["spectrum@k"])
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


@document(_PAPERS["geom@k"], _VALUE + " NaN if a negative power of 0 makes a problem's value infinite.")
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


@document(_PAPERS["geom-ds@k"], _VALUE + " NaN if a negative power of 0 makes it infinite.")
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


@document(_PAPERS["geo-spectrum@k"])
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


@document(_PAPERS["avg@N"])
def avg(n: Counts = None, c: Counts = None, *, R: Matrix = None, w: Counts = None) -> float:
    """Compute the mean reward over the attempts of each problem, averaged over problems.

    >>> sl.metrics.avg(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], w=[0, 0.5, 1])
    0.6
    """
    return _value(parse("avg@N"), n, c, R, w)


@document(_PAPERS["bayes@N"])
def bayes(n: Counts = None, c: Counts = None, *, R: Matrix = None, w: Counts = None, R0: Matrix = None) -> float:
    """Compute the posterior mean reward under a uniform Dirichlet prior, averaged over problems.

    >>> sl.metrics.bayes(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], w=[0, 0.5, 1])
    0.5625
    """
    return _value(parse("bayes@N"), n, c, R, w, R0)


@document(_PAPERS["max@k"])
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
