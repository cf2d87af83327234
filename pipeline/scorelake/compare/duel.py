"""Two sets of counts against each other, whoever they are of: two models, two protocols of one, two runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from scorelake.compare.boards import Board, Place, cluster_keys
from scorelake.compare.examined import examined
from scorelake.compare.pairs import pairs
from scorelake.counts import hashed, problem_hashes
from scorelake.metrics import Metric
from scorelake.metrics.chance import Units
from scorelake.metrics.draws import Floats
from scorelake.metrics.matrix import places
from scorelake.settings import Settings
from scorelake.tables import MODEL_PAIR

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
    board = _board(names, sides, benchmark, scorer, settings)
    found = examined(board, [], [metric], lambda *_: set(), settings)
    return pairs(MODEL_PAIR, found, [metric], ("benchmark",), settings)


def _board(
    names: Sequence[str], sides: Sequence[pl.DataFrame], benchmark: str, scorer: Scorer, settings: Settings
) -> Board:
    """Two rows, with a column for every problem that either side attempted."""
    told = pl.concat([side.with_columns(_side=pl.lit(i)) for i, side in enumerate(sides)], how="diagonal_relaxed")
    told = told.filter(pl.col("n") > 0)
    problems = told.unique(PROBLEM, keep="first", maintain_order=True).sort(PROBLEM)
    place = told.join(problems.select(*PROBLEM).with_row_index("_at"), on=PROBLEM, how="left", maintain_order="left")
    attempted = np.zeros((2, problems.height), dtype=places(told.height))
    attempted[place["_side"].to_numpy(), place["_at"].to_numpy()] = np.arange(1, told.height + 1)
    n, value = np.concatenate([[0], told["n"].to_numpy()]), np.concatenate([[np.nan], scorer(told)])
    key = problem_hashes(hashed(problems["subject"]), hashed(problems["problem_id"]))
    cluster = settings.columns.cluster
    if cluster is not None and cluster in problems.columns:
        key = cluster_keys(problems[cluster], key)
    return Board(Place(benchmark, None, "", list(names)), [], attempted, n, [value], Units.of(key))
