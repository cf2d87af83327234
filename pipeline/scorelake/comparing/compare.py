"""Compare boards: every pair of models that can be compared, and every model that can be ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.comparing.boards import Benchmark, ModelBoard
from scorelake.comparing.eligibility import (
    N_DIFFERS,
    REFUSED,
    Codes,
    Counts,
    comparability,
    n_ratio,
    rank_eligibility,
    refusals,
)
from scorelake.comparing.sums import BoardId, BoardSums, LakeSums, PairQuery, PairSums
from scorelake.metrics.board import ModelSums, pair_batches
from scorelake.metrics.bootstrap import MAX_UNITS, Resamples, resample
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.families import Metric
from scorelake.metrics.paired import MAX_FLIP_RATIO, Lifts, PairedComparison, Ranks, ResamplePlan
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.values import metric_bounds
from scorelake.settings import Settings
from scorelake.threads import batch_by_size, parallel_map, single_threaded_blas

HasValue = Callable[[ModelBoard, Metric], set[str]]
"""Returns the models of a board that have a value of a metric."""
_MAX_BYTES, _FLOAT = 1 << 28, 8
"""Memory for the sums of boards or pairs at a time; and bytes of a number."""
_SUBJECT_SHARE = 4
"""Subjects get the resamples that this many times as many pairs of a benchmark would get."""
MAX_ALL_PAIRS = 300
"""Boards with more models hold each model against the leaders and its neighbours in rank."""
MAX_MODELS = 10_000
"""Boards with more models are not compared in advance: `shared` has a number for every two of them."""


@dataclass(frozen=True)
class MetricResult:
    """Pairs and ranks of one board by one metric; lifts and ranks are there after the comparison."""

    metric: Metric
    a: Ints
    b: Ints
    """The two models of every pair, by number; a is the first by name."""
    problems: Counts
    """Problems on which both models have a score."""
    refused: tuple[pl.Series, pl.Series]
    """Reason why a pair is not compared, as B against A and as A against B; null if it is."""
    compared: Ints
    """Numbers of the pairs that are compared."""
    ranked: Ints
    """Numbers of the models that are ranked; none where they have too few problems in common."""
    resamples: int
    lifts: Lifts = field(default_factory=lambda: Lifts.empty(0))
    ranks: Ranks | None = None

    def finish(self, lifts: Lifts, ranks: Ranks) -> MetricResult:
        """Add the numbers; refuse pairs whose common problems all belong to one cluster: they have no interval."""
        single = np.isnan(lifts.lo)
        text = pl.Series([f"{REFUSED}too few clusters (1 in common, 2 needed)"]).new_from_index(0, int(single.sum()))
        b_over_a, a_over_b = (each.clone().scatter(self.compared[single], text) for each in self.refused)
        return replace(
            self,
            refused=(b_over_a, a_over_b),
            compared=self.compared[~single],
            lifts=lifts.take(~single),
            ranks=ranks if self.ranked.size else None,
        )


@dataclass(frozen=True)
class BoardResult:
    """Pairs and ranks of one board."""

    board: ModelBoard
    unranked: list[str | None]
    """Reason why each model is not ranked; None if it is."""
    metrics: list[MetricResult]


def resample_plan(settings: Settings) -> ResamplePlan:
    return ResamplePlan(settings.compare.resamples, settings.compare.seed, settings.uncertainty.confidence)


def compare_boards(
    benchmarks: Sequence[Benchmark],
    chosen: Sequence[Metric],
    has_value: HasValue,
    settings: Settings,
    lake: LakeSums,
    max_models: int = MAX_MODELS,
    max_bytes: int = _MAX_BYTES,
) -> list[list[BoardResult]]:
    """Return the results of each benchmark's boards: first all subjects together, then each.

    As many boards at a time as fit into memory; each time all buckets are read for the sums of models, and then for
    those of pairs.
    """
    tasks = [task for i, each in enumerate(benchmarks) for task in _board_tasks(i, each, len(chosen), settings)]
    out: list[list[BoardResult]] = [[] for _ in benchmarks]
    with single_threaded_blas():
        for batch in batch_by_size(tasks, lambda task: task.size, max_bytes):
            sums = lake.model_sums([task.id for task in batch if len(task.board.models) <= max_models])
            by_metric = [
                list(_metric_tasks(task, sums.get(task.id), chosen, has_value, settings, lake.outcomes))
                for task in batch
            ]
            _compare_pairs([each for tasks in by_metric for each in tasks], lake, max_bytes)
            for task, mine in zip(batch, by_metric, strict=True):
                out[task.id[0]].append(BoardResult(task.board, task.unranked, [each.result for each in mine]))
    return out


@dataclass(frozen=True)
class BoardTask:
    """One board to compare."""

    id: BoardId
    board: ModelBoard
    benchmark: Benchmark
    partners: int | None
    """Models that each is compared with; None for all."""
    plan: ResamplePlan
    unranked: list[str | None]
    size: int
    """Bytes of its sums."""
    metrics: int
    """Metrics that its models are compared by."""


def _board_tasks(number: int, benchmark: Benchmark, metrics: int, settings: Settings) -> Iterator[BoardTask]:
    """Yield the boards of a benchmark. Where there are many subjects, their pairs have fewer resamples."""
    plan, (overall, *subjects) = resample_plan(settings), benchmark.boards
    of_subjects = metrics if settings.compare.metrics or settings.metrics.names else 1
    for first, boards, share, used in ((0, [overall], 1, metrics), (1, subjects, _SUBJECT_SHARE, of_subjects)):
        partners = _partners([len(board.models) for board in boards], used, settings.compare.max_pairs)
        pairs = used * sum(_count_pairs(len(board.models), partners) for board in boards)
        for i, board in enumerate(boards, start=first):
            models, units = len(board.models), min(benchmark.units.size, MAX_UNITS)
            size = _FLOAT * (metrics + 1) * models * (2 * units + models)
            own_plan = replace(plan, resamples=plan.resamples_for(share * pairs))
            unranked = rank_eligibility(board.coverage, settings.compare)
            yield BoardTask((number, i), board, benchmark, partners, own_plan, unranked, size, used)


def _partners(models: Sequence[int], metrics: int, max_pairs: int) -> int | None:
    """Return how many others each model is compared with, so that a table has at most max_pairs; None for all."""
    if max(models, default=0) <= MAX_ALL_PAIRS and metrics * sum(_count_pairs(n, None) for n in models) <= max_pairs:
        return None
    return min(MAX_ALL_PAIRS - 1, max(2, max_pairs // (metrics * sum(models))))


def _count_pairs(models: int, partners: int | None) -> int:
    every = models * (models - 1) // 2
    return every if partners is None else min(every, models * partners)


def select_pairs(values: Floats, partners: int | None) -> tuple[Ints, Ints]:
    """Return all pairs; or each model with the leaders, and with those that follow it in rank, half of each."""
    models = values.size
    fits = models <= MAX_ALL_PAIRS and _count_pairs(models, partners) == _count_pairs(models, None)
    if partners is None or fits:
        return np.triu_indices(models, 1)
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    leaders = min(partners // 2, models)
    sides = [(np.repeat(np.arange(leaders), models), np.tile(np.arange(models), leaders))]
    sides += [(np.arange(models - step), np.arange(step, models)) for step in range(1, partners - partners // 2 + 1)]
    one, two = (order[np.concatenate(side)] for side in zip(*sides, strict=True))
    code = np.unique((np.minimum(one, two) * models + np.maximum(one, two))[one != two])
    return np.divmod(code, models)


@dataclass
class MetricTask:
    """The pairs and ranks of a board by one metric, while they are computed."""

    board: BoardTask
    number: int
    sums: ModelSums
    result: MetricResult
    n_differs: NDArray[np.bool_]
    """Models, two by two, of which one has more than MAX_FLIP_RATIO times as many attempts per problem."""
    bounds: tuple[float, float]
    comparison: PairedComparison | None = None

    def queries(self, max_bytes: int) -> Iterator[tuple[Ints, PairQuery]]:
        """Yield queries and the numbers of their pairs among those compared."""
        a, b = self.result.a[self.result.compared], self.result.b[self.result.compared]
        step = max(1, max_bytes // (2 * _FLOAT * self.sums.sums.shape[1]))
        for i, at in enumerate(pair_batches(self.sums.differ(a, b), step)):
            yield at, PairQuery(self.board.id, self.number, a[at], b[at], self.sums.tolerance, own_sums=i > 0)

    def size(self, query: PairQuery) -> int:
        """Return the bytes of the answer to a query, and of the resampled means that it is used with."""
        units = 2 * self.sums.sums.shape[1] if query.own_sums else 0
        return _FLOAT * ((4 + units) * query.a.size + 2 * self.board.plan.resamples * len(self.board.board.models))

    def compare(self, at: Ints, sums: PairSums, drawn: Resamples, is_last: bool) -> None:
        """Compare pairs, and release the resampled means after the last."""
        result = self.result
        if self.comparison is None:
            a, b = result.a[result.compared], result.b[result.compared]
            confidence, clustered = self.board.plan.confidence, self.board.benchmark.clustered
            self.comparison = PairedComparison(
                self.sums, a, b, result.ranked, drawn, confidence, clustered, self.n_differs, self.bounds
            )
        self.comparison.compare(at, sums.wins, sums.differences)
        if is_last:
            lifts, ranks = self.comparison.finish()
            self.result = result.finish(lifts, ranks)
            self.comparison = None


def _metric_tasks(
    task: BoardTask,
    sums: BoardSums | None,
    chosen: Sequence[Metric],
    has_value: HasValue,
    settings: Settings,
    outcomes: Outcomes,
) -> Iterator[MetricTask]:
    """Yield a task per metric; none where there are too many models."""
    if sums is None:
        return
    models, coverage, compare = task.board.models, task.board.coverage, settings.compare
    shape = (len(models), len(models))
    shared = np.broadcast_to(sums.shared, shape)
    ratio = n_ratio(sums.n_ratios, shared)
    for number, (metric, own) in enumerate(zip(chosen, sums.metrics, strict=True)):
        if number >= task.metrics:
            return
        usable = np.broadcast_to(own.shared, shape)
        codes = comparability(coverage, shared, usable, ratio, metric, compare)
        a, b = select_pairs(own.averages, task.partners)
        refused = refusals(coverage, codes[a, b], shared[a, b], usable[a, b], a, b, metric, compare)
        valued = has_value(task.board, metric)
        is_ranked = [why is None and model in valued for model, why in zip(models, task.unranked, strict=True)]
        ranked = np.flatnonzero(is_ranked)
        if not _has_ranges(usable, codes, ranked, a.size == _count_pairs(len(models), None), settings):
            ranked = ranked[:0]
        compared = np.flatnonzero(codes[a, b] == 0)
        result = MetricResult(metric, a, b, usable[a, b], refused, compared, ranked, task.plan.resamples)
        differs = (ratio > MAX_FLIP_RATIO) | (codes == N_DIFFERS)
        yield MetricTask(task, number, own, result, differs, metric_bounds(metric, settings, outcomes))


def _has_ranges(usable: Counts, codes: Codes, ranked: Ints, every_pair: bool, settings: Settings) -> bool:
    """Return whether ranks have ranges: every two ranked models are comparable but for their n, on enough problems.

    Where not every pair is compared, the ranked models must be scored on the same problems.
    """
    inside = np.ix_(ranked, ranked)
    refused = ~np.isin(codes[inside][np.triu_indices(ranked.size, 1)], (0, N_DIFFERS))
    enough = ranked.size > 0 and usable[inside].min() >= settings.compare.min_problems
    same_problems = every_pair or bool((usable[inside] == usable.diagonal()[ranked]).all())
    return bool(enough and same_problems and not refused.any())


Work = tuple[MetricTask, Ints, PairQuery]


def _compare_pairs(tasks: Sequence[MetricTask], lake: LakeSums, max_bytes: int) -> None:
    """Compare the pairs of tasks, as many at a time as fit into memory."""
    work = [(task, at, query) for task in tasks for at, query in task.queries(max_bytes)]
    last = {id(task): query for task, _, query in work}

    def compare(answers: Sequence[tuple[Work, PairSums]], drawn: Resamples) -> None:
        for (task, at, query), sums in answers:
            task.compare(at, sums, drawn, is_last=last[id(task)] is query)

    for batch in batch_by_size(work, lambda item: item[0].size(item[2]), max_bytes):
        answers = zip(batch, lake.pair_sums([query for *_, query in batch]), strict=True)
        for (_, plan), group in groupby(answers, lambda answer: _draw_key(answer[0][0])):
            by_task = [list(each) for _, each in groupby(group, lambda answer: id(answer[0][0]))]
            units = by_task[0][0][0][0].board.benchmark.units
            parallel_map(partial(compare, drawn=resample(units, plan.resamples, plan.seed)), by_task)


def _draw_key(task: MetricTask) -> tuple[int, ResamplePlan]:
    """Return what decides the weights and signs of a task."""
    return task.board.id[0], task.board.plan
