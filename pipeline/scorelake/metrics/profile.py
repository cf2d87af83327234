"""TailPass: how likely k fresh attempts reach each required share of the full score, at all thresholds at once.

A bank of k attempts has a score from 0 to 1, the mean of its attempts' scores. The profile is the chance that the
score is at least t, for t = 1/k, 2/k, ..., 1; its first entry is pass@k, its last pass^k. The posterior is a
Dirichlet per problem, and every number is exact: a sum over all outcomes that k attempts can have, no draws.

Reference: Hariri, Hinczewski, Ayday and Chaudhary 2026, Success Has a Shape: TailPass@k for Repeated Sampling.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import comb
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.arguments import draws, outcomes, prior_outcomes
from scorelake.metrics.attempts import Attempts
from scorelake.metrics.distributions import Floats, Ints, blocks

MOST = 20_000
"""Outcomes that k attempts may have; beyond, sums over them take minutes."""
MOST_PAIRS = 4_000_000
"""The same for pairs of them, which variances need."""
_SAME = 1e-12
"""Scores this close are the same: a third three times is 1."""


def tailpass(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    *,
    R: Attempts | None = None,  # noqa: N803 - the papers' letter
    w: ArrayLike | None = None,
    R0: Attempts | None = None,  # noqa: N803
    eta: float = 1.0,
    prior: ArrayLike = 1.0,
    thresholds: ArrayLike | None = None,
) -> Profile:
    """The posterior profile of k attempts, for any k.

    w: what the outcomes 0, 1, ... in R are worth, from 0 to 1; R0: earlier outcomes of the same problems, which count
    eta each; prior: what every outcome counts beforehand, one number, or one per outcome, or a row per problem.

    >>> profile = sl.metrics.tailpass(R=[[0, 1, 1], [1, 1, 1]], k=4)
    >>> profile.mean.round(4).tolist()
    [0.9571, 0.8429, 0.6429, 0.3571]
    >>> mu, sigma = profile.moment(1)
    >>> round(mu, 4)
    0.7
    """
    size = draws("tailpass", k)
    scores, counts = _scored(n, c, R, w)
    if not 0 <= eta <= 1:
        raise MetricError(f"tailpass: eta must be in [0, 1], got {eta!r}")
    belief = np.asarray(prior, dtype=np.float64)
    if belief.ndim > 2 or not (np.isfinite(belief) & (belief > 0)).all():
        raise MetricError(f"tailpass: prior must be numbers > 0, got {prior!r}")
    earlier = prior_outcomes(R0, scores.size, len(counts))
    try:
        mass = np.broadcast_to(belief, counts.shape) + counts + eta * earlier
    except ValueError:
        raise MetricError(f"tailpass: prior has shape {belief.shape}, the counts {counts.shape}") from None
    levels, merged = _merged(scores, mass)
    return Profile(size, _thresholds(size, thresholds), levels, merged)


def tailpass_empirical(
    n: ArrayLike | None = None,
    c: ArrayLike | None = None,
    k: int | None = None,
    *,
    R: Attempts | None = None,  # noqa: N803
    w: ArrayLike | None = None,
    thresholds: ArrayLike | None = None,
) -> Floats:
    """The profile of k of the attempts that were made, drawn without replacement, averaged over problems.

    >>> sl.metrics.tailpass_empirical(n=[3, 3], c=[2, 3], k=2).round(4).tolist()
    [1.0, 0.6667]
    """
    size = draws("tailpass_empirical", k)
    scores, counts = _scored(n, c, R, w)
    short = int((counts.sum(axis=1) < size).sum())
    if short:
        raise MetricError(
            f"tailpass_empirical: {short:,} of {len(counts):,} problems have fewer than k = {k} attempts"
        )
    levels, merged = _merged(scores, counts.astype(np.float64))
    grid = _grid(size, levels.size)
    tails = _reached(grid @ levels / size, _thresholds(size, thresholds))
    total = np.zeros(tails.shape[1])
    for rows in blocks(len(merged), len(grid)):
        total += (_chances(grid, merged[rows], -1) @ tails).sum(axis=0)
    return total / len(merged)


@dataclass(frozen=True, eq=False)
class Profile:
    """The chances of k attempts to reach each threshold, averaged over problems, with their posterior covariance."""

    k: int
    thresholds: Floats
    """Shares of the full score."""
    levels: Floats = field(repr=False)
    """What an outcome may be worth, rising."""
    mass: Floats = field(repr=False)
    """The Dirichlet posterior, problems x levels."""

    @cached_property
    def problem_mean(self) -> Floats:
        """The posterior mean of every problem's profile, problems x thresholds."""
        return self._means(self._tails)

    @property
    def mean(self) -> Floats:
        """The posterior mean, one per threshold."""
        mean: Floats = self.problem_mean.mean(axis=0)
        return mean

    @cached_property
    def covariance(self) -> Floats:
        """The posterior covariance, thresholds x thresholds; problems are independent."""
        return self._covariance(self._tails)

    @property
    def std(self) -> Floats:
        """The posterior standard deviation, one per threshold."""
        return np.sqrt(np.diagonal(self.covariance))

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Normal posterior intervals of the thresholds, within [0, 1]."""
        if not 0 < confidence < 1:
            raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * self.std
        return np.clip(self.mean - reach, 0, 1), np.clip(self.mean + reach, 0, 1)

    def linear(self, weights: ArrayLike) -> tuple[float, float]:
        """Posterior mean and deviation of a weighted sum of the thresholds; weights >= 0 that add up to 1."""
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != self.thresholds.shape or not (given >= 0).all() or abs(given.sum() - 1) > _SAME:
            raise MetricError(f"weights must be {self.thresholds.size} numbers >= 0 with sum 1, got {weights!r}")
        return self._moments(self._tails @ given)

    def moment(self, lam: float) -> tuple[float, float]:
        """Posterior mean and deviation of (score of k attempts) ** lam; with lam = 1 it is bayes@N."""
        if not 0 < lam < np.inf:
            raise MetricError(f"lam must be a number > 0, got {lam!r}")
        return self._moments(self._scores**lam)

    def discovery(self) -> tuple[float, float]:
        """Posterior mean and deviation of the chance of any credit at all: pass@k of 0/1."""
        return self._moments((self._scores > 0).astype(np.float64))

    def stability(self) -> tuple[float, float]:
        """Posterior mean and deviation of the chance of full credit every time: pass^k of 0/1."""
        return self._moments((self._scores >= 1 - _SAME).astype(np.float64))

    def at_k(self, k: int, thresholds: ArrayLike | None = None) -> Profile:
        """The same posterior at another k."""
        return replace(self, k=draws("tailpass", k), thresholds=_thresholds(draws("tailpass", k), thresholds))

    @cached_property
    def _outcomes(self) -> Ints:
        return _grid(self.k, self.levels.size)

    @cached_property
    def _scores(self) -> Floats:
        scores: Floats = self._outcomes @ self.levels / self.k
        return scores

    @cached_property
    def _tails(self) -> Floats:
        return _reached(self._scores, self.thresholds)

    @cached_property
    def _distinct(self) -> tuple[Floats, Ints, Ints]:
        """Different posteriors, whose each problem's is, and how many problems have each."""
        return np.unique(self.mass, axis=0, return_inverse=True, return_counts=True)

    def _means(self, payoff: Floats) -> Floats:
        """Expected payoffs (outcomes x payoffs) of every problem."""
        masses, place, _ = self._distinct
        out = [_chances(self._outcomes, masses[rows], 1) @ payoff for rows in blocks(len(masses), len(payoff))]
        return np.concatenate(out)[place.ravel()]

    def _moments(self, payoff: Floats) -> tuple[float, float]:
        mean = self._means(payoff[:, None]).mean()
        return float(mean), float(np.sqrt(self._covariance(payoff[:, None])[0, 0]))

    def _covariance(self, payoff: Floats) -> Floats:
        """Of the average over problems: what two banks of one problem have in common is its chance of success.

        Payoffs are taken from their mean first, so that no small number is the difference of two large ones.
        """
        grid = self._outcomes
        if len(grid) ** 2 > MOST_PAIRS:
            raise MetricError(f"k = {self.k} attempts have {len(grid):,} outcomes: too many for a variance")
        masses, _, times = self._distinct
        total = np.zeros((payoff.shape[1], payoff.shape[1]))
        for mass, many in zip(masses, times, strict=True):
            chance = _chances(grid, mass[None], 1)[0]
            off = payoff - chance @ payoff
            again = _chances(grid, mass + grid, 1) @ off
            total += many * ((chance[:, None] * off).T @ again)
        total = (total + total.T) / 2 / len(self.mass) ** 2
        np.fill_diagonal(total, np.maximum(np.diagonal(total), 0))
        return total


def _scored(
    n: ArrayLike | None, c: ArrayLike | None, matrix: Attempts | None, w: ArrayLike | None
) -> tuple[Floats, Ints]:
    scores, counts = outcomes(n, c, matrix, w)
    if not ((scores >= 0) & (scores <= 1)).all():
        raise MetricError(f"tailpass: what an outcome is worth must be in [0, 1], got {w!r}")
    return scores, counts


def _merged(scores: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Outcomes that are worth the same are one."""
    levels, place = np.unique(scores, return_inverse=True)
    return levels, mass @ (place.ravel()[:, None] == np.arange(levels.size)).astype(np.float64)


def _thresholds(k: int, given: ArrayLike | None) -> Floats:
    if given is None:
        return np.arange(1, k + 1) / k
    grid = np.asarray(given, dtype=np.float64)
    if grid.ndim != 1 or not grid.size or not ((grid >= 0) & (grid <= 1)).all() or (np.diff(grid) <= 0).any():
        raise MetricError(f"thresholds must be rising numbers in [0, 1], got {given!r}")
    return grid


def _reached(scores: Floats, thresholds: Floats) -> Floats:
    """Whether each outcome reaches each threshold."""
    return (scores[:, None] >= thresholds - _SAME).astype(np.float64)


def _grid(k: int, kinds: int) -> Ints:
    """Every way in which k attempts fall into so many kinds of outcome."""
    many = comb(k + kinds - 1, kinds - 1)
    if many > MOST:
        raise MetricError(
            f"{k} attempts with {kinds} kinds of outcome fall in {many:,} ways, at most {MOST:,} may be"
        )
    bars = np.array(list(combinations(range(k + kinds - 1), kinds - 1)), dtype=np.int64).reshape(many, kinds - 1)
    ends = [np.full((many, 1), -1), bars, np.full((many, 1), k + kinds - 1)]
    return np.diff(np.concatenate(ends, axis=1), axis=1) - 1


def _chances(grid: Ints, start: Floats, step: int) -> Floats:
    """Chances of the outcomes, rows x outcomes, when drawing adds to what is drawn (Polya) or takes it away.

    step 1 gives the Dirichlet-multinomial of a posterior, -1 the hypergeometric of attempts that were made.
    """
    k = int(grid[0].sum())
    i = np.arange(k, dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(start[:, :, None] + step * i, 0) / (1 + i))
    ways = np.concatenate([np.zeros((*start.shape, 1)), np.cumsum(logs, axis=2)], axis=2)
    told = sum(ways[:, kind, grid[:, kind]] for kind in range(grid.shape[1]))
    chance = np.exp(told - np.max(told, axis=1, keepdims=True))
    return chance / chance.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
