"""TailPass: the probability that k attempts reach each required share of the full score, at all thresholds at once.

The score of k attempts is the mean of their rewards, from 0 to 1. The profile is the probability that the score is at
least t, for t = 1/k, 2/k, ..., 1; its first entry is pass@k, its last pass^k. The posterior is a Dirichlet per
problem. All numbers are exact sums over the outcomes that k attempts can have; nothing is simulated.
"""

# ruff: noqa: N803  (R, R0 and w are the letters of the paper)

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.counts import Counts, Matrix, check_enough, check_k, outcome_counts, prior_outcome_counts
from scorelake.metrics.distributions import Floats, Ints, blocks
from scorelake.metrics.functions import document

MAX_OUTCOMES = 20_000  # outcomes that k attempts may have; sums over more take minutes
MAX_PAIRS = 4_000_000  # the same for pairs of outcomes, which variances need
_TOLERANCE = 1e-12  # scores this close are equal: three times a third is 1
_PAPER = "Hariri, Hinczewski, Ayday and Chaudhary 2026, Success Has a Shape: TailPass@k for Repeated Sampling"


@document(_PAPER, "Profile")
def tailpass(
    n: Counts = None,
    c: Counts = None,
    k: int | None = None,
    *,
    R: Matrix = None,
    w: Counts = None,
    R0: Matrix = None,
    eta: float = 1.0,
    prior: ArrayLike = 1.0,
    thresholds: Counts = None,
) -> Profile:
    """Compute the posterior profile of k attempts, for any k; rewards w are in [0, 1].

    >>> profile = sl.metrics.tailpass(R=[[0, 1, 1], [1, 1, 1]], k=4)
    >>> profile.mean.round(4).tolist()
    [0.9571, 0.8429, 0.6429, 0.3571]
    >>> mu, sigma = profile.moment(1)
    >>> round(mu, 4)
    0.7
    """
    size, shares, levels, counts, merge = _arguments("tailpass", n, c, k, R, w, thresholds)
    if not 0 <= eta <= 1:
        raise MetricError(f"tailpass: eta must be in [0, 1], got {eta!r}")
    pseudo_counts = np.asarray(prior, dtype=np.float64)
    if pseudo_counts.ndim > 2 or not (np.isfinite(pseudo_counts) & (pseudo_counts > 0)).all():
        raise MetricError(f"tailpass: prior must be numbers > 0, got {prior!r}")
    try:
        mass = np.broadcast_to(pseudo_counts, counts.shape) + counts
    except ValueError:
        raise MetricError(f"tailpass: prior has shape {pseudo_counts.shape}, the counts {counts.shape}") from None
    mass = mass + eta * prior_outcome_counts(R0, counts.shape[1], len(counts))
    return Profile(size, shares, levels, mass @ merge)


@document(_PAPER, "array of float\n    One probability per threshold.")
def tailpass_empirical(
    n: Counts = None,
    c: Counts = None,
    k: int | None = None,
    *,
    R: Matrix = None,
    w: Counts = None,
    thresholds: Counts = None,
) -> Floats:
    """Compute the profile of k of the observed attempts, drawn without replacement, averaged over problems.

    >>> sl.metrics.tailpass_empirical(n=[3, 3], c=[2, 3], k=2).round(4).tolist()
    [1.0, 0.6667]
    """
    size, shares, levels, counts, merge = _arguments("tailpass_empirical", n, c, k, R, w, thresholds)
    check_enough("tailpass_empirical", counts.sum(axis=1), size)
    outcomes = _all_outcomes(size, levels.size)
    tails = _reaches(outcomes @ levels / size, shares)
    return np.asarray(_expect(tails, outcomes, counts @ merge, -1).mean(axis=0))


@dataclass(frozen=True, eq=False)
class Profile:
    """Probabilities of k attempts to reach each threshold, averaged over problems, with their posterior covariance.

    A variance needs pairs of outcomes and raises MetricError if there are too many.
    """

    k: int
    thresholds: Floats  # shares of the full score
    levels: Floats = field(repr=False)  # distinct rewards, rising
    mass: Floats = field(repr=False)  # parameters of the Dirichlet posterior, problems x levels

    @property
    def problem_mean(self) -> Floats:
        """Posterior mean of every problem's profile, problems x thresholds."""
        return _expect(self._tails, self._outcomes, self.mass, 1)

    @property
    def mean(self) -> Floats:
        """Posterior mean, one per threshold."""
        return np.asarray(self.problem_mean.mean(axis=0))

    @property
    def covariance(self) -> Floats:
        """Posterior covariance, thresholds x thresholds; problems are independent."""
        return self._covariance(self._tails)

    @property
    def std(self) -> Floats:
        """Posterior standard deviation, one per threshold."""
        return np.sqrt(np.diagonal(self.covariance))

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return normal posterior intervals of the thresholds, within [0, 1]."""
        if not 0 < confidence < 1:
            raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
        half_width = NormalDist().inv_cdf((1 + confidence) / 2) * self.std
        return np.clip(self.mean - half_width, 0, 1), np.clip(self.mean + half_width, 0, 1)

    def moment(self, lam: float) -> tuple[float, float]:
        """Return posterior mean and standard deviation of (score of k attempts) ** lam; lam = 1 is bayes@N."""
        if not 0 < lam < np.inf:
            raise MetricError(f"lam must be a number > 0, got {lam!r}")
        payoff = (self._scores**lam)[:, None]
        mean = _expect(payoff, self._outcomes, self.mass, 1).mean()
        return float(mean), float(np.sqrt(self._covariance(payoff)[0, 0]))

    @property
    def _outcomes(self) -> Ints:
        return _all_outcomes(self.k, self.levels.size)

    @property
    def _scores(self) -> Floats:
        return np.asarray(self._outcomes @ self.levels / self.k)

    @property
    def _tails(self) -> Floats:
        return _reaches(self._scores, self.thresholds)

    def _covariance(self, payoff: Floats) -> Floats:
        """Return the covariance of the payoffs' averages over problems."""
        # Two banks of k attempts of one problem share its success probabilities: the covariance is that of their
        # payoffs. Payoffs are centred first, so that no small number is a difference of two large ones.
        outcomes = self._outcomes
        if len(outcomes) ** 2 > MAX_PAIRS:
            raise MetricError(f"k = {self.k} attempts have {len(outcomes):,} outcomes: too many for a variance")
        masses, problems = np.unique(self.mass, axis=0, return_counts=True)
        total = np.zeros((payoff.shape[1], payoff.shape[1]))
        for mass, times in zip(masses, problems, strict=True):
            chance = _probabilities(outcomes, mass[None], 1)[0]
            centred = payoff - chance @ payoff
            second = _probabilities(outcomes, mass + outcomes, 1) @ centred  # of a second bank, given the first
            total += times * ((chance[:, None] * centred).T @ second)
        total = (total + total.T) / 2 / len(self.mass) ** 2
        np.fill_diagonal(total, np.maximum(np.diagonal(total), 0))
        return total


def _arguments(
    name: str, n: Counts, c: Counts, k: int | None, matrix: Matrix, w: Counts, thresholds: Counts
) -> tuple[int, Floats, Floats, Ints, Floats]:
    """Return k, thresholds, rising rewards, counts of outcomes, and the matrix that adds up those of equal reward."""
    size = check_k(name, k)
    rewards, counts = outcome_counts(n, c, matrix, w)
    if not ((rewards >= 0) & (rewards <= 1)).all():
        raise MetricError(f"tailpass: the rewards w must be in [0, 1], got {w!r}")
    levels, index = np.unique(rewards, return_inverse=True)
    merge = (index[:, None] == np.arange(levels.size)).astype(np.float64)
    return size, _check_thresholds(size, thresholds), levels, counts, merge


def _check_thresholds(k: int, given: ArrayLike | None) -> Floats:
    out = np.asarray(np.arange(1, k + 1) / k if given is None else given, dtype=np.float64)
    if out.ndim != 1 or not out.size or not ((out >= 0) & (out <= 1)).all() or (np.diff(out) <= 0).any():
        raise MetricError(f"thresholds must be rising numbers in [0, 1], got {given!r}")
    return out


def _reaches(scores: Floats, thresholds: Floats) -> Floats:
    """Return whether each score reaches each threshold, as 1 or 0."""
    return (scores[:, None] >= thresholds - _TOLERANCE).astype(np.float64)


def _all_outcomes(k: int, levels: int) -> Ints:
    """Return every way to distribute k attempts over the levels, outcomes x levels (stars and bars)."""
    many = comb(k + levels - 1, levels - 1)
    if many > MAX_OUTCOMES:
        raise MetricError(f"{k} attempts with {levels} rewards have {many:,} outcomes, at most {MAX_OUTCOMES:,}")
    bars = np.array(list(combinations(range(k + levels - 1), levels - 1)), dtype=np.int64).reshape(many, levels - 1)
    return np.diff(bars, axis=1, prepend=-1, append=k + levels - 1) - 1


def _expect(payoff: Floats, outcomes: Ints, start: Floats, step: int) -> Floats:
    """Return the expected payoffs (outcomes x payoffs) of every problem; see _probabilities."""
    distinct, index = np.unique(start, axis=0, return_inverse=True)
    each = [_probabilities(outcomes, distinct[i], step) @ payoff for i in blocks(len(distinct), len(payoff))]
    return np.concatenate(each)[index.ravel()]


def _probabilities(outcomes: Ints, start: Floats, step: int) -> Floats:
    """Return the probability of each outcome, rows x outcomes."""
    # step 1 is the Dirichlet-multinomial of a posterior (drawing adds mass), -1 the multivariate hypergeometric of
    # observed attempts (drawing removes it).
    i = np.arange(int(outcomes[0].sum()), dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(start[:, :, None] + step * i, 0) / (1 + i))
    ways = np.concatenate([np.zeros((*start.shape, 1)), np.cumsum(logs, axis=2)], axis=2)
    log_chance = sum(ways[:, level, outcomes[:, level]] for level in range(outcomes.shape[1]))
    chance = np.exp(log_chance - np.max(log_chance, axis=1, keepdims=True))
    return chance / chance.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
