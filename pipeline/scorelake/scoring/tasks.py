"""Score buckets whose metrics do not follow from (n, c): the task that an engine maps over buckets.

Written are the values of single problems; pass@k and pass^k need no table: the view over both computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from scorelake.metrics.families import Metric
from scorelake.schemas import ANSWER_NOISE, COUNT_SCORE, KEYS, PROBLEM_SCORE
from scorelake.scoring.choose import ALL_METRICS, Outcomes, choose
from scorelake.scoring.summaries import GroupMoments, bucket_moments
from scorelake.scoring.survey import BucketTask
from scorelake.scoring.values import ANSWERS, estimate_problems, metrics_by_input, needed_columns, problem_values
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
_KEYS = ["benchmark", "model", "protocol"]


@dataclass(frozen=True)
class Noise:
    """Grader noise of some problems."""

    sums: pl.DataFrame  # one row per benchmark, model and protocol: integers that add up
    worst: pl.DataFrame
    """The few problems of each with the most pairs of attempts that got different verdicts (`split`)."""


def bucket_noise(rows: pl.DataFrame) -> Noise:
    """Compare the verdicts of equal answers in rows of problem_counts."""
    # If p of m attempts with the same answer passed, p (m - p) of their m (m - 1) / 2 pairs got different verdicts.
    m, p = pl.col("answer_counts").cast(pl.Int64), pl.col("answer_passes").cast(pl.Int64)
    answers = (
        rows.lazy()
        .select(*_KEYS, "subject", "problem_id", "answer_counts", "answer_passes")
        .filter(pl.col("answer_counts").list.len() > 0)
        .with_row_index("problem")
        .explode("answer_counts", "answer_passes")
        .with_columns(mixed=(p > 0) & (p < m), split=p * (m - p), pairs=m * (m - 1) // 2)
    )
    sums = answers.group_by(_KEYS).agg(
        problems=pl.col("problem").n_unique().cast(pl.Int64),
        answers=pl.len().cast(pl.Int64),
        answers_repeated=(m > 1).sum().cast(pl.Int64),
        answers_mixed=pl.col("mixed").sum().cast(pl.Int64),
        attempts_repeated=m.filter(m > 1).sum(),
        attempts_odd=pl.min_horizontal(p, m - p).sum(),
        split=pl.col("split").sum(),
        pairs=pl.col("pairs").sum(),
    )
    by_problem = answers.filter("mixed").group_by(*_KEYS, "subject", "problem_id").agg(pl.col("split").sum())
    return Noise(sums.collect(), _worst(by_problem.collect()))


def noise_table(parts: Sequence[Noise]) -> pl.DataFrame:
    """Return one row per benchmark, model and protocol that has answers."""
    if not parts:
        return pl.DataFrame(schema=ANSWER_NOISE.schema)
    sums = pl.concat([part.sums for part in parts]).group_by(_KEYS).agg(pl.exclude(_KEYS).sum())
    share = pl.when(pl.col("pairs") > 0).then(pl.col("split") / pl.col("pairs"))
    worst = _worst(pl.concat([part.worst for part in parts]))
    examples = worst.group_by(_KEYS, maintain_order=True).agg(examples=pl.col("problem_id"))
    rows = sums.with_columns(disagreement=share).join(examples, on=_KEYS, how="left", nulls_equal=True).sort(_KEYS)
    return ANSWER_NOISE.check(rows.select(*ANSWER_NOISE.columns))


def _worst(problems: pl.DataFrame) -> pl.DataFrame:
    order = problems.sort("split", "subject", "problem_id", descending=[True, False, False])
    return order.group_by(_KEYS, maintain_order=True).head(_EXAMPLES)


@dataclass(frozen=True)
class BucketResult:
    """Results of one bucket."""

    moments: list[GroupMoments]
    noise: Noise | None


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
    estimates = estimate_problems(rows, chosen, settings, outcomes)
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
