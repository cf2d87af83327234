"""A board, examined: every pair that can be compared, and every model that can be ranked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from scorelake.compare.boards import Board, Place
from scorelake.compare.comparable import REFUSED, Tried, refusals, standing
from scorelake.metrics import Metric
from scorelake.metrics.draws import Ints
from scorelake.metrics.matrix import common
from scorelake.metrics.resample import Lifts, Plan, Ranks, Sample, resampled
from scorelake.settings import Settings

Valued = Callable[[Place, Metric], set[str]]
"""The models of a board that have a value of a metric."""


@dataclass(frozen=True)
class Measured:
    """One metric on one board: its pairs, compared or refused, and its ranks."""

    metric: Metric
    problems: Ints
    """On how many problems both models of every pair have the metric."""
    refused: tuple[pl.Series, pl.Series]
    """For every pair why it is not compared, as B against A and as A against B."""
    compared: Ints
    """The pairs that are, by number."""
    lifts: Lifts
    ranked: Ints
    """The models that are ranked, by number."""
    ranks: Ranks | None
    """None where the models have too few problems in common."""
    resamples: int


@dataclass(frozen=True)
class Found:
    """A board's pairs, and what each metric says of them."""

    place: Place
    a: Ints
    b: Ints
    standing: list[str | None]
    """For every model why it is not ranked."""
    metrics: list[Measured]

    def of(self, place: Place) -> Found:
        """The same findings on a board that has the same models and problems."""
        return replace(self, place=place)


def plan_of(settings: Settings) -> Plan:
    asked = settings.compare
    return Plan(asked.resamples, asked.seed, settings.uncertainty.confidence)


def examined(boards: Sequence[Board], chosen: Sequence[Metric], valued: Valued, settings: Settings) -> list[Found]:
    """Boards that share their units, such as a benchmark and its subjects, share the resamples too."""
    models = [len(board.place.models) for board in boards]
    pairs = len(chosen) * sum(many * (many - 1) // 2 for many in models)
    resamples = plan_of(settings).enough(pairs)
    return [_examined(board, chosen, valued, settings, resamples) for board in boards]


def _examined(board: Board, chosen: Sequence[Metric], valued: Valued, settings: Settings, resamples: int) -> Found:
    a, b = np.triu_indices(len(board.place.models), 1)
    tried = Tried.on(board)
    standings = standing(tried, settings.compare)
    found = []
    for metric, scores in zip(chosen, board.scores(), strict=True):
        usable = common(scores.place, ~np.isnan(scores.numbers))
        refused = refusals(tried, usable[a, b], a, b, metric, settings.compare)
        compared = np.flatnonzero(refused[0].is_null().to_numpy())
        have = valued(board.place, metric)
        ranked = [i for i, model in enumerate(board.place.models) if standings[i] is None and model in have]
        ranges = _settled(usable, np.array(ranked, dtype=np.int64), a[compared], b[compared], settings)
        sample = Sample(
            scores,
            board.units.of_problem,
            board.units.key,
            a[compared],
            b[compared],
            np.array(ranked if ranges else [], dtype=np.int64),
            board.units.clustered,
        )
        lifts, ranks = resampled(sample, plan_of(settings), resamples)
        refused, compared, lifts = _alone(refused, compared, lifts)
        settled = ranks if ranges else None
        found.append(Measured(metric, usable[a, b], refused, compared, lifts, sample.ranked, settled, resamples))
    return Found(board.place, a, b, standings, found)


def _settled(usable: Ints, ranked: Ints, a: Ints, b: Ints, settings: Settings) -> bool:
    """Enough problems in common for ranges of ranks: of every two ranked models, all of which are compared."""
    inside = np.isin(a, ranked) & np.isin(b, ranked)
    whole = np.count_nonzero(inside) == ranked.size * (ranked.size - 1) // 2
    enough = ranked.size and usable[np.ix_(ranked, ranked)].min() >= settings.compare.min_problems
    return bool(whole and enough)


def _alone(
    refused: tuple[pl.Series, pl.Series], compared: Ints, lifts: Lifts
) -> tuple[tuple[pl.Series, pl.Series], Ints, Lifts]:
    """Pairs whose common problems all belong to one cluster have no interval: they are refused after all."""
    alone = np.isnan(lifts.lo)
    if not alone.any():
        return refused, compared, lifts
    text = f"{REFUSED}too few clusters (1 in common, 2 needed)"
    told = [pl.Series(each.scatter(compared[alone], [text] * int(alone.sum()))) for each in refused]
    some = Lifts(**{name: column[~alone] for name, column in vars(lifts).items()})
    return (told[0], told[1]), compared[~alone], some
