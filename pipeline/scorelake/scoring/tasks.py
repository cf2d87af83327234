"""Score buckets whose metrics do not follow from (n, c): the task that an engine maps over buckets.

Written are the values of single problems; pass@k and pass^k need no table: the view over both computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from scorelake.metrics.families import Metric
from scorelake.schemas import ANSWER_NOISE, COUNT_SCORE, KEYS, MODEL, PROBLEM_SCORE
from scorelake.scoring.choose import ALL_METRICS, Outcomes, choose
from scorelake.scoring.summaries import GroupMoments, bucket_moments
from scorelake.scoring.survey import BucketTask
from scorelake.scoring.values import (
    ANSWERS,
    estimate_problems,
    follow_from_counts,
    metrics_by_input,
    needed_columns,
    problem_values,
)
from scorelake.settings import Settings
from scorelake.storage.disk import storage_errors


def count_scores(histogram: pl.DataFrame, settings: Settings, outcomes: Outcomes) -> pl.DataFrame:
    """Return the values of configured metrics of counts for every (n, c); no row if none is configured."""
    pairs = histogram.select("n", "c").unique().sort("n", "c")
    return COUNT_SCORE.check(_values(pairs, listed_metrics(settings, outcomes)[0], settings, outcomes, ("n", "c")))


def problem_scores(rows: pl.DataFrame, settings: Settings, outcomes: Outcomes) -> pl.DataFrame | None:
    """Return the values of the other configured metrics for rows of problem_counts; None if there are none."""
    chosen = listed_metrics(settings, outcomes)[1]
    return _values(rows, chosen, settings, outcomes, KEYS) if chosen else None


def listed_metrics(settings: Settings, outcomes: Outcomes) -> tuple[list[Metric], list[Metric]]:
    """Return the metrics with a value per (n, c), and those that depend on more than n and c."""
    if settings.metrics.names in ((), ALL_METRICS):
        return [], []
    # a blend of group means has no value per problem, and bayes@N under a fitted prior none that models share
    left_out = ("pass@k", "pass^k", *(() if settings.uncertainty.pseudo_counts else ("bayes@N",)))
    named = [m for m in choose(settings, outcomes) if not m.family.pooled and m.family.name not in left_out]
    by_input = metrics_by_input(named, outcomes)
    return by_input["counts"], [*by_input["rewards"], *by_input["answers"], *by_input["earlier"]]


def _values(
    rows: pl.DataFrame, chosen: list[Metric], settings: Settings, outcomes: Outcomes, keys: tuple[str, ...]
) -> pl.DataFrame:
    """Return a row per metric and row, metric by metric."""
    values = problem_values(rows, chosen, settings, outcomes)
    columns = (pl.lit(None, COUNT_SCORE.schema[name]).alias(name) for name in ("metric", "k", "value"))
    frames = [rows.head(0).select(*keys, *columns)]
    for metric, value in zip(chosen, values, strict=True):
        named = [pl.lit(metric.name).alias("metric"), pl.lit(metric.k, pl.Int64).alias("k")]
        frames.append(rows.select(*keys, *named, pl.Series("value", value).fill_nan(None)))
    return pl.concat(frames)


_EXAMPLES = 3
_SUMS = ("answers", "answers_repeated", "answers_mixed", "attempts_repeated", "attempts_odd", "split", "pairs")


def bucket_noise(rows: pl.DataFrame) -> pl.DataFrame:
    """Compare the verdicts of equal answers: integers that add up, and the worst problems."""
    # If p of m attempts with the same answer passed, p (m - p) of their m (m - 1) / 2 pairs got different verdicts.
    m, p = (pl.col(name).cast(pl.Int64) for name in ANSWERS)
    answers = rows.lazy().select(*KEYS, *ANSWERS).filter(pl.col("answer_counts").list.len() > 0).explode(ANSWERS)
    by_problem = answers.group_by(KEYS).agg(
        answers=pl.len().cast(pl.Int64),
        answers_repeated=(m > 1).sum().cast(pl.Int64),
        answers_mixed=((p > 0) & (p < m)).sum().cast(pl.Int64),
        attempts_repeated=m.filter(m > 1).sum(),
        attempts_odd=pl.min_horizontal(p, m - p).sum(),
        split=(p * (m - p)).sum(),
        pairs=(m * (m - 1) // 2).sum(),
    )
    worst = pl.struct("split", "subject", "problem_id").filter(pl.col("split") > 0)
    sums = by_problem.group_by(MODEL).agg(pl.len().cast(pl.Int64).alias("problems"), pl.col(_SUMS).sum(), worst=worst)
    return sums.with_columns(_first(pl.col("worst"))).collect()


def noise_table(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return one row per benchmark, model and protocol that has answers."""
    if not parts:
        return pl.DataFrame(schema=ANSWER_NOISE.schema)
    sums = pl.concat(parts).group_by(MODEL).agg(pl.col("problems", *_SUMS).sum(), pl.col("worst").list.explode())
    examples = _first(pl.col("worst")).list.eval(pl.element().struct.field("problem_id"))
    rows = sums.with_columns(
        disagreement=pl.when(pl.col("pairs") > 0).then(pl.col("split") / pl.col("pairs")),
        examples=pl.when(examples.list.len() > 0).then(examples),
    )
    return ANSWER_NOISE.check(rows.select(*ANSWER_NOISE.columns).sort(MODEL))


def _first(problems: pl.Expr) -> pl.Expr:
    """Return the few problems of each list with the most pairs of attempts that got different verdicts."""
    split, *name = (pl.element().struct.field(field) for field in ("split", "subject", "problem_id"))
    return problems.list.eval(pl.element().sort_by(split, *name, descending=[True, False, False]).head(_EXAMPLES))


@dataclass(frozen=True)
class BucketResult:
    """Results of one bucket."""

    moments: list[GroupMoments]
    noise: pl.DataFrame | None


def score_buckets(tasks: Sequence[BucketTask]) -> list[BucketResult]:
    """Score buckets; values of single problems are written to files next to the counts."""
    return [_score(task) for task in tasks]


def _score(task: BucketTask) -> BucketResult:
    settings, outcomes = task.settings, task.outcomes
    chosen, cluster = choose(settings, outcomes), settings.columns.cluster
    answers = ANSWERS if outcomes.answers else ()
    carried = [*settings.by, *([cluster] if cluster else [])]
    columns = [*KEYS, "n", "c", *needed_columns(chosen, outcomes), *answers, *carried]
    rows = task.read(dict.fromkeys(columns)).with_columns(pl.col("c").fill_null(0))
    by_problem = [each for each in chosen if outcomes.earlier or not follow_from_counts([each], outcomes)]
    estimates = estimate_problems(rows, by_problem, settings, outcomes)
    moments = bucket_moments(rows, estimates, settings) if estimates else []
    values = problem_scores(rows, settings, outcomes)
    if values is not None:
        path = task.local_path().parent.with_name(PROBLEM_SCORE.name) / task.scores_name()
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            values.write_parquet(path)
        if task.mirror is not None:
            task.mirror.send_file(path)
    return BucketResult(moments, bucket_noise(rows) if answers else None)
