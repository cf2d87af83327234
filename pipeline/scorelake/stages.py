"""The stages of a run: plan what is left to count, then count, merge and score on an engine.

Each of the last three is a map over tasks; what comes back is small and adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from scorelake import gates, tasks
from scorelake.comparing.boards import list_boards
from scorelake.comparing.sums import LakeSums
from scorelake.comparing.tables import comparison_tables, overall_ranges
from scorelake.counting.attempt_order import retried_groups
from scorelake.counting.merge import ROWS_PER_BUCKET, Bucket, Merged, plan_buckets
from scorelake.counting.partials import Kind, Partial, benchmark_kinds
from scorelake.counting.shard import newest
from scorelake.counting.window import first_inside
from scorelake.engines import Engine, local
from scorelake.lake import shards
from scorelake.lake.download import local_copy
from scorelake.lake.listing import LakeListing, listing
from scorelake.metrics.costs import FIRST_EDGE
from scorelake.publish.snapshot import Output
from scorelake.schemas import (
    ADJUSTED,
    ANSWER_NOISE,
    COUNT_SCORE,
    FORECAST,
    GROUP,
    MODEL_RANK,
    MODEL_SUMMARY,
    OVERALL,
    PROBLEM_HISTOGRAM,
    PROBLEM_SCORE,
    SUBJECT_SUMMARY,
)
from scorelake.scoring.choose import Outcomes, choose, choose_compared, k_warnings, split_outcomes
from scorelake.scoring.estimates import adjusted_table, forecast_table
from scorelake.scoring.judges import judge_tables, judge_warnings
from scorelake.scoring.measures import measure_tables, missing_measures
from scorelake.scoring.overall import overall_table
from scorelake.scoring.series import series_tables, without_earlier_points
from scorelake.scoring.summaries import (
    MODEL,
    GroupMoments,
    add_moments,
    mark_retried,
    sampling_warnings,
    subject_warnings,
    summary_tables,
)
from scorelake.scoring.survey import ALL, FOLDER, BucketTask, Survey, add_surveys, coarsen
from scorelake.scoring.tasks import count_scores, listed_metrics, noise_table, score_buckets
from scorelake.scoring.values import count_values, follow_from_counts
from scorelake.settings import Settings
from scorelake.storage.disk import is_remote
from scorelake.storage.files import File, Shard
from scorelake.threads import batch_by_size, parallel_map

_AT_ONCE = 16
"""Surveys that are added up together."""
_PROBLEMS_PER_TASK = 1 << 21
"""Problems that are scored or compared by one task."""
Progress = Callable[[str, int, int], None]
"""progress(stage, done, of): bytes while counting, buckets while merging."""


@dataclass(frozen=True)
class Workspace:
    """Where a run works, and with what."""

    out: Output
    settings: Settings
    engine: Engine
    progress: Progress
    staged: Path


@dataclass(frozen=True)
class MergedCounts:
    """Counts per problem in the staged snapshot, and their totals."""

    files: list[tuple[Path, int]]
    """Bucket files in order, each with its number of problems; empty buckets have no file."""
    rows: dict[str, int]
    """The row accounting: rows read = graded + ungraded + duplicates + rejected."""
    survey: Survey
    kinds: dict[str, Kind]
    """What the attempts of each benchmark have."""
    warnings: list[str]
    retried: frozenset[tuple[str, ...]]
    """Benchmark, model and protocol whose order of attempts suggests retries."""

    def mixed_kinds(self, settings: Settings) -> dict[str, str]:
        """Return the kind of every benchmark in words; none if all are of one kind."""
        score = "rubric" if settings.rubric.levels else "reward"
        kinds = {name: str(kind).replace("reward", score) for name, kind in self.kinds.items()}
        return kinds if len(set(kinds.values())) > 1 else {}


@dataclass(frozen=True)
class ScorePlan:
    """The files of a lake: those that are counted already, and the shards that are left to count."""

    lake: LakeListing
    reused: list[Partial]
    shards: list[Shard]

    @property
    def file_counts(self) -> dict[str, Any]:
        """How many files are read, and how many are not."""
        read = sum(len(shard.files) for shard in self.shards)
        left_out = {"ignored": len(self.lake.left_out), "left_out": tuple(self.lake.describe_left_out())}
        return {"files_read": read, "files_reused": len(self.lake.files) - read, **left_out}


def with_window(location: str | Path, out: Output, settings: Settings) -> Settings:
    """Return the settings with the first value of a window that is given by its length."""
    window = settings.window
    if window.last is None or window.column is None:
        return settings
    column = window.column
    lake = listing(location, settings.storage, settings.lake.exclude, out.name)
    with (
        TemporaryDirectory() as folder,
        local_copy(
            Shard(lake.root, tuple(lake.files)), Path(folder) / "lake", settings, (column,).__contains__
        ) as here,
    ):
        values = parallel_map(lambda file: newest(here, file, column), here.files)
    window = window.model_copy(update={"since": first_inside(values, window.last)})
    return settings.model_copy(update={"window": window})


def plan_lake(
    location: str | Path, out: Output, settings: Settings, full: bool, engine: Engine, every_file: bool = False
) -> ScorePlan:
    """List a lake and find what is counted already; raise if its files do not fit the settings."""
    lake = listing(location, settings.storage, settings.lake.exclude, out.name)
    reused = [] if full else tasks.reusable(out.partials, lake.files, settings, local if out.mirror else engine)
    return _plan(lake, reused, settings, str(location), engine.at_once, every_file)


def plan_part(
    location: str | Path, out: Output, settings: Settings, number: int, of: int
) -> tuple[list[Partial], list[Shard]]:
    """Return the files of one part that are known to crash a reader, and the shards that the part must count.

    Parts depend only on the lake and the published run, so that machines that see each other's results agree on them.
    """
    lake = listing(location, settings.storage, settings.lake.exclude, out.name)
    published = set((out.current() or {}).get("partials", ()))
    earlier = tasks.matching_partials(out.partials, lake.files, settings)
    crashing = [partial for partial in earlier if partial.method == tasks.CRASHES_READER]
    reused = [partial for partial in earlier if partial.name in published or partial.method == tasks.CRASHES_READER]
    plan = _plan(lake, reused, settings, str(location), of, every_file=False)
    return crashing, shards.groups(plan.shards, of)[number - 1]


def _plan(
    lake: LakeListing, reused: list[Partial], settings: Settings, where: str, at_once: int, every_file: bool
) -> ScorePlan:
    """Cut what is not counted yet into shards; a mistake in the settings is reported before any file is blamed."""
    files = _uncounted(lake, reused)
    if every_file:
        tasks.refuse_misfits(lake.root, lake.files, settings, where, every_file=True)
    elif files and not any(partial.read for partial in reused):
        tasks.refuse_misfits(lake.root, files, settings, where, every_file=False)
    size = shards.shard_mb(files, settings.run, at_once)
    return ScorePlan(lake, reused, shards.shards(shards.everywhere(lake.root), files, size))


def _uncounted(lake: LakeListing, partials: Sequence[Partial]) -> tuple[File, ...]:
    counted = {file for partial in partials for file in partial.files}
    return tuple(file for file in lake.files if file not in counted)


def quarantine_crashing_files(location: str, out: Output, settings: Settings, full: bool) -> int:
    """After a crash: count the files that are not counted yet in processes of their own; return how many crash it."""
    if is_remote(location) or out.mirror:
        return 0
    lake = listing(location, settings.storage, settings.lake.exclude, out.name)
    home = Path(shards.everywhere(str(out.root))) / "partials"
    files = _uncounted(lake, [] if full else tasks.reusable(home, lake.files, settings))
    root = shards.everywhere(lake.root)
    work = [tasks.Count(Shard(root, (file,)), settings, str(home), again=full) for file in files]
    return sum(partial.method == tasks.CRASHES_READER for partial in tasks.count_apart(work)) if work else 0


def count(space: Workspace, todo: Sequence[Shard], full: bool) -> list[Partial]:
    """Count shards into partials."""
    out, settings, engine = space.out, space.settings, space.engine
    work = [tasks.Count(shard, settings, str(out.partials), again=full, mirror=out.mirror) for shard in todo]
    files = [file for shard in todo for file in shard.files]
    total, done, partials = sum(file.size for file in files), 0, list[Partial]()
    space.progress("counting", 0, total)
    max_mb = min(shards.BATCH_MB, shards.shard_mb(files, settings.run, engine.at_once))
    batches = batch_by_size(work, lambda task: task.shard.size / 2**20, max_mb)
    for batch, counted in zip(batches, engine.map(tasks.count_all, batches), strict=True):
        partials += counted
        done += sum(task.shard.size for task in batch)
        space.progress("counting", done, total)
    if out.mirror:
        out.mirror.bring(*(f"partials/{partial.name}" for partial in partials))
    tasks.wait_until_visible([out.partials / partial.name for partial in partials])
    return partials


def merge(space: Workspace, partials: Sequence[Partial], folder: Path, pooled: Sequence[str] = ()) -> MergedCounts:
    """Merge partials into one file of problem counts per bucket; every row must be accounted for.

    `pooled` are warnings of columns that may explain conflicting verdicts.
    """
    out, settings = space.out, space.settings
    rule, kinds = settings.duplicates.rule, benchmark_kinds(partials, settings.answers)
    answers = any(kind.answers for kind in kinds.values())
    size = settings.run.bucket_rows or ROWS_PER_BUCKET
    lowest = min(settings.rubric.levels, default=0.0) if settings.policy.ungraded == "fail" else None
    measures = tuple((name, FIRST_EDGE[measure.kind]) for name, measure in settings.measures.items())
    where = (out.partials, partials, folder / FOLDER)
    buckets = plan_buckets(*where, rule, settings.answers, size, lowest, measures, settings.columns.gold is not None)
    merged, survey = _merge_buckets(space, buckets)
    warnings = list[str]()
    if settings.policy.sampling == "first":  # merged again, since only now the smallest n of each group is known
        attempted = survey.histograms[ALL].filter(pl.col("n") > 0)
        smallest_n = tuple(attempted.group_by(MODEL).agg(pl.col("n").min()).sort(MODEL).iter_rows())
        graded = sum(each.graded for each in merged)
        merged, survey = _merge_buckets(space, [replace(bucket, smallest_n=smallest_n) for bucket in buckets])
        left_out = graded - sum(each.graded for each in merged)
        warnings = [f'{left_out:,} attempts are left out by [policy] sampling = "first", and count as duplicates']
    files = [
        (Path(bucket.path), each.problems) for bucket, each in zip(buckets, merged, strict=True) if each.problems
    ]
    if out.mirror:
        out.mirror.bring_files([path for path, _ in files])
    tasks.wait_until_visible([path for path, _ in files])
    rows = gates.balance(partials, merged)
    gates.refuse_ungraded(rows["ungraded"], settings)
    warnings += _merge_warnings(merged, settings, answers, pooled)
    retried = retried_groups(each.order for each in merged)
    return MergedCounts(files, rows, survey, kinds, warnings, retried)


def _merge_buckets(space: Workspace, buckets: Sequence[Bucket]) -> tuple[list[Merged], Survey]:
    """Merge and survey every bucket."""
    out, settings, engine = space.out, space.settings, space.engine
    mirror = None if engine is local else out.mirror
    merged: list[Merged] = []
    surveys: list[Survey] = []
    space.progress("merging", 0, len(buckets))
    work = [tasks.Merge(bucket, settings, mirror) for bucket in buckets]
    for results in engine.map(tasks.merge_all, batch_by_size(work, lambda task: task.bucket.weight, ROWS_PER_BUCKET)):
        merged += [result for result, _ in results]
        surveys += [survey for _, survey in results if survey is not None]
        if len(surveys) > _AT_ONCE:  # each is as large as their sum: they are not all kept
            surveys = [add_surveys(surveys)]
        space.progress("merging", len(merged), len(buckets))
    return merged, add_surveys(surveys)


def _merge_warnings(merged: Sequence[Merged], settings: Settings, answers: bool, pooled: Sequence[str]) -> list[str]:
    """Raise for conflicts without a rule; warn of resolved conflicts and of carried values that differ."""
    rule, conflicts = settings.duplicates.rule, sum(each.conflicts for each in merged)
    what = "verdicts or answers" if answers else "verdicts"
    gates.refuse_conflicts(conflicts, what, [row for each in merged for row in each.examples], rule, pooled)
    warnings = [f"{conflicts:,} attempts had conflicting {what}; rule {rule} decided"] if conflicts else []
    for name in settings.carried:
        number = sum(each.differing.get(name, 0) for each in merged)
        if number:
            warnings.append(f"{number:,} problems have differing values of {name}; the smallest is kept")
    return warnings


def score(space: Workspace, merged: MergedCounts) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Return warnings and all tables of the snapshot except those per problem, which are written per bucket."""
    parts = split_outcomes(merged.kinds, merged.survey.histograms[ALL], space.settings).values()
    space.progress("scoring", 0, len(parts))
    tables: dict[str, pl.DataFrame] = {}
    warnings: list[str] = []
    for i, (outcomes, benchmarks) in enumerate(parts, start=1):
        settings = outcomes.settings(space.settings)
        survey = merged.survey.of(benchmarks) if outcomes.others else merged.survey
        for name, rows in _score_kind(
            replace(space, settings=settings), merged, survey, outcomes, benchmarks
        ).items():
            tables[name] = pl.concat([tables[name], rows]) if name in tables else rows
        warnings += [each for each in k_warnings(settings, outcomes) if each not in warnings]
        space.progress("scoring", i, len(parts))
    if len(parts) > 1:
        tables = {name: _in_order(rows) for name, rows in tables.items()}
    models, settings = mark_retried(tables[MODEL_SUMMARY.name], merged.retried), space.settings
    tables[MODEL_SUMMARY.name] = models
    averages = OVERALL.check(overall_table(without_earlier_points(tables[OVERALL.name], settings), settings))
    tables[OVERALL.name] = overall_ranges(averages, models, tables, settings)
    warnings += [*sampling_warnings(models), *subject_warnings(tables[SUBJECT_SUMMARY.name], settings)]
    return tables, warnings + missing_measures(tables) + judge_warnings(tables, settings)


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Order the rows of several kinds by benchmark; values by (n, c) are those of any benchmark."""
    if "benchmark" not in rows.columns:
        return rows.unique(maintain_order=True)
    return rows.sort("benchmark", maintain_order=True)


def _score_kind(
    space: Workspace, merged: MergedCounts, survey: Survey, outcomes: Outcomes, benchmarks: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Return the tables of benchmarks whose attempts have the same outcomes."""
    settings = space.settings
    engine = local if outcomes.earlier else space.engine  # counts of the prior lake are joined on this machine
    mirror = None if engine is local else space.out.mirror
    buckets = [
        BucketTask(str(path), problems, settings, outcomes, mirror, tuple(benchmarks) if outcomes.others else ())
        for path, problems in _files(merged, benchmarks if outcomes.others else None)
    ]
    # a function of the lake only, so that sums come to the same bits on every engine
    batches = batch_by_size(buckets, lambda bucket: bucket.problems, _PROBLEMS_PER_TASK)
    moments, noise = _score_buckets(space, batches, engine, outcomes)
    summaries = summary_tables(survey, settings, outcomes, moments)
    histogram = coarsen(survey.histograms[ALL], GROUP).drop("ungraded")
    compared = choose_compared(settings, outcomes)
    boards = list_boards(survey, settings)
    by_counts = count_values(survey.histograms[ALL], compared, settings, outcomes)
    sums = LakeSums.of(engine.map, batches, boards, by_counts, in_process=engine is local)
    comparisons = comparison_tables(boards, compared, settings, summaries, sums)
    c = pl.col("c") if outcomes.binary else pl.lit(None, pl.Int64).alias("c")
    models, tasks_of = summaries[MODEL_SUMMARY.name], [task for batch in batches for task in batch]
    if outcomes.binary:
        summaries[ADJUSTED.name] = adjusted_table(tasks_of, models, comparisons[MODEL_RANK.name], settings)
        ks = [metric.draws for metric in choose(settings, outcomes) if metric.family.name == "pass@k"]
        summaries[FORECAST.name] = forecast_table(histogram, ks, settings.uncertainty.confidence)
    if outcomes.binary and settings.columns.gold is not None:
        summaries |= judge_tables(tasks_of, settings)
    return {
        PROBLEM_HISTOGRAM.name: PROBLEM_HISTOGRAM.check(histogram.with_columns(c)),
        **summaries,
        COUNT_SCORE.name: count_scores(histogram, settings, outcomes),
        **comparisons,
        **series_tables(tasks_of, models, settings, outcomes),
        **measure_tables(tasks_of, settings, outcomes),
        ANSWER_NOISE.name: noise_table(noise),
    }


def _files(merged: MergedCounts, benchmarks: Sequence[str] | None) -> list[tuple[Path, int]]:
    """Return the bucket files that have problems of the benchmarks, and how many."""
    if benchmarks is None:
        return merged.files
    is_mine = pl.col("benchmark").is_in(benchmarks).sum()
    sizes = [(path, pl.scan_parquet(path, glob=False).select(is_mine).collect().item()) for path, _ in merged.files]
    return [(path, problems) for path, problems in sizes if problems]


def _score_buckets(
    space: Workspace, batches: Sequence[tuple[BucketTask, ...]], engine: Engine, outcomes: Outcomes
) -> tuple[list[GroupMoments], list[pl.DataFrame]]:
    """Score problems one by one, unless all metrics follow from n and c."""
    chosen = choose(space.settings, outcomes)
    if follow_from_counts(chosen, outcomes) and not outcomes.earlier and not outcomes.answers:
        return [], []
    noise: list[pl.DataFrame] = []

    def in_order() -> Iterator[list[GroupMoments]]:
        for results in engine.map(score_buckets, batches):
            for result in results:
                if result.noise is not None:
                    noise.append(result.noise)
                yield result.moments

    moments = add_moments(in_order())
    if space.out.mirror and listed_metrics(space.settings, outcomes)[1]:
        folder = space.staged / PROBLEM_SCORE.name
        folder.mkdir(exist_ok=True)
        space.out.mirror.bring_files([folder / task.scores_name() for batch in batches for task in batch])
    return moments, noise
