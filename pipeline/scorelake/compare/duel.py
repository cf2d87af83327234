"""Two sets of counts against each other, whoever they are of: two models, two protocols of one, two runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake.compare.boards import Board, Place, Scorer, cluster_keys
from scorelake.compare.examined import examined
from scorelake.compare.pairs import pairs
from scorelake.counts import hashed, problem_hashes
from scorelake.metrics import Metric
from scorelake.metrics.chance import Units
from scorelake.settings import Settings
from scorelake.tables import MODEL_PAIR

PROBLEM = ("subject", "problem_id")


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
    found = examined([_board(names, sides, benchmark, scorer, settings)], [metric], lambda *_: set(), settings)
    return pairs(MODEL_PAIR, found, [metric], ("benchmark",), settings)


def _board(
    names: Sequence[str], sides: Sequence[pl.DataFrame], benchmark: str, scorer: Scorer, settings: Settings
) -> Board:
    """Two rows, with a column for every problem that either side attempted."""
    told = pl.concat([side.with_columns(_side=pl.lit(i)) for i, side in enumerate(sides)], how="diagonal_relaxed")
    told = told.filter(pl.col("n") > 0)
    problems = told.unique(PROBLEM, keep="first", maintain_order=True).sort(PROBLEM)
    place = told.join(problems.select(*PROBLEM).with_row_index("_at"), on=PROBLEM, how="left", maintain_order="left")
    cell = place["_side"].to_numpy(), place["_at"].to_numpy()
    attempts = np.zeros((2, problems.height), dtype=np.int64)
    scores = np.full((1, 2, problems.height), np.nan)
    attempts[cell] = told["n"].to_numpy()
    (values,) = scorer(told)
    scores[0][cell] = values(slice(None))
    key = problem_hashes(hashed(problems["subject"]), hashed(problems["problem_id"]))
    cluster = settings.columns.cluster
    if cluster is not None and cluster in problems.columns:
        key = cluster_keys(problems[cluster], key)
    return Board(Place(benchmark, None, "", list(names)), [], attempts, scores, Units.of(key))
