"""What people are told of every source: where each row went, both denominators, the tool's own number beside ours."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from scorelake.ingest.ledger import Tally
from scorelake.ingest.reading import Reading


@dataclass
class Receipt:
    """One source. rows = graded + ungraded + duplicate + refused."""

    source: str
    format: str
    status: str
    """written, unchanged, empty (no attempts in it) or superseded (a newer log of the same task is there)."""
    run: str = ""
    model: str | None = None
    benchmarks: list[str] = field(default_factory=list)
    rows: int = 0
    graded: int = 0
    ungraded: int = 0
    duplicate: int = 0
    refused: int = 0
    """Rows that the format itself says do not count."""
    passed: float | None = None
    """The number of passes; null where the values are rewards."""
    mean: float | None = None
    errors: int = 0
    """Attempts without a verdict of their own."""
    errors_counted_as: str = ""
    """fail or ungraded: the tool's own rule, or that of --errors."""
    mean_errors_failed: float | None = None
    mean_errors_ungraded: float | None = None
    histogram: dict[str, int] = field(default_factory=dict)
    """Problems per n, the number of graded attempts."""
    claims: list[dict[str, Any]] = field(default_factory=list)
    """The tool's own numbers beside ours."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Where the attempts are in the lake."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def receipt(reading: Reading, kind: str, files: list[str], status: str = "written") -> Receipt:
    """What came of one source."""
    out = Receipt(str(reading.source.path), reading.format, status, reading.run, reading.model)
    fill(out, reading.tally, kind)
    out.rows += reading.left_out
    out.refused = reading.left_out
    out.benchmarks = sorted({name or reading.benchmark or "" for name in reading.benchmarks} - {""})
    out.errors_counted_as = reading.rule
    out.claims = list(_claims(reading))
    out.notes = list(reading.notes)
    out.warnings = [
        f"{claim['name']} is {_told(claim['theirs'])} in the file, and {_told(claim['ours'])} by its attempts"
        for claim in out.claims
        if claim["differ"]
    ]
    out.files = files
    return out


def fill(out: Receipt, told: Tally, kind: str) -> None:
    """Numbers of a tally."""
    out.rows, out.graded, out.ungraded, out.duplicate = told.rows, told.graded, told.ungraded, told.duplicate
    out.passed = told.total if kind == "passed" else None
    out.mean = told.total / told.graded if told.graded else None
    out.errors = told.errors
    out.mean_errors_failed = told.earned / (told.verdicts + told.errors) if told.verdicts + told.errors else None
    out.mean_errors_ungraded = told.earned / told.verdicts if told.verdicts else None
    out.histogram = {str(n): told.histogram[n] for n in sorted(told.histogram)}


def _claims(reading: Reading) -> list[dict[str, Any]]:
    out = []
    for claim in reading.claims:
        named = claim.benchmark is not None and claim.benchmark in reading.benchmarks
        code = reading.benchmarks.index(claim.benchmark or "") if named else 0
        board = reading.tally.boards.get(code)
        ours = board.value(claim.metric) if board else None
        if claim.metric.startswith("pass") and (ours is None or reading.tally.odd):
            continue  # k is larger than the smallest n, or nothing passes or fails here
        differ = ours is None or abs(ours - claim.value) > claim.within
        out.append({"name": claim.name, "theirs": claim.value, "ours": ours, "differ": differ})
    return out


def _told(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.6g}"


def words(told: Receipt) -> str:
    """A receipt in a few lines."""
    head = f"{told.source} ({told.format})" if told.source else "all together"
    lines = [f"{head}: {told.status}" if told.status in ("unchanged", "superseded", "empty") else head]
    parts = (f"{getattr(told, key):,} {key}" for key in ("graded", "ungraded", "duplicate", "refused"))
    lines.append(f"  rows      {told.rows:,} = {' + '.join(parts)}")
    if told.mean is not None and told.passed is not None:
        lines.append(f"  passed    {told.passed:,.0f} of {told.graded:,} = {told.mean:.6g}")
    elif told.mean is not None:
        lines.append(f"  reward    mean {told.mean:.6g}")
    if told.errors:
        counted = f", counted as {told.errors_counted_as}" if told.errors_counted_as else ""
        both = f"as failures {_told(told.mean_errors_failed)}, left out {_told(told.mean_errors_ungraded)}"
        lines.append(f"  errors    {told.errors:,} without a verdict{counted}: {both}")
    if told.histogram:
        shown = [f"{problems:,} with {n}" for n, problems in list(told.histogram.items())[:6]]
        lines.append(f"  n         problems by attempts: {', '.join(shown)}{', ...' * (len(told.histogram) > 6)}")
    lines += [f"  agrees    {claim['name']} {_told(claim['theirs'])}" for claim in told.claims if not claim["differ"]]
    lines += [f"  warning   {warning}" for warning in told.warnings]
    lines += [f"  note      {note}" for note in told.notes]
    return "\n".join(lines)
