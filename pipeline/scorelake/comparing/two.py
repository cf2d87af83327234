"""Compare two sets of problem counts: of two models, of two protocols of one model, or of two runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake.comparing.boards import Benchmark, Coverage, ModelBoard
from scorelake.comparing.compare import compare_boards
from scorelake.comparing.pairs import pair_table
from scorelake.comparing.sums import BoardMatrix, LakeSums, SumTask
from scorelake.hashing import hash_text, problem_hashes
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.families import Metric
from scorelake.schemas import MODEL_PAIR
from scorelake.scoring.buckets import cluster_keys
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.values import problem_values
from scorelake.settings import Settings

PROBLEM = ("subject", "problem_id")


def compare_two(
    names: Sequence[str],
    sides: Sequence[pl.DataFrame],
    benchmark: str,
    metric: Metric,
    settings: Settings,
    outcomes: Outcomes,
) -> pl.DataFrame:
    """Return the row of model_pair that compares the second side with the first; p-values are not adjusted.

    Each side is rows of problem_counts; rows with the same subject and problem_id are the same problem.
    """
    rows = pl.concat([side.with_columns(_side=pl.lit(i)) for i, side in enumerate(sides)], how="diagonal_relaxed")
    rows = rows.filter(pl.col("n") > 0).with_columns(_problem=pl.struct(PROBLEM).rank("dense").cast(pl.Int64) - 1)
    rows = rows.sort("_problem", "_side")
    problems = rows.unique("_problem", keep="first", maintain_order=True)
    keys, cluster = problem_hashes(*(hash_text(problems[name]) for name in PROBLEM)), settings.columns.cluster
    units = Units.of(keys if cluster not in problems.columns else cluster_keys(problems[cluster], keys))
    side, problem, n = (rows[name].to_numpy() for name in ("_side", "_problem", "n"))
    matrix = BoardMatrix(side, problem, [n, *problem_values(rows, [metric], settings, outcomes)], units, len(names))
    attempted = np.bincount(side, minlength=len(names))
    mean_n = np.bincount(side, n, minlength=len(names)) / np.maximum(attempted, 1)
    coverage = Coverage(problems.height, attempted, np.zeros_like(attempted), mean_n)
    board = Benchmark(ModelBoard(benchmark, None, "", list(names), coverage), (), units.key, units.clustered)
    sums = LakeSums(map, [SumTask((), (), loaded=[{(0, 0): matrix}])], outcomes)
    ((result,),) = compare_boards([board], [metric], lambda *_: set(), settings, sums)
    return pair_table(MODEL_PAIR, [result], [metric], ("benchmark",), settings)
