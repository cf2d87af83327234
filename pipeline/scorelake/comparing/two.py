"""Compare two sets of problem counts: of two models, of two protocols of one model, or of two runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from scorelake.comparing.boards import Coverage, ModelBoard
from scorelake.comparing.compare import BoardResult, MetricResult, resample_plan
from scorelake.comparing.eligibility import comparability, n_ratio
from scorelake.comparing.pairs import pair_table
from scorelake.hashing import hash_text, problem_hashes
from scorelake.metrics.board import sum_n_ratios
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.families import Metric
from scorelake.metrics.paired import MAX_FLIP_RATIO, compare_scores
from scorelake.schemas import MODEL_PAIR
from scorelake.scoring.buckets import cluster_keys
from scorelake.settings import Settings

PROBLEM = ("subject", "problem_id")
Scorer = Callable[[pl.DataFrame], Floats]
"""Returns the value of the metric for each row of problem_counts."""


def compare_two(
    names: Sequence[str],
    sides: Sequence[pl.DataFrame],
    benchmark: str,
    metric: Metric,
    scorer: Scorer,
    settings: Settings,
    bounds: tuple[float, float],
) -> pl.DataFrame:
    """Return the row of model_pair that compares the second side with the first; p-values are not adjusted.

    Each side is rows of problem_counts; rows with the same subject and problem_id are the same problem.
    """
    rows = pl.concat([side.with_columns(_side=pl.lit(i)) for i, side in enumerate(sides)], how="diagonal_relaxed")
    rows = rows.filter(pl.col("n") > 0)
    problems = rows.unique(PROBLEM, keep="first", maintain_order=True).sort(PROBLEM)
    numbered = problems.select(PROBLEM).with_row_index("_problem")
    rows = rows.join(numbered, on=PROBLEM, how="left", maintain_order="left")
    side, problem = (rows[name].cast(pl.Int64).to_numpy() for name in ("_side", "_problem"))
    scores, n = np.full((2, problems.height), np.nan), np.zeros((2, problems.height), dtype=np.int64)
    scores[side, problem], n[side, problem] = scorer(rows), rows["n"].to_numpy()
    board = ModelBoard(benchmark, None, "", list(names), _coverage(n))
    result = _compare(scores, n, _units(problems, settings.columns.cluster), board.coverage, metric, settings, bounds)
    return pair_table(MODEL_PAIR, [BoardResult(board, [None, None], [result])], [metric], ("benchmark",), settings)


def _compare(
    scores: Floats,
    n: Ints,
    units: Units,
    coverage: Coverage,
    metric: Metric,
    settings: Settings,
    bounds: tuple[float, float],
) -> MetricResult:
    first, second = np.array([0]), np.array([1])
    shared, usable = (np.full((2, 2), each.all(axis=0).sum()) for each in (n > 0, ~np.isnan(scores)))
    ratio = n_ratio(sum_n_ratios(np.where(n > 0, n, np.nan)), shared)
    code = comparability(coverage, shared, usable, ratio, metric, settings.compare)[:1, 1]
    plan, none = resample_plan(settings), np.arange(0)
    result = MetricResult(metric, first, second, code, shared[:1, 1], usable[:1, 1], none, plan.resamples)
    pairs, n_differs = (first[code == 0], second[code == 0]), ratio > MAX_FLIP_RATIO
    return result.finish(*compare_scores(scores, units, plan, pairs, none, n_differs, bounds))


def _coverage(n: Ints) -> Coverage:
    attempted = n > 0
    shared = n[:, attempted.all(axis=0)]
    problems, ungraded = attempted.sum(axis=1), np.zeros(len(n), dtype=np.int64)
    return Coverage(n.shape[1], problems, ungraded, shared.mean(axis=1) if shared.size else np.ones(len(n)))


def _units(problems: pl.DataFrame, cluster: str | None) -> Units:
    keys = problem_hashes(hash_text(problems["subject"]), hash_text(problems["problem_id"]))
    return Units.of(keys if cluster not in problems.columns else cluster_keys(problems[cluster], keys))
