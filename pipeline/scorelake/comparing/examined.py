"""Boards, examined: every pair that can be compared, and every model that can be ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl

from scorelake.comparing.boards import Benchmark, Board, Place
from scorelake.comparing.comparable import REFUSED, Codes, obstacles, refusals, standing
from scorelake.comparing.looks import Answer, Ask, At, Look
from scorelake.metrics import Metric
from scorelake.metrics.chance import MOST_UNITS, Chance, Words, chance
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.gaps import Sums
from scorelake.metrics.resample import Lifts, Pairs, Plan, Ranks
from scorelake.settings import Settings
from scorelake.threads import batch_by_size, parallel_map, single_threaded_blas

Valued = Callable[[Place, Metric], set[str]]
"""The models of a board that have a value of a metric."""


class Parts(Protocol):
    """All parts of the problems, wherever they are: what they tell is added up."""

    def look(self, wanted: Sequence[At]) -> dict[At, Look]:
        """What the models of boards come to."""

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """What pairs come to."""


_ROOM, _NUMBER = 1 << 28, 8
"""Bytes that what is told of boards or pairs may take at a time; and those of a number."""
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
    asked: Sequence[Benchmark], chosen: Sequence[Metric], valued: Valued, settings: Settings, parts: Parts
) -> list[list[Found]]:
    """For each benchmark what was found on the whole of it, and in its subjects.

    So many boards at a time as there is room for; each time all parts are looked at, and then asked about pairs.
    """
    cases = [case for i, each in enumerate(asked) for case in _cases(i, each, chosen, settings)]
    found: dict[At, Found] = {}
    with single_threaded_blas():
        for some in batch_by_size(cases, lambda case: case.room, _ROOM):
            looks = parts.look([case.at for case in some if case.models <= MOST_MODELS])
            trials = [list(case.trials(looks.get(case.at), chosen, valued, settings)) for case in some]
            _compared([trial for mine in trials for trial in mine], parts)
            for case, mine in zip(some, trials, strict=True):
                found[case.at] = Found(case.board.place, case.standings, [trial.measured() for trial in mine])
    return [[found[i, j] for j in range(len(each.subjects) + 1)] for i, each in enumerate(asked)]


def _cases(number: int, asked: Benchmark, chosen: Sequence[Metric], settings: Settings) -> Iterator[_Case]:
    """The boards of a benchmark. Subjects share their units with it, and so the resamples too; where there are many
    of them, their pairs have fewer."""
    plan, most = plan_of(settings), settings.compare.max_pairs
    place = 0
    for boards, share in (([asked.whole], 1), (asked.subjects, _SUBJECTS)):
        each = _each(boards, len(chosen), most)
        pairs = len(chosen) * sum(_told(len(board.place.models), each) for board in boards)
        for board in boards:
            yield _Case((number, place), board, asked, len(chosen), each, plan.enough(share * pairs), settings)
            place += 1


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


class _Case:
    """One board to be examined, by every metric."""

    def __init__(
        self,
        at: At,
        board: Board,
        asked: Benchmark,
        metrics: int,
        each: int | None,
        resamples: int,
        settings: Settings,
    ) -> None:
        self.at, self.board, self.asked, self.each, self.resamples = at, board, asked, each, resamples
        self.models = len(board.place.models)
        self.standings = standing(board.tried, settings.compare)
        units = min(board.tried.problems, MOST_UNITS)
        self.room = _NUMBER * (metrics + 1) * self.models * (2 * units + 2 * self.models)

    @property
    def units(self) -> Words:
        known = self.asked.known
        return np.arange(MOST_UNITS, dtype=np.uint64) if known is None else known

    def trials(
        self, look: Look | None, chosen: Sequence[Metric], valued: Valued, settings: Settings
    ) -> Iterator[_Trial]:
        """One for each metric; none where there are far too many models, or nothing to look at."""
        if look is None:
            return
        tried, shape = self.board.tried, (self.models, self.models)
        shared = np.broadcast_to(look.shared, shape)
        for number, metric in enumerate(chosen):
            usable, sums = np.broadcast_to(look.usable[number], shape), look.sums[number]
            code = obstacles(tried, shared, usable, settings.compare)
            a, b = _pairs(sums.averages, self.each)
            refused = refusals(tried, code[a, b], shared[a, b], usable[a, b], a, b, metric, settings.compare)
            have = valued(self.board.place, metric)
            ranked = np.array(
                [i for i, model in enumerate(self.board.place.models) if self.standings[i] is None and model in have],
                dtype=np.int64,
            )
            ranges = _settled(usable, code, ranked, a.size == _told(self.models, None), settings)
            yield _Trial(
                self, number, metric, sums, a, b, usable[a, b], refused, np.flatnonzero(code[a, b] == 0),
                ranked if ranges else ranked[:0], ranges, plan_of(settings),
            )  # fmt: skip


@dataclass
class _Trial:
    """The pairs and ranks of a board by one metric, while they are worked out."""

    case: _Case
    number: int
    metric: Metric
    sums: Sums
    a: Ints
    b: Ints
    problems: Ints
    refused: tuple[pl.Series, pl.Series]
    compared: Ints
    ranked: Ints
    ranges: bool
    plan: Plan
    pairs: Pairs | None = None

    def asks(self) -> Iterator[tuple[Ints, Ask]]:
        """Pairs to be asked about, by their number among those compared: scored on the same problems, and others."""
        a, b = self.a[self.compared], self.b[self.compared]
        same = self.sums.kind[a] == self.sums.kind[b]
        near, far = np.flatnonzero(same), np.flatnonzero(~same)
        yield near, Ask(self.case.at, self.number, a[near], b[near], apart=False)
        step = max(1, _ROOM // (2 * _NUMBER * max(1, self.sums.unit.size)))
        for first in range(0, far.size, step):
            some = far[first : first + step]
            yield some, Ask(self.case.at, self.number, a[some], b[some], apart=True)

    def room(self, ask: Ask) -> int:
        """Bytes that the answer takes, and what is made of it."""
        units = 2 * self.sums.unit.size if ask.apart else 0
        return _NUMBER * (4 + units) * ask.a.size + 2 * _NUMBER * self.case.resamples * self.case.models

    def compare(self, some: Ints, answer: Answer, drawn: Chance) -> None:
        if self.pairs is None:
            a, b, case = self.a[self.compared], self.b[self.compared], self.case
            step, clustered = case.board.steps[self.number], case.asked.clustered
            self.pairs = Pairs(self.sums, step, a, b, self.ranked, clustered, drawn, self.plan)
        self.pairs.compare(some, answer.wins, answer.apart)

    def finish(self) -> None:
        """No pair is left to be compared: what was made on the way is let go."""
        assert self.pairs is not None
        self.found, self.pairs = self.pairs.found(), None

    def measured(self) -> Measured:
        lifts, ranks = self.found
        refused, compared, lifts = _alone(self.refused, self.compared, lifts)
        settled = ranks if self.ranges else None
        return Measured(
            self.metric, self.a, self.b, self.problems, refused, compared, lifts, self.ranked, settled,
            self.case.resamples,
        )  # fmt: skip


def _compared(trials: Sequence[_Trial], parts: Parts) -> None:
    """Ask all parts about the pairs of some trials, so many pairs at a time as there is room for."""
    todo = [(trial, some, ask) for trial in trials for some, ask in trial.asks()]
    last = {id(trial): i for i, (trial, *_) in enumerate(todo)}
    numbered = list(enumerate(todo))
    for batch in batch_by_size(numbered, lambda job: job[1][0].room(job[1][2]), _ROOM):
        answers = parts.answer([ask for _, (_, _, ask) in batch])
        work: dict[tuple[int, int], dict[int, list[tuple[int, _Trial, Ints, Answer]]]] = {}
        for (i, (trial, some, _)), answer in zip(batch, answers, strict=True):
            alike = work.setdefault((trial.case.at[0], trial.case.resamples), {})
            alike.setdefault(id(trial), []).append((i, trial, some, answer))
        for alike in work.values():  # those that share their chances
            _compare(list(alike.values()), last)


def _compare(jobs: list[list[tuple[int, _Trial, Ints, Answer]]], last: dict[int, int]) -> None:
    """Each job is of one trial."""
    first = jobs[0][0][1]
    drawn = chance(first.case.units, first.case.resamples, first.plan.seed)

    def one(job: list[tuple[int, _Trial, Ints, Answer]]) -> None:
        for i, trial, some, answer in job:
            trial.compare(some, answer, drawn)
            if last[id(trial)] == i:
                trial.finish()

    parallel_map(one, jobs)


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
