"""The stages of a run on an engine: count, merge, score. Each is a map; what comes back is small and adds up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from scorelake import gates, parts, problems, tasks
from scorelake.comparing.boards import benchmarks
from scorelake.comparing.evidence import comparable, evidence
from scorelake.comparing.graders import Noise, answer_noise
from scorelake.counting.merge import ROWS_PER_BUCKET, Merged, plan_buckets
from scorelake.counting.partials import Partial
from scorelake.engines import Engine, local
from scorelake.lake import shards
from scorelake.publish.snapshot import Output
from scorelake.schemas import ANSWER_NOISE, COUNT_SCORE, GROUP, PROBLEM_HISTOGRAM, PROBLEM_SCORE
from scorelake.scoring import summaries, traced
from scorelake.scoring.choose import Outcomes, choose, choose_compared, stopped
from scorelake.scoring.sheets import Sheet, joined
from scorelake.scoring.values import bounds, follow_from_counts
from scorelake.settings import Settings
from scorelake.storage.files import Shard
from scorelake.survey import ALL, Survey, added
from scorelake.threads import batch_by_size

_AT_ONCE = 16
"""Surveys that are added up together."""
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
    todo = plan_buckets(out.partials, partials, staged / problems.FOLDER, rule, answered, size)
    merged: list[Merged] = []
    surveys: list[Survey] = []
    progress("merging", 0, len(todo))
    work = [tasks.Merge(bucket, settings, elsewhere) for bucket in todo]
    for some in engine.map(tasks.merge_all, batch_by_size(work, lambda task: task.bucket.weight, 1 << 21)):
        merged += [each for each, _ in some]
        surveys += [told for _, told in some if told is not None]
        if len(surveys) > _AT_ONCE:  # each is as large as their sum: they are not all kept
            surveys = [added(surveys)]
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
    return Problems(written, len(todo), added(surveys), warnings)


def score(work: Work, merged: Problems, partials: Sequence[Partial], warnings: list[str]) -> dict[str, pl.DataFrame]:
    """Every table of the snapshot but those per problem, which are written part by part; adds to the warnings."""
    told, settings, progress = merged.survey, work.settings, work.progress
    outcomes = Outcomes(
        binary=any(partial.binary for partial in partials),
        rewards=any(partial.rewards for partial in partials),
        top_n=told.top_n,
        answers=settings.answers and any(partial.answers == "counted" for partial in partials),
        earlier=settings.uncertainty.prior_lake is not None,
    )
    warnings += stopped(settings, outcomes)
    progress("scoring", 0, 4)
    engine = local if outcomes.earlier else work.engine  # earlier attempts were joined here
    elsewhere = None if engine is local else work.out.mirror
    works = [parts.Work(str(path), many, settings, outcomes, elsewhere) for path, many in merged.parts.values()]
    rows = shards.bucket_rows(told.problems, settings.run, engine.at_once)
    batches = batch_by_size(works, lambda each: each.problems, rows)
    made = _scored(work, merged, batches, engine, outcomes)
    progress("scoring", 1, 4)
    scores = summaries.tables(told, settings, outcomes, made.sheets)
    progress("scoring", 2, 4)
    fine, compared = told.histograms[ALL].coarser(GROUP), comparable(choose_compared(settings, outcomes))
    asked = benchmarks(told, bounds(compared, settings, outcomes))
    pairs = fine.pairs
    spread = parts.Spread(engine, batches, asked, (pairs.n, pairs.c))
    found = evidence(asked, compared, settings, scores, spread)
    progress("scoring", 4, 4)
    return {
        PROBLEM_HISTOGRAM.name: PROBLEM_HISTOGRAM.check(fine.named(told.binary)),
        **scores,
        COUNT_SCORE.name: traced.by_counts(pairs, settings, outcomes),
        **found,
        ANSWER_NOISE.name: made.noise,
    }


@dataclass(frozen=True)
class _Made:
    """What came of scoring the problems one by one, where that was needed."""

    sheets: list[Sheet]
    noise: pl.DataFrame


def _scored(
    work: Work, merged: Problems, batches: Sequence[tuple[parts.Work, ...]], engine: Engine, outcomes: Outcomes
) -> _Made:
    """Score the problems one by one, unless everything follows from n and c."""
    chosen = choose(work.settings, outcomes)
    if follow_from_counts(chosen, outcomes) and not outcomes.earlier and "answer_counts" not in merged.survey.columns:
        return _Made([], answer_noise([]))
    heard: list[Noise | None] = []

    def in_order() -> Iterator[list[Sheet] | None]:
        told = (each for some in engine.map(parts.score_all, batches) for each in some)
        for number in range(merged.of):
            if number not in merged.parts:
                yield None
                continue
            mine = next(told)
            heard.append(mine.noise)
            yield mine.sheets

    sheets = joined(in_order())
    if work.out.mirror and traced.told(work.settings, outcomes)[1]:
        home = work.staged / PROBLEM_SCORE.name
        home.mkdir(exist_ok=True)
        work.out.mirror.bring_files([home / path.name for path, _ in merged.parts.values()])
    return _Made(sheets if sheets[0].moments else [], answer_noise(heard))
