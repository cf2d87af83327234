"""The fitted prior against the truth it was drawn from, a dense grid, and the data that have no maximum."""

import numpy as np
import pytest
from scipy.special import betaln, expit

from scorelake import metrics
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.forecast import fit_beta_mixture


def _histogram(c: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    problems = np.bincount(c, minlength=n + 1)
    there = np.flatnonzero(problems)
    return np.full(there.size, n), there, problems[there]


def _moments(name: str, mixture: tuple[Floats, ...], n: Ints, c: Ints, problems: Ints) -> tuple[float, float]:
    """Mean and variance of the group's posterior, mixed over the priors by hand."""
    means, variances = [], []
    for alpha, beta, _ in zip(*mixture, strict=True):
        mean, variance = metrics.posterior(name, n, c, (alpha, beta))
        means.append((mean * problems).sum() / problems.sum())
        variances.append((variance * problems).sum() / problems.sum() ** 2)
    mu = float(np.dot(mixture[2], means))
    return mu, float(np.dot(mixture[2], np.array(variances) + (np.array(means) - mu) ** 2))


def test_many_problems_reveal_the_prior() -> None:
    rng = np.random.default_rng(1)
    alpha, beta, weight = fit_beta_mixture(*_histogram(rng.binomial(16, rng.beta(0.5, 3.0, 50_000)), 16))
    assert np.dot(weight, alpha) == pytest.approx(0.5, rel=0.03)
    assert np.dot(weight, beta) == pytest.approx(3.0, rel=0.03)
    assert weight.sum() == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "problems"), [((0.3, 0.7), 30), ((0.5, 3.0), 100), ((2.0, 2.0), 30)])
def test_the_few_priors_stand_for_the_whole_posterior_of_the_fit(shape: tuple[float, float], problems: int) -> None:
    """Against 40,000 priors on a dense grid, weighted by their marginal likelihood and the weak prior."""
    rng = np.random.default_rng(2)
    n, c, many = _histogram(rng.binomial(16, rng.beta(*shape, problems)), 16)
    logit, log_size = (x.ravel() for x in np.meshgrid(np.linspace(-6, 6, 200), np.linspace(-4, 7, 200)))
    alpha, beta = expit(logit) * np.exp(log_size), expit(-logit) * np.exp(log_size)
    height = ((betaln(alpha[:, None] + c, beta[:, None] + n - c) - betaln(alpha, beta)[:, None]) * many).sum(axis=1)
    height += np.log(expit(logit) * expit(-logit) * expit(log_size) * expit(-log_size))
    weight = np.exp(height - height.max())
    keep = weight > 1e-4
    dense = alpha[keep], beta[keep], weight[keep] / weight[keep].sum()
    for name in ("pass@1", "pass@16"):
        want, got = (_moments(name, mixture, n, c, many) for mixture in (dense, fit_beta_mixture(n, c, many)))
        assert got[0] == pytest.approx(want[0], abs=0.05 * want[1] ** 0.5)
        assert got[1] ** 0.5 == pytest.approx(want[1] ** 0.5, rel=0.05)


@pytest.mark.parametrize("c", [0, 16])
def test_all_failed_and_all_solved(c: int) -> None:
    """No maximum of the likelihood; the uniform prior says 0.47 to 0.50 for pass@16 of all-zero data."""
    n, c_, problems = np.array([16]), np.array([c]), np.array([100])
    mu, variance = _moments("pass@16", fit_beta_mixture(n, c_, problems), n, c_, problems)
    assert abs(mu - c / 16) < 0.05
    assert 0 < variance**0.5 < 0.05


def test_problems_without_attempts_teach_nothing() -> None:
    n, c, problems = np.array([8, 8, 8]), np.array([0, 3, 8]), np.array([10, 10, 10])
    with_empty = fit_beta_mixture(np.append(n, 0), np.append(c, 0), np.append(problems, 1000))
    assert with_empty[0] == pytest.approx(fit_beta_mixture(n, c, problems)[0], rel=1e-5)
