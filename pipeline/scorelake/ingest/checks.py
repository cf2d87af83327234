"""Check sources against each other and against the lake: retried logs, conflicts, verdicts or rewards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from scorelake.ingest.attempt_stats import AttemptStats, compute_stats, find_mixed_rows
from scorelake.ingest.contract import refusal
from scorelake.ingest.ingest_report import IngestReport, SourceReport, report_source
from scorelake.ingest.staging import StagedSource, describe_mixed


def check_sources(
    staged: list[StagedSource], others: Mapping[str, dict[str, Any]], report: IngestReport
) -> tuple[list[StagedSource], dict[str, str]]:
    """Return the sources to write and the outcome of every benchmark; add the rest and the total to the report.

    `others` are records of sources that stay in the lake.
    """
    kept = []
    for source in staged:
        newest = _newer_log(source, staged, others)
        if newest is not None:
            source.run.notes.append(f"skipped: {newest} is a newer log of the same run")
            report.sources.append(report_source(source, {}, [], "superseded"))
        elif not source.stats.rows:
            report.sources.append(report_source(source, {}, [], "empty"))
        else:
            kept.append(source)
    kept, stats = _without_conflicts(kept, report)
    # Where attempts stay in the lake, others of the benchmark have the same outcome.
    outcomes = choose_outcomes(source.kinds for source in kept)
    outcomes |= {name: outcome for record in others.values() for name, outcome in record["outcomes"].items()}
    accepted = _with_outcomes(kept, outcomes, report)
    if len(accepted) != len(kept) or stats.conflicts:
        stats = compute_stats([(source.path, source.identity) for source in accepted])
    report.total = SourceReport(notes=_protocol_notes(accepted))
    report.total.set_counts(stats, {outcomes[name] for source in accepted for name in source.kinds})
    rewards = sorted(name for name, outcome in outcomes.items() if outcome == "score")
    if rewards and {*outcomes.values()} == {"passed", "score"}:
        report.total.notes.append(f"rewards, not verdicts: {', '.join(rewards)}; the other benchmarks have verdicts")
    return accepted, outcomes


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


def choose_outcomes(kinds: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Choose passed or score for every benchmark: score where there are rewards and no source has verdicts."""
    by_benchmark: dict[str, set[str]] = {}
    for benchmark, kind in (item for each in kinds for item in each.items()):
        by_benchmark.setdefault(benchmark, set()).add(kind)
    return {
        name: "score" if "score" in each and "passed" not in each else "passed" for name, each in by_benchmark.items()
    }


def _with_outcomes(kept: list[StagedSource], outcomes: Mapping[str, str], report: IngestReport) -> list[StagedSource]:
    """Refuse sources whose values are not what their benchmarks have."""
    accepted = []
    for source in kept:
        stats, where = source.stats, source.source.path
        wrong = [name for name, kind in source.kinds.items() if kind not in ("either", outcomes[name])]
        if not wrong:
            accepted.append(source)
        elif outcomes[wrong[0]] == "score":
            what = f"has verdicts, but the lake has rewards of {wrong[0]}"
            report.refused.append(refusal(what, where, "give another --lake"))
        else:
            extent = f"from {stats.minimum:g} to {stats.maximum:g}"
            what = f"{stats.non_binary.total():,} of {stats.graded:,} values are not 0 or 1 ({extent})"
            hint = f"there are verdicts of {wrong[0]}: set the smallest reward that passes with --threshold, "
            hint += "or ingest all logs at once into a new lake"
            report.refused.append(refusal(what, where, hint))
    return accepted


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
