"""An empirical Beta prior: how able the problems are as a crowd, learnt from the counts of all of them.

The counts of a group are beta-binomial draws; their marginal likelihood says which Beta(alpha, beta) the
problems' success rates come from, and how sure that is. What is not sure is carried on: the fit is not one
prior but a few weighted ones around the best, so that a summary averages over them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import fmin
from scipy.special import betaln, expit, log_expit

from scorelake.metrics.distributions import Floats, Ints

NODES = 5
"""Priors along each of the two directions of the fit: 25 in all."""
_STEP = 1e-3


@dataclass(frozen=True)
class Fit:
    """Weighted Beta priors, the best first; the weights sum to 1."""

    alpha: Floats
    beta: Floats
    weight: Floats


def fit(n: Ints, c: Ints, problems: Ints) -> Fit:
    """Priors for problems with these counts; problems[i] of them share (n[i], c[i])."""
    where = _peak(n, c, problems)
    height = float(_log_posterior(where[:, None], n, c, problems)[0])
    spread = np.linalg.cholesky(np.linalg.inv(_curvature(where, n, c, problems)))
    at, weight = hermegauss(NODES)
    z = np.stack([x.ravel() for x in np.meshgrid(at, at, indexing="ij")])
    both = np.outer(weight, weight).ravel()
    nearest = np.argsort((z**2).sum(axis=0), kind="stable")
    z, both = z[:, nearest], both[nearest]
    nodes = where[:, None] + spread @ z
    # Gauss-Hermite weights for a normal posterior, corrected by how far it is from one
    off = _log_posterior(nodes, n, c, problems) - height + (z**2).sum(axis=0) / 2
    share = both * np.exp(np.minimum(off, 50))
    mean, size = expit(nodes[0]), np.exp(nodes[1])
    return Fit(mean * size, expit(-nodes[0]) * size, share / share.sum())


def _log_posterior(theta: Floats, n: Ints, c: Ints, problems: Ints) -> Floats:
    """At columns of (logit mean, log size): the marginal likelihood and a weak prior that keeps the peak finite.

    The weak prior is flat in the mean, and in the shrinkage 1 / (1 + size), as is customary.
    """
    logit, log_size = theta
    alpha, beta = expit(logit) * np.exp(log_size), expit(-logit) * np.exp(log_size)
    gain = betaln(alpha[:, None] + c, beta[:, None] + (n - c)) - betaln(alpha, beta)[:, None]
    weak = log_expit(logit) + log_expit(-logit) + log_expit(log_size) + log_expit(-log_size)
    total: Floats = (gain * problems).sum(axis=1) + weak
    return total


def _peak(n: Ints, c: Ints, problems: Ints) -> Floats:
    """The most likely (logit mean, log size); the start is the pooled rate and a size of one."""
    rate = ((c * problems).sum() + 1) / ((n * problems).sum() + 2)
    start = np.array([np.log(rate / (1 - rate)), 0.0])

    def depth(theta: Floats) -> float:
        return -float(_log_posterior(theta[:, None], n, c, problems)[0])

    peak: Floats = fmin(depth, start, xtol=1e-8, ftol=1e-10, disp=False)
    return peak


def _curvature(where: Floats, n: Ints, c: Ints, problems: Ints) -> Floats:
    """Minus the second derivatives at the peak, by central differences."""
    e = _STEP * np.eye(2)

    def height(*moves: Floats) -> Floats:
        return _log_posterior(np.stack([where + move for move in moves], axis=1), n, c, problems)

    out = np.empty((2, 2))
    for i in range(2):
        for j in range(2):
            pp, pm, mp, mm = height(e[i] + e[j], e[i] - e[j], e[j] - e[i], -e[i] - e[j])
            out[i, j] = -(pp - pm - mp + mm) / (4 * _STEP**2)
    return (out + out.T) / 2
