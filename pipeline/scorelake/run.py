"""The whole job on one screen: list, count, merge, score, publish."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from scorelake import __version__, compare, count, gates, heap, histogram, lake, plan, problems, score
from scorelake.count import Partial
from scorelake.engines import Engine, local
from scorelake.errors import DataError, StorageError
from scorelake.publish import Output, locked, publish, stage
from scorelake.settings import Settings
from scorelake.storage import writing
from scorelake.tables import (
    GROUP,
    MODEL_SUMMARY,
    PROBLEM_HISTOGRAM,
    SLICE_SUMMARY,
    SUBJECT_SUMMARY,
)

Progress = Callable[[str, int, int], None]
"""progress(stage, done, of): bytes while counting, buckets while merging."""


@dataclass(frozen=True)
class Report:
    """What a run did, as told on stderr and in --json."""

    status: str
    """published, unchanged or planned."""
    run: dict[str, Any]
    files_read: int
    files_reused: int
    ignored: int
    metrics: int
    models: int
    problems: int
    quarantine: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def job(
    location: str | Path,
    out: Output,
    settings: Settings,
    *,
    full: bool = False,
    dry_run: bool = False,
    allow_quarantine: bool = False,
    engine: Engine = local,
    progress: Progress = lambda stage, done, of: None,
) -> Report:
    """Score a lake into an output folder; with nothing new, change nothing."""
    started = datetime.now(UTC)
    heap.keep()
    _names(settings)
    settings = plan.fitted(settings, engine.memory_gb)
    listed = lake.listing(location, settings.storage)
    out = replace(out, root=Path(plan.everywhere(str(out.root)))).fresh()
    known = [] if full else count.reusable(out.partials, listed.files, settings, local if out.mirror else engine)
    counted = {file for partial in known for file in partial.files}
    fresh = tuple(file for file in listed.files if file not in counted)
    todo = lake.shards(plan.everywhere(listed.root), fresh, plan.shard_mb(fresh, settings.run, engine.at_once))
    run: dict[str, Any] = {"lake": str(location), "files": len(listed.files)}
    told: dict[str, Any] = {"files_read": len(fresh), "files_reused": len(counted), "ignored": listed.ignored}
    if dry_run:
        run["bytes_to_read"] = sum(shard.size for shard in todo)
        return Report("planned", run, **told, metrics=0, models=0, problems=0)

    with locked(out):
        run_id = f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        staged = stage(out, run_id)
        partials = sorted([*known, *_count(out, todo, settings, full, engine, progress)], key=lambda p: p.files)
        heap.give_back()
        quarantine = tuple(sorted(entry for partial in partials for entry in partial.quarantine))
        _refuse(partials, quarantine, settings, allow_quarantine)
        run |= {"run_id": run_id, "started": started.isoformat(), "version": __version__}
        run["quarantined"] = len(quarantine)
        run["settings"] = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
        inputs = _inputs(partials, settings)
        before = out.current()
        if before is not None and before["inputs"] == inputs and not full:
            staged.joinpath("problem_counts").rmdir()
            staged.rmdir()
            return Report("unchanged", before["run"], **told, **before["size"], quarantine=quarantine)

        balance, warnings = _merge(out, partials, staged, settings, engine, progress)
        run |= balance
        heap.give_back()
        progress("scoring", 0, 1)
        counts = problems.read(staged / "problem_counts")
        tables = _score(counts, partials, settings)
        models = tables[MODEL_SUMMARY.name]
        size = {
            "metrics": models["metric"].n_unique(),
            "models": models["model"].n_unique(),
            "problems": int(tables[PROBLEM_HISTOGRAM.name]["problems"].sum()),
        }
        published = out.table(before, MODEL_SUMMARY.name) if before else None
        gates.check(settings.gates, run, models, published)
        progress("publishing", 0, 1)
        run["finished"] = datetime.now(UTC).isoformat()
        manifest = {
            "run": run,
            "inputs": inputs,
            "size": size,
            "partials": [partial.name for partial in partials],
            "quarantine": [list(entry) for entry in quarantine],
            "warnings": warnings,
        }
        publish(out, staged, manifest, tables, counts)
    return Report("published", run, **told, **size, quarantine=quarantine, warnings=tuple(warnings))


def part(
    location: str | Path,
    out: Output,
    settings: Settings,
    number: int,
    of: int,
    progress: Progress = lambda stage, done, of: None,
) -> list[Partial]:
    """Count one of so many parts of what is new since the published run; nothing is published.

    The parts depend on nothing that other parts or machines change, so all of them together are all that is new.
    """
    settings = plan.fitted(settings, plan.ALIKE_GB)
    listed = lake.listing(location, settings.storage)
    with replace(out, root=Path(plan.everywhere(str(out.root)))).passing() as here:
        published = set((here.current() or {}).get("partials", ()))
        known = [p for p in count.known(here.partials, listed.files, settings) if p.name in published]
        counted = {file for partial in known for file in partial.files}
        fresh = tuple(file for file in listed.files if file not in counted)
        todo = lake.shards(plan.everywhere(listed.root), fresh, plan.shard_mb(fresh, settings.run, of))
        with writing(here.root):
            here.root.mkdir(parents=True, exist_ok=True)
        return _count(here, plan.groups(todo, of)[number - 1], settings, False, local, progress)


def _count(
    out: Output,
    todo: Sequence[lake.Shard],
    settings: Settings,
    full: bool,
    engine: Engine,
    progress: Progress,
) -> list[Partial]:
    tasks = [count.Task(shard, settings, str(out.partials), again=full, mirror=out.mirror) for shard in todo]
    files = [file for shard in todo for file in shard.files]
    total, done, partials = sum(file.size for file in files), 0, list[Partial]()
    progress("counting", 0, total)
    most = min(plan.BATCH_MB, plan.shard_mb(files, settings.run, engine.at_once))
    batches = plan.together(tasks, lambda task: task.shard.size / 2**20, most)
    for batch, made in zip(batches, engine.map(count.count_all, batches), strict=True):
        partials += made
        done += sum(task.shard.size for task in batch)
        progress("counting", done, total)
    if out.mirror:
        out.mirror.bring(*(f"partials/{partial.name}" for partial in partials))
    _seen([out.partials / partial.name for partial in partials])
    return partials


def _merge(
    out: Output,
    partials: Sequence[Partial],
    staged: Path,
    settings: Settings,
    engine: Engine,
    progress: Progress,
) -> tuple[dict[str, int], list[str]]:
    """Counts per problem into the staged snapshot; the row accounting, which must come out even, and warnings."""
    rule = settings.duplicates.rule
    rows = plan.bucket_rows(count.weight(partials), settings.run, engine.at_once)
    elsewhere, parts = None if engine is local else out.mirror, staged / "problem_counts"
    buckets = count.buckets(out.partials, partials, rows, parts, rule, settings.answers, elsewhere)
    merged: list[count.Merged] = []
    progress("merging", 0, len(buckets))
    batches = plan.together(buckets, lambda bucket: count.weight(bucket.partials), rows)
    for some in engine.map(count.merge_all, batches):
        merged += some
        progress("merging", len(merged), len(buckets))
    if out.mirror:
        out.mirror.bring_files([Path(bucket.path) for bucket in buckets])
    _seen([Path(bucket.path) for bucket in buckets])
    balance = {"rows_read": sum(p.read for p in partials)}
    balance |= {key: sum(getattr(m, key) for m in merged) for key in ("graded", "ungraded", "duplicates")}
    balance["rejected"] = sum(p.rejected for p in partials)
    assert balance["rows_read"] == sum(balance.values()) - balance["rows_read"], balance
    conflicts = sum(m.conflicts for m in merged)
    what = "verdicts or answers" if any(bucket.answers for bucket in buckets) else "verdicts"
    if conflicts and rule == "error":
        named = [(f"{row[2]}, problem {row[4]}", f"attempt {row[5]}") for m in merged for row in m.examples]
        raise DataError(
            f"{conflicts:,} attempts have conflicting {what}:{_listed(named, 5)}",
            hint='choose which one counts: [duplicates] rule = "first", "last", "any-pass" or "all-pass"',
        )
    warnings = [f"{conflicts:,} attempts had conflicting {what}; rule {rule} decided"] if conflicts else []
    for name in settings.carried:
        number = sum(m.differing.get(name, 0) for m in merged)
        if number:
            warnings.append(f"{number:,} problems have differing values of {name}; the smallest is kept")
    return balance, warnings


def _seen(paths: Sequence[Path], patience: float = 60.0) -> None:
    """What workers wrote must be listed here; a network file system may take a moment."""
    hopeless = time.monotonic() + patience
    homes = {path.parent for path in paths}
    while missing := set(paths).difference(*(home.iterdir() for home in homes)):
        if time.monotonic() > hopeless:
            raise StorageError(
                "was written by a worker, but is not there",
                where=str(min(missing)),
                hint="the output must lie on storage that every machine sees",
            )
        time.sleep(0.5)


def _score(counted: problems.Problems, partials: Sequence[Partial], settings: Settings) -> dict[str, pl.DataFrame]:
    """Every table of the snapshot but problem_counts, which is there already."""
    fine = histogram.by_subject(counted)
    outcomes = score.Outcomes(
        binary=any(partial.binary for partial in partials),
        rewards=any(partial.rewards for partial in partials),
        top_n=int(fine["n"].max() or 0),  # type: ignore[arg-type]
        answers=settings.answers and any(partial.answers == "counted" for partial in partials),
    )
    summaries = _summarize(counted, fine, settings, outcomes)
    return {PROBLEM_HISTOGRAM.name: fine, **summaries, **_compare(counted, settings, outcomes)}


def _summarize(
    counted: problems.Problems, fine: pl.DataFrame, settings: Settings, outcomes: score.Outcomes
) -> dict[str, pl.DataFrame]:
    """Scores of models, of their subjects, and of the slices asked for."""
    files = counted.files.with_row_index(score.ROW) if outcomes.answers else counted.files
    model = ("benchmark", "model", "protocol")
    groupings = [_grouping(files, keys, settings, fine, counted.sums) for keys in (model, GROUP)]
    for column in settings.by:
        sliced = files.with_columns(slice=pl.lit(column), slice_value=pl.col(column).cast(pl.String))
        groupings.append(_grouping(sliced, (*model, "slice", "slice_value"), settings))
    chosen = score.choose(settings, outcomes)
    models, subjects, *slices = score.summarize(chosen, groupings, settings, outcomes)
    none = pl.DataFrame(schema=SLICE_SUMMARY.schema)
    return {
        MODEL_SUMMARY.name: MODEL_SUMMARY.check(models),
        SUBJECT_SUMMARY.name: SUBJECT_SUMMARY.check(subjects),
        SLICE_SUMMARY.name: SLICE_SUMMARY.check(pl.concat([none, *slices])),
    }


def _grouping(
    problems: pl.LazyFrame,
    keys: Sequence[str],
    settings: Settings,
    fine: pl.DataFrame | None = None,
    sums: pl.DataFrame | None = None,
) -> score.Grouping:
    """Problems by some keys, from a finer histogram and sums where there are; with clusters, by cluster too."""
    totals = histogram.totals(problems if sums is None else sums.lazy(), keys)
    cluster = settings.columns.cluster
    if cluster is not None:
        problems = problems.with_columns(histogram.clustered(cluster))
        counts = histogram.histogram(problems, (*keys, histogram.CLUSTER))
        return score.Grouping(keys, counts, totals, problems, histogram.CLUSTER)
    counts = histogram.histogram(problems, keys) if fine is None else histogram.coarser(fine, keys)
    return score.Grouping(keys, counts, totals, problems)


def _compare(counted: problems.Problems, settings: Settings, outcomes: score.Outcomes) -> dict[str, pl.DataFrame]:
    """Pairs and ranks, from the same scores per problem as the summaries."""
    chosen = compare.comparable(score.choose_compared(settings, outcomes))

    def scorer(rows: pl.DataFrame) -> list[compare.Values]:
        whole = rows.height == counted.counts.height
        return score.per_problem(chosen, rows, settings, outcomes, counted.pairs if whole else None)

    return compare.compare(counted, chosen, scorer, settings)


def _names(settings: Settings) -> None:
    """Metric names that mean nothing are refused before any work."""
    any_lake = score.Outcomes(binary=True, rewards=False, top_n=1, answers=True)
    score.choose(settings, any_lake)
    compare.comparable(score.choose_compared(settings, any_lake))


def _refuse(
    partials: Sequence[Partial],
    quarantine: Sequence[tuple[str, str]],
    settings: Settings,
    allow_quarantine: bool,
) -> None:
    """Raise if the lake must not be published as it is; says which files, how many rows, and what to do."""
    if quarantine and not allow_quarantine:
        raise DataError(
            f"{len(quarantine):,} of the lake's files cannot be read:{_listed(quarantine)}",
            hint="mend or remove them, or leave them out with --allow-quarantine",
        )
    rejected, ungraded = (sum(getattr(p, key) for p in partials) for key in ("rejected", "ungraded"))
    if rejected > settings.policy.max_rejected:
        rejects = [(file, f"{rows:,} rows: {why}") for p in partials for file, why, rows in p.rejects]
        raise DataError(
            f"{rejected:,} rows rejected, {settings.policy.max_rejected:,} allowed:{_listed(rejects)}",
            hint="mend them, or allow a number with [policy] max_rejected",
        )
    if ungraded and settings.policy.ungraded == "error":
        raise DataError(
            f"{ungraded:,} attempts are ungraded",
            hint='[policy] ungraded = "exclude" counts them apart, "fail" counts them as failed',
        )
    counted = [partial for partial in partials if partial.problems]
    if not counted:
        raise DataError("no attempt in any file", hint="the files hold no rows, or none that can be used")
    for kind in ("binary", "rewards"):
        odd = [partial for partial in counted if getattr(partial, kind) != getattr(counted[0], kind)]
        if odd:
            raise DataError(
                f"outcome columns differ between {counted[0].files[0].path} and {odd[0].files[0].path}",
                hint="every file of a lake needs the same of passed and score",
            )

    mute = [partial for partial in counted if partial.answers == "none"]
    if settings.answers and 0 < len(mute) < len(counted):
        spoken = next(partial for partial in counted if partial.answers != "none")
        raise DataError(
            f"{spoken.files[0].path} has a column {settings.columns.answer} and {mute[0].files[0].path} has none",
            hint='to vote, every file needs it; [columns] answer = "" scores the lake without votes',
        )


def _listed(entries: Sequence[tuple[str, str]], most: int = 10) -> str:
    lines = [f"\n  {file}: {reason}" for file, reason in entries[:most]]
    more = len(entries) - most
    return "".join(lines) + (f"\n  ... and {more:,} more" if more > 0 else "")


def _inputs(partials: Sequence[Partial], settings: Settings) -> str:
    """Names everything the published numbers depend on."""
    told = {"partials": [p.name for p in partials], "scoring": settings.scoring(), "version": __version__}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
