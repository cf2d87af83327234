"""Compare boards: every pair of models that can be compared, and every model that can be ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from scorelake.comparing.boards import (
    N_DIFFERS,
    SINGLE_CLUSTER,
    Codes,
    Counts,
    ModelBoard,
    comparability,
    n_ratios,
    rank_eligibility,
)
from scorelake.comparing.sums import LakeSums, PairQuery, Sums
from scorelake.hashing import Hashes
from scorelake.metrics.board import ModelSums, pair_batches
from scorelake.metrics.bootstrap import MAX_UNITS, resample
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.families import Metric
from scorelake.metrics.paired import MAX_FLIP_RATIO, Lifts, PairedComparison, Ranks, ResamplePlan
from scorelake.scoring.values import metric_bounds
from scorelake.settings import Settings
from scorelake.threads import batch_by_size, single_threaded_blas

HasValue = Callable[[ModelBoard, Metric], set[str]]  # returns the models of a board that have a value of a metric
_MAX_BYTES, _FLOAT = 1 << 28, 8  # memory for the sums of boards or pairs at a time; and bytes of a number
_SUBJECT_SHARE = 4  # subjects get the resamples that this many times as many pairs of a benchmark would get
MAX_ALL_PAIRS = 300  # boards with more models hold each model against the leaders and its neighbours in rank
MAX_MODELS = 10_000
"""Boards with more models are not compared in advance: `shared` has a number for every two of them."""


@dataclass(frozen=True)
class MetricResult:
    """Pairs and ranks of one board by one metric; lifts and ranks are there after the comparison."""

    metric: Metric
    a: Ints
    b: Ints  # the two models of every pair, by number; a is the first by name
    codes: Codes  # why a pair is not compared, see comparability; 0 if it is
    shared: Counts  # problems that both models attempted
    problems: Counts  # problems on which both models have a score
    ranked: Ints  # numbers of the models that are ranked; none where they have too few problems in common
    resamples: int
    lifts: Lifts = field(default_factory=lambda: Lifts.empty(0))
    ranks: Ranks | None = None

    @property
    def compared(self) -> Ints:
        """Numbers of the pairs that are compared."""
        return np.flatnonzero(self.codes == 0)

    def finish(self, lifts: Lifts, ranks: Ranks) -> MetricResult:
        """Add the numbers; refuse pairs whose common problems all belong to one cluster: they have no interval."""
        single, codes = np.isnan(lifts.lo), self.codes.copy()
        codes[self.compared[single]] = SINGLE_CLUSTER
        return replace(self, codes=codes, lifts=lifts.take(~single), ranks=ranks if self.ranked.size else None)


@dataclass(frozen=True)
class BoardResult:
    """Pairs and ranks of one board."""

    board: ModelBoard
    metrics: list[MetricResult]


def compare_boards(
    boards: Sequence[ModelBoard],
    chosen: Sequence[Metric],
    has_value: HasValue,
    settings: Settings,
    lake: LakeSums,
    max_models: int = MAX_MODELS,
    max_bytes: int = _MAX_BYTES,
) -> list[BoardResult]:
    """Return the pairs and ranks of each board."""
    # As many boards at a time as fit into memory; each time all buckets are read for the sums of models, and then for
    # those of pairs.
    out: list[BoardResult] = []
    with single_threaded_blas():
        for batch in batch_by_size(_plan_boards(boards, len(chosen), settings), lambda plan: plan.size, max_bytes):
            fitting = [plan for plan in batch if len(plan.board.models) <= max_models]
            sums = zip(fitting, lake.sums([plan.number for plan in fitting]), strict=True)
            queued = [each for pair in sums for each in _metric_tasks(*pair, chosen, has_value, settings, lake)]
            results = _compare_pairs(queued, lake, max_bytes)
            out += [BoardResult(plan.board, [r for i, r in results if i == plan.number]) for plan in batch]
    return out


@dataclass(frozen=True)
class BoardPlan:
    """How one board is compared."""

    number: int
    board: ModelBoard
    units: Hashes
    partners: int | None  # models that each is compared with; None for all
    resampling: ResamplePlan
    size: int  # bytes of its sums
    metrics: int  # metrics that its models are compared by


def _plan_boards(boards: Sequence[ModelBoard], metrics: int, settings: Settings) -> list[BoardPlan]:
    """Plan boards. Where a benchmark has many subjects, their pairs have fewer resamples."""
    compare, out = settings.compare, []
    resampling = ResamplePlan(compare.resamples, compare.seed, settings.uncertainty.confidence)
    of_subjects = metrics if compare.metrics or settings.metrics.names else 1
    of_one_table = groupby(enumerate(boards), lambda item: (item[1].benchmark, item[1].protocol, not item[1].subject))
    for (*_, is_benchmark), group in of_one_table:
        numbered = list(group)
        share, used = (1, metrics) if is_benchmark else (_SUBJECT_SHARE, of_subjects)
        partners = _partners([len(board.models) for _, board in numbered], used, compare.max_pairs)
        pairs = used * sum(_count_pairs(len(board.models), partners) for _, board in numbered)
        own = replace(resampling, resamples=resampling.resamples_for(share * pairs))
        for number, board in numbered:
            models, keys = len(board.models), board.unit_keys
            units = np.arange(MAX_UNITS, dtype=np.uint64) if keys is None else keys
            size = _FLOAT * (metrics + 1) * models * (2 * min(units.size, MAX_UNITS) + models)
            out.append(BoardPlan(number, board, units, partners, own, size, used))
    return out


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


@dataclass(frozen=True)
class MetricTask:
    """The pairs and ranks of a board by one metric, before they are computed."""

    plan: BoardPlan
    number: int
    sums: ModelSums
    result: MetricResult
    n_differs: NDArray[np.bool_]
    """Models, two by two, of which one has more than MAX_FLIP_RATIO times as many attempts per problem."""
    bounds: tuple[float, float]

    def compared_pairs(self) -> tuple[Ints, Ints]:
        """Return the two models of every pair that is compared."""
        at = self.result.compared
        return self.result.a[at], self.result.b[at]

    def queries(self, max_bytes: int) -> Iterator[tuple[Ints, PairQuery, int]]:
        """Yield queries with the numbers of their pairs among those compared, and the bytes of the answer."""
        a, b = self.compared_pairs()
        units = max(1, self.sums.sums.shape[1])
        for i, at in enumerate(pair_batches(self.sums.differ(a, b), max(1, max_bytes // (2 * _FLOAT * units)))):
            size = _FLOAT * at.size * (4 + 2 * units * (i > 0))
            yield (
                at,
                PairQuery(self.plan.number, self.number, a[at], b[at], self.sums.tolerance, own_sums=i > 0),
                size,
            )


def _metric_tasks(
    plan: BoardPlan, sums: Sums, chosen: Sequence[Metric], has_value: HasValue, settings: Settings, lake: LakeSums
) -> Iterator[MetricTask]:
    """Yield a task per metric that the models of a board are compared by."""
    board, models = plan.board, plan.board.models
    shape, unranked = (len(models), len(models)), rank_eligibility(board, settings.compare)
    shared = np.broadcast_to(sums[0], shape)
    ratios = n_ratios(sums[1], shared)
    for number, (metric, own) in enumerate(zip(chosen[: plan.metrics], sums[2:], strict=False)):
        usable = np.broadcast_to(own.shared, shape)
        codes = comparability(board, shared, usable, ratios, metric, settings.compare)
        a, b = select_pairs(own.averages, plan.partners)
        valued = has_value(board, metric)
        ranked = np.flatnonzero([why is None and name in valued for name, why in zip(models, unranked, strict=True)])
        if not _has_ranges(usable, codes, ranked, a.size == _count_pairs(len(models), None), settings):
            ranked = ranked[:0]
        resamples = plan.resampling.resamples
        result = MetricResult(metric, a, b, codes[a, b], shared[a, b], usable[a, b], ranked, resamples)
        differs = (ratios[0] > MAX_FLIP_RATIO) | (codes == N_DIFFERS)
        yield MetricTask(plan, number, own, result, differs, metric_bounds(metric, settings, lake.outcomes))


def _has_ranges(usable: Counts, codes: Codes, ranked: Ints, every_pair: bool, settings: Settings) -> bool:
    """Return whether ranks have ranges: all ranked models are comparable but for their n, on enough problems."""
    # Where not every pair is compared, the ranked models must be scored on the same problems.
    inside = np.ix_(ranked, ranked)
    refused = ~np.isin(codes[inside][np.triu_indices(ranked.size, 1)], (0, N_DIFFERS))
    enough = ranked.size > 0 and usable[inside].min() >= settings.compare.min_problems
    same_problems = every_pair or bool((usable[inside] == usable.diagonal()[ranked]).all())
    return bool(enough and same_problems and not refused.any())


def _compare_pairs(tasks: Sequence[MetricTask], lake: LakeSums, max_bytes: int) -> list[tuple[int, MetricResult]]:
    """Compare the pairs of tasks one after the other, and return the results with the numbers of their boards."""
    # sums of as many pairs as fit into memory are read at a time
    work = [(i, *query) for i, task in enumerate(tasks) for query in task.queries(max_bytes)]
    answers = (
        (i, at, sums)
        for batch in batch_by_size(work, lambda item: item[-1], max_bytes)
        for (i, at, *_), sums in zip(batch, lake.sums([query for _, _, query, _ in batch]), strict=True)
    )
    out, drawn_for = [], None
    for i, parts in groupby(answers, lambda answer: answer[0]):
        task, plan, board = tasks[i], tasks[i].plan, tasks[i].plan.board
        shared = (board.benchmark, board.protocol, plan.units.size, plan.resampling)  # by its boards
        if drawn_for != shared:
            drawn_for, drawn = shared, resample(plan.units, plan.resampling.resamples, plan.resampling.seed)
        a, b = task.compared_pairs()
        how = (drawn, plan.resampling.confidence, board.clustered, task.n_differs, task.bounds)
        comparison = PairedComparison(task.sums, a, b, task.result.ranked, *how)
        for _, at, (wins, *differences) in parts:
            comparison.compare(at, wins, *differences)
        out.append((plan.number, task.result.finish(*comparison.finish())))
    return out
