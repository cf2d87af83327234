"""The job from a lake to a leaderboard: plan, count, merge, score, compare with the published run, publish.

The command line and the Python API both call `run_score`. Everything that a run writes goes into a staged folder;
`publish` makes it visible with one rename.
"""

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

from scorelake import engines, gates, stages
from scorelake.counting.merge import join_earlier
from scorelake.counting.partials import Partial
from scorelake.engines import Engine, local
from scorelake.lake import shards
from scorelake.lake.listing import CATALOGS, refuse_inside
from scorelake.lake.sample import pooled_in_lake
from scorelake.publish.change import Change, compare_with_published
from scorelake.publish.publication import publish, stage
from scorelake.publish.runs import PublishedState, load_state
from scorelake.publish.snapshot import Output, locked
from scorelake.schemas import CHANGE, GATE, MODEL_SUMMARY, SCHEMA_VERSION
from scorelake.scoring.choose import Outcomes, choose, choose_compared
from scorelake.settings import Settings
from scorelake.stages import Progress, ScorePlan, Workspace, plan_lake, plan_part, with_window
from scorelake.storage.disk import remove
from scorelake.version import __version__


@dataclass(frozen=True)
class RunReport:
    """What a run did, as printed on stderr and in --json."""

    status: str  # published, unchanged or planned
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
    """How many shards were counted by the query, by the kernel, or not at all."""
    left_out: tuple[str, ...] = ()  # files of the lake that are not counted, with the reasons
    distinct_problems: int = 0  # different problems, however many models attempted them
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of outcome of every benchmark, where a lake mixes them: verdict, reward or rubric."""
    change: Change | None = None  # what changed since the run that was published before


def _no_progress(stage: str, done: int, of: int) -> None: ...


def run_score(
    lake: str,
    out: str,
    settings: Settings,
    engine: str = "local",
    address: str | None = None,
    **options: Any,
) -> RunReport:
    """Connect to an engine by its name and score a lake on it; `options` are those of `score_lake`."""
    shared = [shards.everywhere(path) for path in (lake, out) if not path.startswith(CATALOGS)]
    with engines.connect(engine, address, settings, shared) as connected:
        return score_lake(lake, Output.at(out, settings.storage), settings, engine=connected, **options)


def score_lake(
    location: str | Path,
    out: Output,
    settings: Settings,
    *,
    full: bool = False,
    dry_run: bool = False,
    allow_quarantine: bool = False,
    allow_empty: bool = False,
    engine: Engine = local,
    progress: Progress = _no_progress,
    called: str | None = None,
) -> RunReport:
    """Score a lake and publish the result, unless its inputs are unchanged. `called` names the lake in tables."""
    settings = shards.fitted(_check_metric_names(settings), engine.memory_gb)
    out = _shared_output(out)
    refuse_inside(location, out.name)
    settings = with_window(location, out, settings)
    if dry_run:
        plan = plan_lake(location, out, settings, full, engine, every_file=not allow_quarantine)
        left = sum(shard.size for shard in plan.shards)
        planned = {"lake": str(location), "files": len(plan.lake.files), "bytes_to_read": left}
        return RunReport("planned", planned, **plan.file_counts, metrics=0, models=0, problems=0)
    with locked(out):  # the lake is listed under the lock, so that no run publishes an older lake than the one before
        out = out.fresh().claimed()
        before = load_state(out)
        run = _new_run(called or location, settings, before)
        plan = plan_lake(location, out, settings, full, engine)
        staged = stage(out, run["run_id"])
        try:
            space = Workspace(out, settings, engine, progress, staged)
            return _run_stages(space, run, plan, before, full, allow_quarantine, allow_empty)
        finally:
            remove(staged)


def _run_stages(
    space: Workspace,
    run: dict[str, Any],
    plan: ScorePlan,
    before: PublishedState,
    full: bool,
    allow_quarantine: bool,
    allow_empty: bool,
) -> RunReport:
    settings = space.settings
    new = stages.count(space, plan.shards, full)
    partials = sorted([*plan.reused, *new], key=lambda partial: partial.files)
    quarantine = tuple(sorted(entry for partial in partials for entry in partial.quarantine))
    gates.refuse(partials, quarantine, settings, allow_quarantine)
    earlier = _count_earlier(space, partials, full, allow_quarantine)
    facts: dict[str, Any] = plan.file_counts | {"ways": dict(Counter(partial.method for partial in partials))}
    warnings = [*before.notes, *_notes(settings, plan)]
    names = [partial.name for partial in (*partials, *earlier)]
    inputs = _inputs(names, settings)
    if before.manifest and before.is_up_to_date(inputs) and not full:
        run, size = before.manifest["run"], before.manifest["size"]
        return RunReport("unchanged", run, **facts, **size, quarantine=quarantine, warnings=tuple(warnings))
    if before.current.rolled_back:
        warnings.append(f"the rollback to {before.current.run_id} ends: the lake is published as it is")

    pooled = pooled_in_lake(plan.lake, settings, quarantine)
    merged = stages.merge(space, partials, space.staged, pooled)
    _join_earlier(space, earlier)
    gates.check_survey(merged.rows, merged.survey)
    tables, metric_warnings = stages.score(space, merged)
    models, survey = tables[MODEL_SUMMARY.name], merged.survey
    size = {"metrics": models["metric"].n_unique(), "models": models["model"].n_unique()}
    size |= {"problems": survey.problems, "distinct_problems": survey.distinct}
    files = {"files": len(plan.lake.files), "excluded": len(plan.lake.excluded), "quarantined": len(quarantine)}
    run = {**run, **files, "rows_new": sum(partial.read for partial in new), **merged.rows}
    run |= {name: size[name] for name in ("models", "problems")}
    changed, tables[CHANGE.name] = compare_with_published(space.out, before, run, partials, tables, settings)
    gates.refuse_loss(tables[CHANGE.name], changed.same_metrics, allow_empty, settings)
    tables[GATE.name] = gates.check(settings, run, tables, space.out.snapshots / changed.since, space.staged)
    warnings += [*pooled, *merged.warnings, *metric_warnings, *changed.warnings()]

    space.progress("publishing", 0, 1)
    manifest: dict[str, Any] = {
        "run": run | {"finished": datetime.now(UTC).isoformat()},
        **{"inputs": inputs, "size": size, "kinds": merged.kinds},
        **{"partials": names, "quarantine": [list(entry) for entry in quarantine], "warnings": warnings},
    }
    publish(space.out, space.staged, manifest, tables, before)
    report = RunReport("published", manifest["run"], **facts, **size, quarantine=quarantine, change=changed)
    return replace(report, warnings=tuple(warnings), kinds=merged.mixed_kinds(settings))


def count_part(
    location: str | Path, out: Output, settings: Settings, number: int, of: int, progress: Progress = _no_progress
) -> list[Partial]:
    """Count one part of the files that are new since the published run; publish nothing."""
    settings = shards.fitted(settings, shards.ALIKE_GB)
    with _shared_output(out).passing() as here:
        crashing, todo = plan_part(location, here, settings, number, of)
        return crashing + stages.count(Workspace(here, settings, local, progress, here.root), todo, full=False)


def _shared_output(out: Output) -> Output:
    """Return the output with an absolute path, which is the same in every process."""
    return replace(out, root=Path(shards.everywhere(str(out.root))))


def _new_run(location: str | Path, settings: Settings, before: PublishedState) -> dict[str, Any]:
    """Return the first columns of the row in the table of runs. The time in the id is for people only."""
    started = datetime.now(UTC)
    return {
        "run_id": f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}",
        "number": before.history.next_number,
        "started": started.isoformat(),
        "version": __version__,
        "lake": str(location),
        "settings": json.dumps(settings.model_dump(mode="json"), sort_keys=True),
    }


def _notes(settings: Settings, plan: ScorePlan) -> list[str]:
    """Return what the settings leave out, and patterns that leave nothing out."""
    column, since = settings.window.column, settings.window.since
    notes = [f"only rows with {column} >= {since} are counted ([window])"] if since else []
    return notes + [f"[lake] exclude: no file matches {pattern}" for pattern in plan.lake.idle]


def _inputs(partials: Sequence[str], settings: Settings) -> str:
    """Return a hash of everything that the published numbers depend on."""
    versions = {"version": __version__, "schema_version": SCHEMA_VERSION}
    inputs = {"partials": partials, "scoring": settings.scoring(), **versions}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _count_earlier(
    space: Workspace, partials: Sequence[Partial], full: bool, allow_quarantine: bool
) -> list[Partial]:
    """Count the lake of earlier attempts, if there is one; it must have the same outcomes."""
    where = space.settings.uncertainty.prior_lake
    if where is None:
        return []
    plan = plan_lake(where, space.out, space.settings, full, space.engine)
    earlier = [*plan.reused, *stages.count(space, plan.shards, full)]
    quarantine = sorted(entry for partial in earlier for entry in partial.quarantine)
    gates.refuse(earlier, quarantine, space.settings, allow_quarantine)
    gates.refuse_other_outcomes(partials, earlier, where)
    return sorted(earlier, key=lambda partial: partial.files)


def _join_earlier(space: Workspace, earlier: Sequence[Partial]) -> None:
    """Add the counts of earlier attempts to those of the lake as columns; their rows are accounted for separately."""
    if earlier:
        folder = space.staged / "earlier"
        (folder / "problem_counts").mkdir(parents=True)
        stages.merge(space, earlier, folder)
        join_earlier(space.staged / "problem_counts", folder / "problem_counts")
        remove(folder)


def _check_metric_names(settings: Settings) -> Settings:
    """Raise for unknown metric names before any work; return settings with the canonical metric names of gates."""
    any_lake = Outcomes(binary=True, rewards=False, top_n=1, answers=True)
    choose(settings, any_lake)
    choose_compared(settings, any_lake)

    def spelled(name: str, paired: bool = True) -> str:
        part, pick = ("compare", choose_compared) if paired else ("metrics", choose)
        key = "metrics" if paired else "names"
        wanted = getattr(settings, part).model_copy(update={key: (name,)})
        return pick(settings.model_copy(update={part: wanted}), any_lake)[0].name

    of = settings.gates
    rules = tuple(rule.model_copy(update={"metric": spelled(rule.metric)}) for rule in of.rule)
    gate = of.model_copy(update={"metric": spelled(of.metric, of.max_fall is not None), "rule": rules})
    return settings.model_copy(update={"gates": gate})
