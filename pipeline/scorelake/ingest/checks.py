"""Check sources against each other and against the lake: retried logs, conflicts, verdicts or rewards."""

from __future__ import annotations

import json
from typing import Any

from scorelake.ingest.attempt_stats import AttemptStats, compute_stats, find_mixed_rows
from scorelake.ingest.contract import refusal
from scorelake.ingest.ingest_report import IngestReport, SourceReport, report_source
from scorelake.ingest.staging import StagedSource, describe_mixed
from scorelake.ingest.writer import TargetLake


def check_sources(
    staged: list[StagedSource], target: TargetLake, report: IngestReport
) -> tuple[list[StagedSource], str]:
    """Return the sources to write and their outcome column; add the others and the total to the report."""
    kept = []
    for source in staged:
        newest = _newer_log(source, staged)
        if newest is not None:
            source.run.notes.append(f"skipped: {newest.source.path} is a newer log of the same task")
            report.sources.append(report_source(source, "passed", [], "superseded"))
        elif not source.stats.rows:
            report.sources.append(report_source(source, "passed", [], "empty"))
        else:
            kept.append(source)
    kept, stats = _without_conflicts(kept, report)
    accepted, outcome = _choose_outcome(kept, target, report)
    if len(accepted) != len(kept) or stats.conflicts:
        stats = compute_stats([(source.path, source.identity) for source in accepted])
    report.total = SourceReport(notes=_protocol_notes(accepted))
    report.total.set_counts(stats, outcome if accepted else "passed")
    return accepted, outcome


def _newer_log(source: StagedSource, staged: list[StagedSource]) -> StagedSource | None:
    """Find the newest log of the same task, if attempts have no ids by which repeats would be recognised."""
    run = source.run
    if run.task_id is None or run.has_attempt_ids:
        return None
    logs = [other for other in staged if other.run.task_id == run.task_id and other.stats.rows]
    newer = [other for other in logs if other.run.created > run.created]
    return max(newer, key=lambda other: (other.run.created, other.run.has_attempt_ids), default=None)


def _without_conflicts(kept: list[StagedSource], report: IngestReport) -> tuple[list[StagedSource], AttemptStats]:
    """Refuse sources that contradict each other; return the others and the statistics of all."""
    files = [(source.path, source.identity) for source in kept]
    stats = kept[0].stats if len(kept) == 1 else compute_stats(files)
    if stats.mixed_problem is not None:
        (i, row), (j, other_row) = find_mixed_rows(files, stats.mixed_problem)
        what = describe_mixed(kept[i], row, other_row, kept[j])
        report.refused.append(refusal(what, kept[i].source.path, "ingest one of the two"))
        return _without_conflicts([source for at, source in enumerate(kept) if at not in (i, j)], report)
    for (i, row), (j, other_row) in stats.conflicts:
        one, two = kept[i].row(row), kept[j].row(other_row)
        what = (
            f"one attempt, two verdicts: problem {one['problem_id']}, attempt {one['attempt']} is "
            f"{one['value']:g} here and {two['value']:g} in {kept[j].source.path}"
        )
        report.refused.append(refusal(what, kept[i].source.path, "ingest one of the two"))
    return [source for i, source in enumerate(kept) if i not in stats.conflicting_sources], stats


def _choose_outcome(
    kept: list[StagedSource], target: TargetLake, report: IngestReport
) -> tuple[list[StagedSource], str]:
    """Choose passed or score for the lake, since all its files have the same, and refuse sources that do not fit."""
    has_rewards = any(source.stats.non_binary for source in kept if source.run.outcome == "score")
    has_verdicts = any(source.run.outcome == "passed" for source in kept)
    outcome = target.outcome or ("passed" if has_verdicts or not has_rewards else "score")
    accepted = []
    for source in kept:
        stats, where = source.stats, source.source.path
        if outcome == "passed" and source.run.outcome == "score" and stats.non_binary:
            extent = f"from {stats.minimum:g} to {stats.maximum:g}"
            what = f"{stats.non_binary:,} of {stats.graded:,} values are not 0 or 1 ({extent})"
            hint = "set the smallest reward that passes with --threshold, or ingest rewards into a lake of their own"
            report.refused.append(refusal(what, where, hint))
        elif outcome == "score" and source.run.outcome == "passed":
            report.refused.append(refusal("has verdicts, but the lake has rewards", where, "give another --lake"))
        else:
            accepted.append(source)
    return accepted, outcome


def _protocol_notes(kept: list[StagedSource]) -> list[str]:
    """List the settings by which one model's attempts at one benchmark will not be pooled."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for source in kept:
        key = source.run.model, source.run.benchmark, source.format
        groups.setdefault(key, []).append(source.run.protocol)
    out = []
    for (model, benchmark, _), protocols in groups.items():
        keys = sorted({key for protocol in protocols for key in protocol})
        differ = [key for key in keys if len({json.dumps(protocol.get(key)) for protocol in protocols}) > 1]
        if differ:
            out.append(
                f"{model} on {benchmark}: {len(protocols)} sources differ in {', '.join(differ)} and are not pooled; "
                f"--protocol-ignore {','.join(differ)} pools them"
            )
    return out
