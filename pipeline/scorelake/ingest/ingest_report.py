"""Report what became of every source: row counts, both denominators, the tool's own numbers compared with ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scorelake.errors import DataError
from scorelake.ingest.attempt_stats import AttemptStats
from scorelake.ingest.staging import StagedRun
from scorelake.text import escape_controls


@dataclass
class SourceReport:
    """Report of one source. rows = graded + ungraded + duplicate + refused."""

    source: str = ""
    format: str = ""
    status: str = ""
    """written, unchanged, empty (no attempts in it) or superseded (by a newer log of the same task)."""
    run: str = ""
    model: str | None = None
    benchmarks: list[str] = field(default_factory=list)
    rows: int = 0
    graded: int = 0
    ungraded: int = 0
    duplicate: int = 0
    refused: int = 0
    """Rows that do not count by the format's own rules."""
    passed: float | None = None
    """Number of passes; null where the values are rewards."""
    mean: float | None = None
    errors: int = 0
    """Attempts without a verdict of their own."""
    errors_counted_as: str = ""
    """fail or ungraded: the tool's own rule, or that of --errors."""
    mean_errors_failed: float | None = None
    mean_errors_ungraded: float | None = None
    histogram: dict[str, int] = field(default_factory=dict)
    """Problems by number of graded attempts."""
    claims: list[dict[str, Any]] = field(default_factory=list)
    """The tool's own numbers and ours."""
    choices: list[str] = field(default_factory=list)
    """Which of several scorers, filters or metrics counts for each task, and why."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Files of the lake with these attempts."""

    def set_counts(self, stats: AttemptStats, outcomes: Collection[str]) -> None:
        """Copy the counts of the statistics. Verdicts and rewards have no common mean."""
        for name, count in stats.counts.items():
            setattr(self, name, count)
        self.histogram = {str(n): problems for n, problems in stats.histogram.items()}
        if len(outcomes) > 1:
            return
        total, verdicts, verdict_total = map(stats.total, ("total", "verdicts", "verdict_total"))
        self.passed = None if "score" in outcomes else total
        self.mean = total / self.graded if self.graded else None
        if verdicts + self.errors:
            self.mean_errors_failed = verdict_total / (verdicts + self.errors)
        if verdicts:
            self.mean_errors_ungraded = verdict_total / verdicts


@dataclass
class IngestReport:
    """Result of `ingest`."""

    sources: list[SourceReport] = field(default_factory=list)
    refused: list[DataError] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    """Files in the folders that are not results, with the reason."""
    total: SourceReport = field(default_factory=SourceReport)
    status: str = "written"
    """written, unchanged or refused."""


def report_source(
    staged: StagedRun, outcomes: Mapping[str, str], files: Sequence[str], status: str = "written"
) -> SourceReport:
    """Build the report of one source."""
    run = staged.run
    out = SourceReport(str(run.path), run.format, status, run.run_id, run.model)
    out.set_counts(staged.stats, {*outcomes.values()})
    out.rows, out.refused = out.rows + run.excluded_rows, run.excluded_rows
    out.benchmarks = sorted({*staged.kinds} - {""})
    out.errors_counted_as = run.errors
    out.choices = [line for line in run.choices.values() if line]
    out.notes, out.files = list(run.notes), sorted(files)
    _compare_claims(staged, out)
    return out


def _compare_claims(staged: StagedRun, report: SourceReport) -> None:
    """Add the tool's own numbers and ours to the report, and a warning for each that differs."""
    for claim in staged.run.claims:
        benchmark = claim.benchmark if claim.benchmark in staged.benchmarks else "".join(staged.benchmarks[:1])
        ours = staged.stats.metric(claim.metric, benchmark)
        if claim.metric.startswith("pass") and ours is None:
            continue  # k is above the smallest n, or the values are rewards
        differ = ours is None or abs(ours - claim.value) > claim.tolerance
        report.claims.append({"name": claim.name, "theirs": claim.value, "ours": ours, "differ": differ})
        if differ:
            result = "has no graded attempts to check it against" if ours is None else f"its attempts give {ours:.6g}"
            report.warnings.append(f"the file reports {claim.name} {claim.value:.6g}, but {result}")


def format_report(report: SourceReport) -> str:
    """Format a report in a few lines."""
    head = f"{report.source} ({report.format})" if report.source else "total"
    lines = [f"{head}: {report.status}" if report.status in ("unchanged", "superseded", "empty") else head]
    parts = (f"{getattr(report, key):,} {key}" for key in ("graded", "ungraded", "duplicate", "refused"))
    lines.append(f"  rows      {report.rows:,} = {' + '.join(parts)}")
    if report.mean is not None and report.passed is not None:
        lines.append(f"  passed    {report.passed:,.0f} of {report.graded:,} = {report.mean:.6g}")
    elif report.mean is not None:
        lines.append(f"  reward    mean {report.mean:.6g}")
    if report.errors and report.mean_errors_failed is not None:
        counted = f", counted as {report.errors_counted_as}" if report.errors_counted_as else ""
        ungraded = report.mean_errors_ungraded
        both = f"mean {report.mean_errors_failed:.6g} with them as failures, "
        both += f"{'undefined' if ungraded is None else f'{ungraded:.6g}'} without them"
        lines.append(f"  errors    {report.errors:,} without a verdict{counted}: {both}")
    if report.histogram:
        cells = [f"{problems:,} with {n}" for n, problems in list(report.histogram.items())[:6]]
        more = ", ..." if len(report.histogram) > 6 else ""
        lines.append(f"  n         problems by attempts: {', '.join(cells)}{more}")
    lines += [f"  chosen    {choice}" for choice in report.choices]
    lines += [f"  agrees    {each['name']} {each['theirs']:.6g}" for each in report.claims if not each["differ"]]
    lines += [f"  warning   {warning}" for warning in report.warnings]
    lines += [f"  note      {note}" for note in report.notes]
    return "\n".join(map(escape_controls, lines))  # names come from files
