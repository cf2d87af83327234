"""A board, resampled: every pair's lift, every model's rank, and which pairs must not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scorelake.compare.boards import Board, Place
from scorelake.metrics import Metric
from scorelake.metrics.draws import Ints
from scorelake.metrics.resample import Lifts, Plan, Ranks, Sample, bootstrap_all
from scorelake.settings import Settings

REFUSED = "not comparable: "
"""How a claim begins that gives a reason instead of a number."""


@dataclass(frozen=True)
class Found:
    """A board's pairs (the same a and b for every metric, metric by metric), its ranks, and its refusals."""

    place: Place
    a: Ints
    b: Ints
    lifts: Lifts
    ranks: Ranks
    refusals: list[str | None]

    def of(self, place: Place) -> Found:
        """The same findings on a board that has the same models and problems."""
        return Found(place, self.a, self.b, self.lifts, self.ranks, self.refusals)


def resampled(boards: Sequence[Board], chosen: Sequence[Metric], settings: Settings) -> list[Found]:
    """Compare every pair and rank every model; all metrics and boards share the resamples."""
    plan = Plan(settings.compare.resamples, settings.compare.seed, settings.uncertainty.confidence)
    samples, pairs = [], []
    for board in boards:
        many = len(board.place.models)
        a, b = np.triu_indices(many, 1)
        shift = many * np.arange(len(chosen))[:, None]
        pairs.append((a, b))
        samples.append(
            Sample(
                board.scores.reshape(-1, board.scores.shape[2]),
                (a + shift).ravel(),
                (b + shift).ravel(),
                list(np.arange(many) + shift),
                board.cluster,
            )
        )
    return [
        Found(board.place, a, b, lifts, ranks, _refusals(board, a, b, chosen, lifts.problems, settings))
        for board, (a, b), (lifts, ranks) in zip(boards, pairs, bootstrap_all(samples, plan), strict=True)
    ]


def _refusals(
    board: Board, a: Ints, b: Ints, chosen: Sequence[Metric], scored: Ints, settings: Settings
) -> list[str | None]:
    """For every metric and pair: what makes the two incomparable, or nothing."""
    asked = settings.compare
    tried = board.attempts > 0
    many = tried.sum(axis=1)
    shared = np.array([np.count_nonzero(tried[i] & tried[j]) for i, j in zip(a, b, strict=True)], dtype=np.int64)
    least = np.where(tried, board.attempts, np.iinfo(np.int64).max).min(axis=1)
    most = board.attempts.max(axis=1)
    out: list[str | None] = []
    for metric, both_scored in zip(chosen, scored.reshape(len(chosen), -1), strict=True):
        for i, j, common, usable in zip(a, b, shared, both_scored, strict=True):
            why = None
            if common < asked.min_problems and common == many[i] == many[j]:
                why = f"too few problems ({common} in common, {asked.min_problems} needed)"
            elif common < asked.min_problems:
                why = f"problem sets differ ({common} of {many[i]} and {many[j]} problems in common, "
                why += f"{asked.min_problems} needed)"
            elif not asked.allow_different_n and (most[i] < least[j] or most[j] < least[i]):
                why = f"n differs ({_span(least[i], most[i])} and {_span(least[j], most[j])} attempts per problem)"
            elif usable < asked.min_problems:
                why = f"n is below k = {metric.draws} (both models have enough attempts on {usable} problems, "
                why += f"{asked.min_problems} needed)"
            out.append(why and REFUSED + why)
    return out


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
