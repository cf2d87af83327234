"""Every metric as a function: of n attempts and c correct ones per problem, or of a matrix R of attempts.

Each gives one number, the value over all problems. A problem with fewer than k attempts has none, and that is an
error here; `summarize` gives the mean of the others and tells how many they are, with intervals and the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.arguments import counted, draws, outcomes, prior_outcomes
from scorelake.metrics.attempts import Attempts
from scorelake.metrics.distributions import Ints
from scorelake.metrics.groups import summarize_all, summarize_levels
from scorelake.metrics.registry import Metric, parse, parse_own, spectrum

# R, R0 and w are the letters of the papers.
# ruff: noqa: N803


def pass_at_k(
    n: ArrayLike | None = None, c: ArrayLike | None = None, k: int | None = None, *, R: Attempts | None = None
) -> float:
    """The chance that one of k attempts passes.

    >>> sl.metrics.pass_at_k(n=10, c=2, k=1)
    0.2
    >>> sl.metrics.pass_at_k(R=[[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], k=2)
    0.95
    """
    return _value(parse(f"pass@{draws('pass@k', k)}"), n, c, R)


def pass_hat_k(
    n: ArrayLike | None = None, c: ArrayLike | None = None, k: int | None = None, *, R: Attempts | None = None
) -> float:
    """The chance that all of k attempts pass.

    >>> round(sl.metrics.pass_hat_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.45
    """
    return _value(parse(f"pass^{draws('pass^k', k)}"), n, c, R)


def g_pass_at_k_tau(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    tau: float = 1.0,
    *,
    R: Attempts | None = None,
) -> float:
    """The chance that a share tau of k attempts passes, and at least one.

    >>> sl.metrics.g_pass_at_k_tau(n=[5, 5], c=[3, 4], k=2, tau=0.5)
    0.95
    """
    return _value(parse(f"g-pass@{draws('g-pass@k', k)}_{float(tau)}"), n, c, R)


def mg_pass_at_k(
    n: ArrayLike | None = None, c: ArrayLike | None = None, k: int | None = None, *, R: Attempts | None = None
) -> float:
    """G-Pass@k averaged over the thresholds from a half to 1.

    >>> round(sl.metrics.mg_pass_at_k(n=[5, 5], c=[3, 4], k=3), 6)
    0.166667
    """
    return _value(parse(f"mg-pass@{draws('mg-pass@k', k)}"), n, c, R)


def maj_at_k(
    n: ArrayLike | None = None, c: ArrayLike | None = None, k: int | None = None, *, R: Attempts | None = None
) -> float:
    """The chance that more than half of k attempts pass.

    >>> sl.metrics.maj_at_k(n=[5, 5], c=[3, 4], k=3)
    0.85
    """
    return _value(parse(f"maj@{draws('maj@k', k)}"), n, c, R)


def auc_at_k(
    n: ArrayLike | None = None, c: ArrayLike | None = None, k: int | None = None, *, R: Attempts | None = None
) -> float:
    """The area under pass@1, ..., pass@k.

    >>> sl.metrics.auc_at_k(n=[5, 5], c=[3, 4], k=2)
    0.825
    """
    return _value(parse(f"auc@{draws('auc@k', k)}"), n, c, R)


def threshold_spectrum_at_k(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    weights: Sequence[float] = (),
    *,
    R: Attempts | None = None,
) -> float:
    """What j of k passed attempts are worth, w_1 + ... + w_j: weights >= 0, one per draw, sum at most 1.

    >>> sl.metrics.threshold_spectrum_at_k(n=[5, 5], c=[3, 4], k=2, weights=[0.25, 0.75])
    0.575
    """
    own = spectrum([float(weight) for weight in weights])
    if own.k != draws("threshold_spectrum", k):
        raise MetricError(f"threshold_spectrum: {own.k} weights for k = {k}", hint="one for each of the k draws")
    return _value(own, n, c, R)


def geom_at_k(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    *,
    R: Attempts | None = None,
) -> float:
    """pass@k ** a * pass^k ** b of every problem, averaged.

    >>> round(sl.metrics.geom_at_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.647106
    """
    name = f"geom@{draws('geom@k', k)}_{float(pass_power)}_{float(unanimous_power)}"
    return _value(parse(name), n, c, R)


def geom_ds_at_k(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    *,
    R: Attempts | None = None,
) -> float:
    """pass@k ** a * pass^k ** b of the averages over problems.

    >>> round(sl.metrics.geom_ds_at_k(n=[5, 5], c=[3, 4], k=2), 6)
    0.653835
    """
    name = f"geom-ds@{draws('geom-ds@k', k)}_{float(pass_power)}_{float(unanimous_power)}"
    return _value(parse(name), n, c, R)


def geo_spectrum_at_k(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    lam: float = 0.5,
    weights: Sequence[float] | None = None,
    *,
    R: Attempts | None = None,
) -> float:
    """pass@k ** lam * mg-pass@k ** (1 - lam) of the averages over problems, or with a spectrum of your own weights.

    >>> round(sl.metrics.geo_spectrum_at_k(n=[5, 5], c=[3, 4], k=3), 6)
    0.408248
    """
    size = draws("geo-spectrum@k", k)
    if weights is None:
        return _value(parse(f"geo-spectrum@{size}_{float(lam)}"), n, c, R)
    own = parse_own(f"geo-spectrum-own@{size}_{float(lam)}", {"own": [float(weight) for weight in weights]})
    return _value(own, n, c, R)


def avg(
    n: ArrayLike | None = None, c: ArrayLike | None = None, *, R: Attempts | None = None, w: ArrayLike | None = None
) -> float:
    """The mean of all attempts, problem by problem, averaged; w: what the outcomes 0, 1, ... in R are worth.

    >>> sl.metrics.avg(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], w=[0, 0.5, 1])
    0.6
    """
    return _worth("avg@N", n, c, R, w)


def bayes(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    *,
    R: Attempts | None = None,
    w: ArrayLike | None = None,
    R0: Attempts | None = None,
) -> float:
    """The posterior mean of what an attempt is worth; R0: earlier outcomes of the same problems.

    >>> sl.metrics.bayes(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], w=[0, 0.5, 1])
    0.5625
    """
    return _worth("bayes@N", n, c, R, w, R0)


def max_at_k(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    *,
    R: Attempts | None = None,
    w: ArrayLike | None = None,
) -> float:
    """What the best of k attempts is worth; with failed 0 and passed 1 it is pass@k.

    >>> round(sl.metrics.max_at_k(R=[[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], k=2, w=[0, 0.5, 1]), 6)
    0.85
    """
    return _worth(f"max@{draws('max@k', k)}", n, c, R, w)


def _value(metric: Metric, n: ArrayLike | None, c: ArrayLike | None, matrix: Attempts | None) -> float:
    whole_n, whole_c = counted(n, c, matrix)
    _enough(metric, whole_n)
    return summarize_all([metric], whole_n, whole_c)[0].value


def _worth(
    name: str,
    n: ArrayLike | None,
    c: ArrayLike | None,
    matrix: Attempts | None,
    w: ArrayLike | None,
    earlier: Attempts | None = None,
) -> float:
    worth, counts = outcomes(n, c, matrix, w)
    _enough(parse(name), counts.sum(axis=1))
    prior = prior_outcomes(earlier, worth.size, len(counts))
    return summarize_levels(name, worth, counts, prior_counts=prior).value


def _enough(metric: Metric, n: Ints) -> None:
    short = int(np.sum(n < metric.draws))
    if short or not n.size:
        few = f"{short:,} of {n.size:,} problems have fewer than {metric.draws:,} attempts"
        raise MetricError(
            f"{metric.name}: {few if short else 'there are no problems'}",
            hint="summarize() averages over the others, and tells how many they are",
        )
