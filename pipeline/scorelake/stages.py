"""The stages of a run on an engine: count, merge, score. Each is a map; what comes back is small and adds up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from scorelake import gates, tasks
from scorelake.comparing.boards import list_benchmarks
from scorelake.comparing.sums import LakeSums
from scorelake.comparing.tables import comparable_metrics, comparison_tables
from scorelake.counting.merge import ROWS_PER_BUCKET, Merged, plan_buckets
from scorelake.counting.partials import Partial
from scorelake.engines import Engine, local
from scorelake.lake import shards
from scorelake.publish.snapshot import Output
from scorelake.schemas import ANSWER_NOISE, COUNT_SCORE, GROUP, PROBLEM_HISTOGRAM, PROBLEM_SCORE
from scorelake.scoring.buckets import FOLDER, BucketTask
from scorelake.scoring.choose import Outcomes, choose, choose_compared, k_warnings
from scorelake.scoring.grader_noise import Noise, noise_table
from scorelake.scoring.moments import GroupMoments, add_moments
from scorelake.scoring.problem_scores import count_scores, listed_metrics
from scorelake.scoring.summaries import summary_tables
from scorelake.scoring.survey import ALL, Survey, add_surveys, coarsen
from scorelake.scoring.tasks import score_buckets
from scorelake.scoring.values import follow_from_counts
from scorelake.settings import Settings
from scorelake.storage.files import Shard
from scorelake.threads import batch_by_size

_AT_ONCE = 16
"""Surveys that are added up together."""
_PROBLEMS_PER_TASK = 1 << 21
"""Problems that are scored or compared by one task."""
Progress = Callable[[str, int, int], None]
"""progress(stage, done, of): bytes while counting, buckets while merging."""


@dataclass(frozen=True)
class Work:
    """Where a run works, and with what."""

    out: Output
    settings: Settings
    engine: Engine
    progress: Progress
    staged: Path
    run: dict[str, Any]


def count(
    out: Output,
    todo: Sequence[Shard],
    settings: Settings,
    full: bool,
    engine: Engine,
    progress: Progress,
) -> list[Partial]:
    work = [tasks.Count(shard, settings, str(out.partials), again=full, mirror=out.mirror) for shard in todo]
    files = [file for shard in todo for file in shard.files]
    total, done, partials = sum(file.size for file in files), 0, list[Partial]()
    progress("counting", 0, total)
    most = min(shards.BATCH_MB, shards.shard_mb(files, settings.run, engine.at_once))
    batches = batch_by_size(work, lambda task: task.shard.size / 2**20, most)
    for batch, made in zip(batches, engine.map(tasks.count_all, batches), strict=True):
        partials += made
        done += sum(task.shard.size for task in batch)
        progress("counting", done, total)
    if out.mirror:
        out.mirror.bring(*(f"partials/{partial.name}" for partial in partials))
    tasks.seen([out.partials / partial.name for partial in partials])
    return partials


@dataclass(frozen=True)
class Problems:
    """Counts per problem, in their parts; and what all of them come to."""

    parts: dict[int, tuple[Path, int]]
    """By number, each with how many problems it has; a part without any is not there."""
    of: int
    survey: Survey
    warnings: list[str]


def merge(
    out: Output,
    partials: Sequence[Partial],
    staged: Path,
    settings: Settings,
    engine: Engine,
    progress: Progress,
    run: dict[str, Any],
) -> Problems:
    """Counts per problem into the staged snapshot, and the row accounting, which must come out even, into `run`."""
    rule = settings.duplicates.rule
    answered = settings.answers and any(partial.answers == "counted" for partial in partials)
    elsewhere = None if engine is local else out.mirror
    size = settings.run.bucket_rows or ROWS_PER_BUCKET
    todo = plan_buckets(out.partials, partials, staged / FOLDER, rule, answered, size)
    merged: list[Merged] = []
    surveys: list[Survey] = []
    progress("merging", 0, len(todo))
    work = [tasks.Merge(bucket, settings, elsewhere) for bucket in todo]
    for some in engine.map(tasks.merge_all, batch_by_size(work, lambda task: task.bucket.weight, 1 << 21)):
        merged += [each for each, _ in some]
        surveys += [told for _, told in some if told is not None]
        if len(surveys) > _AT_ONCE:  # each is as large as their sum: they are not all kept
            surveys = [add_surveys(surveys)]
        progress("merging", len(merged), len(todo))
    written = {i: (Path(todo[i].path), each.problems) for i, each in enumerate(merged) if each.problems}
    files = [path for path, _ in written.values()]
    if out.mirror:
        out.mirror.bring_files(files)
    tasks.seen(files)
    run |= gates.balance(partials, merged)
    gates.refuse_ungraded(sum(m.ungraded for m in merged), settings)
    conflicts = sum(m.conflicts for m in merged)
    what = "verdicts or answers" if any(bucket.answers for bucket in todo) else "verdicts"
    gates.refuse_conflicts(conflicts, what, [row for m in merged for row in m.examples], rule)
    warnings = [f"{conflicts:,} attempts had conflicting {what}; rule {rule} decided"] if conflicts else []
    for name in settings.carried:
        number = sum(m.differing.get(name, 0) for m in merged)
        if number:
            warnings.append(f"{number:,} problems have differing values of {name}; the smallest is kept")
    return Problems(written, len(todo), add_surveys(surveys), warnings)


def score(work: Work, merged: Problems, partials: Sequence[Partial], warnings: list[str]) -> dict[str, pl.DataFrame]:
    """Return all tables of the snapshot except those per problem, which are written bucket by bucket."""
    survey, settings, progress = merged.survey, work.settings, work.progress
    outcomes = Outcomes(
        binary=any(partial.binary for partial in partials),
        rewards=any(partial.rewards for partial in partials),
        top_n=survey.top_n,
        answers=settings.answers and any(partial.answers == "counted" for partial in partials),
        earlier=settings.uncertainty.prior_lake is not None,
    )
    warnings += k_warnings(settings, outcomes)
    progress("scoring", 0, 4)
    engine = local if outcomes.earlier else work.engine  # counts of the prior lake are joined on this machine
    mirror = None if engine is local else work.out.mirror
    buckets = [
        BucketTask(str(path), problems, settings, outcomes, mirror) for path, problems in merged.parts.values()
    ]
    # a function of the lake only, so that sums come to the same bits on every engine
    batches = batch_by_size(buckets, lambda bucket: bucket.problems, _PROBLEMS_PER_TASK)
    moments, noise = _score_buckets(work, merged, batches, engine, outcomes)
    progress("scoring", 1, 4)
    summaries = summary_tables(survey, settings, outcomes, moments)
    progress("scoring", 2, 4)
    histogram = coarsen(survey.histograms[ALL], GROUP).drop("ungraded")
    benchmarks, compared = list_benchmarks(survey), comparable_metrics(choose_compared(settings, outcomes))
    sums = LakeSums(engine.map, batches, benchmarks, in_process=engine is local)
    comparisons = comparison_tables(benchmarks, compared, settings, summaries, sums)
    progress("scoring", 4, 4)
    c = pl.col("c") if survey.binary else pl.lit(None, pl.Int64).alias("c")
    return {
        PROBLEM_HISTOGRAM.name: PROBLEM_HISTOGRAM.check(histogram.with_columns(c)),
        **summaries,
        COUNT_SCORE.name: count_scores(histogram, settings, outcomes),
        **comparisons,
        ANSWER_NOISE.name: noise_table(noise),
    }


def _score_buckets(
    work: Work, merged: Problems, batches: Sequence[tuple[BucketTask, ...]], engine: Engine, outcomes: Outcomes
) -> tuple[list[GroupMoments], list[Noise]]:
    """Score problems one by one, unless all metrics follow from n and c."""
    chosen = choose(work.settings, outcomes)
    if follow_from_counts(chosen, outcomes) and not outcomes.earlier and "answer_counts" not in merged.survey.columns:
        return [], []
    noise: list[Noise] = []

    def in_order() -> Iterator[list[GroupMoments]]:
        for results in engine.map(score_buckets, batches):
            for result in results:
                if result.noise is not None:
                    noise.append(result.noise)
                yield result.moments

    moments = add_moments(in_order())
    if work.out.mirror and listed_metrics(work.settings, outcomes)[1]:
        folder = work.staged / PROBLEM_SCORE.name
        folder.mkdir(exist_ok=True)
        work.out.mirror.bring_files([folder / path.name for path, _ in merged.parts.values()])
    return moments, noise
