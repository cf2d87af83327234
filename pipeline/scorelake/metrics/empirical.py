"""Empirical Beta prior: fit the distribution of success rates over problems to their counts.

The counts of a group are beta-binomial; the Beta(alpha, beta) of the success rates is estimated by their marginal
likelihood. The uncertainty of the fit is kept: the result is a weighted mixture of priors around the best one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.polynomial.hermite_e import hermegauss

from scorelake.metrics.distributions import Floats, Ints

NODES = 5  # priors along each of the two directions of the fit: 25 in all
_STEP = 1e-3


@dataclass(frozen=True)
class BetaMixture:
    """Weighted Beta priors, the best first; the weights have sum 1."""

    alpha: Floats
    beta: Floats
    weight: Floats


def fit_beta_mixture(n: Ints, c: Ints, problems: Ints) -> BetaMixture:
    """Fit priors to a histogram of counts: problems[i] problems have n[i] attempts, c[i] of them passed."""

    def log_posterior(theta: Floats) -> Floats:
        """Return the log marginal likelihood plus a weak prior, flat in the mean and in the shrinkage 1 / (1 + size).

        Without the weak prior there is no finite mode where all attempts failed or all passed.
        """
        (alpha, beta), (logit, log_size) = _pseudo_counts(theta), theta
        gain = scipy.special.betaln(alpha[:, None] + c, beta[:, None] + (n - c))
        gain -= scipy.special.betaln(alpha, beta)[:, None]
        log_expit = scipy.special.log_expit
        weak = log_expit(logit) + log_expit(-logit) + log_expit(log_size) + log_expit(-log_size)
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
    z_weight = np.outer(node_weight, node_weight).ravel()
    nearest = np.argsort((z**2).sum(axis=0), kind="stable")
    z, z_weight = z[:, nearest], z_weight[nearest]
    theta = mode[:, None] + np.linalg.cholesky(np.linalg.inv(curvature)) @ z
    # Gauss-Hermite weights are for a normal posterior; correct them by the ratio of the two densities.
    log_ratio = log_posterior(theta) - log_posterior(mode[:, None]) + (z**2).sum(axis=0) / 2
    weight = z_weight * np.exp(np.minimum(log_ratio, 50))
    return BetaMixture(*_pseudo_counts(theta), weight / weight.sum())


def _pseudo_counts(theta: Floats) -> tuple[Floats, Floats]:
    """Return alpha and beta of columns (logit of the mean, log of alpha + beta)."""
    logit, log_size = theta
    return scipy.special.expit(logit) * np.exp(log_size), scipy.special.expit(-logit) * np.exp(log_size)
