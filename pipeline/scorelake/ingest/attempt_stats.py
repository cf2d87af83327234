"""Aggregate staged attempts: rows, verdicts, repeats, contradictions, problems by number of attempts.

Staged files have 64-bit hashes of problem and attempt. The attempts are divided by their hash into passes of about
the same size, so memory does not grow with the number of attempts, but with that of distinct problems.
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

LIMIT = 1 << 18
"""Attempts that are aggregated at once: 262,144 take about 60 MB."""
MAX_CONFLICTS = 3
HASHES = ("problem_hash", "attempt_hash")
SCHEMA: dict[str, Any] = {"row": pl.UInt32, "problem_hash": pl.UInt64, "attempt_hash": pl.UInt64, "value": pl.Float64}
SCHEMA |= {"error": pl.Boolean, "content_hash": pl.UInt32, "benchmark": pl.String, "source": pl.Int64}
SUMS = ("rows", "attempts", "errors", "graded", "total", "verdicts", "verdict_total", "non_binary")
LOWS, HIGHS = ("minimum", "content_low"), ("maximum", "content_high")
RowId: TypeAlias = tuple[int, int]
"""Index of the source, and of the row within it."""
StagedFiles: TypeAlias = Sequence[tuple[Path, object]]
"""Staged files, each with a value that distinguishes its problems from those of other files."""


@dataclass
class AttemptStats:
    """Counts of attempts: rows = graded + ungraded + duplicate. Of an attempt that occurs twice, one row counts."""

    cells: pl.DataFrame
    """SUMS, minimum, maximum and `problems` by benchmark, number of graded attempts and passes (rounded down)."""
    mixed_problem: int | None = None
    """Hash of a problem whose rows have different contents."""
    conflicts: list[tuple[RowId, RowId]] = field(default_factory=list)
    """Pairs of rows with different values for one attempt; at most MAX_CONFLICTS."""
    conflicting_sources: set[int] = field(default_factory=set)
    first_repeat: RowId | None = None
    """The first row whose attempt occurred before."""

    def total(self, column: str) -> Any:
        """Add up a column of all cells."""
        return self.cells[column].sum()

    @property
    def extent(self) -> str:
        """Describe the smallest and the largest value."""
        ((minimum, maximum),) = self.cells.select(pl.col("minimum").min(), pl.col("maximum").max()).iter_rows()
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
        n_problems = sum(problems for _, _, problems, _ in rows)
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
    value, error, content, high = pl.col("value"), pl.col("error"), pl.col("content_hash"), pl.col("maximum")
    has_verdict = (value.is_not_null() & ~error).any()
    conflicts: list[tuple[RowId, RowId]] = []
    sources: set[int] = set()
    repeats: list[RowId] = []
    parts: list[pl.DataFrame] = []
    for i in range(n_passes):
        rows = _collect(files, pl.col("attempt_hash") % n_passes == i)
        attempts = rows.group_by(HASHES, maintain_order=True).agg(
            pl.col("benchmark").first(),
            rows=pl.len().cast(pl.Int64),
            errors=error.all().cast(pl.Int64),
            verdicts=has_verdict.cast(pl.Int64),
            minimum=value.min(),
            maximum=value.max(),
            content_low=content.min(),
            content_high=content.max(),
        )
        attempts = attempts.with_columns(
            attempts=pl.lit(1, pl.Int64),
            graded=high.is_not_null().cast(pl.Int64),
            total=high.fill_null(0.0),
            verdict_total=high.fill_null(0.0) * pl.col("verdicts"),
            non_binary=(high.is_not_null() & ~high.is_in([0.0, 1.0])).cast(pl.Int64),
        )
        if rows.height > attempts.height:
            repeats.append(rows.filter(~pl.struct(HASHES).is_first_distinct()).select("source", "row").row(0))
        if (attempts["minimum"] != attempts["maximum"]).any():
            differing = rows.filter(value.min().over(HASHES) != value.max().over(HASHES), value.is_not_null())
            sources |= {*differing["source"]}
            sides = (pl.col("source", "row").get(at) for at in (value.arg_min(), value.arg_max()))
            named = [side.name.suffix(f"_{j}") for j, side in enumerate(sides)]
            pairs = differing.group_by(HASHES, maintain_order=True).agg(*named).drop(HASHES)
            conflicts += [((a, b), (c, d)) for a, b, c, d in pairs.head(MAX_CONFLICTS - len(conflicts)).iter_rows()]
        parts = [_merge(pl.concat([*parts, attempts], how="diagonal"), "problem_hash")]
    problems = parts[0].with_columns(n=pl.col("graded"), c=pl.col("total").floor(), problems=pl.lit(1, pl.Int64))
    mixed = problems.filter(pl.col("content_low") != pl.col("content_high"))["problem_hash"]
    cells = _merge(problems, "benchmark", "n", "c", count="problems")
    return AttemptStats(cells, None if mixed.is_empty() else mixed[0], conflicts, sources, min(repeats, default=None))


def _merge(frame: pl.DataFrame, *keys: str, count: str | None = None) -> pl.DataFrame:
    sums = [*SUMS, *([count] if count else [])]
    first = [] if "benchmark" in keys else [pl.col("benchmark").first()]
    groups = frame.group_by(keys, maintain_order=True)
    return groups.agg(*first, pl.col(sums).sum(), pl.col(LOWS).min(), pl.col(HIGHS).max())


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


def find_mixed_rows(files: StagedFiles, problem_hash: int) -> tuple[RowId, RowId]:
    """Return two rows of a problem that have different contents."""
    rows = _collect(files, (pl.col("problem_hash") == problem_hash) & pl.col("content_hash").is_not_null())
    first = rows.row(0, named=True)
    other = rows.filter(pl.col("content_hash") != first["content_hash"]).row(0, named=True)
    return (first["source"], first["row"]), (other["source"], other["row"])
