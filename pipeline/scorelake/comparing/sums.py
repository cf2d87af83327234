"""Sums of scores by board and by pair of models, bucket by bucket; the sums of all buckets add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.comparing.boards import Benchmark, ModelBoard
from scorelake.metrics.board import Differences, ModelSums, Wins, count_shared, sum_n_ratios
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.distributions import Floats, Ints
from scorelake.schemas import KEYS
from scorelake.scoring.buckets import BOARD, BucketTask, attempted_problems
from scorelake.scoring.choose import choose_compared
from scorelake.scoring.values import needed_columns, problem_values
from scorelake.threads import parallel_map

BoardId = tuple[int, int]
"""Number of the benchmark, and number of the board in it: 0 for all subjects, else that of the subject from 1 on."""
_MAX_CELLS = 1 << 24
"""Scores of a dense matrix; boards with more models x problems are added up block by block."""
Key = TypeVar("Key")


@dataclass(frozen=True)
class BoardSums:
    """Sums of a board's models."""

    shared: NDArray[np.int32]
    """Problems that two models both attempted, models x models; a single number where all attempted all."""
    n_ratios: NDArray[np.float32]
    """See sum_n_ratios."""
    metrics: list[ModelSums]

    def __add__(self, other: BoardSums) -> BoardSums:
        both = zip(self.metrics, other.metrics, strict=True)
        metrics = [mine + theirs for mine, theirs in both]
        return BoardSums(self.shared + other.shared, self.n_ratios + other.n_ratios, metrics)


@dataclass(frozen=True)
class PairQuery:
    """Pairs of models, by their numbers on a board, to be compared by one metric."""

    board: BoardId
    metric: int
    a: Ints
    b: Ints
    tolerance: float
    own_sums: bool
    """The two models are not scored on the same problems: the sums of models do not tell their difference."""


@dataclass(frozen=True)
class PairSums:
    """The answer to a PairQuery."""

    wins: Wins
    differences: Differences | None

    def __add__(self, other: PairSums) -> PairSums:
        own = None if self.differences is None or other.differences is None else self.differences + other.differences
        return PairSums(self.wins + other.wins, own)


Sums = TypeVar("Sums", BoardSums, PairSums)


@dataclass(frozen=True)
class BoardMatrix:
    """Scores of a board's models on its problems of one bucket, as a sparse matrix models x problems."""

    model: Ints
    problem: Ints
    """Model and problem of each entry; entries are sorted by problem."""
    n: Floats
    values: list[Floats]
    """Of each metric, an entry per attempted problem and model; NaN where the metric is not defined."""
    units: Units
    """The unit of each problem."""
    models: int

    @classmethod
    def of(cls, rows: pl.DataFrame, benchmark: Benchmark, board: ModelBoard) -> BoardMatrix:
        """Take rows of a bucket, sorted by problem; columns that are numbers hold the scores of the metrics."""
        models = len(board.models)
        model = rows["model"].replace_strict(board.models, np.arange(models), return_dtype=pl.Int64).to_numpy()
        problem = rows["problem"].rle_id().cast(pl.Int64).to_numpy()
        key = rows["key"].to_numpy()[np.flatnonzero(np.diff(problem, prepend=-1))]
        values = [rows[name].to_numpy() for name in rows.columns if name.isdigit()]
        n = rows["n"].cast(pl.Float64).to_numpy()
        return cls(model, problem, n, values, Units.within(key, benchmark.unit_keys, benchmark.clustered), models)

    def dense(self, values: Floats) -> Iterator[tuple[Floats, Ints]]:
        """Yield scores, models x problems, and the units of these problems, in blocks of problems."""
        step, problems = max(1, _MAX_CELLS // self.models), self.units.index.size
        for low in range(0, problems, step):
            high = min(low + step, problems)
            entries = slice(*np.searchsorted(self.problem, (low, high)))
            out = np.full((self.models, high - low), np.nan)
            out[self.model[entries], self.problem[entries] - low] = values[entries]
            yield out, self.units.index[low:high]

    def model_sums(self) -> BoardSums:
        """Add up the scores of models."""
        units, out = self.units.key.size, list[BoardSums]()
        for (n, unit), *scores in zip(*map(self.dense, (self.n, *self.values)), strict=True):
            sums = [ModelSums.of(score, unit, units) for score, _ in scores]
            out.append(BoardSums(count_shared(~np.isnan(n)), sum_n_ratios(n), sums))
        return reduce(add, out)

    def pair_sums(self, query: PairQuery) -> PairSums:
        """Compare pairs of models."""
        units, out = self.units.key.size, list[PairSums]()
        for scores, unit in self.dense(self.values[query.metric]):
            own = Differences.of(scores, unit, units, query.a, query.b) if query.own_sums else None
            out.append(PairSums(Wins.of(scores, query.a, query.b, query.tolerance), own))
        return reduce(add, out)


Matrices = dict[BoardId, BoardMatrix]


def read_matrices(task: BucketTask, benchmarks: Sequence[Benchmark]) -> Matrices:
    """Read a bucket and score its problems by the metrics that models are compared by."""
    chosen = choose_compared(task.settings, task.outcomes)  # not sent: functions of metrics cannot be pickled
    cluster = task.settings.columns.cluster
    columns = [*KEYS, "n", "c", *needed_columns(chosen, task.outcomes), *([cluster] if cluster else [])]
    rows = task.read(dict.fromkeys(columns)).filter(pl.col("n") > 0).with_columns(pl.col("c").fill_null(0))
    values = problem_values(rows, chosen, task.settings, task.outcomes)
    problems = attempted_problems(rows, cluster).with_row_index("problem")
    scores = rows.select(*KEYS, "n").with_columns(pl.Series(str(i), value) for i, value in enumerate(values))
    scores = scores.join(problems, on=[*BOARD, "subject", "problem_id"], how="left").sort("problem")
    out = {}
    by_board = scores.partition_by(BOARD, as_dict=True)
    for number, benchmark in enumerate(benchmarks):
        mine = by_board.get((benchmark.overall.benchmark, benchmark.overall.protocol))
        if mine is None:
            continue
        by_subject = mine.partition_by("subject", as_dict=True)
        for i, board in enumerate(benchmark.boards):
            part = mine if board.subject is None else by_subject.get((board.subject,))
            if part is not None:
                out[number, i] = BoardMatrix.of(part, benchmark, board)
    return out


@dataclass(frozen=True)
class SumTask:
    """Sums to compute over a few buckets: of the models of boards, or of pairs."""

    buckets: tuple[BucketTask, ...]
    benchmarks: Sequence[Benchmark]
    boards: Sequence[BoardId] = ()
    queries: Sequence[PairQuery] = ()
    loaded: list[Matrices] | None = None
    """Scores of the buckets, where they are in memory."""

    def matrices(self) -> list[Matrices]:
        if self.loaded is not None:
            return self.loaded
        return parallel_map(lambda bucket: read_matrices(bucket, self.benchmarks), self.buckets)

    def __str__(self) -> str:
        return ", ".join(map(str, self.buckets))


def sum_models(task: SumTask) -> dict[BoardId, BoardSums]:
    """Add up the scores of the boards of a task."""
    return _sum(
        {board: each[board].model_sums() for board in task.boards if board in each} for each in task.matrices()
    )


def sum_pairs(task: SumTask) -> dict[int, PairSums]:
    """Compare the pairs of a task; queries without a problem here have no entry."""
    queries = list(enumerate(task.queries))
    return _sum({i: each[q.board].pair_sums(q) for i, q in queries if q.board in each} for each in task.matrices())


def _sum(parts: Iterable[dict[Key, Sums]]) -> dict[Key, Sums]:
    out: dict[Key, Sums] = {}
    for part in parts:  # in the order of buckets: the same bits on every engine
        for key, sums in part.items():
            out[key] = out[key] + sums if key in out else sums
    return out


class LakeSums:
    """Sums over all buckets, computed by an engine's map.

    A lake of one batch that is compared in this process is read and scored once; otherwise every call reads the
    buckets again, and memory follows the sums.
    """

    def __init__(
        self,
        engine_map: Callable[..., Iterator[Any]],
        batches: Sequence[tuple[BucketTask, ...]],
        benchmarks: Sequence[Benchmark],
        in_process: bool,
    ) -> None:
        self.engine_map = engine_map
        self.outcomes = batches[0][0].outcomes
        self.tasks = [SumTask(batch, benchmarks) for batch in batches]
        if in_process and len(batches) == 1:
            self.tasks = [replace(self.tasks[0], loaded=self.tasks[0].matrices())]

    def model_sums(self, boards: Sequence[BoardId]) -> dict[BoardId, BoardSums]:
        """Add up the scores of models."""
        return _sum(self.engine_map(sum_models, [replace(task, boards=boards) for task in self.tasks]))

    def pair_sums(self, queries: Sequence[PairQuery]) -> list[PairSums]:
        """Compare pairs of models."""
        sums = _sum(self.engine_map(sum_pairs, [replace(task, queries=queries) for task in self.tasks]))
        return [sums[i] for i in range(len(queries))]
