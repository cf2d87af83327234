"""Sums of scores by board and by pair of models, bucket by bucket; the sums of all buckets add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.comparing.boards import Benchmark
from scorelake.metrics.board import Differences, ModelSums, Wins, count_shared
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
    metrics: list[ModelSums]

    def __add__(self, other: BoardSums) -> BoardSums:
        both = zip(self.metrics, other.metrics, strict=True)
        return BoardSums(self.shared + other.shared, [mine + theirs for mine, theirs in both])


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
    """Scores of a benchmark's models on the problems of one bucket, as a sparse matrix models x problems.

    Problems are sorted by subject, entries by problem.
    """

    model: Ints
    problem: Ints
    values: list[Floats]
    """Of each metric, an entry per attempted problem and model; NaN where the metric is not defined."""
    unit: Ints
    """The unit of each problem."""
    subjects: dict[str, tuple[int, int]]
    """First problem of each subject, and the one after its last."""

    def dense(self, values: Floats, problems: tuple[int, int], models: Ints) -> Iterator[tuple[Floats, Ints]]:
        """Yield the scores of models (rows) on a range of problems, and the units of these, in blocks."""
        step = max(1, _MAX_CELLS // max(1, models.size))
        row = np.full(max(int(self.model.max(initial=0)), int(models.max(initial=0))) + 1, -1)
        row[models] = np.arange(models.size)
        for low in range(*problems, step):
            high = min(low + step, problems[1])
            entries = slice(*np.searchsorted(self.problem, (low, high)))
            out = np.full((models.size, high - low), np.nan)
            # every model of a benchmark that attempted a problem of a subject is on the board of this subject
            out[row[self.model[entries]], self.problem[entries] - low] = values[entries]
            yield out, self.unit[low:high]


class BucketScores:
    """Scores on the problems of one bucket, by the number of the benchmark."""

    def __init__(self, benchmarks: Sequence[Benchmark], matrices: dict[int, BoardMatrix]) -> None:
        self.benchmarks, self.matrices = benchmarks, matrices

    @classmethod
    def read(cls, task: BucketTask, benchmarks: Sequence[Benchmark]) -> BucketScores:
        """Read a bucket and score its problems by the metrics that models are compared by."""
        chosen = choose_compared(task.settings, task.outcomes)  # not sent: functions of metrics cannot be pickled
        cluster = task.settings.columns.cluster
        columns = [*KEYS, "n", "c", *needed_columns(chosen, task.outcomes), *([cluster] if cluster else [])]
        rows = task.read(dict.fromkeys(columns)).filter(pl.col("n") > 0).with_columns(pl.col("c").fill_null(0))
        values = problem_values(rows, chosen, task.settings, task.outcomes)
        problems = attempted_problems(rows, cluster)
        keys = [*BOARD, "subject", "problem_id"]
        numbered = problems.select(keys).with_row_index("problem")
        problem = rows.select(keys).join(numbered, on=keys, how="left", maintain_order="left")["problem"].to_numpy()
        order = np.argsort(problem, kind="stable")
        problem, values = problem[order].astype(np.int64), [column[order] for column in values]
        names = rows["model"].unique().sort()
        model = rows["model"].replace_strict(names, np.arange(names.len()), return_dtype=pl.Int64).to_numpy()[order]
        number = {(each.overall.benchmark, each.overall.protocol): i for i, each in enumerate(benchmarks)}
        matrices, low = {}, 0
        for part in problems.partition_by(BOARD, maintain_order=True):
            i, high = number[part.select(BOARD).row(0)], low + part.height
            index = {name: at for at, name in enumerate(benchmarks[i].overall.models)}
            of_benchmark = np.array([index.get(name, -1) for name in names])
            entries = slice(*np.searchsorted(problem, (low, high)))
            units = Units.within(part["key"].to_numpy(), benchmarks[i].unit_keys, benchmarks[i].clustered)
            ends = part.with_row_index("at").group_by("subject").agg(pl.col("at").min(), pl.len())
            subjects = {subject: (at, at + size) for subject, at, size in ends.iter_rows()}
            scores = [column[entries] for column in values]
            matrices[i] = BoardMatrix(
                of_benchmark[model[entries]], problem[entries] - low, scores, units.index, subjects
            )
            low = high
        return cls(benchmarks, matrices)

    def model_sums(self, boards: Iterable[BoardId]) -> dict[BoardId, BoardSums]:
        """Add up the scores of models on the boards that have a problem here."""
        out: dict[BoardId, BoardSums] = {}
        for board in boards:
            matrix, problems, models = self._select(board)
            if matrix is None:
                continue
            units = self.benchmarks[board[0]].units.size
            attempted = np.ones(matrix.model.size)
            blocks = [matrix.dense(column, problems, models) for column in (attempted, *matrix.values)]
            for (there, unit), *scores in zip(*blocks, strict=True):
                sums = [ModelSums.of(score, unit, units) for score, _ in scores]
                add(out, {board: BoardSums(count_shared(~np.isnan(there)), sums)})
        return out

    def pair_sums(self, queries: Sequence[PairQuery]) -> dict[int, PairSums]:
        """Compare pairs; queries without a problem here have no entry."""
        out: dict[int, PairSums] = {}
        for i, query in enumerate(queries):
            matrix, problems, models = self._select(query.board)
            if matrix is None:
                continue
            units = self.benchmarks[query.board[0]].units.size
            for scores, unit in matrix.dense(matrix.values[query.metric], problems, models):
                own = Differences.of(scores, unit, units, query.a, query.b) if query.own_sums else None
                add(out, {i: PairSums(Wins.of(scores, query.a, query.b, query.tolerance), own)})
        return out

    def _select(self, board: BoardId) -> tuple[BoardMatrix | None, tuple[int, int], Ints]:
        """Return the matrix of a board, the range of its problems, and the numbers of its models in the benchmark."""
        benchmark, matrix = self.benchmarks[board[0]], self.matrices.get(board[0])
        own = benchmark.boards[board[1]]
        problems = (0, 0)
        if matrix is not None:
            problems = (0, matrix.unit.size) if own.subject is None else matrix.subjects.get(own.subject, (0, 0))
        if len(own.models) == len(benchmark.overall.models):
            models = np.arange(len(own.models))
        else:
            index = {name: at for at, name in enumerate(benchmark.overall.models)}
            models = np.array([index[name] for name in own.models], dtype=np.int64)
        return (matrix if problems[0] < problems[1] else None), problems, models


@dataclass(frozen=True)
class SumTask:
    """Sums to compute over a few buckets: of the models of boards, or of pairs."""

    buckets: tuple[BucketTask, ...]
    benchmarks: Sequence[Benchmark]
    boards: Sequence[BoardId] = ()
    queries: Sequence[PairQuery] = ()
    loaded: list[BucketScores] | None = None
    """Scores of the buckets, where they are in memory."""

    def scores(self) -> list[BucketScores]:
        if self.loaded is not None:
            return self.loaded
        return parallel_map(lambda bucket: BucketScores.read(bucket, self.benchmarks), self.buckets)

    def __str__(self) -> str:
        return ", ".join(map(str, self.buckets))


def sum_models(task: SumTask) -> dict[BoardId, BoardSums]:
    """Add up the scores of the boards of a task."""
    return _sum(scores.model_sums(task.boards) for scores in task.scores())


def sum_pairs(task: SumTask) -> dict[int, PairSums]:
    """Compare the pairs of a task."""
    return _sum(scores.pair_sums(task.queries) for scores in task.scores())


def add(total: dict[Key, Sums], part: dict[Key, Sums]) -> None:
    """Add sums to a total, entry by entry."""
    for key, sums in part.items():
        total[key] = total[key] + sums if key in total else sums


def _sum(parts: Iterable[dict[Key, Sums]]) -> dict[Key, Sums]:
    out: dict[Key, Sums] = {}
    for part in parts:  # in the order of buckets: the same bits on every engine
        add(out, part)
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
        self.tasks = [SumTask(batch, benchmarks) for batch in batches]
        if in_process and len(batches) == 1:
            self.tasks = [replace(self.tasks[0], loaded=self.tasks[0].scores())]

    def model_sums(self, boards: Sequence[BoardId]) -> dict[BoardId, BoardSums]:
        """Add up the scores of models."""
        return _sum(self.engine_map(sum_models, [replace(task, boards=boards) for task in self.tasks]))

    def pair_sums(self, queries: Sequence[PairQuery]) -> list[PairSums]:
        """Compare pairs of models."""
        sums = _sum(self.engine_map(sum_pairs, [replace(task, queries=queries) for task in self.tasks]))
        return [sums[i] for i in range(len(queries))]
