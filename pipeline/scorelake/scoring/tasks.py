"""Score buckets whose metrics do not follow from (n, c): the task that an engine maps over buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from scorelake.schemas import KEYS, PROBLEM_SCORE
from scorelake.scoring.buckets import BucketTask
from scorelake.scoring.choose import choose
from scorelake.scoring.grader_noise import Noise, bucket_noise
from scorelake.scoring.moments import GroupMoments, bucket_moments
from scorelake.scoring.problem_scores import problem_scores
from scorelake.scoring.summaries import table_keys
from scorelake.scoring.values import ANSWERS, estimate_problems, needed_columns
from scorelake.storage.disk import storage_errors


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
    moments = bucket_moments(rows, estimates, table_keys(settings), settings) if estimates else []
    values = problem_scores(rows, settings, outcomes)
    if values is not None:
        _write(values, task)
    return BucketResult(moments, bucket_noise(rows) if answers else None)


def _write(values: pl.DataFrame, task: BucketTask) -> None:
    path = task.local_path().parent.with_name(PROBLEM_SCORE.name) / task.scores_name()
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        values.write_parquet(path)
    if task.mirror is not None:
        task.mirror.send_file(path)
