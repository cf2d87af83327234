"""Sums of scores by board and by pair of models, bucket by bucket; the sums of all buckets add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from scorelake.comparing.boards import ModelBoard
from scorelake.metrics.board import ModelSums, count_shared, count_wins, sum_differences, sum_n_ratios
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.distributions import Floats, Ints
from scorelake.schemas import KEYS
from scorelake.scoring.choose import Outcomes, choose_compared
from scorelake.scoring.survey import BOARD, BucketTask, attempted_problems
from scorelake.scoring.values import needed_columns, problem_values
from scorelake.threads import parallel_map

_MAX_CELLS = 1 << 24
"""Scores of dense matrices; boards with more metrics x models x problems are added up block by block."""


@dataclass(frozen=True)
class PairQuery:
    """Pairs of models, by their numbers on a board (of that number), to be compared by one metric."""

    board: int
    metric: int
    a: Ints
    b: Ints
    tolerance: float
    own_sums: bool
    """The two models are not scored on the same problems: their difference does not follow from sums of models."""


Request = int | PairQuery
"""A board, by its number, asks for the problems that every two models attempted, their sum_n_ratios and the ModelSums
of each metric; pairs ask for count_wins, and for sum_differences if they need own sums."""
Sums = list[Any]


@dataclass(frozen=True)
class BoardMatrix:
    """Scores of a board's models on its problems of one bucket, as a sparse matrix models x problems."""

    model: Ints
    problem: Ints  # model and problem of each entry; entries are sorted by problem
    values: list[Floats]
    """Attempts, then the scores of each metric: an entry per attempted problem and model, NaN where undefined."""
    units: Units  # the unit of each problem
    models: int

    def sums(self, request: Request) -> Sums:
        """Add up scores, in blocks of problems."""
        values = [self.values[request.metric + 1]] if isinstance(request, PairQuery) else self.values
        step, problems = max(1, _MAX_CELLS // (self.models * len(values))), self.units.index.size
        blocks = ((low, min(low + step, problems)) for low in range(0, max(1, problems), step))
        return reduce(_add, (self._sum_block(request, values, *block) for block in blocks))

    def _sum_block(self, request: Request, values: Sequence[Floats], low: int, high: int) -> Sums:
        entries = slice(*np.searchsorted(self.problem, (low, high)))
        unit, units = self.units.index[low:high], self.units.key.size
        dense = np.full((len(values), self.models, high - low), np.nan)
        dense[:, self.model[entries], self.problem[entries] - low] = [each[entries] for each in values]
        if not isinstance(request, PairQuery):
            by_metric = [ModelSums.of(scores, unit, units) for scores in dense[1:]]
            return [count_shared(~np.isnan(dense[0])), sum_n_ratios(dense[0]), *by_metric]
        (scores,), a, b = dense, request.a, request.b
        wins = count_wins(scores, a, b, request.tolerance)
        return [wins, sum_differences(scores, unit, units, a, b)] if request.own_sums else [wins]


Matrices = dict[int, BoardMatrix]


def read_matrices(task: BucketTask, boards: Sequence[ModelBoard], by_counts: pl.DataFrame) -> Matrices:
    """Read a bucket and score its problems by the metrics that models are compared by."""
    chosen = choose_compared(task.settings, task.outcomes)  # not sent: functions of metrics cannot be pickled
    cluster = task.settings.columns.cluster
    columns = [*KEYS, "n", "c", *needed_columns(chosen, task.outcomes), *([cluster] if cluster else [])]
    rows = task.read(dict.fromkeys(columns)).filter(pl.col("n") > 0).with_columns(pl.col("c").fill_null(0))
    counted = rows.select("n", "c").join(by_counts, on=["n", "c"], how="inner", maintain_order="left")
    others = [metric for metric in chosen if metric.name not in by_counts.columns]
    made = dict(zip(others, problem_values(rows, others, task.settings, task.outcomes), strict=True))
    scored = [made[metric] if metric in made else counted[metric.name].to_numpy() for metric in chosen]
    values, names = [rows["n"].to_numpy(), *scored], [str(i) for i in range(len(chosen) + 1)]
    problems = attempted_problems(rows, cluster).with_row_index("problem")
    scores = rows.select(KEYS).with_columns(pl.Series(name, each) for name, each in zip(names, values, strict=True))
    scores = scores.join(problems, on=[*BOARD, "subject", "problem_id"], how="left").sort("problem")
    parts = scores.partition_by(BOARD, as_dict=True) | scores.partition_by(*BOARD, "subject", as_dict=True)
    out = {}
    for number, board in enumerate(boards):
        models = pl.Series(board.models, dtype=pl.String)
        part = parts.get((board.benchmark, board.protocol, *([board.subject] if board.subject is not None else [])))
        if part is not None and task.settings.series_pattern:
            part = part.filter(pl.col("model").is_in(models.implode()))
        if part is not None and part.height:
            model = part["model"].replace_strict(models, np.arange(models.len()), return_dtype=pl.Int64)
            problem = part["problem"].rle_id().cast(pl.Int64).to_numpy()
            key = part["own" if board.by_problem else "key"].to_numpy()[np.flatnonzero(np.diff(problem, prepend=-1))]
            units = Units.within(key, board.unit_keys, board.clustered)
            out[number] = BoardMatrix(
                model.to_numpy(), problem, [part[i].to_numpy() for i in names], units, models.len()
            )
    return out


@dataclass(frozen=True)
class SumTask:
    """Sums to compute over a few buckets."""

    buckets: tuple[BucketTask, ...]
    boards: Sequence[ModelBoard]
    by_counts: pl.DataFrame
    """Values of the metrics that follow from (n, c): the same pairs are in every bucket, and evaluated once."""
    requests: Sequence[Request] = ()
    loaded: list[Matrices] | None = None  # scores of the buckets, where they are in memory

    def matrices(self) -> list[Matrices]:
        if self.loaded is not None:
            return self.loaded
        return parallel_map(lambda bucket: read_matrices(bucket, self.boards, self.by_counts), self.buckets)

    def __str__(self) -> str:
        return ", ".join(map(str, self.buckets))


def sum_scores(task: SumTask) -> dict[int, Sums]:
    """Compute the sums of a task by the number of the request; without an entry where no problem is of its board."""
    boards = [request.board if isinstance(request, PairQuery) else request for request in task.requests]
    return _add_all(
        {i: each[board].sums(task.requests[i]) for i, board in enumerate(boards) if board in each}
        for each in task.matrices()
    )


def _add(one: Sums, other: Sums) -> Sums:
    return [x + y for x, y in zip(one, other, strict=True)]


def _add_all(parts: Iterable[dict[int, Sums]]) -> dict[int, Sums]:
    out: dict[int, Sums] = {}
    for part in parts:  # in the order of buckets: the same bits on every engine
        out |= {i: _add(out[i], sums) if i in out else sums for i, sums in part.items()}
    return out


@dataclass(frozen=True)
class LakeSums:
    """Sums over all buckets, computed by an engine's map."""

    engine_map: Callable[..., Iterator[Any]]
    tasks: Sequence[SumTask]
    outcomes: Outcomes

    @classmethod
    def of(
        cls,
        engine_map: Callable[..., Iterator[Any]],
        batches: Sequence[tuple[BucketTask, ...]],
        boards: Sequence[ModelBoard],
        by_counts: pl.DataFrame,
        in_process: bool,
    ) -> LakeSums:
        """Plan the sums of buckets."""
        # A lake of one batch that is compared in this process is read and scored once; otherwise every call reads the
        # buckets again, and memory follows the sums.
        tasks = [SumTask(batch, boards, by_counts) for batch in batches]
        if in_process and len(batches) == 1:
            tasks = [replace(tasks[0], loaded=tasks[0].matrices())]
        return cls(engine_map, tasks, batches[0][0].outcomes)

    def sums(self, requests: Sequence[Request]) -> list[Sums]:
        """Return the sums of each request over all buckets."""
        sums = _add_all(self.engine_map(sum_scores, [replace(task, requests=requests) for task in self.tasks]))
        return [sums[i] for i in range(len(requests))]
