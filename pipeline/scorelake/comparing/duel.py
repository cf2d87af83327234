"""Two sets of counts against each other, whoever they are of: two models, two protocols of one, two runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from scorelake.comparing.boards import Benchmark, Board, Place, Tried
from scorelake.comparing.examined import examined
from scorelake.comparing.looks import Alone, Glance, Lined
from scorelake.comparing.pairs import pairs
from scorelake.hashing import hash_text, problem_hashes
from scorelake.metrics import Metric
from scorelake.metrics.chance import Units
from scorelake.metrics.distributions import Floats
from scorelake.metrics.gaps import grid
from scorelake.metrics.matrix import places
from scorelake.problems import Cells, cluster_keys
from scorelake.schemas import MODEL_PAIR
from scorelake.settings import Settings

PROBLEM = ("subject", "problem_id")
Scorer = Callable[[pl.DataFrame], Floats]
"""Rows of problem_counts in; their finite values of the metric out."""


def duel(
    names: Sequence[str],
    sides: Sequence[pl.DataFrame],
    benchmark: str,
    metric: Metric,
    scorer: Scorer,
    settings: Settings,
) -> pl.DataFrame:
    """The one row of a comparison of the second side with the first; its family is this pair alone.

    In: the rows of problem_counts of either side, whose problems are the same if their subject and id are.
    """
    told, problems = _told(sides)
    attempted = np.zeros((2, problems.height), dtype=places(told.height))
    attempted[told["_side"].to_numpy(), told["_at"].to_numpy()] = np.arange(1, told.height + 1)
    n, value = told["n"].to_numpy(), scorer(told)
    key = problem_hashes(hash_text(problems["subject"]), hash_text(problems["problem_id"]))
    cluster = settings.columns.cluster
    if cluster is not None and cluster in problems.columns:
        key = cluster_keys(problems[cluster], key)
    units = Units.of(key)
    step = grid(float(np.nanmax(np.abs(value), initial=0.0)), problems.height)
    board = Board(Place(benchmark, None, "", list(names)), _tried(told, problems.height), (step,))
    asked = Benchmark(board, (), "", units.key, units.clustered)
    glance = Glance(Cells(None, n, [value]), [asked], {0: Lined(attempted, units, {})})
    (found,) = examined([asked], [metric], lambda *_: set(), settings, Alone(glance))
    return pairs(MODEL_PAIR, found, [metric], ("benchmark",), settings)


def _told(sides: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What either side attempted, with the number of each problem, `_at`; and all problems, in their order."""
    told = pl.concat([side.with_columns(_side=pl.lit(i)) for i, side in enumerate(sides)], how="diagonal_relaxed")
    told = told.filter(pl.col("n") > 0)
    problems = told.unique(PROBLEM, keep="first", maintain_order=True).sort(PROBLEM)
    numbers = problems.select(*PROBLEM).with_row_index("_at")
    return told.join(numbers, on=PROBLEM, how="left", maintain_order="left"), problems


def _tried(told: pl.DataFrame, problems: int) -> Tried:
    """What either side attempted."""
    none = np.iinfo(np.int64).max
    n = [told.filter(pl.col("_side") == side)["n"].to_numpy() for side in range(2)]
    told_of = [(each.size, each.min(initial=none), each.max(initial=0)) for each in n]
    return Tried(problems, *np.array(told_of, dtype=np.int64).T)
