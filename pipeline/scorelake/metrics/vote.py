"""Plurality vote: how often the most common of k answers is a right one, from the answer counts of a problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scorelake.errors import MetricError
from scorelake.metrics.draws import Floats


def vote(counts: Sequence[int], right: Sequence[bool], k: int) -> float:
    """Expected accuracy of the most common answer among k draws without replacement; ties split at random.

    counts[i] attempts gave answer i, and right[i] says whether it is a right one. NaN where k > n.

    An answer wins with j votes when no other has more; t others with exactly j leave it a share 1 / (1 + t).
    Draws without replacement are independent binomials per answer, given that they add up to k. So the chance
    is a product of short polynomials: in the number of votes used, and in the number of ties.
    """
    if k < 1 or len(counts) != len(right) or min(counts, default=0) < 0:
        raise MetricError(f"vote@{k}: k must be >= 1, counts >= 0, and every answer right or not")
    n = sum(counts)
    if k > n:
        return float("nan")
    share = k / n
    votes = [_binomial(m, share, k) for m in counts]
    won = sum(
        votes[i][j] * _survives([v for b, v in enumerate(votes) if b != i], j, k - j)
        for i, m in enumerate(counts)
        if right[i]
        for j in range(1, min(k, m) + 1)
    )
    return float(min(1.0, won / _binomial(n, share, k)[k]))


def _survives(others: list[Floats], j: int, left: int) -> float:
    """Chance that the others use `left` votes, none more than j, weighted by 1 / (1 + those with exactly j)."""
    ties = left // j
    chance = np.zeros((ties + 1, left + 1))  # by ties and by votes used
    chance[0, 0] = 1.0
    for vote in others:
        after = np.zeros_like(chance)
        for i in range(min(j, left + 1)):
            after[:, i:] += vote[i] * chance[:, : left + 1 - i]
        if ties:
            after[1:, j:] += vote[j] * chance[:-1, : left + 1 - j]
        chance = after
    return float((chance[:, left] / np.arange(1, ties + 2)).sum())


def _binomial(m: int, share: float, k: int) -> Floats:
    """P(i of m attempts are drawn) for i = 0..k, when each is drawn with probability `share`."""
    from scipy.special import betaln  # noqa: PLC0415  (loads slowly; most runs do without)

    i = np.arange(k + 1)
    there = np.minimum(i, m)
    with np.errstate(divide="ignore", invalid="ignore"):  # share 1: log 0 counts only where no attempt is left
        rest = np.where(m - there > 0, (m - there) * np.log1p(-share), 0.0)
        logs = -betaln(there + 1, m - there + 1) - np.log(m + 1) + there * np.log(share) + rest
    return np.where(i <= m, np.exp(logs), 0.0)
