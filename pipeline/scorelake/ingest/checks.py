"""Check sources against each other and against the lake: retried logs, conflicts, verdicts or rewards."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from scorelake.ingest.attempt_stats import AttemptStats, compute_stats, find_mixed_rows
from scorelake.ingest.contract import refusal
from scorelake.ingest.ingest_report import IngestReport, SourceReport, report_source
from scorelake.ingest.staging import StagedSource, describe_mixed


def check_sources(
    staged: list[StagedSource], others: Mapping[str, dict[str, Any]], report: IngestReport
) -> tuple[list[StagedSource], str]:
    """Return the sources to write and their outcome column; add the rest and the total to the report.

    `others` are records of sources that stay in the lake.
    """
    kept = []
    for source in staged:
        newest = _newer_log(source, staged, others)
        if newest is not None:
            source.run.notes.append(f"skipped: {newest} is a newer log of the same run")
            report.sources.append(report_source(source, "passed", [], "superseded"))
        elif not source.stats.rows:
            report.sources.append(report_source(source, "passed", [], "empty"))
        else:
            kept.append(source)
    kept, stats = _without_conflicts(kept, report)
    accepted, outcome = _choose_outcome(kept, {record["outcome"] for record in others.values()}, report)
    if len(accepted) != len(kept) or stats.conflicts:
        stats = compute_stats([(source.path, source.identity) for source in accepted])
    report.total = SourceReport(notes=_protocol_notes(accepted))
    report.total.set_counts(stats, outcome if accepted else "passed")
    return accepted, outcome


def _newer_log(
    source: StagedSource, staged: list[StagedSource], others: Mapping[str, dict[str, Any]]
) -> object | None:
    """Find the newest log of the same run, if there is a newer one than this."""
    logs = [(other.run.precedence, other.run_key, other.source.path) for other in staged]
    logs += [(other["precedence"], other["run"], other["report"]["source"]) for other in others.values()]
    newer = [log for log in logs if source.run_key and log[1] == source.run_key and log[0] > source.run.precedence]
    return max(newer, key=lambda log: log[0])[2] if newer else None


def _without_conflicts(kept: list[StagedSource], report: IngestReport) -> tuple[list[StagedSource], AttemptStats]:
    """Refuse sources that contradict each other; return the others and the statistics of all."""
    files = [(source.path, source.identity) for source in kept]
    stats = kept[0].stats if len(kept) == 1 else compute_stats(files)
    if stats.mixed_problem is not None:
        (i, row), (j, other_row) = find_mixed_rows(files, stats.mixed_problem)
        what = describe_mixed(kept[i], row, other_row, kept[j])
        report.refused += [refusal(what, kept[at].source.path, "ingest one of the two") for at in {i, j}]
        return _without_conflicts([source for at, source in enumerate(kept) if at not in (i, j)], report)
    for (i, row), (j, other_row) in stats.conflicts:
        one, two = kept[i].row(row), kept[j].row(other_row)
        what = (
            f"one attempt, two verdicts: problem {one['problem_id']}, attempt {one['attempt']} is "
            f"{one['value']:g} here and {two['value']:g} in {kept[j].source.path}"
        )
        report.refused.append(refusal(what, kept[i].source.path, "ingest one of the two"))
    listed = {error.where for error in report.refused}
    for i in sorted(stats.conflicting_sources):
        if str(kept[i].source.path) not in listed:
            what = "has verdicts on attempts that another file contradicts"
            report.refused.append(refusal(what, kept[i].source.path, "ingest one of the two"))
    return [source for i, source in enumerate(kept) if i not in stats.conflicting_sources], stats


def _choose_outcome(
    kept: list[StagedSource], outcomes: Collection[str], report: IngestReport
) -> tuple[list[StagedSource], str]:
    """Choose passed or score for the lake, since all its files have the same, and refuse sources that do not fit."""
    has_rewards = any(source.stats.non_binary for source in kept if source.run.outcome == "score")
    has_verdicts = any(source.run.outcome == "passed" for source in kept)
    outcome = next(iter(outcomes), "passed" if has_verdicts or not has_rewards else "score")
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
