"""Forecasts, priors fitted to counts, and scores corrected by trusted grades."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import ArrayLike
from scipy.special import betaln, expit, gammaln, log_expit, ndtri, stdtrit, xlog1py, xlogy

from scorelake.errors import MetricError
from scorelake.metrics.counts import check_k, distinct, pairs, whole_numbers
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.interval import interval

_NODES = np.concatenate([[0.0], np.geomspace(1e-4, 0.1, 70, endpoint=False), np.linspace(0.1, 1, 45)])
"""Success rates that a mixing distribution may have."""


def forecast(
    n: ArrayLike, c: ArrayLike, k: int, confidence: float = 0.95, candidates: int = 60, iterations: int = 400
) -> tuple[float, float, float]:
    """Forecast pass@k for more attempts than were made; beyond four times n the attempts say little.

    The value is that of a beta-binomial model, clipped to the interval: the profile likelihood over all distributions
    of success rates, for so many candidates of pass@k, each by so many EM iterations.

    >>> np.round(sl.metrics.forecast([8] * 20, [0] * 8 + [1] * 4 + [2] * 3 + [4] * 2 + [8] * 3, k=16), 2).tolist()
    [0.63, 0.44, 0.94]
    """
    n_, c_, index = distinct(*pairs(n, c))
    times = np.bincount(index).astype(np.float64)
    made = n_ > 0
    n_, c_, times = n_[made].astype(np.float64), c_[made].astype(np.float64), times[made]
    if not n_.size:
        raise MetricError("forecast: there are no attempts")
    reached = -np.expm1(xlog1py(check_k("forecast", k), -_NODES))
    choose = gammaln(n_ + 1) - gammaln(c_ + 1) - gammaln(n_ - c_ + 1)
    likelihood = np.exp(choose[:, None] + xlogy(c_[:, None], _NODES) + xlog1py((n_ - c_)[:, None], -_NODES))
    psi = (1 - np.cos(np.pi * (np.arange(candidates) + 0.5) / candidates)) / 2  # close to each other near 0 and 1
    best = _profile(likelihood, times, np.zeros((1, _NODES.size)), iterations)[0]
    deviance = 2 * (best - _profile(likelihood, times, reached - psi[:, None], iterations))
    distance, z, at = np.sqrt(np.maximum(deviance, 0)), ndtri((1 + confidence) / 2), int(deviance.argmin())
    lo = float(np.interp(z, distance[at::-1], psi[at::-1], right=0.0))
    hi = float(np.interp(z, distance[at:], psi[at:], right=1.0))

    def loss(logs: Floats) -> float:
        a, b = np.exp(logs)
        return -float((times * (betaln(a + c_, b + n_ - c_) - betaln(a, b))).sum())

    fit = scipy.optimize.minimize(
        loss, np.log([0.5, 0.5]), method="L-BFGS-B", bounds=[(-12, 12)] * 2, options={"ftol": 1e-14}
    )
    a, b = np.exp(fit.x)
    return min(max(float(-np.expm1(betaln(a, b + k) - betaln(a, b))), lo), hi), lo, hi


def _profile(likelihood: Floats, times: Floats, excess: Floats, iterations: int) -> Floats:
    """Maximize the log-likelihood over mixing weights with mean excess 0, one row of `excess` per constraint (EM)."""
    total, weights = times.sum(), np.full(excess.shape, 1 / _NODES.size)
    # the multiplier mu keeps total - mu * excess positive at every node
    low, high = total / np.minimum(excess.min(axis=1), -1e-300), total / np.maximum(excess.max(axis=1), 1e-300)
    mu = np.zeros(len(excess))
    for i in range(iterations):
        share = weights * ((times / np.maximum(weights @ likelihood.T, 1e-300)) @ likelihood)
        for _ in range(12 if i == 0 else 1):  # Newton: the weights move little from one iteration to the next
            slope = excess / np.maximum(total - mu[:, None] * excess, 1e-9)
            move = mu - (share * slope).sum(axis=1) / np.maximum((share * slope**2).sum(axis=1), 1e-300)
            mu = np.where(move <= low, (mu + low) / 2, np.where(move >= high, (mu + high) / 2, move))
        weights = share / np.maximum(total - mu[:, None] * excess, 1e-9)
    return np.asarray(times @ np.log(np.maximum(weights @ likelihood.T, 1e-300)).T)


def judge_corrected(
    judged: ArrayLike,
    gold: ArrayLike,
    judged_labelled: ArrayLike,
    labelled: ArrayLike,
    confidence: float = 0.95,
    min_labelled: int = 20,
) -> tuple[float, float, float, float]:
    """Correct a mean that a judge graded by trusted grades of some problems: value, se, lo, hi.

    judged: mean of each problem as judged. gold, judged_labelled: of each labelled problem, the mean of its trusted
    grades and the judged mean of the same attempts. labelled: their indices in `judged`. NaN with fewer of them.

    >>> judged = [1, 0.75, 0.5, 0, 0.25, 1, 0.5, 0]
    >>> np.round(sl.metrics.judge_corrected(judged, [1, 1, 0.5, 0], judged[:4], range(4), min_labelled=4)[:2], 6)
    array([0.5625  , 0.176777])
    """
    every, y, f = (np.asarray(x, dtype=np.float64) for x in (judged, gold, judged_labelled))
    at = whole_numbers("labelled", labelled)
    size, m = every.size, y.size
    if m < max(min_labelled, 2):
        return np.nan, np.nan, np.nan, np.nan
    covariance = np.cov(np.stack([every[at], y, f]))
    bottom = every.var(ddof=1) / size + covariance[2, 2] / m - 2 * covariance[0, 2] / size
    top = covariance[1, 2] / m - covariance[0, 1] / size
    share = float(np.clip(top / bottom, 0, 1)) if bottom > 0 else 1.0
    rest = y - share * f
    value = share * every.mean() + rest.mean()
    influence = share * (every - every.mean()) / size
    np.add.at(influence, at, (rest - rest.mean()) / m)
    se = float(np.sqrt((influence**2).sum() * m / (m - 1)))
    reach = float(stdtrit(m - 1, (1 + confidence) / 2)) * se
    return float(value), se, max(float(value) - reach, 0.0), min(float(value) + reach, 1.0)


def judge_quality(
    judged: ArrayLike, gold: ArrayLike, problem: ArrayLike, confidence: float = 0.95
) -> dict[str, tuple[float, ...]]:
    """Return value, lo and hi of a judge's agreement with trusted grades, sensitivity, specificity and kappa.

    judged, gold, problem: both grades of each labelled attempt, and its problem, numbered from 0.

    >>> quality = sl.metrics.judge_quality([1, 1, 0, 0, 1, 0], [1, 1, 0, 0, 0, 0], problem=[0, 0, 1, 1, 2, 2])
    >>> {name: round(each[0], 3) for name, each in quality.items()}
    {'agreement': 0.833, 'sensitivity': 1.0, 'specificity': 0.75, 'kappa': 0.667}
    """
    cell = 2 * np.asarray(gold, dtype=np.int64) + np.asarray(judged, dtype=np.int64)
    owner = whole_numbers("problem", problem)
    table = np.zeros((int(owner.max(initial=-1)) + 1, 4))
    np.add.at(table, (owner, cell), 1)
    table = table[table.any(axis=1)]
    value, without = _agreement(table.sum(axis=0)), _agreement(table.sum(axis=0) - table)
    left = (~np.isnan(without)).sum(axis=1)
    mean = np.nansum(without, axis=1) / np.maximum(left, 1)
    deviation = np.nan_to_num(without - mean[:, None])
    se = np.sqrt((deviation**2).sum(axis=1) * ratio(left - 1.0, left))  # delete-one-problem jackknife
    out: dict[str, tuple[float, ...]] = {}
    for i, name in enumerate(("agreement", "sensitivity", "specificity", "kappa")):
        bounds = (-1.0 if name == "kappa" else 0.0, 1.0)
        lo, hi = interval(value[i, None], se[i, None], left[i, None], bounds, confidence)
        out[name] = float(value[i]), float(lo[0]), float(hi[0])
    return out


def _agreement(table: Floats) -> Floats:
    """Return the statistics of counts (failed or passed by gold, then by judge), one row or many."""
    fail_fail, fail_pass, pass_fail, pass_pass = np.moveaxis(table, -1, 0)
    total, passed, called = table.sum(axis=-1), pass_fail + pass_pass, fail_pass + pass_pass
    agreement = ratio(fail_fail + pass_pass, total)
    chance = ratio(passed * called + (total - passed) * (total - called), total**2)
    kappa = ratio(agreement - chance, 1 - chance)
    return np.stack([agreement, ratio(pass_pass, passed), ratio(fail_fail, total - passed), kappa])


NODES = 5  # priors along each of the two directions of the fit: 25 in all
_STEP = 1e-3


def fit_beta_mixture(n: Ints, c: Ints, problems: Ints) -> tuple[Floats, Floats, Floats]:
    """Fit Beta priors to a histogram of counts: problems[i] problems have n[i] attempts, c[i] of them passed."""
    # The pseudo-counts alpha and beta are those of maximum marginal likelihood, followed by others around them, as
    # far as the fit is uncertain. The third array has their weights, with sum 1.

    def log_posterior(theta: Floats) -> Floats:
        # plus a weak prior, flat in the mean and in 1 / (1 + size): else all failed or all passed have no finite mode
        (alpha, beta), (mean, log_size) = _pseudo_counts(theta), theta
        gain = betaln(alpha[:, None] + c, beta[:, None] + (n - c)) - betaln(alpha, beta)[:, None]
        weak = log_expit(mean) + log_expit(-mean) + log_expit(log_size) + log_expit(-log_size)
        return np.asarray((gain * problems).sum(axis=1) + weak)

    rate = ((c * problems).sum() + 1) / ((n * problems).sum() + 2)
    start = np.array([np.log(rate / (1 - rate)), 0.0])  # the pooled rate, and a size of one

    def loss(theta: Floats) -> float:
        return -float(log_posterior(theta[:, None])[0])

    mode: Floats = scipy.optimize.fmin(loss, start, xtol=1e-8, ftol=1e-10, disp=False)
    curvature, e = np.empty((2, 2)), _STEP * np.eye(2)  # negative Hessian at the mode, by central differences
    for i, j in ((0, 0), (0, 1), (1, 1)):
        points = mode + np.array([e[i] + e[j], e[i] - e[j], e[j] - e[i], -e[i] - e[j]])
        pp, pm, mp, mm = log_posterior(points.T)
        curvature[i, j] = curvature[j, i] = -(pp - pm - mp + mm) / (4 * _STEP**2)
    node, node_weight = hermegauss(NODES)
    z = np.stack([x.ravel() for x in np.meshgrid(node, node, indexing="ij")])
    nearest = np.argsort((z**2).sum(axis=0), kind="stable")
    z, z_weight = z[:, nearest], np.outer(node_weight, node_weight).ravel()[nearest]
    theta = mode[:, None] + np.linalg.cholesky(np.linalg.inv(curvature)) @ z
    # Gauss-Hermite weights are for a normal posterior; correct them by the ratio of the two densities.
    log_ratio = log_posterior(theta) - log_posterior(mode[:, None]) + (z**2).sum(axis=0) / 2
    weight = z_weight * np.exp(np.minimum(log_ratio, 50))
    return *_pseudo_counts(theta), weight / weight.sum()


def _pseudo_counts(theta: Floats) -> tuple[Floats, Floats]:
    """Return alpha and beta of columns (logit of the mean, log of alpha + beta)."""
    mean, log_size = theta
    return expit(mean) * np.exp(log_size), expit(-mean) * np.exp(log_size)
