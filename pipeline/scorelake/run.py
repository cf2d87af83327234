"""The whole job on one screen: list, count, merge, score, publish."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from scorelake import gates, stages, tasks
from scorelake.comparing.tables import comparable_metrics
from scorelake.counting.earlier import join
from scorelake.counting.partials import Partial
from scorelake.engines import Engine, local
from scorelake.lake import shards
from scorelake.lake.listing import Lake, listing, refuse_inside
from scorelake.publish.change import Change, compare_with_published
from scorelake.publish.current_run import PublishedState, load_state
from scorelake.publish.publication import publish, stage, unstage
from scorelake.publish.snapshot import Output, locked
from scorelake.schemas import CHANGE, MODEL_SUMMARY
from scorelake.scoring.choose import Outcomes, choose, choose_compared
from scorelake.scoring.survey import Survey
from scorelake.settings import Settings
from scorelake.storage.disk import is_remote, remove
from scorelake.storage.files import File, Shard
from scorelake.version import __version__


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
    ways: dict[str, int] = field(default_factory=dict)
    """How the shards were counted, and how many so: tally, plain, or none (see docs/architecture.md)."""
    distinct_problems: int = 0
    """However many models attempted them."""
    change: Change | None = None
    """What changed since the run that was shown before."""


@dataclass(frozen=True)
class Plan:
    """What is there, what of it is counted already, and what is left to count."""

    listed: Lake
    known: list[Partial]
    todo: list[Shard]

    @property
    def told(self) -> dict[str, Any]:
        """How many files are read, and how many are not."""
        fresh = sum(len(shard.files) for shard in self.todo)
        reused = len(self.listed.files) - fresh
        return {"files_read": fresh, "files_reused": reused, "ignored": self.listed.ignored}


def job(
    location: str | Path,
    out: Output,
    settings: Settings,
    *,
    full: bool = False,
    dry_run: bool = False,
    allow_quarantine: bool = False,
    allow_empty: bool = False,
    engine: Engine = local,
    progress: stages.Progress = lambda stage, done, of: None,
    called: str | None = None,
) -> Report:
    """Score a lake into an output folder; with nothing new, change nothing. `called` is the lake's name in tables."""
    settings = _named(settings)
    settings = shards.fitted(settings, engine.memory_gb)
    out = replace(out, root=Path(shards.everywhere(str(out.root))))
    refuse_inside(location, out.name)
    if dry_run:
        plan = _plan(location, out, settings, full, engine, every_file=not allow_quarantine)
        files, left = len(plan.listed.files), sum(shard.size for shard in plan.todo)
        run = {"lake": str(location), "files": files, "bytes_to_read": left}
        return Report("planned", run, **plan.told, metrics=0, models=0, problems=0)
    with locked(out):  # the lake is listed after it, so that no run knows an older lake than the one before it
        out = out.fresh().claimed()
        before = load_state(out)
        begun = _begun(called or location, settings, before)
        plan = _plan(location, out, settings, full, engine)
        staged = stage(out, begun["run_id"])
        try:
            work = stages.Work(out, settings, engine, progress, staged, begun)
            return _night(work, plan, before, full, allow_quarantine, allow_empty)
        finally:
            unstage(staged)


def _begun(location: str | Path, settings: Settings, before: PublishedState) -> dict[str, Any]:
    """What is known of a run before it has done anything. Its name has a time in it for people; nothing reads it."""
    started = datetime.now(UTC)
    return {
        "run_id": f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}",
        "number": before.history.next_number,
        "started": started.isoformat(),
        "version": __version__,
        "lake": str(location),
        "settings": json.dumps(settings.model_dump(mode="json"), sort_keys=True),
    }


def _plan(
    location: str | Path, out: Output, settings: Settings, full: bool, engine: Engine, every_file: bool = False
) -> Plan:
    """List the lake, and see what of it is counted already."""
    listed = listing(location, settings.storage, settings.lake.exclude, out.name)
    known = [] if full else tasks.reusable(out.partials, listed.files, settings, local if out.mirror else engine)
    fresh = _fresh(listed, known)
    _fit(str(location), listed, fresh, known, settings, every_file)
    size = shards.shard_mb(fresh, settings.run, engine.at_once)
    return Plan(listed, known, shards.shards(shards.everywhere(listed.root), fresh, size))


def _night(
    work: stages.Work, plan: Plan, before: PublishedState, full: bool, allow_quarantine: bool, allow_empty: bool
) -> Report:
    """Count, merge, score, see what changed, and publish; under the lock."""
    settings, run, told = work.settings, work.run, plan.told
    new = stages.count(work.out, plan.todo, settings, full, work.engine, work.progress)
    partials = sorted([*plan.known, *new], key=lambda p: p.files)
    quarantine = tuple(sorted(entry for partial in partials for entry in partial.quarantine))
    told["ways"] = dict(Counter(partial.method.partition(":")[0] for partial in partials))
    gates.refuse(partials, quarantine, settings, allow_quarantine)
    earlier = _earlier(work, partials, full, allow_quarantine)
    listed, inputs = plan.listed, _inputs([*partials, *earlier], settings)
    run |= {"files": len(listed.files), "excluded": len(listed.excluded), "quarantined": len(quarantine)}
    run["rows_new"] = sum(partial.read for partial in new)
    notes = [*before.notes, *(f"[lake] exclude: no file matches {pattern}" for pattern in listed.idle)]
    was = before.manifest
    if was and before.is_up_to_date(inputs) and not full:
        return Report("unchanged", was["run"], **told, **was["size"], quarantine=quarantine, warnings=tuple(notes))
    if before.current.rolled_back:
        notes.append(f"the rollback to {before.current.run_id} ends: the lake is published as it is")

    merged = stages.merge(work.out, partials, work.staged, settings, work.engine, work.progress, run)
    notes += merged.warnings
    _join_earlier(work, earlier)
    gates.written(run, merged.survey)
    gates.refuse_huge(merged.survey)
    tables = stages.score(work, merged, partials, notes)
    size = _size(tables[MODEL_SUMMARY.name], merged.survey)
    run |= {name: size[name] for name in ("models", "problems")}
    changed, tables[CHANGE.name] = compare_with_published(work.out, before, run, partials, tables, settings)
    gates.refuse_loss(tables[CHANGE.name], changed.same_metrics, allow_empty)
    gates.check(settings.gates, run, tables[MODEL_SUMMARY.name], tables[CHANGE.name])
    notes += changed.warnings()
    work.progress("publishing", 0, 1)
    run["finished"] = datetime.now(UTC).isoformat()
    names = [partial.name for partial in (*partials, *earlier)]
    left_out = [list(entry) for entry in quarantine]
    manifest = {"run": run, "inputs": inputs, "size": size, "partials": names, "quarantine": left_out}
    manifest["warnings"] = notes
    publish(work.out, work.staged, manifest, tables, before)
    return Report("published", run, **told, **size, quarantine=quarantine, warnings=tuple(notes), change=changed)


def _fresh(listed: Lake, known: Sequence[Partial]) -> tuple[File, ...]:
    """The files that are not counted yet."""
    counted = {file for partial in known for file in partial.files}
    return tuple(file for file in listed.files if file not in counted)


def _fit(
    where: str, listed: Lake, fresh: Sequence[File], known: Sequence[Partial], settings: Settings, every_file: bool
) -> None:
    """A mistake in the settings is told before any file is blamed for it."""
    if every_file:
        tasks.refuse_misfits(listed.root, listed.files, settings, where, every_file=True)
    elif fresh and not any(partial.read for partial in known):
        tasks.refuse_misfits(listed.root, fresh, settings, where, every_file=False)


def _size(summary: pl.DataFrame, told: Survey) -> dict[str, Any]:
    """What was published, in numbers."""
    return {
        "metrics": summary["metric"].n_unique(),
        "models": summary["model"].n_unique(),
        "problems": told.problems,
        "distinct_problems": told.distinct,
    }


def part(
    location: str | Path,
    out: Output,
    settings: Settings,
    number: int,
    of: int,
    progress: stages.Progress = lambda stage, done, of: None,
) -> list[Partial]:
    """Count one of so many parts of what is new since the published run; nothing is published.

    The parts depend on nothing that other parts or machines change, so all of them together are all that is new.
    """
    settings = shards.fitted(settings, shards.ALIKE_GB)
    out = replace(out, root=Path(shards.everywhere(str(out.root))))
    listed = listing(location, settings.storage, settings.lake.exclude, out.name)
    with out.passing() as here:
        published = set((here.current() or {}).get("partials", ()))
        earlier = tasks.known(here.partials, listed.files, settings)
        known = [p for p in earlier if p.name in published or p.method == tasks.CONDEMNED]
        fresh = _fresh(listed, known)
        _fit(str(location), listed, fresh, known, settings, every_file=False)
        todo = shards.shards(shards.everywhere(listed.root), fresh, shards.shard_mb(fresh, settings.run, of))
        condemned = [p for p in known if p.method == tasks.CONDEMNED]
        return condemned + stages.count(here, shards.groups(todo, of)[number - 1], settings, False, local, progress)


def suspects(location: str, out: Output, settings: Settings, full: bool) -> list[tasks.Count]:
    """After a crash: every file that is not known to be harmless, each as a task of its own."""
    if is_remote(location) or out.mirror:
        return []
    listed = listing(location, settings.storage, settings.lake.exclude, out.name)
    home = Path(shards.everywhere(str(out.root))) / "partials"
    known = [] if full else tasks.reusable(home, listed.files, settings)
    root = shards.everywhere(listed.root)
    return [tasks.Count(Shard(root, (file,)), settings, str(home), again=full) for file in _fresh(listed, known)]


def _earlier(work: stages.Work, partials: Sequence[Partial], full: bool, allow_quarantine: bool) -> list[Partial]:
    """The lake of earlier attempts, if there is one, counted like the first; it must have the same outcomes."""
    settings, where = work.settings, work.settings.uncertainty.prior_lake
    if where is None:
        return []
    plan = _plan(where, work.out, settings, full, work.engine)
    found = [*plan.known, *stages.count(work.out, plan.todo, settings, full, work.engine, work.progress)]
    gates.refuse(found, sorted(entry for each in found for entry in each.quarantine), settings, allow_quarantine)
    gates.refuse_other_outcomes(partials, found, where)
    return sorted(found, key=lambda partial: partial.files)


def _join_earlier(work: stages.Work, earlier: Sequence[Partial]) -> None:
    """Counts of earlier attempts beside those of the lake; they are no rows of it, and balance by themselves."""
    if earlier:
        aside = work.staged / "earlier"
        (aside / "problem_counts").mkdir(parents=True)
        stages.merge(work.out, earlier, aside, work.settings, work.engine, work.progress, {})
        join(work.staged / "problem_counts", aside / "problem_counts")
        remove(aside)


def _named(settings: Settings) -> Settings:
    """Metric names that mean nothing are refused before any work; that of the gates becomes the one in the tables."""
    any_lake = Outcomes(binary=True, rewards=False, top_n=1, answers=True)
    choose(settings, any_lake)
    comparable_metrics(choose_compared(settings, any_lake))
    names = settings.metrics.model_copy(update={"names": (settings.gates.metric,)})
    (gate,) = choose(settings.model_copy(update={"metrics": names}), any_lake)
    return settings.model_copy(update={"gates": settings.gates.model_copy(update={"metric": gate.name})})


def _inputs(partials: Sequence[Partial], settings: Settings) -> str:
    """Names everything the published numbers depend on."""
    told = {"partials": [p.name for p in partials], "scoring": settings.scoring(), "version": __version__}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
