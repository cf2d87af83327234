"""A board, examined: every pair that can be compared, and every model that can be ranked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.compare.boards import Board, Place
from scorelake.compare.comparable import REFUSED, Codes, Tried, in_common, obstacles, refusals, standing
from scorelake.metrics import Metric
from scorelake.metrics.draws import Floats, Ints
from scorelake.metrics.matrix import Matrix, common
from scorelake.metrics.resample import Lifts, Plan, Ranks, Sample, resampled
from scorelake.settings import Settings
from scorelake.threads import plain_products, side_by_side

Valued = Callable[[Place, Metric], set[str]]
"""The models of a board that have a value of a metric."""


_SUBJECTS = 4
"""How many pairs of a benchmark one of its subjects counts for."""
MOST_MODELS = 10_000
"""On a board with more nobody is compared beforehand: what two models share is a number for every two of them."""


@dataclass(frozen=True)
class Measured:
    """One metric on one board: its pairs, compared or refused, and its ranks."""

    metric: Metric
    a: Ints
    b: Ints
    """The two models of every pair, by number, the first in the order of their names first."""
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
    standing: list[str | None]
    """For every model why it is not ranked."""
    metrics: list[Measured]

    def of(self, place: Place) -> Found:
        """The same findings on a board that has the same models and problems."""
        return replace(self, place=place)


def plan_of(settings: Settings) -> Plan:
    asked = settings.compare
    return Plan(asked.resamples, asked.seed, settings.uncertainty.confidence)


def examined(
    whole: Board, parts: Sequence[Board], chosen: Sequence[Metric], valued: Valued, settings: Settings
) -> list[Found]:
    """A benchmark and its subjects: they share their units, and so the resamples too.

    Where there are many subjects, their pairs have fewer resamples than those of the benchmark.
    """
    plan, most = plan_of(settings), settings.compare.max_pairs

    def some(boards: Sequence[Board], share: int) -> list[Found]:
        each = _each(boards, len(chosen), most)
        pairs = len(chosen) * sum(_told(len(board.place.models), each) for board in boards)
        resamples = plan.enough(share * pairs)
        return side_by_side(lambda board: _examined(board, chosen, valued, settings, resamples, each), boards)

    with plain_products():
        return [*some([whole], 1), *some(parts, _SUBJECTS)]  # the first makes the chances that all of them share


def _each(boards: Sequence[Board], metrics: int, most: int) -> int | None:
    """To how many others every model is compared, so that a table has not too many pairs; None for all."""
    models = [len(board.place.models) for board in boards]
    if metrics * sum(_told(many, None) for many in models) <= most:
        return None
    return max(2, most // (metrics * sum(models)))


def _told(models: int, each: int | None) -> int:
    """How many pairs, at most, so many models are compared in."""
    every = models * (models - 1) // 2
    return every if each is None else min(every, models * each)


def _pairs(values: Floats, each: int | None) -> tuple[Ints, Ints]:
    """All pairs; or every model with the leaders, and with those that come after it in rank, half of each."""
    many = values.size
    if each is None or _told(many, each) == _told(many, None):
        return np.triu_indices(many, 1)
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    leaders = each // 2
    ahead = [np.repeat(np.arange(min(leaders, many)), many), np.tile(np.arange(many), min(leaders, many))]
    near = [(np.arange(many - step), np.arange(step, many)) for step in range(1, each - leaders + 1)]
    one, two = (np.concatenate(side) for side in zip(ahead, *near, strict=True))
    one, two = order[one], order[two]
    code = np.unique((np.minimum(one, two) * many + np.maximum(one, two))[one != two])
    return np.divmod(code, many)


def _examined(
    board: Board,
    chosen: Sequence[Metric],
    valued: Valued,
    settings: Settings,
    resamples: int,
    each: int | None,
) -> Found:
    tried = Tried.on(board)
    standings = standing(tried, settings.compare)
    if len(standings) > MOST_MODELS:
        return Found(board.place, standings, [])
    shared, found = in_common(board), []
    for metric, scores in zip(chosen, board.scores(), strict=True):
        there = ~np.isnan(scores.numbers)
        usable = common(scores.place, there)
        code = obstacles(tried, shared, usable, settings.compare)
        a, b = _pairs(_averages(scores, there), each)
        refused = refusals(tried, code[a, b], shared[a, b], usable[a, b], a, b, metric, settings.compare)
        compared = np.flatnonzero(code[a, b] == 0)
        have = valued(board.place, metric)
        ranked = np.array(
            [i for i, model in enumerate(board.place.models) if standings[i] is None and model in have],
            dtype=np.int64,
        )
        ranges = _settled(usable, code, ranked, a.size == _told(tried.many.size, None), settings)
        sample = Sample(
            scores,
            board.units.of_problem,
            board.units.key,
            a[compared],
            b[compared],
            ranked if ranges else ranked[:0],
            board.units.clustered,
        )
        lifts, ranks = resampled(sample, plan_of(settings), resamples)
        problems = usable[a, b]
        refused, compared, lifts = _alone(refused, compared, lifts)
        settled = ranks if ranges else None
        found.append(Measured(metric, a, b, problems, refused, compared, lifts, sample.ranked, settled, resamples))
    return Found(board.place, standings, found)


def _averages(scores: Matrix, there: NDArray[np.bool_]) -> Floats:
    """The mean of every row over its own problems."""
    filled = np.where(there, scores.numbers, 0)
    return np.array([filled[row].sum() / max(1, np.count_nonzero(there[row])) for row in scores.place])


def _settled(usable: Ints, code: Codes, ranked: Ints, every_pair: bool, settings: Settings) -> bool:
    """Ranges of ranks hold every two ranked models against each other, on enough problems.

    Where not every pair is told, only models that are scored on the same problems are.
    """
    inside = np.ix_(ranked, ranked)
    apart = code[inside][np.triu_indices(ranked.size, 1)]
    enough = ranked.size > 0 and usable[inside].min() >= settings.compare.min_problems
    alike = every_pair or bool((usable[inside] == usable.diagonal()[ranked]).all())
    return bool(enough and alike and not apart.any())


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
