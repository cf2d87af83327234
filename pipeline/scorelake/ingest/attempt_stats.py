"""Aggregate staged attempts: rows, verdicts, repeats, contradictions, problems by number of attempts.

Staged files have 64-bit hashes of problem and attempt. The problems are divided by their hash into passes of about
the same size, so memory does not grow with the number of attempts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pyarrow.parquet as pq

LIMIT = 1 << 17
"""Attempts that are aggregated at once: 131,072 take about 50 MB."""
MAX_CONFLICTS = 3
"""Conflicting attempts that are named per pass."""
HASHES = ("problem_hash", "attempt_hash")
SCHEMA: dict[str, Any] = {"row": pl.UInt32, "problem_hash": pl.UInt64, "attempt_hash": pl.UInt64, "value": pl.Float64}
SCHEMA |= {"error": pl.Boolean, "content_hash": pl.UInt32, "benchmark": pl.String, "source": pl.Int64}
SUMS = ("rows", "attempts", "errors", "graded", "total", "verdicts", "verdict_total", "non_binary", "problems")
RowId: TypeAlias = tuple[int, int]
"""Index of the source, and of the row within it."""
StagedFiles: TypeAlias = Sequence[tuple[Path, object]]
"""Staged files, each with a value that distinguishes its problems from those of other files."""


@dataclass
class AttemptStats:
    """Counts of attempts: rows = graded + ungraded + duplicate. Of an attempt that occurs twice, one row counts."""

    cells: pl.DataFrame
    """SUMS, minimum and maximum by benchmark, number of graded attempts (n) and of passes (c, rounded down)."""
    conflicts: list[tuple[RowId, RowId]] = field(default_factory=list)
    """Pairs of rows with different contents of one problem, or different values of one attempt; not all of them."""
    conflicting_sources: set[int] = field(default_factory=set)
    first_repeat: RowId | None = None
    """The first row whose attempt occurred before."""

    def total(self, column: str) -> Any:
        """Add up a column of all cells."""
        return self.cells[column].sum()

    @property
    def extent(self) -> str:
        """Describe the smallest and the largest value."""
        minimum, maximum = self.cells.select(pl.col("minimum").min(), pl.col("maximum").max()).row(0)
        return f"from {minimum:g} to {maximum:g}"

    @property
    def counts(self) -> dict[str, int]:
        """Return what became of the rows, and how many attempts have no verdict of their own."""
        rows, attempts, graded, errors = map(self.total, ("rows", "attempts", "graded", "errors"))
        counts = {"rows": rows, "graded": graded, "ungraded": attempts - graded, "duplicate": rows - attempts}
        return counts | {"errors": errors}

    @property
    def histogram(self) -> dict[int, int]:
        """Problems by number of graded attempts."""
        return dict(self.cells.group_by("n").agg(pl.col("problems").sum()).sort("n").iter_rows())

    def metric(self, name: str, benchmark: str) -> float | None:
        """Compute a metric of a Claim; None where it is undefined."""
        cells = self.cells.filter(pl.col("benchmark") == benchmark, pl.col("n") > 0)
        rows = cells.select("n", "c", "problems", "total").rows()
        if not rows:
            return None
        if name == "mean":
            return float(sum(total for *_, total in rows) / sum(n * problems for n, _, problems, _ in rows))
        n_problems = cells["problems"].sum()
        if name == "problems":
            return float(sum(total / n for n, _, _, total in rows) / n_problems)
        k, is_any = int(name[5:]), name[4] == "@"
        if cells["non_binary"].sum() or min(n for n, *_ in rows) < k:
            return None
        ways = ((n, int(n - c if is_any else c), problems) for n, c, problems, _ in rows)
        share = sum(problems * math.comb(drawn, k) / math.comb(n, k) for n, drawn, problems in ways) / n_problems
        return float(1 - share if is_any else share)


def compute_stats(files: StagedFiles, limit: int = LIMIT) -> AttemptStats:
    """Aggregate the attempts of all files together, at most about `limit` at a time."""
    n_passes = max(1, -(-sum(pq.read_metadata(path).num_rows for path, _ in files) // limit))
    stats = AttemptStats(pl.DataFrame())
    repeats: list[RowId] = []
    cells = []
    for i in range(n_passes):
        rows = _collect(files, pl.col("problem_hash") % n_passes == i)
        problems = _group_problems(rows)
        groups = problems.group_by("benchmark", n="graded", c=pl.col("total").floor(), maintain_order=True)
        cells.append(groups.agg(pl.col(SUMS).sum(), pl.col("minimum").min(), pl.col("maximum").max()))
        if problems["is_mixed"].any() and not stats.conflicts:
            _add_mixed(rows, problems, stats)
        if problems["rows"].sum() > problems["attempts"].sum():
            repeats.append(rows.filter(~pl.struct(HASHES).is_first_distinct()).select("source", "row").row(0))
            _add_conflicts(rows, stats)
    by_cell = pl.concat(cells).group_by("benchmark", "n", "c", maintain_order=True)
    stats.cells = by_cell.agg(pl.col(SUMS).sum(), pl.col("minimum").min(), pl.col("maximum").max())
    stats.first_repeat = min(repeats, default=None)
    return stats


def _group_problems(rows: pl.DataFrame) -> pl.DataFrame:
    """Count the attempts of every problem. An attempt that occurs twice has the verdict of its graded row."""
    value, error, content = pl.col("value"), pl.col("error"), pl.col("content_hash")
    attempts = rows.group_by(HASHES, maintain_order=True).agg(
        pl.col("benchmark").first(),
        rows=pl.len(),
        is_error=error.all(),
        has_verdict=(value.is_not_null() & ~error).any(),
        minimum=value.min(),
        maximum=value.max(),
        lowest_content=content.min(),
        highest_content=content.max(),
    )
    value, has_verdict = pl.col("maximum"), pl.col("has_verdict")
    return attempts.group_by("problem_hash", maintain_order=True).agg(
        pl.col("benchmark").first(),
        rows=pl.col("rows").sum().cast(pl.Int64),
        attempts=pl.len().cast(pl.Int64),
        errors=pl.col("is_error").sum().cast(pl.Int64),
        graded=value.count().cast(pl.Int64),
        total=value.sum(),
        verdicts=has_verdict.sum().cast(pl.Int64),
        verdict_total=value.filter(has_verdict).sum(),
        non_binary=(~value.is_in([0.0, 1.0])).sum().cast(pl.Int64),
        problems=pl.lit(1, pl.Int64),
        minimum=pl.col("minimum").min(),
        maximum=value.max(),
        is_mixed=pl.col("lowest_content").min() != pl.col("highest_content").max(),
    )


def _add_mixed(rows: pl.DataFrame, problems: pl.DataFrame, stats: AttemptStats) -> None:
    """Add two rows of a problem that have different contents."""
    mixed = problems.filter("is_mixed")["problem_hash"][0]
    contents = rows.filter(pl.col("problem_hash") == mixed, pl.col("content_hash").is_not_null())
    one, other, *_ = contents.filter(pl.col("content_hash").is_first_distinct()).select("source", "row").rows()
    stats.conflicts.append((one, other))
    stats.conflicting_sources |= {one[0], other[0]}


def _add_conflicts(rows: pl.DataFrame, stats: AttemptStats) -> None:
    """Add pairs of rows with different values for one attempt."""
    value = pl.col("value")
    differing = rows.filter(value.min().over(HASHES) != value.max().over(HASHES), value.is_not_null())
    stats.conflicting_sources |= {*differing["source"]}
    sides = (pl.col("source", "row").get(at) for at in (value.arg_min(), value.arg_max()))
    named = [side.name.suffix(f"_{j}") for j, side in enumerate(sides)]
    pairs = differing.group_by(HASHES, maintain_order=True).agg(*named).drop(HASHES)
    stats.conflicts += [((a, b), (c, d)) for a, b, c, d in pairs.head(MAX_CONFLICTS).rows()]


def _collect(files: StagedFiles, condition: pl.Expr) -> pl.DataFrame:
    """Return the matching rows of all files in order, with source and row number.

    XOR with a digest makes equal hashes of different runs different.
    """
    frames = [pl.DataFrame(schema=SCHEMA)]
    for i, (path, key) in enumerate(files):
        digest = hashlib.sha256(repr(key).encode("utf-8", "backslashreplace")).digest()
        salt = pl.lit(int.from_bytes(digest[:8], "little"), pl.UInt64)
        scan = pl.scan_parquet(path, row_index_name="row", glob=False).with_columns(source=pl.lit(i, pl.Int64))
        salted = scan.with_columns(pl.col("benchmark").fill_null(""), *(pl.col(name) ^ salt for name in HASHES))
        frames.append(salted.select(list(SCHEMA)).filter(condition).collect(engine="streaming"))
    return pl.concat(frames).sort("source", "row")
